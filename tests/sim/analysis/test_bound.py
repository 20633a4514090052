"""The bounds are true: nothing that can be scheduled costs less."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.analysis import bound
from penstock.sim.analysis.bound import HOUR_MS, FrontierPoint, LowerLine

Job = tuple[int, int, int]  # arrival and run time in hours, GPUs
Place = tuple[frozenset[int], frozenset[int]]  # hours on owned, hours in the cloud

tiny = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=3)


def in_ms(jobs: list[Job]) -> tuple[list[int], list[int], list[int]]:
    return [a * HOUR_MS for a, _, _ in jobs], [r * HOUR_MS for _, r, _ in jobs], [g for _, _, g in jobs]


@settings(max_examples=25, deadline=None)
@given(tiny, st.integers(1, 4))
def test_no_schedule_is_below_the_frontier(jobs: list[Job], total: int) -> None:
    """Every schedule on a grid of hours, with moves and pauses, is on or above the line."""
    points = bound.frontier(*in_ms(jobs), total, values=(8.0, 2.0, 1.0, 0.5, 0.2), rounds=40)
    for delay, cost in schedules(jobs, total):
        assert cost >= bound.at(points, delay / len(jobs)) - 1e-6


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(1, 900), st.integers(1, 4), st.booleans()), min_size=1, max_size=25
    ),
    st.integers(4, 8),
)
def test_a_queue_in_minutes_is_above_the_frontier(jobs: list[tuple[int, int, int, bool]], total: int) -> None:
    """Times within slots, short and long: jobs start in order as owned GPUs come free, some in the cloud."""
    jobs = sorted(jobs)
    minute = HOUR_MS // 60
    arrive, run, gpus = [j[0] * minute for j in jobs], [j[1] * minute for j in jobs], [j[2] for j in jobs]
    delay, cost = in_order(jobs, total)
    points = bound.frontier(arrive, run, gpus, total, values=(20.0, 3.0, 1.0, 0.3), rounds=15)
    assert cost >= bound.at(points, delay / len(jobs)) - 1e-6


@settings(max_examples=25, deadline=None)
@given(tiny, st.integers(1, 4))
def test_without_delay_the_frontier_is_the_demand_above_what_is_owned(jobs: list[Job], total: int) -> None:
    """On whole hours the prices resolve the demand exactly, so a dear enough hour of waiting gives the same number."""
    exact = sum(max(0, sum(g for a, r, g in jobs if a <= t < a + r) - total) for t in range(60))
    assert bound.frontier(*in_ms(jobs), total, values=(1000.0,))[0].cloud_gpu_hours == pytest.approx(exact)


def test_waiting_can_save_everything_but_not_for_nothing() -> None:
    """Two jobs of an hour, one GPU, time enough: the second waits an hour, or a GPU-hour is bought."""
    jobs = [(0, 1, 1), (0, 1, 1), (9, 1, 1)]
    points = bound.frontier(*in_ms(jobs), 1, values=(100.0, 1.0, 0.9), rounds=200)
    assert bound.at(points, 0) == pytest.approx(1.0)
    assert bound.at(points, 1 / 3) == pytest.approx(0.0, abs=1e-9)
    assert 0.3 < bound.at(points, 1 / 6) <= 0.5 + 1e-9


def test_work_beyond_what_is_owned_is_bought_however_long_people_wait() -> None:
    jobs = [(0, 4, 2), (0, 4, 2), (10, 1, 1)]
    assert bound.frontier(*in_ms(jobs), 1)[-1].cloud_gpu_hours == pytest.approx(16 - 10)


def test_the_frontier_falls_and_is_convex() -> None:
    jobs = [(h % 7, 1 + h % 3, 1 + h % 4) for h in range(30)]
    points = bound.frontier(*in_ms(jobs), 6)
    slopes = [(b.cloud_gpu_hours - a.cloud_gpu_hours) / (b.mean_delay_h - a.mean_delay_h) for a, b in pairwise(points)]
    assert all(s <= 0 for s in slopes)
    assert slopes == sorted(slopes)


def test_corners_are_the_upper_envelope_of_all_lines() -> None:
    lines = [LowerLine(0.0, 2.0), LowerLine(1.0, 8.0), LowerLine(2.0, 8.5), LowerLine(5.0, 12.0)]
    # The line of value 2 is below the others everywhere and leaves no corner.
    assert bound.corners(lines, jobs=2) == [FrontierPoint(0.0, 12.0), FrontierPoint(0.5, 7.0), FrontierPoint(3.0, 2.0)]


def test_a_worthless_hour_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        bound.frontier([0], [HOUR_MS], [1], 1, values=(0.0,))


def test_no_jobs_need_no_cloud() -> None:
    assert bound.frontier([], [], [], 8) == [FrontierPoint(0.0, 0.0)]


def in_order(jobs: list[tuple[int, int, int, bool]], total: int) -> tuple[float, float]:
    """(sum of delays, cost) in hours: a job starts at the first minute with room on owned GPUs, unless it bursts."""
    last, busy, delay, cost = max(job[0] for job in jobs), [0] * 60_000, 0, 0
    for arrive, run, gpus, bursts in jobs:
        if bursts:
            cost += gpus * run
            continue
        start = next(s for s in range(arrive, 60_000) if max(busy[s : s + run]) + gpus <= total)
        for minute in range(start, start + run):
            busy[minute] += gpus
        delay += start - arrive
        cost += gpus * (min(run, max(0, start + run - last)) - max(0, min(run, arrive + run - last)))
    return delay / 60, cost / 60


def schedules(jobs: list[Job], total: int) -> Iterator[tuple[int, int]]:
    """(sum of delays, cost) of every schedule on whole hours within the first six."""
    last = max(a for a, _, _ in jobs)
    for places in product(*(list(ways(job)) for job in jobs)):
        if fits(jobs, places, total):
            delays = sum(max(own | cloud) + 1 - a - r for (a, r, _), (own, cloud) in zip(jobs, places, strict=True))
            yield delays, sum(cost(job, place, last) for job, place in zip(jobs, places, strict=True))


def ways(job: Job) -> Iterator[Place]:
    arrive, run, _ = job
    for hours in combinations(range(arrive, 6 - (run == 1)), run):
        for owned in product((True, False), repeat=run):
            own = frozenset(h for h, mine in zip(hours, owned, strict=True) if mine)
            yield own, frozenset(hours) - own


def fits(jobs: list[Job], places: tuple[Place, ...], total: int) -> bool:
    return all(sum(g for (_, _, g), (own, _) in zip(jobs, places, strict=True) if h in own) <= total for h in range(6))


def cost(job: Job, place: Place, last: int) -> int:
    """Cloud hours, and owned hours after the last submission beyond those that no delay would have put there."""
    arrive, run, gpus = job
    own, cloud = place
    pushed = sum(h >= last for h in own) - max(0, arrive + run - last)
    return gpus * (len(cloud) + max(0, pushed))
