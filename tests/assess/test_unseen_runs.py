"""Ends of runs that nobody saw: drawn from what the month shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.assess.unseen_runs import MOST_TIMES, SeenRun, SurvivalCurve, UnseenRuns
from penstock.core.units import HOUR

seen_runs = st.lists(
    st.builds(SeenRun, st.sampled_from("ab"), st.sampled_from((1, 8)), st.integers(1, 10**9), st.booleans()),
    max_size=40,
)


def test_runs_that_go_on_count_as_far_as_they_were_seen() -> None:
    """By hand: of four runs the second is lost at 2 h, so what ends at 3 h is one of two."""
    curve = SurvivalCurve([(HOUR, True), (2 * HOUR, False), (3 * HOUR, True), (4 * HOUR, True)])
    assert curve.lengths == [HOUR, 3 * HOUR, 4 * HOUR]
    assert curve.alive == pytest.approx([3 / 4, 3 / 8, 0])
    assert [curve.quantile(0, chance) / HOUR for chance in (0.1, 0.3, 0.6, 0.7)] == [1, 3, 3, 4]
    assert [curve.quantile(HOUR, chance) / HOUR for chance in (0.1, 0.4, 0.6)] == [3, 3, 4]


def test_beyond_the_longest_that_ended_a_run_lasts_as_long_again_half_of_the_time() -> None:
    curve = SurvivalCurve([(HOUR, True), (2 * HOUR, False)])
    assert curve.quantile(4 * HOUR, 0.5) == 8 * HOUR
    assert curve.quantile(4 * HOUR, 0.999) == MOST_TIMES * 4 * HOUR
    assert curve.quantile(0, 0.75) == 2 * HOUR  # of the half that outlives the first hour, the middle


def test_a_run_is_drawn_from_its_own_kind_if_enough_of_them_lasted_longer() -> None:
    short = [SeenRun("short", 8, k * HOUR // 10, True) for k in range(1, 21)]
    long = [SeenRun("long", 8, k * HOUR, True) for k in range(1, 21)]
    runs = UnseenRuns([*short, *long])
    assert runs.drawn("short", 8, 0, 0.5) == HOUR
    assert runs.drawn("long", 8, 0, 0.5) == 10 * HOUR
    assert runs.drawn("short", 8, 3 * HOUR, 0.5) >= 4 * HOUR  # none of its kind lasted so long: those of its width did
    assert runs.drawn("new", 2, 0, 0.5) == runs.drawn("new", 8, 0, 0.5)  # nothing is known of this width: all runs


@given(seen_runs, st.integers(0, 10**9), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_no_run_is_drawn_shorter_than_it_was_seen_and_more_chance_is_longer(
    seen: list[SeenRun], age: int, first: float, second: float
) -> None:
    runs = UnseenRuns(seen)
    few, many = (runs.drawn("a", 8, age, chance) for chance in sorted((first, second)))
    assert age <= few <= many
