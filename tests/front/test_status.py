"""What is written on a home Job, from what the journal's tables say."""

from typing import Any

from penstock.front.status import JobSnapshot, binding, metadata_change
from penstock.journal.rows import AttemptRow, JobRow
from penstock.kube import annotations as names

ROW: dict[str, Any] = {
    "id": "j7", "number": 7, "team": "vision", "name": "a", "user": "", "project": "", "job_class": "", "priority": 0,
    "gpus": 8, "work": "", "attempt": "", "offer": "east/spot", "submitted_at": 0, "started_at": 1, "ended_at": None,
    "kept_ms": 0, "attempts": 2, "moves": 0, "losses": 1, "spent": 0, "held": 0, "until_at": None, "short_of": "",
    "because": "",
}  # fmt: skip


def attempt(number: int, phase: str, started: bool) -> AttemptRow:
    return AttemptRow(
        f"j7.{number}", number, "j7", "vision", "east/spot", "east", 8, phase, 0, 1 if started else None, None, "", 0,
        0, 0, 0, None, "",
    )  # fmt: skip


def written(phase: str, bound: str, *attempts: AttemptRow) -> str | None:
    """The binding that is written; empty: none is."""
    annotations = {names.JOB: "j7"} | ({names.BINDING: binding(bound, "east/spot")} if bound else {})
    job = {"metadata": {"annotations": annotations}, "spec": {}}
    change = metadata_change(job, JobSnapshot(9, JobRow(**ROW, phase=phase), attempts, None))
    found: str | None = change.get("metadata", {}).get("annotations", {}).get(names.BINDING, "")
    return found


def test_an_ended_job_keeps_the_binding_it_has_also_one_that_never_began() -> None:
    """It was deleted before its second attempt began: it is not bound back to the first."""
    attempts = attempt(1, "over", started=True), attempt(2, "over", started=False)
    assert written("cancelled", "j7.2", *attempts) == ""
    assert written("cancelled", "", *attempts) == binding("j7.1", "east/spot")


def test_a_living_job_is_bound_where_it_lives_or_nowhere() -> None:
    first = attempt(1, "over", started=True)
    assert written("placed", "j7.1", first, attempt(2, "starting", started=False)) == binding("j7.2", "east/spot")
    assert written("waiting", "j7.1", first) is None


def test_a_snapshot_that_was_read_before_the_job_was_bound_is_older_than_the_job() -> None:
    def older(bound: str, *numbers: int) -> bool:
        job = {"metadata": {"annotations": {names.BINDING: binding(bound, "east/spot")}}}
        attempts = tuple(attempt(number, "running", True) for number in numbers)
        return JobSnapshot(9, JobRow(**ROW, phase="placed"), attempts, None).is_older_than(job)

    assert older("j7.2", 1)
    assert older("j7.1")
    assert older("j7.10", 8, 9)
    assert not older("j7.2", 1, 2)
    assert not older("j7.2", 1, 2, 3)
    assert not older("j3.9", 1)  # of a journal that is no more


def test_a_snapshot_from_before_a_move_does_not_bind_the_job_back() -> None:
    """Read while the first attempt was stopping and the next one promised, it once bound the Job back to the first."""
    job = {"metadata": {"annotations": {names.BINDING: binding("j7.2", "east/spot")}}}
    stopping = attempt(1, "stopping", started=True)

    def older(phase: str) -> bool:
        attempts = stopping, attempt(2, phase, started=False)
        return JobSnapshot(9, JobRow(**ROW, phase="leaving"), attempts, None).is_older_than(job)

    assert older("promised")
    assert not older("starting")
