"""Demand by hour is what a sum over every millisecond would say, and knows nothing of what lies outside."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.units import HOUR, MINUTE
from penstock.forecast.history import demand_by_hour

jobs = st.lists(
    st.tuples(st.integers(-90, 400), st.integers(0, 300), st.integers(1, 64)).map(
        lambda row: (row[0] * MINUTE, (row[0] + row[1]) * MINUTE, row[2])
    ),
    max_size=30,
)


def test_a_job_counts_in_each_hour_for_as_long_as_it_is_there() -> None:
    wanted = [(30 * MINUTE, 2 * HOUR + 15 * MINUTE, 8), (HOUR, 2 * HOUR, 1)]
    assert demand_by_hour(wanted, 0, 4 * HOUR) == [4.0, 9.0, 2.0, 0.0]


def test_an_hour_that_is_not_over_is_left_out() -> None:
    assert demand_by_hour([(0, 9 * HOUR, 2)], 0, 2 * HOUR + 59 * MINUTE) == [2.0, 2.0]
    assert demand_by_hour([(0, 9 * HOUR, 2)], 0, 59 * MINUTE) == []


@given(jobs, st.integers(-60, 60))
@settings(max_examples=40)
def test_it_is_the_sum_over_every_minute(rows: list[tuple[int, int, int]], start: int) -> None:
    from_at = start * MINUTE
    demand = demand_by_hour(rows, from_at, from_at + 4 * HOUR)
    for hour, gpus in enumerate(demand):
        minutes = range(from_at + hour * HOUR, from_at + (hour + 1) * HOUR, MINUTE)
        assert gpus == pytest.approx(sum(g for at in minutes for begin, end, g in rows if begin <= at < end) / 60)


@given(jobs)
def test_what_happens_later_changes_nothing(rows: list[tuple[int, int, int]]) -> None:
    known = [(begin, end if end < 3 * HOUR else 99 * HOUR, gpus) for begin, end, gpus in rows if begin < 3 * HOUR]
    assert demand_by_hour(known, 0, 3 * HOUR) == demand_by_hour(rows, 0, 3 * HOUR)
