"""What is written on a home Job, from what the journal's tables say."""

from typing import Any

from penstock.core.model.types import PodCounts
from penstock.drivers.earlier import Earlier
from penstock.drivers.running_pods import RunningPods
from penstock.front.status import JobSnapshot, Why, binding, metadata_change, shown
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
    annotation: str | None = change.get("metadata", {}).get("annotations", {}).get(names.BINDING, "")
    return annotation


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


# --- counts and conditions --------------------------------------------------------------------------------------------


def status_of(phase: str, *attempts: AttemptRow, **more: Any) -> dict[str, Any]:
    """`earlier`: of ended attempts; `pods`: of the live one; `now`: the status it has; the rest is its spec."""
    earlier, pods, now = more.pop("earlier", Earlier()), more.pop("pods", None), more.pop("now", {})
    job = {"metadata": {}, "spec": more, "status": now}
    row = JobRow(**{**ROW, "ended_at": 9000 if phase in ("done", "failed") else None}, phase=phase)
    status = shown(job, JobSnapshot(9, row, attempts, Why("Here", "Because.", 5000), earlier, pods=pods))
    status["conditions"] = {
        condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]
    }
    return status


def test_a_running_job_shows_what_its_site_counts_on_top_of_earlier_attempts() -> None:
    before = Earlier(succeeded=3, failed=2, completed_indexes="0-2")
    pods = RunningPods(active=4, ready=3, terminating=1, succeeded=2, failed=1, completed_indexes="2,5")
    batch = {"parallelism": 4, "completions": 10, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    running = status_of("placed", attempt(2, "running", started=True), earlier=before, pods=pods, **batch)
    assert {key: running[key] for key in ("active", "ready", "terminating", "failed", "succeeded")} == {
        "active": 4, "ready": 3, "terminating": 1, "failed": 3, "succeeded": 4,
    }  # fmt: skip
    assert (running["completedIndexes"], running["failedIndexes"]) == ("0-2,5", "")
    queue = status_of(
        "placed", attempt(2, "running", started=True), earlier=before, pods=pods, parallelism=4, completions=10
    )
    assert ("completedIndexes" in queue, "failedIndexes" in queue) == (False, False)


def test_a_start_that_its_site_has_not_taken_yet_shows_no_pods() -> None:
    """Its site was away, or its webhook was down: the home Job showed an active pod that nothing could create."""
    starting = attempt(1, "starting", started=False)
    assert (status_of("placed", starting)["active"], status_of("placed", starting).get("startTime")) == (0, None)
    assert status_of("placed", attempt(1, "running", started=True))["active"] == 1  # a site that counts none


def test_counts_never_fall_and_a_pod_that_only_saved_its_work_is_not_shown_as_the_last_success() -> None:
    pods = RunningPods(succeeded=1)
    assert status_of("placed", attempt(1, "running", started=True), pods=pods)["succeeded"] == 0
    assert status_of("waiting", attempt(1, "over", started=True), now={"failed": 2})["failed"] == 2
    done = Earlier(succeeded=1, last=PodCounts(1, reason="CompletionsReached"))
    assert status_of("done", attempt(1, "over", started=True), earlier=done)["succeeded"] == 1


def test_an_end_has_kubernetes_own_reason_and_counts_and_ours_where_there_is_none() -> None:
    over = attempt(1, "over", started=True)
    last = PodCounts(2, 1, 1, "0,1", "3", "SuccessPolicy", "Matched rules at index 0")
    some = Earlier(succeeded=2, failed=1, completed_indexes="0,1", failed_indexes="3", last=last)
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 0}
    status = status_of("done", over, earlier=some, **indexed)
    assert status["conditions"]["Complete"] == status["conditions"]["SuccessCriteriaMet"] == ("True", "SuccessPolicy")
    assert (status["succeeded"], status["completedIndexes"], status["failedIndexes"]) == (2, "0,1", "3")
    limit = Earlier(failed=1, last=PodCounts(failed=1, reason="BackoffLimitExceeded"))
    assert status_of("failed", over, earlier=limit)["conditions"]["Failed"] == ("True", "BackoffLimitExceeded")
    assert status_of("failed", over)["conditions"]["FailureTarget"] == ("True", "Failed")
    made = status_of("done", over, **indexed)  # by a site that counts no pods
    assert (made["succeeded"], made["completedIndexes"]) == (4, "0-3")


def test_a_job_that_waits_is_suspended_and_then_resumed_as_the_job_controller_says_it() -> None:
    waits = status_of("waiting")
    assert waits["conditions"]["Suspended"] == ("True", "JobSuspended")
    status = {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}]}
    runs = status_of("placed", attempt(1, "running", started=True), now=status)
    assert runs["conditions"]["Suspended"] == ("False", "JobResumed")
    assert "Suspended" not in status_of("placed", attempt(1, "running", started=True))["conditions"]
