"""Formats instants and counts for the pages. `formatting` does money and durations."""

import re
from datetime import UTC, datetime
from typing import Final

from penstock.core.units import SECOND, Instant

NBSP: Final = "\u00a0"  #: between a number and its unit, which must not wrap
INSTANT: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC")  #: the form that `formatting.instant` writes
UNIT: Final = re.compile(r"(?<=\d) (?=(?:h|min|s|GPUs?)\b|%)")
#: The API's terms, as classes of the style sheet.
TERMS: Final = {"owned": "owned", "reserved": "reserved", "spot": "spot", "on_demand": "demand"}


def clock(at: Instant, now: Instant) -> str:
    """`13:52` today, `18 Nov, 13:52` on another day. The page's head names the time zone."""
    then, today = _calendar(at), _calendar(now)
    return f"{then:%H:%M}" if then.date() == today.date() else f"{then.day} {then:%b}, {then:%H:%M}"


def day(at: Instant) -> str:
    """`Mon 16 Nov`, for the page's head."""
    then = _calendar(at)
    return f"{then:%a} {then.day} {then:%b}"


def plain(text: str, now: Instant) -> str:
    """A recorded sentence with instants in the page's form and non-breaking units."""
    return UNIT.sub(NBSP, INSTANT.sub(lambda match: clock(_instant(match[0]), now), text))


def month(period: str) -> str:
    """`2026-11` as `November`; other text is unchanged."""
    try:
        return f"{datetime.strptime(period, '%Y-%m').replace(tzinfo=UTC):%B}"
    except ValueError:
        return period


def many(count: int, noun: str) -> str:
    return f"{count:,}{NBSP}{noun}{'' if count == 1 else 's'}"


def listed(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


def _instant(text: str) -> Instant:
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC).timestamp()) * SECOND


def _calendar(at: Instant) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)
