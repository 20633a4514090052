"""A driver that binds the home Job before it starts the attempt. `wiring` wraps each site's driver with one where the
installation has a front door.

The journal has decided already; the binding repeats the decision on the Job. The patch carries the resourceVersion that
we read, so of two control planes (one paused, one that took over) only the one with the newer attempt succeeds. One
patch writes the binding, adds the finalizer that makes a delete cancel first, and unsuspends the Job.
"""

import asyncio
import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.core.ids import attempt_number, job_of
from penstock.core.model import events as e
from penstock.core.model.actions import Action, StartAttempt
from penstock.core.model.events import Fact
from penstock.core.model.types import Origin, PodCounts
from penstock.core.units import SECOND, Millis
from penstock.drivers.claim import ClaimStore
from penstock.drivers.driver import Command, Driver, Say, SiteInventory, Unreachable, Unstartable, Work
from penstock.drivers.earlier import Earlier, tallied, written
from penstock.drivers.running_pods import CountsPods, KeepsForHomeJobs
from penstock.front.home_cluster import has_ended, uid_of
from penstock.front.home_jobs import HomeJobs
from penstock.front.status import binding, bound_attempt, finalizers_of, is_suspended_by_user, log_command
from penstock.journal.journal import Row, Unwritable
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS, Cluster
from penstock.kube.errors import Conflict, KubeError, own_policy
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.portability import job_in, parsed
from penstock.kube.references import Json, part

TRIES: Final = 5  #: after conflicts with other writers of the same Job
DENIED_MS: Final[Millis] = 30 * SECOND  #: when a start is tried again that our own policy kept us from
OWN_DEADLINE: Final = "DeadlineExceeded: its earlier attempts used up its own activeDeadlineSeconds"
DEADLINE_EXCEEDED: Final = PodCounts(reason="DeadlineExceeded", message="Job was active longer than specified deadline")


class BindingDriver:
    """Wraps a site's driver: `do` binds before a start; every other call goes straight to the driver."""

    def __init__(
        self, driver: Driver, homes: Mapping[str, HomeJobs], story: Callable[[str], list[Row]] = lambda _: []
    ) -> None:
        """`homes`: the home Jobs of each front door, by site. `story`: the journal's rows about a job."""
        self.driver, self.homes, self.story = driver, homes, story

    async def do(self, action: Action, work: Work | None = None) -> Fact | None:
        if isinstance(action, StartAttempt) and work is not None and work.manifest:
            earlier = await self._earlier(action)
            if _is_used_up(job_in(parsed(work.manifest)), earlier):
                return e.AttemptEnded(0, action.attempt, "failed", OWN_DEADLINE, DEADLINE_EXCEEDED)
            await self._bind(action, job_in(parsed(work.manifest)))
            work = _sent_along(work, earlier)
        return await self.driver.do(action, work)

    async def _earlier(self, ask: StartAttempt) -> Earlier:
        """What earlier attempts did, by the journal: it has their ends before it promises the next one."""
        if attempt_number(ask.attempt) <= 1:
            return Earlier()
        try:
            rows = await asyncio.to_thread(self.story, ask.job)
        except Unwritable as error:
            raise Unreachable(f"its earlier attempts cannot be read from the journal: {error}") from error
        return tallied(event for row in rows for event in (*row.inputs, *row.outputs))

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

    def _pods_changed(self, attempt: str) -> None:
        for home in self.homes.values():
            home.touch_soon(job_of(attempt))

    def _home_jobs(self) -> set[str] | None:
        """Only complete lists of all front doors prove that a home Job is gone."""
        homes = self.homes.values()
        if not homes or not all(home.is_in_step for home in homes):
            return None
        return {uid for home in homes for uid in home.uids}

    async def _is_past(self, attempt: str) -> bool:
        """True if no start of this attempt can be bound any more: its home Job is gone, has ended, or is bound to a
        later attempt. False if it is not known, and for a job that is no home Job's.
        """
        if not all(home.is_in_step for home in self.homes.values()):
            return False
        job = job_of(attempt)
        for home in self.homes.values():
            shown = home.job_at(home.keys.get(job, ""))
            if shown is not None and home.ids.get(uid_of(shown)) == job:
                return has_ended(shown) or attempt_number(bound_attempt(shown)) > attempt_number(attempt)
        origin = await asyncio.to_thread(self._origin, job)
        return origin is not None and origin.site in self.homes and origin.uid not in self.homes[origin.site].uids

    def _origin(self, job: str) -> Origin | None:
        """The home Job that it was submitted for, by the journal."""
        try:
            facts = (fact for row in self.story(job) for fact in row.inputs)
            return next((fact.spec.origin for fact in facts if isinstance(fact, e.JobSubmitted)), None)
        except Unwritable:
            return None

    @property
    def claims(self) -> ClaimStore | None:
        return self.driver.claims

    async def open(self, say: Say) -> None:
        if isinstance(self.driver, CountsPods):
            self.driver.when_pods_change(self._pods_changed)
            for home in self.homes.values():
                home.counting.add(self.driver)
        if isinstance(self.driver, KeepsForHomeJobs):
            self.driver.ask_for_home_jobs(self._home_jobs, self._is_past)
        await self.driver.open(say)

    async def close(self) -> None:
        await self.driver.close()

    def consider(self, needs: Iterable[str]) -> None:
        self.driver.consider(needs)

    def judged(self, needs: Iterable[str]) -> list[e.NodesUnsuited]:
        return self.driver.judged(needs)

    async def look(self) -> SiteInventory:
        return await self.driver.look()

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        return await self.driver.log(attempt, after, most, rank)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        return await self.driver.exec(attempt, command, typed, printed)

    async def forget(self, attempt: str) -> None:
        await self.driver.forget(attempt)


