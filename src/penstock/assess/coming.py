"""What is coming: GPUs wanted by hour for the days after the month, with their spread. `report` calls it.

Demand counts a job from its submission, queued or not, for as long as it runs; what goes on or is still queued is taken
to run as long as such jobs do (`replay`). The same forecast is made at earlier moments of this month, and the report
says how often its P90 held.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from penstock.assess.history import MonthHistory
from penstock.assess.owned import OwnedSteps, most_at_once
from penstock.assess.replay import Replayable, replayable
from penstock.core.errors import BadInput
from penstock.core.units import HOUR, Instant
from penstock.core.values import value
from penstock.forecast.demand import DAY_H, forecast, usual_hours, with_spread
from penstock.forecast.history import demand_by_hour

MOST_H: Final = 3 * DAY_H  #: as far ahead as docs/forecast.md measures
LEAST_H: Final = DAY_H
KNOWN_FIRST_H: Final = 2 * DAY_H  #: of history beyond the hours that are forecast
SHOWN_BEFORE_H: Final = 7 * DAY_H
#: How this forecast is checked on the month itself: from so many hours on, so often, so far ahead.
CHECK_FROM_H: Final = 7 * DAY_H
CHECK_EVERY_H: Final = 6
CHECK_AHEAD_H: Final = (1, 6, 12, 24, 48, 72)
#: Sources that tell of jobs and nothing else: where their last job ends, nobody knows who would have submitted more.
OF_JOBS_ALONE: Final = ("csv", "sacct", "generated")


@value
class ComingHour:
    """GPUs wanted in one hour."""

    at: Instant
    p10: float
    p50: float
    p90: float


@value
class ComingDay:
    label: str
    mean: float  # at P50
    busiest: float  # hour, at P50
    busiest_p90: float
    hours_above: int  # of what is owned, at P50
    hours_above_p90: int


@value
class ComingDemand:
    """Made by `coming_of`. Without a forecast, `hours` is empty and `why_none` says why."""

    hours: tuple[ComingHour, ...]
    by_day: tuple[ComingDay, ...]
    before: tuple[tuple[Instant, float], ...]  # the last hours as they were
    known_hours: int
    owned_gpus: int
    checked: int  # forecasts of an hour that were made at earlier moments of the month
    held: int  # of them, those whose P90 was not exceeded
    why_none: str = ""


def coming_of(history: MonthHistory, day: Callable[[Instant], str], month: Replayable | None = None) -> ComingDemand:
    """`day`: an instant's day, as people name it. `month`: the same history ready to replay, if it is at hand."""
    owned = OwnedSteps(history.owned).at(history.to_at) if history.owned else most_at_once(history.jobs)
    try:
        first_at, wanted = _wanted(history, month or replayable(history))
    except BadInput:
        return _none("no job's start and end were seen", 0, owned)
    ahead = min(MOST_H, (len(wanted) - KNOWN_FIRST_H) // DAY_H * DAY_H)
    if ahead < LEAST_H:
        least = KNOWN_FIRST_H + LEAST_H
        return _none(f"it needs {least} whole hours of history, and {len(wanted):,} were seen", len(wanted), owned)
    ends_at = first_at + len(wanted) * HOUR
    hours = tuple(
        ComingHour(ends_at + (hour.ahead - 1) * HOUR, hour.p10, hour.p50, hour.p90) for hour in forecast(wanted, ahead)
    )
    checked, held = _checked(wanted)
    shown = wanted[-SHOWN_BEFORE_H:]
    return ComingDemand(
        hours=hours,
        by_day=tuple(_by_day(hours, owned, day)),
        before=tuple((ends_at - (len(shown) - k) * HOUR, gpus) for k, gpus in enumerate(shown)),
        known_hours=len(wanted),
        owned_gpus=owned,
        checked=checked,
        held=held,
    )


def _none(why: str, known_hours: int, owned_gpus: int) -> ComingDemand:
    return ComingDemand(
        hours=(), by_day=(), before=(), known_hours=known_hours, owned_gpus=owned_gpus, checked=0, held=0, why_none=why
    )


def _wanted(history: MonthHistory, month: Replayable) -> tuple[Instant, list[float]]:
    """From which hour on, and GPUs wanted in each whole hour that was seen."""
    first_at = -(-history.from_at // HOUR) * HOUR
    spans = [
        (history.from_at + job.submit_at, history.from_at + job.submit_at + job.run_ms, job.spec.gpus)
        for job in month.jobs
    ]
    return first_at, demand_by_hour(spans, first_at, _seen_until(history))


def _seen_until(history: MonthHistory) -> Instant:
    """Until when a submission would have been seen."""
    submitted = max((job.submitted_at for job in history.jobs if job.submitted_at is not None), default=history.from_at)
    watched = [
        cover.to_at
        for cover in history.coverage
        if cover.to_at is not None and cover.source.partition(" ")[0] not in OF_JOBS_ALONE
    ]
    return min(history.to_at, max([submitted, *watched]))


def _by_day(hours: Sequence[ComingHour], owned: int, day: Callable[[Instant], str]) -> list[ComingDay]:
    days: dict[str, list[ComingHour]] = defaultdict(list)
    for hour in hours:
        days[day(hour.at)].append(hour)
    return [
        ComingDay(
            label=label,
            mean=sum(hour.p50 for hour in of_day) / len(of_day),
            busiest=max(hour.p50 for hour in of_day),
            busiest_p90=max(hour.p90 for hour in of_day),
            hours_above=sum(hour.p50 > owned for hour in of_day),
            hours_above_p90=sum(hour.p90 > owned for hour in of_day),
        )
        for label, of_day in days.items()
    ]


def _checked(wanted: Sequence[float]) -> tuple[int, int]:
    """How many hours of this month were forecast from earlier ones, and in how many P90 was not exceeded."""
    expect = usual_hours(wanted)
    held = [
        wanted[known + ahead - 1] <= with_spread(wanted[:known], ahead, expect, first=DAY_H + 1).p90
        for known in range(CHECK_FROM_H, len(wanted), CHECK_EVERY_H)
        for ahead in CHECK_AHEAD_H
        if known + ahead <= len(wanted)
    ]
    return len(held), sum(held)
