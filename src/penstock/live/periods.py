"""Budget periods: months of the organisation's calendar, opened ahead so that leases can reach into them. The sequencer
calls it.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.errors import BadInput
from penstock.core.model.events import PeriodOpened
from penstock.core.units import Instant


class Calendar(Protocol):
    def month(self, at: Instant) -> tuple[str, Instant, Instant]:
        """The month that contains `at`: its name, its first instant, and the next month's."""


class Periods:
    """Calendar months of a time zone, named like `2026-11`."""

    def __init__(self, zone: str = "UTC") -> None:
        try:
            self.zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise BadInput(f"There is no time zone '{zone}'; write it like Europe/Berlin, or UTC.") from None

    def month(self, at: Instant) -> tuple[str, Instant, Instant]:
        day = datetime.fromtimestamp(at / 1000, self.zone)
        year, month = (day.year + 1, 1) if day.month == 12 else (day.year, day.month + 1)
        return f"{day.year}-{day.month:02}", self._first(day.year, day.month), self._first(year, month)

    def _first(self, year: int, month: int) -> Instant:
        return int(datetime(year, month, 1, tzinfo=self.zone).timestamp() * 1000)


def due(calendar: Calendar, known: Sequence[tuple[Instant, Instant, str]], now: Instant) -> Iterator[PeriodOpened]:
    """Periods to open: the next month opens when the last known one begins, so one whole month is always ahead.

    Each begins where the one before ends, also if the calendar has changed since: the months that are open end as they
    were planned, and the next one ends by the new calendar.
    """
    names = {name for _, _, name in known}
    if known:
        starts_at, ends_at, _ = max(known, key=itemgetter(1))
    else:
        name, starts_at, ends_at = calendar.month(now)
        yield PeriodOpened(now, name, starts_at, ends_at)
    while starts_at <= now:
        starts_at = ends_at
        name, _, ends_at = calendar.month(starts_at)
        if name in names:  # by the new calendar its last hours are still to come: they are the next month's
            name, _, ends_at = calendar.month(ends_at)
        names.add(name)
        yield PeriodOpened(now, name, starts_at, ends_at)
