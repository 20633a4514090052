"""Tells the cluster which indexes of a batch earlier attempts have completed, or failed for good, so that they do not
run again. `KubernetesDriver.start` calls it.

The Job controller takes these indexes from a Job's status, whoever wrote them. Such a Job is created suspended; its
status is written, and only then does it run. A control plane that dies in between starts the attempt again, and
continues here. An account without the right to write the status runs those indexes again.
"""

from contextlib import suppress

from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import annotation_of
from penstock.kube import annotations, errors, indexes
from penstock.kube.client import JOBS, Obj


async def seed(here: Connection, execution: Execution) -> None:
    if _released(execution.job) is None:
        return
    done, failed = annotation_of(execution.job, annotations.COMPLETED), annotation_of(execution.job, annotations.FAILED)
    status: Obj = {"completedIndexes": done, "succeeded": len(indexes.read(done))} if done else {}
    status |= {"failedIndexes": failed} if failed else {}
    with suppress(errors.Forbidden, errors.Invalid):
        job = await here.cluster.patch_status(JOBS, execution.name, status, execution.namespace)
        here.executions.note(job)
    await here.change(execution, _released)


def _released(job: Obj) -> Obj | None:
    """The patch that lets it run; None if it does already, or has been told to end."""
    seeds = annotation_of(job, annotations.COMPLETED) or annotation_of(job, annotations.FAILED)
    if not job["spec"].get("suspend") or annotation_of(job, annotations.ENDING) or not seeds:
        return None
    marks = {annotations.COMPLETED: None, annotations.FAILED: None}
    return {"metadata": {"annotations": marks}, "spec": {"suspend": False}}
