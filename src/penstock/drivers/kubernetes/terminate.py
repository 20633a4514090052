"""Ends an execution Job, keeps it until its result is in the journal, and deletes it. `KubernetesDriver` calls it when
asked; `reconcile` and `start` call it when a Job cannot go on.
"""

import math
from datetime import datetime
from typing import Final

from penstock.core.units import MINUTE, SECOND, Millis
from penstock.drivers.kubernetes import host_names
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.execution_job import tombstone
from penstock.drivers.kubernetes.pods import all_ready, annotation_of, is_active
from penstock.kube import annotations, errors
from penstock.kube.client import JOBS, PODS, Obj
from penstock.kube.request_priority import LATER

#: From when nothing can be bound for an attempt until what is left of it goes. A control plane binds an attempt and
#: creates its Job in one go, so one that bound it before has come as far as the tombstone.
GONE_MS: Final[Millis] = 10 * MINUTE
NAMESPACE_GOES: Final = "its namespace is being deleted"
LET_GO: Final = (
    "grant our account jobs/status: patch in all namespaces ('penstock manifests rbac'), or take the finalizer "
    f"{annotations.RESULT} from its Jobs by hand"
)


async def end(here: Connection, execution: Execution, how: str, words: str, grace_ms: Millis | None = None) -> None:
    """Record the reason on the Job, then let its deadline pass. The first reason counts."""
    grace_s = None if grace_ms is None else max(1, math.ceil(grace_ms / SECOND))
    if grace_s is not None and grace_s != execution.job["spec"]["grace"] and execution.pods:
        await here.change(execution, lambda job: _ending(job, how, words, at_once=False))
        for pod in [pod for pod in execution.pods.values() if is_active(pod)]:
            await _delete_pod(here, pod, grace_s)
    await here.change(execution, lambda job: _ending(job, how, words, at_once=True))


async def take_down(here: Connection, execution: Execution) -> None:
    """Somebody deleted the Job, or its whole namespace. Our finalizer keeps it, but its pods would run unaccounted: end
    them. A namespace that goes takes our Role along, and ends its pods by itself.
    """
    execution.out_of_hand = not await here.cluster.may("patch", JOBS, execution.namespace)
    try:
        await end(here, execution, "lost", NAMESPACE_GOES if execution.out_of_hand else "somebody deleted its Job")
        for pod in () if execution.out_of_hand else list(execution.pods.values()):
            await _delete_pod(here, pod)
    except errors.Forbidden as error:
        if not error.by_account:
            raise
        execution.out_of_hand = True
    if execution.out_of_hand:
        here.ending.add(execution.namespace)


def warns(here: Connection) -> str:
    """A namespace that waits for us, and that we may not let go, in a sentence; empty if there is none."""
    held = sorted({execution.namespace for execution in here.executions if execution.is_held_for_ever})
    return f"namespace {held[0]} is being deleted and waits for finalizers of Penstock: {LET_GO}" if held else ""


async def bury(here: Connection, attempt: str) -> Execution | None:
    """Create a tombstone Job so that a late start cannot run. None if somebody else owns the name."""
    made: Execution | None = None
    for namespace in here.namespaces:
        try:
            job = await here.cluster.create(JOBS, tombstone(here.installation, attempt, namespace))
        except errors.AlreadyExists:
            job = await here.cluster.get(JOBS, here.name(attempt), namespace)
        if here.is_own(job, attempt):
            made = here.executions.note(job)
    return made


async def forget(here: Connection, execution: Execution) -> None:
    """Release the Job: it stays for `keep_ms` so that a late start finds it, then the cluster deletes it."""
    try:
        await host_names.withdraw(here, execution)
    except errors.Forbidden:
        if "deletionTimestamp" not in execution.job["metadata"]:
            raise
    await here.change(execution, lambda job: _forgotten(job, here.settings.keep_ms), LATER)
    if execution.job["metadata"].get("deletionTimestamp"):
        await _leave_stone(here, execution)


