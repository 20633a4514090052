"""What a Workload says of the attempt that it is marked with."""

from penstock.drivers.driver import SeenAttempt
from penstock.front.kueue.kueue_driver import seen_attempt
from tests.front.kueue.workloads import Json, workload

RAN = {"attempt": "j1.1", "started": "j1.1"}


def finished(why: str, **more: str) -> Json:
    return workload(most=570, marks={**RAN, **more}, conditions={"QuotaReserved": "", "Finished": why})


def test_a_workload_that_succeeds_or_fails_ends_its_attempt() -> None:
    assert seen_attempt(finished("Succeeded"), "penstock") == SeenAttempt("j1.1", "done", detail="Succeeded: Succeeded")
    assert seen_attempt(finished("Failed"), "penstock") == SeenAttempt("j1.1", "failed", detail="Failed: Failed")


def test_a_workload_whose_owner_was_deleted_has_not_failed_and_waits_for_its_jobs_cancel() -> None:
    """Kueue finishes it with a reason of its own before it goes, and its job was called failed."""
    gone = "its owner was deleted"
    assert seen_attempt(finished("OwnerNotFound"), "penstock") == SeenAttempt("j1.1", "running", detail=gone)
    stopped = finished("OwnerNotFound", ending="stopped")
    assert seen_attempt(stopped, "penstock") == SeenAttempt("j1.1", "stopped", detail=gone)


def test_a_workload_without_a_mark_is_nobodys_attempt() -> None:
    assert seen_attempt(workload(), "penstock") is None
