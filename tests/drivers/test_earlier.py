"""What earlier attempts did, from the journal's facts to the next attempt's manifest."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.drivers.earlier import Earlier, of_manifest, tallied, written
from penstock.kube import annotations, indexes


def test_run_time_and_pods_of_all_attempts_are_added_up_each_once() -> None:
    lost = e.AttemptLost(9_000, "a.1", 0, PodCounts(failed=2, own_failures=1, succeeded=1, completed_indexes="0"))
    ended = e.AttemptEnded(
        30_000, "a.3", "failed", "", PodCounts(succeeded=2, failed=1, own_failures=1, completed_indexes="0,2")
    )
    facts = [
        e.AttemptStarted(1_000, "a.1"), e.AttemptStarted(2_000, "a.1"), lost, lost,
        e.AttemptRefused(10_000, "a.2", 0), e.AttemptStarted(20_000, "a.3"), ended,
    ]  # fmt: skip
    assert tallied(facts) == Earlier(18_000, 2, 3, 2, "0,2", "", ended.pods)


def test_attempts_of_a_site_that_counts_no_pods_count_as_one_failed_pod_unless_they_were_stopped() -> None:
    facts = [
        e.AttemptStarted(1, "a.1"), e.AttemptLost(1, "a.1", 0), e.AttemptStopped(2, "a.2", 0),
        e.AttemptEnded(3, "a.3", "failed"),
    ]  # fmt: skip
    assert tallied(facts) == Earlier(failed=2)


def test_an_attempt_that_was_lost_before_it_ran_has_no_failed_pod() -> None:
    """Its site went away before the start was answered: the home Job showed a failed pod that nobody ever saw."""
    assert tallied([e.AttemptLost(1, "a.1", 0)]) == Earlier()


def test_what_is_sent_along_is_read_back() -> None:
    some = Earlier(18_000, 2, 3, 1, "0,2", "5")
    assert of_manifest({"metadata": {"annotations": {annotations.EARLIER: written(some)}}}) == some
    assert of_manifest({"metadata": {}}) == of_manifest({}) == Earlier()
    assert written(Earlier()) == ""


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_indexes_are_read_as_they_are_written(some: set[int], others: set[int]) -> None:
    assert indexes.read(indexes.write(some)) == some
    assert indexes.read(indexes.together(indexes.write(some), indexes.write(others))) == some | others


def test_indexes_are_written_as_the_job_controller_writes_them() -> None:
    assert indexes.write([4, 1, 3, 5, 9, 8]) == "1,3-5,8,9"
    assert indexes.read("0-2,7,x,-1,3-") == {0, 1, 2, 7}