async def prune(here: Connection) -> None:
    """Delete what no late start can meet any more: tombstones that are old, or whose attempts cannot be bound, and all
    that ran for a home Job that is gone. The cluster deletes other finished Jobs by itself (TTL).
    """
    homeless, past = _homeless(here), await _past(here)
    for execution in here.executions:
        meta = execution.job["metadata"]
        age_ms = (here.cluster.time_there - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds() * SECOND
        old = _is_stone(execution) and (age_ms > here.settings.keep_ms or execution.attempt in past)
        if execution.forgotten and (old or _home_of(execution) in homeless):
            try:
                await here.cluster.delete(JOBS, execution.name, execution.namespace, uid=meta["uid"])
            except errors.KubeError:
                continue  # retried with the next tick


def _homeless(here: Connection) -> set[str]:
    """Uids of home Jobs that have been gone for so long that no start can still be on its way: a start binds its home
    Job first.
    """
    home_jobs = here.home_jobs()
    if home_jobs is None:
        return set()
    gone = {uid for execution in here.executions if (uid := _home_of(execution)) and uid not in home_jobs}
    here.gone_at = {uid: here.gone_at.get(uid, here.clock()) for uid in gone}
    return {uid for uid, since in here.gone_at.items() if here.clock() - since >= GONE_MS}


async def _past(here: Connection) -> set[str]:
    """Attempts with tombstones for which nothing could be bound for so long that no start can still be on its way."""
    stones = [execution.attempt for execution in here.executions if _is_stone(execution) and execution.forgotten]
    known = {attempt: here.past_at[attempt] for attempt in stones if attempt in here.past_at}
    fresh = [attempt for attempt in stones if attempt not in known and await here.is_past(attempt)]
    here.past_at = known | dict.fromkeys(fresh, here.clock())
    return {attempt for attempt, since in here.past_at.items() if here.clock() - since >= GONE_MS}


def _is_stone(execution: Execution) -> bool:
    return bool(execution.job["spec"].get("suspend"))


def _home_of(execution: Execution) -> str:
    """The uid of its home Job; empty if there is none, or the tombstone does not say."""
    origin = annotation_of(execution.job, annotations.ORIGIN)
    return origin if origin != annotation_of(execution.job, annotations.JOB) else ""


def _ending(job: Obj, how: str, words: str, *, at_once: bool) -> Obj | None:
    """The patch that ends a Job. A suspended Job has no running deadline, so it gets parallelism 0. `refused` applies
    only to what never ran: a stale control plane must not end a running attempt.
    """
    if how == "refused" and not annotation_of(job, annotations.ENDING) and all_ready(job):
        return None
    meta: Obj = (
        {}
        if annotation_of(job, annotations.ENDING)
        else {"annotations": {annotations.ENDING: how, annotations.WORDS: words}}
    )
    spec: Obj = {"activeDeadlineSeconds": 1} if at_once and job["spec"].get("activeDeadlineSeconds") != 1 else {}
    if job["spec"].get("suspend") and job["spec"].get("parallelism", 1):
        spec["parallelism"] = 0
    return {"metadata": meta, "spec": spec} if meta or spec else None


async def _delete_pod(here: Connection, pod: Obj, grace_s: int | None = None) -> None:
    meta = pod["metadata"]
    try:
        await here.cluster.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_s=grace_s)
    except (errors.NotFound, errors.Conflict):
        return  # deleted already


def _forgotten(job: Obj, keep_ms: Millis) -> Obj | None:
    """The patch that lets the cluster delete the Job."""
    if annotation_of(job, annotations.FORGOTTEN):
        return None
    kept = [finalizer for finalizer in job["metadata"].get("finalizers") or () if finalizer != annotations.RESULT]
    return {
        "metadata": {"annotations": {annotations.FORGOTTEN: "true"}, "finalizers": kept or None},
        "spec": {"ttlSecondsAfterFinished": keep_ms // SECOND},
    }


async def _leave_stone(here: Connection, execution: Execution) -> None:
    """Somebody deleted the Job and only our finalizer kept it: replace it by a tombstone, or its name would be free.
    Not if its home Job is deleted, too: then no start can be bound, and the cluster collects what would come late.
    """
    owners = execution.job["metadata"].get("ownerReferences") or []
    if owners and await _is_gone(here, owners[0], execution.namespace):
        return
    stone = tombstone(here.installation, execution.attempt, execution.namespace)
    stone["metadata"] |= {"ownerReferences": owners} if owners else {}
    stone["metadata"]["annotations"] |= {
        **{key: text for key in (annotations.JOB, annotations.ORIGIN) if (text := annotation_of(execution.job, key))},
        annotations.FORGOTTEN: "true",
        annotations.ENDING: "lost",
        annotations.WORDS: "deleted",
    }
    del stone["metadata"]["finalizers"]
    try:
        await here.cluster.create(JOBS, stone)
    except (errors.AlreadyExists, errors.Forbidden, errors.NotFound):
        return  # another finalizer keeps it, or its namespace is being deleted


async def _is_gone(here: Connection, owner: Obj, namespace: str) -> bool:
    try:
        metadata = (await here.cluster.get(JOBS, owner["name"], namespace))["metadata"]
    except errors.NotFound:
        return True
    return bool(metadata["uid"] != owner["uid"] or metadata.get("deletionTimestamp"))
