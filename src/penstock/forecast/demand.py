"""GPUs wanted in each of the next hours, with P10, P50 and P90, from the demand of the hours before.

Two things carry most of what can be known: what is usual at this hour of the day, and how far the last hour was from
its own usual; that distance is taken to halve every day. The spread is how wrong this was lately, at the same distance
ahead. docs/forecast.md compares it with others; a report calls `forecast` with what `history.demand_by_hour` made.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.core.errors import BadInput
from penstock.core.values import value

DAY_H: Final = 24
SPREAD_H: Final = 14 * DAY_H  #: so many of the latest errors make the spread
#: How much one more day changes what is usual at its hours. The first day counts whole.
NEW_DAY: Final = 0.1
#: What an hour leaves of the distance from the usual: half after a day.
KEPT_PER_HOUR: Final = 0.5 ** (1 / DAY_H)
MOST_HOURS: Final = 14 * DAY_H

#: (known, ahead): what is expected `ahead` hours after the first `known` hours of a history, by those alone.
Expect: TypeAlias = Callable[[int, int], float]


@value
class HourAhead:
    """Demand `ahead` hours after the history's end, in GPUs; 1 is the hour that follows it."""

    ahead: int
    p10: float
    p50: float
    p90: float


def forecast(history: Sequence[float], hours: int) -> list[HourAhead]:
    """The next `hours` hours. `history` is GPUs wanted by hour, oldest first, and two days longer than that or more."""
    _check(history, hours)
    expect = usual_hours(history)
    return [with_spread(history, ahead, expect, first=DAY_H + 1) for ahead in range(1, hours + 1)]


def _check(history: Sequence[float], hours: int) -> None:
    if not 1 <= hours <= MOST_HOURS:
        raise BadInput(f"A forecast looks 1 to {MOST_HOURS} hours ahead, not {hours}.")
    least = hours + 2 * DAY_H
    if len(history) < least:
        raise BadInput(f"A forecast of {hours} hours needs {least} hours of history, and there are {len(history)}.")
    if not all(0 <= gpus < float("inf") for gpus in history):
        raise BadInput("A demand is zero or more GPUs in each hour.")


def usual_hours(history: Sequence[float]) -> Expect:
    """What is usual at the hour, and what is left of the last hour's distance from its own usual."""
    usual: list[float] = []  #: at each hour's time of day, that hour included
    for hour, gpus in enumerate(history):
        before = usual[hour - DAY_H] if hour >= DAY_H else gpus
        usual.append(before + NEW_DAY * (gpus - before))

    def expect(known: int, ahead: int) -> float:
        last = known - 1
        distance = history[last] - usual[last - DAY_H]
        # The same time of day, on the last day that is known.
        same_hour = last + ahead - -(-ahead // DAY_H) * DAY_H
        return usual[same_hour] + distance * KEPT_PER_HOUR**ahead

    return expect


def with_spread(history: Sequence[float], ahead: int, expect: Expect, first: int) -> HourAhead:
    """What is expected, moved by the errors made so far at this distance. `first`: the least `known` to ask for."""
    known = len(history)
    origins = range(max(first, known - ahead - SPREAD_H + 1), known - ahead + 1)
    errors = sorted(history[origin + ahead - 1] - expect(origin, ahead) for origin in origins)
    middle = expect(known, ahead)
    p10, p50, p90 = (max(0.0, middle + quantile(errors, share)) for share in (0.1, 0.5, 0.9))
    return HourAhead(ahead, p10, p50, p90)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours; 0 of nothing."""
    if not ordered:
        return 0.0
    low = int((len(ordered) - 1) * share)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * ((len(ordered) - 1) * share - low)
