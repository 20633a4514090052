"""An attempt's deadline in a cluster. It stands on its Job in the cluster's own terms, so that it holds without us, and
in ours, so that we can tell it again. `KubernetesDriver` moves it when told to, `reconcile` when a Job began late.
"""

from datetime import datetime

from penstock.core.units import NEVER, Instant
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import CONFLICTS, Connection
from penstock.drivers.kubernetes.execution_job import seconds_left
from penstock.drivers.kubernetes.pods import said
from penstock.kube import annotations
from penstock.kube.client import Obj


async def move(here: Connection, execution: Execution, deadline_at: Instant, tries: int = CONFLICTS) -> None:
    """The cluster counts from the Job's start by its own clock, of which its answers tell us the time."""
    await here.change(
        execution, lambda job: _moved(job, deadline_at, here.clock(), here.cluster.time_there), tries=tries
    )


def deadline_of(job: Obj) -> Instant:
    return int(said(job, annotations.EXECUTION_DEADLINE) or said(job, annotations.OLD_EXECUTION_DEADLINE) or NEVER)


def _moved(job: Obj, deadline_at: Instant, now: Instant, time_there: datetime) -> Obj | None:
    """The change that moves it, unless the Job is being ended. `time_there`: the cluster's own."""
    if said(job, annotations.ENDING):
        return None
    left = seconds_left(deadline_at, now)
    start = (job["status"] or {}).get("startTime")
    ran = max(0, int((time_there - datetime.fromisoformat(start)).total_seconds())) if start else 0
    noted: Obj = {annotations.EXECUTION_DEADLINE: None if left is None else str(deadline_at)}
    if said(job, annotations.OLD_EXECUTION_DEADLINE):  # it says less than the new one from now on
        noted[annotations.OLD_EXECUTION_DEADLINE] = None
    return {
        "metadata": {"annotations": noted},
        "spec": {"activeDeadlineSeconds": None if left is None else ran + left},
    }
