"""Builds an offer's pool of warm nodes from its row, or reports why it makes no sense. `offers` calls it."""

import re
from typing import Final, get_args

from penstock.config.document import Document, shown
from penstock.config.sections import OfferSection, Weekday
from penstock.core.model.governance import Window
from penstock.core.model.types import STANDING, Offer, WarmPool

MOST_NODES: Final = 1_000  #: of one pool: each has a hold of its own
DAY_MINUTES: Final = 24 * 60
HOURS: Final = re.compile("([0-9]{1,2})(?::([0-5][0-9]))?-([0-9]{1,2})(?::([0-5][0-9]))?")


def pool_of(row: OfferSection, offer: Offer, page: Document, place: str, zone: str) -> WarmPool | None:
    warm, place = row.warm, f"{place}.warm"
    if warm is None or offer.term in STANDING:  # said already, with the other keys of rented offers
        return None
    if offer.sold_by == "attempt":
        page.refuse(
            place, "warm nodes are rented one by one, and here attempts are sold; write 'rent', or leave it out"
        )
    gpus = offer.shapes[-1].gpus if warm.gpus is None else int(warm.gpus)
    sizes = [shape.gpus for shape in offer.shapes]
    if gpus not in sizes:
        page.report(f"{place}.gpus", f"no node here has {gpus} GPUs, only {', '.join(map(str, sizes))}")
    if warm.nodes > MOST_NODES:
        page.report(f"{place}.nodes", f"a pool has at most {MOST_NODES:,} nodes")
    budget = str(warm.budget)
    return WarmPool(
        nodes=int(warm.nodes),
        gpus=gpus,
        scopes=("org",) if budget == "org" else ("org", budget),
        hours=_window(None if warm.hours is None else str(warm.hours), warm.days, zone, page, place),
        forecast=bool(warm.forecast),
        source=page.source(place),
    )


def _window(text: str | None, days: tuple[Weekday, ...], zone: str, page: Document, place: str) -> Window | None:
    """Like `8-18` or `22:30-06:00`, in the organisation's time zone; None: at all times."""
    if text is None and not days:
        return None
    begins, ends = _minutes(text or "0-24", page, f"{place}.hours")
    numbers = tuple(sorted({get_args(Weekday).index(day) for day in days}))
    named = f" {','.join(get_args(Weekday)[day] for day in numbers)}" if numbers else ""
    return Window(f"{_clock(begins)}-{_clock(ends)} {zone}{named}", begins, ends, zone, numbers)


def _minutes(text: str, page: Document, place: str) -> tuple[int, int]:
    match = HOURS.fullmatch(text)
    hour, minute, to_hour, to_minute = (int(part or 0) for part in match.groups()) if match else (99, 0, 99, 0)
    begins, ends = 60 * hour + minute, 60 * to_hour + to_minute
    if begins >= DAY_MINUTES or ends > DAY_MINUTES or begins == ends:
        page.refuse(place, f"{shown(text)} are no hours of a day; write them like 8-18, or 22:30-06:00")
    return begins, ends


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
