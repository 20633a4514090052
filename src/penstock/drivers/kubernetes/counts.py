"""Counts the pods of an execution Job as the cluster does, for its home Job to show. Pure; `reconcile` and `driver`
call it.
"""

from collections.abc import Sequence
from typing import Final

from penstock.core.model.types import PodCounts
from penstock.drivers.driver import SeenPhase
from penstock.drivers.kubernetes.pods import (
    annotation_of,
    condition,
    failed_by_itself,
    has_begun,
    has_run,
    has_succeeded,
    is_batch,
    is_own_deadline,
    is_ready,
    is_rejected,
)
from penstock.drivers.running_pods import RunningPods
from penstock.kube import annotations, indexes
from penstock.kube.client import Obj

#: What Kubernetes says of a Job whose pods have succeeded.
SUCCEEDED: Final = {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}


def counts_now(job: Obj, pods: Sequence[Obj]) -> RunningPods:
    """Ready ones by the pods if these know more: the Job controller takes a second to count them. Pods that we end, and
    pods that never ran, are no failures, though the cluster counts them as such: a home Job that showed them once could
    not take it back.
    """
    status = job.get("status") or {}
    active, failed = int(status.get("active") or 0), int(status.get("failed") or 0)
    failed = max(0, failed - sum(map(is_rejected, pods)))
    if _is_ended_by_us(job):
        failed = min(failed, _own_failures(job, pods))
    ready = max(int(status.get("ready") or 0), sum(map(is_ready, pods)))
    return RunningPods(
        active=active,
        ready=min(ready, active),
        terminating=int(status.get("terminating") or 0),
        succeeded=int(status.get("succeeded") or 0),
        failed=failed,
        completed_indexes=str(status.get("completedIndexes") or ""),
        failed_indexes=str(status.get("failedIndexes") or ""),
    )


def counts_at_end(job: Obj, pods: Sequence[Obj], phase: SeenPhase) -> PodCounts:
    """What the attempt adds to its home Job. Pods that were stopped, or lost with their node, did not fail by
    themselves and cost no retry. A gang that did not succeed as a whole runs again as a whole; a batch keeps what is
    done.
    """
    now, own = counts_now(job, pods), _own_failures(job, pods)
    if phase not in ("done", "failed"):
        failed = own if phase == "stopped" or _never_ran(job, pods) else max(now.failed, own + 1)
        kept = now if is_batch(job) else RunningPods()
        return PodCounts(kept.succeeded, failed, own, kept.completed_indexes, kept.failed_indexes)
    over, words = condition(job, "Complete") or condition(job, "Failed"), _said_at_end(job, phase)
    own = now.failed if over else max(now.failed, own)  # a Job that is over has counted all of them
    well = [pod for pod in pods if has_succeeded(pod)] if phase == "done" else []
    return PodCounts(
        succeeded=max(now.succeeded, len(well)),
        failed=own,
        own_failures=own,
        completed_indexes=indexes.together(now.completed_indexes, *(str(pod["index"]) for pod in well)),
        failed_indexes=now.failed_indexes,
        reason=str(words.get("reason") or ""),
        message=str(words.get("message") or ""),
    )


def _said_at_end(job: Obj, phase: SeenPhase) -> Obj:
    """The cluster's words about its end; none yet if its pods were faster."""
    kinds = ("Complete", "SuccessCriteriaMet") if phase == "done" else ("Failed", "FailureTarget")
    words = next((met for kind in kinds if (met := condition(job, kind)) is not None), None)
    return words or (SUCCEEDED if phase == "done" else {})


def _is_ended_by_us(job: Obj) -> bool:
    """True if we stop it, give its start up, or gave it no more time. The user's own deadline fails pods, as in plain
    Kubernetes.
    """
    if annotation_of(job, annotations.ENDING) not in ("", "lost"):
        return True
    over = condition(job, "Failed") or condition(job, "FailureTarget") or {}
    return over.get("reason") == "DeadlineExceeded" and not is_own_deadline(job)


def _never_ran(job: Obj, pods: Sequence[Obj]) -> bool:
    """True only if we see its pods: those that the cluster has deleted may have run."""
    return bool(pods) and not has_begun(job, pods) and not any(map(has_run, pods))


def _own_failures(job: Obj, pods: Sequence[Obj]) -> int:
    """Where the user's own rules ignore some failures, only the cluster knows how many count."""
    failed = sum(map(failed_by_itself, pods))
    return min(failed, int((job.get("status") or {}).get("failed") or 0)) if job["spec"].get("ignores") else failed
