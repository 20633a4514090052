"""Lower bound: the least cloud GPU-hours that any schedule of a trace must buy, with and without waiting.

`compare` draws it under the measured policies, so that a reader sees how much could still be saved. It needs numpy,
which the extra `compare` brings: import this module where it is used, not at the top.

Both bounds pool the owned GPUs (a gang fits wherever enough are free), make moves between owned and cloud free and
instant, and know every run time in advance. They cover every schedule of jobs with fixed width: with and without moves,
with and without pauses, in any order. Real starts, restarts, instance shapes and fragmentation only add cost.

Cost is counted as in the benchmark: cloud GPU-hours, plus owned GPU-hours that waiting pushed past the last submission.
Where a cloud GPU-hour has several prices, multiply by the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

HOUR_MS = 3_600_000

#: Costs of delay per job-hour, in GPU-hours, that trace the useful part of the frontier.
VALUES = (100.0, 25.0, 8.0, 3.0, 1.5, 0.7, 0.25, 0.1)

#: Marginal prices tried for a job that may pause. 1 comes first: without delay it is exact, and it wins ties.
LEVELS = (1.0, 0.95, 0.85, 0.7, 0.5, 0.3, 0.1)

#: Below this cost of delay jobs wait long: longer slots then lose little precision and save much time.
PATIENT, PATIENT_SLOT_H = 0.5, 4

#: Owned time is priced this long after the last job would have ended without waiting; beyond it a job is free.
TAIL_H = 168

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A corner of the frontier: at this mean delay no schedule buys fewer cloud GPU-hours."""

    mean_delay_h: float
    cloud_gpu_hours: float


@dataclass(frozen=True, slots=True)
class LowerLine:
    """For every schedule: cost + value x (sum of all delays) >= least."""

    value: float
    least: float


def frontier(
    arrive: Sequence[int],
    run: Sequence[int],
    gpus: Sequence[int],
    total: int,
    values: Iterable[float] = VALUES,
    rounds: int = 32,
) -> list[FrontierPoint]:
    """The least cost as a function of mean delay: corners, by rising delay, of a falling convex line.

    Between two corners the bound is the straight line (in hours, not on a log axis); right of the last one it is
    level. More values give more corners and more rounds raise them; any choice is valid.
    """
    if not arrive:
        return [FrontierPoint(0.0, 0.0)]
    return corners(lines(arrive, run, gpus, total, values, rounds), len(arrive))


def at(points: Sequence[FrontierPoint], mean_delay_h: float) -> float:
    """The least cost at one mean delay."""
    return float(np.interp(mean_delay_h, [p.mean_delay_h for p in points], [p.cloud_gpu_hours for p in points]))


def lines(
    arrive: Sequence[int],
    run: Sequence[int],
    gpus: Sequence[int],
    total: int,
    values: Iterable[float] = VALUES,
    rounds: int = 32,
) -> list[LowerLine]:
    """One valid bound on cost + value x delays for each value; the value 0 is always among them."""
    jobs = _Jobs.of(arrive, run, gpus, slot_h=1)
    price = jobs.prices_without_wait(total)
    level = jobs.least_whatever_the_delay(total)
    lower = [LowerLine(0.0, level)]
    # From high to low values: the last prices are a good start for the next.
    for value in sorted(values, reverse=True):
        if value < PATIENT and jobs.slot_h == 1:
            jobs, price = _Jobs.of(arrive, run, gpus, PATIENT_SLOT_H), _coarser(price, PATIENT_SLOT_H)
        least, price = _ascend(_Choices.of(jobs, value), _fitted(price, jobs.slots), total, rounds)
        lower.append(LowerLine(value, max(level, least * jobs.slot_h)))
    return lower


def corners(lines: Sequence[LowerLine], jobs: int) -> list[FrontierPoint]:
    """The upper envelope over the lines cost >= least - value x jobs x delay, from no delay to the level part."""
    steep_first = sorted(lines, key=lambda line: (-line.value, -line.least))
    hull: list[LowerLine] = []
    for line in steep_first:
        if hull and line.value == hull[-1].value:
            continue
        while hull and _crossing(hull[-1], line, jobs) <= (_crossing(hull[-2], hull[-1], jobs) if len(hull) > 1 else 0):
            hull.pop()
        hull.append(line)
    points = [FrontierPoint(0.0, max(0.0, hull[0].least))]
    for steep, flat in pairwise(hull):
        delay = _crossing(steep, flat, jobs)
        points.append(FrontierPoint(delay, max(0.0, steep.least - steep.value * jobs * delay)))
    return points


