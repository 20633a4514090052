"""Bound before it is started: a driver whose starts first write the binding on the home Job. `wiring` puts one before
each driver where there is a front door.

The journal has decided already; the binding repeats it where people look. It is guarded by the version that was seen,
so that of two control planes, one stopped for a while and one that took over, only the newer's attempt is bound. One
request does it all: whose it is, that deleting it cancels first, and that it is no longer suspended.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.ids import attempt_number
from penstock.core.model.actions import Action, StartAttempt
from penstock.core.model.events import Fact
from penstock.drivers.driver import Command, Driver, Say, SiteInventory, Unreachable, Work
from penstock.front.home_jobs import HomeJobs
from penstock.front.status import binding, bound_attempt, finalizers_of
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS, Cluster
from penstock.kube.errors import Conflict, KubeError
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.portability import job_in, parsed
from penstock.kube.references import Json, part

TRIES: Final = 5  #: against others who write on the same Job at the same time


class BindingDriver:
    """All but a start is the driver's own."""

    def __init__(self, driver: Driver, homes: Mapping[str, HomeJobs]) -> None:
        """`homes`: by site."""
        self.driver, self.homes = driver, homes

    async def do(self, action: Action, work: Work | None = None) -> Fact | None:
        if isinstance(action, StartAttempt) and work is not None and work.manifest:
            await self._bind(action, job_in(parsed(work.manifest)))
        return await self.driver.do(action, work)

    async def _bind(self, ask: StartAttempt, applied: Json) -> None:
        metadata = part(applied, "metadata")
        home = self.homes.get(str(part(metadata, "annotations").get(annotations.HOME)))
        if home is None:  # its front door was closed since: there is nobody to tell
            return
        home.binding.add(ask.attempt)
        try:
            seen = home.job_at(f"{_namespace(metadata)}/{metadata['name']}")
            job = await bind(home.cluster, metadata, ask, seen)
        except KubeError as error:
            raise Unreachable(f"its home Job cannot be bound: {error}") from error
        finally:
            home.binding.discard(ask.attempt)
        home.bound(job)

    async def open(self, say: Say) -> None:
        await self.driver.open(say)

    async def close(self) -> None:
        await self.driver.close()

    async def look(self) -> SiteInventory:
        return await self.driver.look()

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        return await self.driver.log(attempt, after, most, rank)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        return await self.driver.exec(attempt, command, typed, printed)

    async def forget(self, attempt: str) -> None:
        await self.driver.forget(attempt)


async def bind(home: Cluster, metadata: dict[str, Any], ask: StartAttempt, seen: Json | None = None) -> Json:
    """Write where it goes; the Job as it is then. Raises what the cluster says; that a newer attempt is bound already
    is a conflict.

    `seen`: the Job as a watch showed it. It is enough to try; whatever speaks against it, the cluster itself is asked.
    """
    name, namespace = str(metadata["name"]), _namespace(metadata)
    job = seen if seen is not None and _may_bind(seen, metadata, ask) else None
    for tries_left in reversed(range(TRIES)):
        if job is None:
            job = await home.get(JOBS, name, namespace)
            _refuse(job, metadata, ask)
            if bound_attempt(job) == ask.attempt:
                return job
        try:
            seen_version = part(job, "metadata")["resourceVersion"]
            return await home.patch(JOBS, name, _bound(job, ask), namespace, seen=seen_version)
        except Conflict:
            if not tries_left:
                raise
            job = None
    raise AssertionError("the last try returns or raises")


def _may_bind(job: Json, metadata: Json, ask: StartAttempt) -> bool:
    there = part(job, "metadata")
    same = there.get("uid") == metadata.get("uid") and "deletionTimestamp" not in there
    return same and attempt_number(bound_attempt(job)) < attempt_number(ask.attempt)


def _refuse(job: Json, metadata: Json, ask: StartAttempt) -> None:
    if part(job, "metadata").get("uid") != metadata.get("uid"):
        raise Conflict("another Job has its name now")
    if "deletionTimestamp" in part(job, "metadata"):
        raise Conflict("it is being deleted, and about to be cancelled")
    if attempt_number(bound_attempt(job)) > attempt_number(ask.attempt):
        raise Conflict(f"{bound_attempt(job)} is bound already, which is newer than {ask.attempt}")


def _bound(job: Json, ask: StartAttempt) -> Json:
    metadata = part(job, "metadata")
    change: Json = {"annotations": {annotations.JOB: ask.job, annotations.BINDING: binding(ask.attempt, ask.offer)}}
    finalizers = finalizers_of(metadata, keep=True)
    if finalizers != (metadata.get("finalizers") or []):
        change["finalizers"] = finalizers
    suspended = part(job, "spec").get("suspend") is True and not kueue.is_kueues(metadata)
    return {"metadata": change, **({"spec": {"suspend": False}} if suspended else {})}


def _namespace(metadata: Json) -> str:
    return str(metadata.get("namespace") or "default")
