"""Tells the cluster which indexes of a batch earlier attempts have completed, so that they do not run again.
`KubernetesDriver.start` calls it.

The Job controller takes completed indexes from a Job's status, whoever wrote them. Such a Job is created suspended; its
status is written, and only then does it run. A control plane that dies in between starts the attempt again, and
continues here. An account without the right to write the status runs those indexes again.
"""

from contextlib import suppress

from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import said
from penstock.kube import annotations, errors, indexes
from penstock.kube.client import JOBS, Obj


async def seed(here: Connection, execution: Execution) -> None:
    done = said(execution.job, annotations.COMPLETED)
    if not done or _released(execution.job) is None:
        return
    status = {"completedIndexes": done, "succeeded": len(indexes.read(done))}
    with suppress(errors.Forbidden, errors.Invalid):
        job = await here.cluster.patch_status(JOBS, execution.name, status, execution.namespace)
        here.executions.note(job)
    await here.change(execution, _released)


def _released(job: Obj) -> Obj | None:
    """The patch that lets it run; None if it does already, or has been told to end."""
    if not job["spec"].get("suspend") or said(job, annotations.ENDING) or not said(job, annotations.COMPLETED):
        return None
    return {"metadata": {"annotations": {annotations.COMPLETED: None}}, "spec": {"suspend": False}}
