"""A driver that binds the home Job before it starts the attempt. `wiring` wraps each site's driver with one where the
installation has a front door.

The journal has decided already; the binding repeats the decision on the Job. The patch carries the resourceVersion that
we read, so of two control planes (one paused, one that took over) only the one with the newer attempt succeeds. One
patch writes the binding, adds the finalizer that makes a delete cancel first, and unsuspends the Job.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.ids import attempt_number
from penstock.core.model.actions import Action, StartAttempt
from penstock.core.model.events import Fact
from penstock.core.units import SECOND, Millis
from penstock.drivers.claim import ClaimStore
from penstock.drivers.driver import Command, Driver, Say, SiteInventory, Unreachable, Unstartable, Work
from penstock.front.home_jobs import HomeJobs
from penstock.front.status import binding, bound_attempt, finalizers_of
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS, Cluster
from penstock.kube.errors import Conflict, KubeError, own_policy
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.portability import job_in, parsed
from penstock.kube.references import Json, part

TRIES: Final = 5  #: after conflicts with other writers of the same Job
DENIED_MS: Final[Millis] = 30 * SECOND  #: when a start is tried again that our own policy kept us from


class BindingDriver:
    """Wraps a site's driver: `do` binds before a start; every other call goes straight to the driver."""

    def __init__(self, driver: Driver, homes: Mapping[str, HomeJobs]) -> None:
        """`homes`: the home Jobs of each front door, by site."""
        self.driver, self.homes = driver, homes

    async def do(self, action: Action, work: Work | None = None) -> Fact | None:
        if isinstance(action, StartAttempt) and work is not None and work.manifest:
            await self._bind(action, job_in(parsed(work.manifest)))
        return await self.driver.do(action, work)

    async def _bind(self, ask: StartAttempt, applied: Json) -> None:
        metadata = part(applied, "metadata")
        home = self.homes.get(str(part(metadata, "annotations").get(annotations.HOME)))
        if home is None:  # its front door was removed from the sites file since: no Job to bind
            return
        home.binding.add(ask.attempt)
        try:
            seen = home.job_at(f"{_namespace(metadata)}/{metadata['name']}")
            job = await bind(home.cluster, metadata, ask, seen)
        except KubeError as error:
            if policy := own_policy(error):
                words = (
                    f"its home Job cannot be bound: Penstock's own policy {policy} does not know the login ({error})"
                )
                raise Unstartable(words, DENIED_MS, "denied") from error
            raise Unreachable(f"its home Job cannot be bound: {error}") from error
        finally:
            home.binding.discard(ask.attempt)
        home.bound(job)

    @property
    def claims(self) -> ClaimStore | None:
        return self.driver.claims

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
    """Write the binding and return the Job as patched. Raises the cluster's own error; `Conflict` if a newer attempt is
    bound.

    `seen`: the Job from the informer's cache, good enough for the first try. After a conflict, or if the cached Job may
    not be bound, the Job is read from the API server.
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
