"""Counts the pods of an execution Job as the cluster does, for its home Job to show. Pure; `reconcile` and `driver`
call it.
"""

from collections.abc import Sequence

from penstock.core.model.types import PodCounts
from penstock.drivers.driver import SeenPhase
from penstock.drivers.kubernetes.pods import condition, failed_by_itself
from penstock.kube.client import Obj


def counts_at_end(job: Obj, pods: Sequence[Obj], phase: SeenPhase) -> PodCounts:
    """What the attempt adds to its home Job. Pods that were stopped, or lost with their node, did not fail by
    themselves: they cost no retry.
    """
    status = job.get("status") or {}
    own = sum(failed_by_itself(pod) for pod in pods)
    failed = int(status.get("failed") or 0)
    if phase in ("done", "failed"):
        own = failed = max(own, failed)
    ended = condition(job, "Complete") or condition(job, "Failed") or {}
    said = ended if phase in ("done", "failed") else {}
    return PodCounts(
        succeeded=int(status.get("succeeded") or 0),
        failed=own if phase == "stopped" else max(failed, own + 1) if phase == "lost" else failed,
        own_failures=own,
        completed_indexes=str(status.get("completedIndexes") or ""),
        failed_indexes=str(status.get("failedIndexes") or ""),
        reason=str(said.get("reason") or ""),
        message=str(said.get("message") or ""),
    )
