"""An attempt's deadline: `activeDeadlineSeconds` on the Job, which holds without us, and an annotation with our
instant. `KubernetesDriver` moves it when asked, `reconcile` when a Job started late. The Job never gets more than what
is left of the user's own `activeDeadlineSeconds`.
"""

from datetime import datetime

from penstock.core.units import NEVER, Instant
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import CONFLICTS, Connection
from penstock.drivers.kubernetes.execution_job import lesser, seconds_left
from penstock.drivers.kubernetes.pods import annotation_of, own_deadline
from penstock.kube import annotations
from penstock.kube.client import Obj


async def move(here: Connection, execution: Execution, deadline_at: Instant, tries: int = CONFLICTS) -> None:
    """Set a new deadline. `activeDeadlineSeconds` counts from the Job's start by the cluster's clock, so we convert
    with the time in its answers.
    """
    await here.change(
        execution, lambda job: _moved(job, deadline_at, here.clock(), here.cluster.time_there), tries=tries
    )


def deadline_of(job: Obj) -> Instant:
    return int(
        annotation_of(job, annotations.EXECUTION_DEADLINE)
        or annotation_of(job, annotations.OLD_EXECUTION_DEADLINE)
        or NEVER
    )


def _moved(job: Obj, deadline_at: Instant, now: Instant, time_there: datetime) -> Obj | None:
    """The patch; None if the Job is being ended. `time_there`: the cluster's time."""
    if annotation_of(job, annotations.ENDING):
        return None
    left = seconds_left(deadline_at, now)
    start = (job["status"] or {}).get("startTime")
    ran = max(0, int((time_there - datetime.fromisoformat(start)).total_seconds())) if start else 0
    noted: Obj = {annotations.EXECUTION_DEADLINE: None if left is None else str(deadline_at)}
    if annotation_of(job, annotations.OLD_EXECUTION_DEADLINE):  # superseded by the new annotation
        noted[annotations.OLD_EXECUTION_DEADLINE] = None
    return {
        "metadata": {"annotations": noted},
        "spec": {"activeDeadlineSeconds": lesser(own_deadline(job), None if left is None else ran + left)},
    }
