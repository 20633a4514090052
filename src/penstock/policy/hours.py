"""The hours of a policy: when its windows are open, in their own time zones. Sequencer and simulator tell the engine,
which knows no time zones, with `HoursOpened`, ahead of time.

A window is open while a clock on the wall there shows a time from `from_minute` until `to_minute`. Where clocks change:
a time that the clock skips is the instant at which it does so, so a window that lies within the skipped hour does not
occur on that day; of a time that occurs twice, a window begins with the first and ends with the second. A window that
ends not later than it begins ends on the next day; it belongs to the day on which it begins.

Instants are milliseconds since 1970; in a simulation, since the trace's own zero, which stands for the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.model.events import Fact, HoursOpened, PolicySet, SiteJoined
from penstock.core.model.governance import Window
from penstock.core.units import MINUTE, Instant

DAY_MINUTES: Final = 24 * 60
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

__all__ = ["Window", "due", "window", "windows_due"]


def due(state: State, facts: Iterable[Fact], now: Instant) -> list[HoursOpened]:
    """Hours to tell, of the policy that is in force once these facts are told, and of warm pools."""
    policy, offers = state.policy, list(state.warm.offers.values())
    for fact in facts:
        if isinstance(fact, PolicySet):
            policy = fact.policy
        elif isinstance(fact, SiteJoined):
            offers += fact.site.offers
    pools = [offer.warm.hours for offer in offers if offer.warm is not None and offer.warm.hours is not None]
    windows = list({one.id: one for one in (*policy.governance.windows, *pools)}.values())
    return list(windows_due(windows, state.hours, now)) if windows else []


def windows_due(
    windows: Iterable[Window], known: Mapping[str, Sequence[tuple[Instant, Instant]]], now: Instant
) -> Iterator[HoursOpened]:
    """For each window: when it is open now, and when it opens next. Nothing while the next time is known."""
    for window in windows:
        opened = known.get(window.id, ())
        if any(starts > now for starts, _ in opened):
            continue
        for starts, ends in occurrences(window, now):
            if (starts, ends) not in opened:
                yield HoursOpened(now, window.id, starts, ends)
            if starts > now:
                break


def occurrences(window: Window, now: Instant) -> Iterator[tuple[Instant, Instant]]:
    """When it is open, from the first time that is not over by now on. It ends when the calendar does."""
    zone = zone_of(window.zone)
    day = datetime.fromtimestamp(now / 1000, zone).date() - timedelta(days=2)
    while day < date.max - timedelta(days=2):
        if not window.days or day.weekday() in window.days:
            last = day + timedelta(days=1) if window.to_minute <= window.from_minute else day
            starts = _instant(zone, day, window.from_minute, later=False)
            ends = _instant(zone, last, window.to_minute, later=True)
            if starts < ends and now < ends:
                yield starts, ends
        day += timedelta(days=1)


def window(from_minute: int, to_minute: int, zone: str = "UTC", days: tuple[int, ...] = ()) -> Window:
    """A window whose id names its hours. Raises `BadInput`."""
    zone_of(zone)
    if not 0 <= from_minute < DAY_MINUTES or not 0 <= to_minute <= DAY_MINUTES:
        raise BadInput("Hours are from 00:00 to 24:00.")
    if any(not 0 <= day < len(DAYS) for day in days):
        raise BadInput(f"A day is one of {', '.join(DAYS)}.")
    days = tuple(sorted(dict.fromkeys(days)))
    names = f" {','.join(DAYS[day] for day in days)}" if days else ""
    return Window(f"{_clock(from_minute)}-{_clock(to_minute)} {zone}{names}", from_minute, to_minute, zone, days)


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInput(f"There is no time zone '{name}'; write it like Europe/Berlin, or UTC.") from None


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _instant(zone: ZoneInfo, day: date, minute: int, later: bool) -> Instant:
    """When the clock shows this; if it does so twice, the first time or the later one."""
    shown = datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(minutes=minute)
    first, second = (int(shown.replace(fold=fold).timestamp() * 1000) for fold in (0, 1))
    if first > second:  # skipped: by the offset before the change it comes after it, and the other way round
        return _change(zone, second, first)
    return second if later else first


def _change(zone: ZoneInfo, before: Instant, after: Instant) -> Instant:
    """The instant between these at which the zone's offset changes; it does so at a whole minute."""
    offset = datetime.fromtimestamp(before / 1000, zone).utcoffset()
    low, high = before // MINUTE, after // MINUTE
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle * MINUTE / 1000, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high * MINUTE