def _is_used_up(job: Json, earlier: Earlier) -> bool:
    """True if nothing is left of the user's own deadline: its pods may not even start."""
    given = part(job, "spec").get("activeDeadlineSeconds")
    return isinstance(given, int) and earlier.ran_ms >= given * SECOND


def _sent_along(work: Work, earlier: Earlier) -> Work:
    """The work with what earlier attempts did on its manifest, and nothing that a person wrote there."""
    text = written(earlier)
    if not text and annotations.EARLIER not in work.manifest:
        return work
    manifest = copy.deepcopy(parsed(work.manifest))
    notes = job_in(manifest)["metadata"].setdefault("annotations", {})
    notes.pop(annotations.EARLIER, None)
    if text:
        notes[annotations.EARLIER] = text
    return replace(work, manifest=json.dumps(manifest, sort_keys=True))


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
    current = part(job, "metadata")
    same = current.get("uid") == metadata.get("uid") and "deletionTimestamp" not in current and not has_ended(job)
    return same and not is_suspended_by_user(job) and attempt_number(bound_attempt(job)) < attempt_number(ask.attempt)


def _refuse(job: Json, metadata: Json, ask: StartAttempt) -> None:
    if part(job, "metadata").get("uid") != metadata.get("uid"):
        raise Conflict("another Job has its name now")
    if "deletionTimestamp" in part(job, "metadata"):
        raise Conflict("it is being deleted, and about to be cancelled")
    if has_ended(job):
        raise Conflict("it has ended")
    if is_suspended_by_user(job) and bound_attempt(job) != ask.attempt:
        raise Conflict("its user has suspended it, and it is about to be stopped")
    if attempt_number(bound_attempt(job)) > attempt_number(ask.attempt):
        raise Conflict(f"{bound_attempt(job)} is bound already, which is newer than {ask.attempt}")


def _bound(job: Json, ask: StartAttempt) -> Json:
    metadata = part(job, "metadata")
    marks = {annotations.JOB: ask.job, annotations.BINDING: binding(ask.attempt, ask.offer)}
    change: Json = {"annotations": marks | {annotations.UNSUSPENDED: ask.attempt, annotations.LOGS: log_command(job)}}
    finalizers = finalizers_of(metadata, keep=True)
    if finalizers != (metadata.get("finalizers") or []):
        change["finalizers"] = finalizers
    suspended = part(job, "spec").get("suspend") is True and not kueue.is_kueues(metadata)
    return {"metadata": change, **({"spec": {"suspend": False}} if suspended else {})}


def _namespace(metadata: Json) -> str:
    return str(metadata.get("namespace") or "default")
