"""Run times by age: one that has run long will run long."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fold.runtimes import EDGES, NAMES, LifeTable
from penstock.core.model.types import JobSpec
from penstock.core.units import DAY, HOUR, MINUTE

ONE = JobSpec(1, team="a")


def taught(runs: list[int], spec: JobSpec = ONE) -> LifeTable:
    table = LifeTable()
    for run in runs:
        table.learn(spec, run)
    return table


def test_before_anything_ended_it_says_an_hour() -> None:
    assert LifeTable().expect(ONE) == LifeTable().remaining(ONE, DAY) == HOUR


def test_what_is_expected_is_near_the_mean_of_what_was_seen() -> None:
    table = taught([30 * MINUTE, 60 * MINUTE, 90 * MINUTE] * 100)
    assert 45 * MINUTE < table.expect(ONE) < 75 * MINUTE


def test_one_that_has_run_long_will_run_long() -> None:
    """Most end within minutes, a few run for days: at two hours it is one of the few."""
    table = taught([3 * MINUTE] * 300 + [2 * DAY] * 30)
    assert table.expect(ONE) < 8 * HOUR
    assert table.remaining(ONE, 2 * HOUR) > 24 * HOUR


def test_a_class_never_seen_borrows_from_its_width_and_that_from_all() -> None:
    table = taught([2 * HOUR] * 200)
    same_width, other_width = JobSpec(1, team="b"), JobSpec(8, team="b")
    assert table.expect(same_width) == table.expect(ONE) or abs(table.expect(same_width) - 2 * HOUR) < HOUR
    assert abs(table.expect(other_width) - 2 * HOUR) < HOUR


def test_a_class_often_seen_speaks_for_itself() -> None:
    table = taught([HOUR] * 500)
    for _ in range(200):
        table.learn(JobSpec(1, team="b"), 10 * HOUR)
    assert table.expect(JobSpec(1, team="b")) > 6 * HOUR
    assert table.expect(ONE) < 2 * HOUR


def test_a_stated_run_time_is_believed_until_it_is_over() -> None:
    table = taught([2 * DAY] * 100)
    stated = JobSpec(1, team="a", expected_run_ms=HOUR)
    assert table.expect(stated) == HOUR
    assert table.remaining(stated, 20 * MINUTE) == 40 * MINUTE
    assert table.remaining(stated, 2 * HOUR) > 10 * HOUR


@given(st.lists(st.integers(1, 90 * DAY), min_size=1, max_size=60), st.integers(0, 90 * DAY))
def test_whatever_was_seen_what_is_left_is_a_time(runs: list[int], age: int) -> None:
    table = taught(runs)
    assert 0 < table.remaining(ONE, age) < 4 * EDGES[-1]
    assert 0 < table.expect(ONE) < 4 * EDGES[-1]


def test_members_of_an_array_teach_each_other_how_long_they_run() -> None:
    """A team's jobs take ten hours; this sweep's take five minutes, and after three of them that is known."""
    table = taught([10 * HOUR] * 200)
    sweep = JobSpec(1, team="a", name="sweep", count=50)
    assert table.expect(sweep) > 8 * HOUR
    for _ in range(3):
        table.learn(sweep, 5 * MINUTE)
    assert table.expect(sweep) < 5 * HOUR
    for _ in range(20):
        table.learn(sweep, 5 * MINUTE)
    assert table.expect(sweep) < HOUR
    assert table.expect(ONE) > 6 * HOUR


def test_runs_of_one_script_are_one_kind_and_those_of_other_teams_or_widths_are_not() -> None:
    table = taught([10 * HOUR] * 200)
    for run in range(40):
        table.learn(JobSpec(1, team="a", name=f"resnet-{run}"), 5 * MINUTE)
    assert table.expect(JobSpec(1, team="a", name="resnet-99")) < HOUR
    assert table.expect(JobSpec(1, team="b", name="resnet-1")) > 5 * HOUR
    assert table.expect(JobSpec(1, team="a", name="bert-1")) > 5 * HOUR


def test_names_not_seen_for_long_are_forgotten() -> None:
    table = taught([HOUR] * 5)
    table.learn(JobSpec(1, team="a", name="used"), 5 * MINUTE)
    for number in range(NAMES):
        table.learn(JobSpec(1, team="a", name=f"other{number}x"), HOUR)
        table.learn(JobSpec(1, team="a", name="used"), 5 * MINUTE)
    assert len(table.by_name) == NAMES
    assert ("a", 1, "used") in table.by_name
    assert ("a", 1, "other0x") not in table.by_name
