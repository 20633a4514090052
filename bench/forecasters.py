"""Forecasters that `bench.forecast` compares, simplest first. Each expects demand by what was known.

All get their spread in the same way (`penstock.forecast.demand.with_spread`), so only what they expect differs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.forecast.demand import DAY_H, Expect, usual_hours

WEEK_H: Final = 7 * DAY_H
FIT_FROM_H: Final = 2 * WEEK_H  #: a regression is fitted from here on, once a day


class Forecaster(NamedTuple):
    name: str
    what: str
    expects: Callable[[Sequence[float]], Expect]


def last_hour(history: Sequence[float]) -> Expect:
    return lambda known, _: history[known - 1]


def same_hour_before(history: Sequence[float], season: int) -> Expect:
    def expect(known: int, ahead: int) -> float:
        return history[known - 1 + ahead - -(-ahead // season) * season]

    return expect


def smoothing(history: Sequence[float], season: int, level_weight: float, season_weight: float) -> Expect:
    """Exponential smoothing of a level and of one number for each hour of the season, added (Holt and Winters)."""
    levels: list[float] = []
    seasonal: list[float] = []  #: at each hour's place in the season, that hour included
    for hour, gpus in enumerate(history):
        if hour < season:
            levels.append(sum(history[: hour + 1]) / (hour + 1))
            seasonal.append(gpus - sum(history[:season]) / season if len(history) >= season else 0.0)
            continue
        before = seasonal[hour - season]
        levels.append(levels[-1] + level_weight * (gpus - before - levels[-1]))
        seasonal.append(before + season_weight * (gpus - levels[-1] - before))

    def expect(known: int, ahead: int) -> float:
        return levels[known - 1] + seasonal[known - 1 + ahead - -(-ahead // season) * season]

    return expect


class Regression:
    """Least squares on the last hour, the last day, the same hour a week ago, the queue, time of day and weekend.

    One fit for each distance ahead, every day anew, of all hours so far. Queue: what was wanted beyond the mean of the
    first two weeks, as if that were owned.
    """

    def __init__(self, history: Sequence[float]) -> None:
        self.history = history
        self.owned = sum(history[:FIT_FROM_H]) / max(1, len(history[:FIT_FROM_H])) or 1.0
        self.fits: dict[tuple[int, int], list[float]] = {}  #: by distance ahead and day
        self.sums: dict[
            int, tuple[int, list[list[float]], list[float]]
        ] = {}  #: by distance: up to which hour, and sums

    def __call__(self, known: int, ahead: int) -> float:
        if known < FIT_FROM_H:
            return self.history[known - 1]
        weights = self.fit(ahead, known // DAY_H)
        return self.owned * sum(w * x for w, x in zip(weights, self.features(known, ahead), strict=True))

    def features(self, known: int, ahead: int) -> list[float]:
        history, owned = self.history, self.owned
        hour = known - 1 + ahead
        turn = 2 * math.pi * (hour % DAY_H) / DAY_H
        return [
            1.0,
            history[known - 1] / owned,
            sum(history[known - DAY_H : known]) / DAY_H / owned,
            history[hour - -(-ahead // WEEK_H) * WEEK_H] / owned,
            max(0.0, history[known - 1] - owned) / owned,
            math.sin(turn),
            math.cos(turn),
            float(hour // DAY_H % 7 >= 5),
        ]

    def fit(self, ahead: int, day: int) -> list[float]:
        if (ahead, day) not in self.fits:
            for each in range(FIT_FROM_H // DAY_H, day + 1):
                if (ahead, each) not in self.fits:
                    self.fits[ahead, each] = self._fitted(ahead, each * DAY_H)
        return self.fits[ahead, day]

    def _fitted(self, ahead: int, known: int) -> list[float]:
        """By the hours before `known` alone."""
        size = len(self.features(WEEK_H, ahead))
        start = (WEEK_H + ahead, [[float(i == j) for j in range(size)] for i in range(size)], [0.0] * size)
        done, squares, products = self.sums.get(ahead, start)
        for hour in range(done, known):
            x = self.features(hour + 1 - ahead, ahead)
            y = self.history[hour] / self.owned
            for i in range(size):
                products[i] += x[i] * y
                for j in range(size):
                    squares[i][j] += x[i] * x[j]
        self.sums[ahead] = (max(done, known), squares, products)
        return solved(squares, products)


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination; the matrix is positive definite, so no pivot is zero."""
    size = len(right)
    rows = [[*row, number] for row, number in zip(matrix, right, strict=True)]
    for i in range(size):
        for below in rows[i + 1 :]:
            share = below[i] / rows[i][i]
            for j in range(i, size + 1):
                below[j] -= share * rows[i][j]
    solution = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - rest) / rows[i][i]
    return solution


#: By how much there is to understand; `usual` is the one in `penstock.forecast`.
FORECASTERS: Final = (
    Forecaster("last", "the last hour", last_hour),
    Forecaster("day", "the same hour a day ago", lambda history: same_hour_before(history, DAY_H)),
    Forecaster("week", "the same hour of the week, a week ago", lambda history: same_hour_before(history, WEEK_H)),
    Forecaster("usual", "the usual of the hour of the day, and half of the distance from it a day", usual_hours),
    Forecaster("smooth-day", "exponential smoothing by hour of the day", lambda y: smoothing(y, DAY_H, 0.1, 0.05)),
    Forecaster("smooth-week", "the same by hour of the week", lambda y: smoothing(y, WEEK_H, 0.3, 0.1)),
    Forecaster("regression", "least squares on hour, weekend, queue, last hour, day and week", Regression),
)
