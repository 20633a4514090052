"""Instants and counts as the page writes them. Money and durations are `formatting`'s, as everywhere."""

import re
from datetime import UTC, datetime
from typing import Final

from penstock.core.units import SECOND, Instant

NBSP: Final = "\u00a0"  #: between a number and its unit, "about" and its time: they never part
INSTANT: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC")  #: as `formatting.instant` writes one
UNIT: Final = re.compile(r"(?<=\d) (?=(?:h|min|s|GPUs?)\b|%)")
#: The API's terms, as classes of the style sheet.
TERMS: Final = {"owned": "owned", "reserved": "reserved", "spot": "spot", "on_demand": "demand"}


def clock(at: Instant, now: Instant) -> str:
    """`13:52` today, `18 Nov, 13:52` on another day. The zone stands once, in the page's head."""
    then, today = _calendar(at), _calendar(now)
    return f"{then:%H:%M}" if then.date() == today.date() else f"{then.day} {then:%b}, {then:%H:%M}"


def day(at: Instant) -> str:
    """`Mon 16 Nov`, for the page's head."""
    then = _calendar(at)
    return f"{then:%a} {then.day} {then:%b}"


def plain(text: str, now: Instant) -> str:
    """A sentence of the journal, with its instants as the page writes them, and no number parted from its unit."""
    return UNIT.sub(NBSP, INSTANT.sub(lambda found: clock(_instant(found[0]), now), text))


def month(period: str) -> str:
    """`2026-11` as `November`; what is no month stays as it is."""
    try:
        return f"{datetime.strptime(period, '%Y-%m').replace(tzinfo=UTC):%B}"
    except ValueError:
        return period


def many(count: int, thing: str) -> str:
    return f"{count:,}{NBSP}{thing}{'' if count == 1 else 's'}"


def listed(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


def _instant(text: str) -> Instant:
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC).timestamp()) * SECOND


def _calendar(at: Instant) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)