def _crossing(steep: LowerLine, flat: LowerLine, jobs: int) -> float:
    return (steep.least - flat.least) / ((steep.value - flat.value) * jobs)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The trace in slots: times, and with them costs, are counted in slots of `slot_h` hours."""

    arrive: Floats
    run: Floats
    gpus: Floats
    last: float
    slots: int
    slot_h: int

    @classmethod
    def of(cls, arrive: Sequence[int], run: Sequence[int], gpus: Sequence[int], slot_h: int) -> _Jobs:
        # From the first submission on: a slot before it would only cost.
        a = (np.asarray(arrive, np.float64) - min(arrive)) / (HOUR_MS * slot_h)
        r = np.asarray(run, np.float64) / (HOUR_MS * slot_h)
        slots = int(np.ceil((a + r).max())) + TAIL_H // slot_h
        return cls(a, r, np.asarray(gpus, np.float64), float(a.max()), slots, slot_h)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Jobs that would end before the last submission: all their work after it counts as deferred."""
        return self.arrive + self.run <= self.last

    def prices_without_wait(self, total: int) -> Floats:
        """The best prices if nobody waits: an owned GPU is worth a cloud GPU while demand exceeds the owned ones."""
        demand = _overlap(self.arrive, self.gpus, self.slots) - _overlap(self.arrive + self.run, self.gpus, self.slots)
        return (demand > total).astype(np.float64)

    def least_whatever_the_delay(self, total: int) -> float:
        """Work that must end before the last submission or be paid for, less all that the owned GPUs can do by then."""
        work = float((self.gpus * self.run)[self.inside].sum())
        return max(0.0, work - total * self.last) * self.slot_h


@dataclass(frozen=True, slots=True)
class _Choices:
    """All useful end times of each job, flattened: from no delay to the longest wait that can pay.

    Prices are constant within a slot, so for one marginal price the cost is linear between neighbours.
    """

    jobs: _Jobs
    value: float
    owner: Ints  #: the job of each end
    first: Ints  #: index of each job's first end
    end: Floats
    delay: Floats
    beyond: Floats  #: the least cost of a job that waits beyond its last end here

    @classmethod
    def of(cls, jobs: _Jobs, value: float) -> _Choices:
        if value <= 0:
            raise ValueError("an hour of waiting needs a value above zero")
        soonest = jobs.arrive + jobs.run
        # Beyond this the delay alone costs more than the cloud.
        enough = jobs.gpus * jobs.run / value
        # After the last submission every hour of a job that should have ended before costs as much as the cloud.
        room = np.where(jobs.inside, jobs.last - soonest, jobs.slots - soonest)
        longest = np.minimum(enough, room)
        between = np.maximum(np.ceil(soonest + longest) - np.floor(soonest) - 1, 0).astype(np.int64)
        count = between + 2
        first = np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int64)
        owner = np.repeat(np.arange(len(count)), count)
        rank = np.arange(len(owner)) - first[owner]
        latest = soonest + longest
        end = np.clip(np.floor(soonest)[owner] + rank, soonest[owner], latest[owner])
        end[first + between + 1] = latest
        beyond = np.where(jobs.inside, np.inf, value * longest)
        return cls(jobs, value, owner, first, end, end - soonest[owner], beyond)


def _coarser(price: Floats, slots: int) -> Floats:
    whole: Floats = np.pad(price, (0, -len(price) % slots)).reshape(-1, slots).mean(1)
    return whole


def _fitted(price: Floats, slots: int) -> Floats:
    return np.pad(price[:slots], (0, max(0, slots - len(price))))


def _ascend(choices: _Choices, price: Floats, total: int, rounds: int) -> tuple[float, Floats]:
    """Subgradient ascent: move prices against unused and overused hours. Returns the best bound and its prices.

    Every price vector gives a valid bound, so the step rule affects speed only.
    """
    best, best_price = -np.inf, price
    mean, spread = np.zeros_like(price), np.zeros_like(price)
    for step in range(1, rounds + 1):
        least, use = _evaluate(choices, price, total)
        if least > best:
            best, best_price = least, price
        gap = use / total - 1 if total else use
        mean, spread = 0.9 * mean + 0.1 * gap, 0.97 * spread + 0.03 * gap**2
        rate = 0.08 * (1 - step / (rounds + 1))
        move = rate * (mean / (1 - 0.9**step)) / (np.sqrt(spread / (1 - 0.97**step)) + 1e-6)
        price = np.clip(price + move, 0, 1)
    return float(best), best_price


def _evaluate(choices: _Choices, price: Floats, total: int) -> tuple[float, Floats]:
    """The bound for one price vector, and how many owned GPU-hours the jobs would take in each slot.

    A job that ends at e runs `run` hours of [arrive, e], each at its slot's price. For any marginal price m that costs
    at least m x run - (integral of max(0, m - price) over [arrive, e]); the dearest m of a few is what we charge.
    """
    jobs = choices.jobs
    waiting = choices.value * choices.delay / jobs.gpus[choices.owner]
    cost = np.full(len(choices.end), -np.inf)  # per GPU; the entry k stands for all ends between k and k + 1
    level = np.zeros(len(choices.end), np.int64)
    late = np.zeros(len(choices.end), np.bool_)
    for index, marginal in enumerate(LEVELS):
        saved = np.concatenate(([0.0], np.cumsum(np.maximum(0.0, marginal - price))))
        base = marginal * jobs.run + _area(saved, jobs.arrive)
        here = base[choices.owner] - _area(saved, choices.end) + waiting
        least = np.minimum(here[:-1], here[1:])
        better = np.flatnonzero(least > cost[:-1])
        cost[better], level[better], late[better] = least[better], index, (here[1:] < here[:-1])[better]
    np.maximum(cost, waiting, out=cost)  # no price is below zero
    cost[choices.first[1:] - 1] = np.inf  # from one job's last end to the next job's first: not a choice
    cost[-1] = np.inf
    pick = _argmin_per_job(cost, choices)
    owned = jobs.gpus * cost[pick]
    cloud = jobs.gpus * jobs.run
    value = np.minimum(np.minimum(owned, cloud), choices.beyond).sum() - total * price.sum()
    return float(value), _use(choices, price, pick + late[pick], level[pick])


def _argmin_per_job(cost: Floats, choices: _Choices) -> Ints:
    least = np.minimum.reduceat(cost, choices.first)
    hits = np.flatnonzero(cost == least[choices.owner])
    owners, where = np.unique(choices.owner[hits], return_index=True)
    assert len(owners) == len(choices.first)
    return hits[where]


def _use(choices: _Choices, price: Floats, pick: Ints, level: Ints) -> Floats:
    """Owned GPUs wanted in each slot: a job takes the hours of its span that are cheaper than its marginal price."""
    jobs, use = choices.jobs, np.zeros(len(price))
    for index, marginal in enumerate(LEVELS):
        mine = level == index
        span = _overlap(jobs.arrive[mine], jobs.gpus[mine], len(price)) - _overlap(
            choices.end[pick[mine]], jobs.gpus[mine], len(price)
        )
        use += np.where(price < marginal, span, 0.0)
    return use


def _area(cumulated: Floats, when: Floats) -> Floats:
    """The integral up to each instant of a function that is constant within slots."""
    slot = np.minimum(when.astype(np.int64), len(cumulated) - 2)
    area: Floats = cumulated[slot] + (when - slot) * (cumulated[slot + 1] - cumulated[slot])
    return area


def _overlap(begin: Floats, weight: Floats, slots: int) -> Floats:
    """Sum of weights that have begun, averaged over each slot."""
    slot = np.minimum(begin.astype(np.int64), slots - 1)
    part = begin - slot
    begun = np.bincount(slot, weight * (1 - part), slots + 1) + np.bincount(slot + 1, weight * part, slots + 1)
    return np.cumsum(begun)[:slots]
