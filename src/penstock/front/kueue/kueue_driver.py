"""The Kueue driver: an attempt is a Workload that our AdmissionCheck lets in. `site_drivers` makes one for each site
that a Kueue starts Workloads at; all drivers of one Kueue share its informers.

The journal has promised the attempt, with its hold, before `start` is called. `start` then takes one of the
`admission_steps` after another, each guarded by the resourceVersion that it was decided by: bound the Workload's time
by the hold, name the worker, let it in. From there Kueue ends it at its bound, whether or not we live. What must
survive us is on the Workload: the attempt's id, its offer, whether it began, and whether we ended it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, assert_never

from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import Site
from penstock.core.units import NEVER, SECOND, Instant, Millis
from penstock.drivers import attempt_facts
from penstock.drivers.driver import (
    BaseDriver,
    Command,
    NoCapacity,
    Refused,
    Say,
    SeenAttempt,
    SeenPhase,
    SiteInventory,
    Unreachable,
    Unstartable,
    Work,
)
from penstock.formatting import duration
from penstock.front.home_cluster import key_of
from penstock.front.kueue import admission_check
from penstock.front.kueue import admission_steps as steps
from penstock.front.kueue import workload as w
from penstock.front.kueue.admission_steps import AdmissionTerms
from penstock.front.kueue.workloads import KueueWorkloads, now_written
from penstock.kube import annotations, errors
from penstock.kube.client import Kind
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.kueue_api import ADMISSION_MANAGER, MAX_SECONDS, WORKLOADS, owner_kind
from penstock.kube.kueue_manager import KueueSite
from penstock.kube.references import Json, part, parts
from penstock.site_answers import still_leads, to_nobody

CLOSED_MS: Final[Millis] = 60 * SECOND  #: how long an offer is closed whose worker admitted nothing in time
LOOK_SECONDS: Final = 30.0  #: a Workload that does not change is looked at again: the time that is left does change
TOLD_SECONDS: Final = 3.0  #: what holds a start up for longer is told
IN_STEP_SECONDS: Final = 20.0


class KueueDriver(BaseDriver):
    def __init__(
        self, site: Site, home: KueueWorkloads, settings: KueueSite, installation: str, clock: Callable[[], Instant]
    ) -> None:
        self.site, self.home, self.settings, self.installation, self.clock = site, home, settings, installation, clock
        self.say: Say = to_nobody
        self.running: dict[str, str] = {}  #: by a Workload's key, the attempt that runs

    def use(self, site: Site) -> None:
        """What the site offers from now on; what runs is not touched."""
        self.site = site

    async def open(self, say: Say) -> None:
        async with self._asking():
            try:
                words = await admission_check.claim(self.home.cluster, self.home.check, self.installation)
            except errors.NotFound:
                words = ""  # the controller raises an alarm; nothing can wait for a check that is not there
        if words:
            raise Refused(f"Kueue {self.home.name}: {words}")
        self.say = say
        self.home.follow()
        self.home.listeners.append(self._changed)
        for workload in self.home.all():
            self._changed(workload)

    async def close(self) -> None:
        self.say = to_nobody
        if self._changed in self.home.listeners:
            self.home.listeners.remove(self._changed)

    # --- an attempt ---------------------------------------------------------------------------------------------------

    async def start(self, ask: StartAttempt, work: Work) -> None:
        target, waited = _target(work), _Waited(self.settings.wait_ms / SECOND)
        while True:
            await self._in_step()
            workload = self.home.workload_at(target.key)
            step = steps.next_step(workload, self._terms(ask, target))
            match step:
                case steps.Over():
                    self._say_over(workload, ask, step)
                    return
                case steps.Runs() if (
                    workload is not None and w.annotation_of(workload, annotations.STARTED) == ask.attempt
                ):
                    self.running[target.key] = ask.attempt
                    return
                case steps.Wait():
                    if waited.is_news(step.queued):
                        self.say(e.AttemptQueued(self.clock(), ask.attempt, step.queued))
                    if waited.is_too_long():
                        await self._give_up(workload, ask, step.queued)
                    await self._change_of(target.key, workload, waited.look_in)
                case _:
                    async with self._asking(again=True):
                        await self._take(step, workload or {}, ask, target)

    def _terms(self, ask: StartAttempt, target: "_Target") -> AdmissionTerms:
        """What it may use now: the lease's time runs."""
        left = None if ask.deadline_at >= NEVER else steps.seconds_left(ask.deadline_at, self.clock())
        return AdmissionTerms(
            attempt=ask.attempt,
            offer=ask.offer,
            check=self.home.check,
            uid=target.uid,
            seconds=left,
            own_seconds=target.seconds,
            cluster=self.settings.cluster,
        )

    async def _take(self, step: steps.Step, workload: Json, ask: StartAttempt, target: "_Target") -> None:
        """One change; the loop sees what came of it."""
        if not still_leads.get()():
            raise Unreachable("another control plane may lead now")
        match step:
            case steps.BoundTime():
                await self._bound(step.seconds, workload, ask, target)
            case steps.Open():
                await self._open(workload, ask)
            case steps.Reactivate():
                await self._reactivate(workload)
            case steps.Evict():
                await self._set_check(workload, w.RETRY, "an earlier attempt ended")
            case steps.Runs():  # a control plane that restarts must know that this attempt began
                await self._patch(workload, {"metadata": {"annotations": {annotations.STARTED: ask.attempt}}})
            case steps.Wait() | steps.Over():
                raise AssertionError("the loop handles these")
            case _:
                assert_never(step)

    async def _bound(self, seconds: int | None, workload: Json, ask: StartAttempt, target: "_Target") -> None:
        """The owner's label first: of the two, Kueue believes the label."""
        if seconds is not None:
            label = {"metadata": {"labels": {MAX_SECONDS: str(seconds)}}}
            await self.home.cluster.patch(target.kind, target.owner, label, target.namespace)
        marks: Json = {annotations.ATTEMPT: ask.attempt, annotations.OFFER: ask.offer, annotations.JOB: ask.job}
        own = str(target.seconds) if target.seconds else None
        marks |= {annotations.ENDING: None, annotations.STARTED: None, annotations.OWN_DEADLINE: own}
        spec = {} if seconds is None else {"spec": {"maximumExecutionTimeSeconds": seconds}}
        await self._patch(workload, {"metadata": {"annotations": marks}, **spec})

    async def _open(self, workload: Json, ask: StartAttempt) -> None:
        """Ready, and the worker's name, in one write: MultiKueue dispatches nothing before."""
        most = w.most_seconds(workload)
        time = f" for at most {duration(most * SECOND)}" if most is not None and ask.deadline_at < NEVER else ""
        words = f"Penstock starts it on {ask.offer}{time}, as {ask.attempt}; 'penstock why {ask.job}' says why."
        if self.settings.cluster:
            await self._nominate(workload, words)
        else:
            await self._set_check(workload, w.READY, words)

    async def _nominate(self, workload: Json, words: str) -> None:
        """Kueue takes the worker's name away again when the worker admits it."""
        checks = w.checks_with(workload, self.home.check, w.READY, words, now_written())
        status = {
            **part(workload, "status"),
            "admissionChecks": checks,
            "nominatedClusterNames": [self.settings.cluster],
        }
        await self._apply_status(workload, status)

    async def _reactivate(self, workload: Json) -> None:
        """Without the conditions of its deactivation: by one Kueue would deactivate it again, by the other it would
        stay out of its queue.
        """
        status = part(workload, "status")
        kept = [row for row in parts(status, "conditions") if row.get("type") not in w.DEACTIVATION]
        if len(kept) < len(parts(status, "conditions")):
            workload = await self._apply_status(workload, {**status, "conditions": kept})
        await self._patch(workload, {"spec": {"active": True}})

    def _say_over(self, workload: Json | None, ask: StartAttempt, step: steps.Over) -> None:
        """After the answer that it began: its end counts from there."""
        seen = (
            seen_attempt(workload, self.home.check)
            if workload is not None and w.attempt_of(workload) == ask.attempt
            else None
        )
        if seen is None and workload is not None and w.is_finished(workload) and not w.owner_is_gone(workload):
            outcome, words = w.end_of(workload)
            seen = SeenAttempt(ask.attempt, outcome, detail=words)
        phase: SeenPhase = seen.phase if seen is not None and seen.phase != "running" else "stopped"
        fact = attempt_facts.ended(self.clock(), ask.attempt, phase, 0, seen.detail if seen else step.words)
        asyncio.get_running_loop().call_later(0.05, self.say, fact)

    async def _give_up(self, workload: Json | None, ask: StartAttempt, why: str) -> None:
        """Its worker did not admit it in time: it is taken back, and the engine looks elsewhere."""
        async with self._asking():
            if workload is not None and w.attempt_of(workload) == ask.attempt:
                if w.check_state(workload, self.home.check) == w.READY:
                    await self._set_check(workload, w.RETRY, f"Not admitted in time on {ask.offer}")
                else:
                    await self._patch(workload, {"metadata": {"annotations": {annotations.ATTEMPT: None}}})
        words = f"it was not admitted within {duration(self.settings.wait_ms)}: {why or 'Kueue did not say why'}"
        if workload is None or not w.has_quota(workload):  # the manager's queue, and no worker, holds it back
            raise Unstartable(words, CLOSED_MS, "unfit")
        raise NoCapacity(words, CLOSED_MS)

    async def stop(self, attempt: str, grace_ms: Millis) -> None:  # noqa: ARG002 - its pods have their own grace
        """Kueue evicts it. If the attempt was never let in, its mark keeps a late start from letting it in."""
        await self._in_step()
        workload = self.home.marked_with(attempt)
        if workload is None:
            self.say(e.AttemptStopped(self.clock(), attempt, 0))
            return
        async with self._asking():
            if not w.annotation_of(workload, annotations.ENDING):
                workload = await self._patch(workload, {"metadata": {"annotations": {annotations.ENDING: "stopped"}}})
            if w.check_state(workload, self.home.check) == w.READY and w.has_quota(workload):
                workload = await self._set_check(workload, w.RETRY, f"Penstock stopped {attempt}")
        self._changed(workload)

    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        """Kueue fixes it when it admits a Workload; the engine knows that, and asks only about what never began."""
        raise Unreachable(f"{attempt} cannot get another deadline than {deadline_at}: Kueue has fixed it")

    # --- what is there ------------------------------------------------------------------------------------------------

    def _changed(self, workload: Json) -> None:
        """Say how an attempt of this site ended; the start's own call says that it began."""
        key = key_of(workload)
        if (ran := self.running.get(key)) and w.attempt_of(workload) != ran:
            del self.running[key]  # Kueue made the Workload anew: what ran for the old one is gone
            self.say(e.AttemptLost(self.clock(), ran, 0))
        if not self._is_here(workload) or (seen := seen_attempt(workload, self.home.check)) is None:
            return
        if seen.phase == "running":
            self.running[key] = seen.attempt
            return
        self.running.pop(key, None)
        self.say(attempt_facts.ended(self.clock(), seen.attempt, seen.phase, 0, seen.detail))

    def _is_here(self, workload: Json) -> bool:
        return w.annotation_of(workload, annotations.OFFER) in {offer.id for offer in self.site.offers}

    async def look(self) -> SiteInventory:
        await self._in_step()
        seen = [seen_attempt(workload, self.home.check) for workload in self.home.all() if self._is_here(workload)]
        return SiteInventory(tuple(attempt for attempt in seen if attempt is not None))

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:  # noqa: ARG002
        raise Refused(f"the pods of {attempt} are Kueue's; read their logs with kubectl, in the cluster where they run")

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:  # noqa: ARG002
        raise Refused(f"the pods of {attempt} are Kueue's; use kubectl exec, in the cluster where they run")

    async def forget(self, attempt: str) -> None:
        """Its Workload is Kueue's, and stays as long as Kueue keeps it."""

    # --- the cluster --------------------------------------------------------------------------------------------------

    async def _patch(self, workload: Json, change: Json) -> Json:
        metadata = part(workload, "metadata")
        patched = await self.home.cluster.patch(
            WORKLOADS, metadata["name"], change, metadata["namespace"], seen=metadata["resourceVersion"]
        )
        self.home.learn(patched)
        return patched

    async def _set_check(self, workload: Json, state: str, words: str) -> Json:
        metadata = part(workload, "metadata")
        status = {"admissionChecks": w.checks_with(workload, self.home.check, state, words, now_written())}
        patched = await self.home.cluster.patch_status(
            *(WORKLOADS, metadata["name"], status, metadata["namespace"]), seen=metadata["resourceVersion"]
        )
        self.home.learn(patched)
        return patched

    async def _apply_status(self, workload: Json, status: Json) -> Json:
        """As Kueue's own admission applies it, with all that it has applied: it can take away only what is its own."""
        metadata = part(workload, "metadata")
        named = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        patched = await self.home.cluster.apply(
            *(WORKLOADS, {"metadata": named, "status": status}, metadata["namespace"], ADMISSION_MANAGER), part="status"
        )
        self.home.learn(patched)
        return patched

    async def _in_step(self) -> None:
        """The cache is the cluster's; otherwise what it lacks proves nothing."""
        try:
            async with asyncio.timeout(IN_STEP_SECONDS):
                await self.home.in_step()
        except TimeoutError:
            raise Unreachable(self.home.trouble or "its Workloads cannot be followed") from None

    async def _change_of(self, key: str, workload: Json | None, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.home.change_of(key, workload)

    @asynccontextmanager
    async def _asking(self, *, again: bool = False) -> AsyncIterator[None]:
        """Errors of the cluster as the contract names them. `again`: the caller looks again after a conflict."""
        try:
            yield
        except (errors.Conflict, errors.NotFound) as error:
            if not again:
                raise Unreachable(str(error)) from error
            await asyncio.sleep(0.1)
        except errors.Forbidden as error:
            raise Unreachable(f"our account may not {error.verb} {error.resource}: {error}") from error
        except errors.Invalid as error:
            raise Unreachable(f"Kueue does not take it: {error}") from error
        except errors.KubeError as error:
            raise Unreachable(str(error)) from error


class _Waited:
    """How long a start waits: for the same thing, and altogether."""

    def __init__(self, most_s: float) -> None:
        self.now = asyncio.get_running_loop().time
        self.until = self.now() + most_s
        self.words, self.since, self.reported = "", self.now(), ""

    def is_news(self, words: str) -> bool:
        """It waits for this for longer than Kueue takes to make a Workload anew, and nobody was told."""
        if words != self.words:
            self.words, self.since = words, self.now()
        news = bool(words) and words != self.reported and self.now() - self.since >= TOLD_SECONDS
        self.reported = words if news else self.reported
        return news

    def is_too_long(self) -> bool:
        return self.now() > self.until

    @property
    def look_in(self) -> float:
        """Seconds until something is due although nothing changes."""
        untold = bool(self.words) and self.words != self.reported
        return min(TOLD_SECONDS if untold else LOOK_SECONDS, max(0.05, self.until - self.now()))


class _Target:
    """Which Workload it is, and whose."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        owner = manifest["owner"]
        kind = owner_kind(owner["apiVersion"], owner["kind"])
        if kind is None:
            raise Refused(f"a {owner['kind']} of {owner['apiVersion']} is not governed by this version")
        self.kind: Kind = kind
        self.namespace, self.owner, self.uid = manifest["namespace"], owner["name"], owner["uid"]
        self.seconds = int(manifest["seconds"])
        self.key = f"{manifest['namespace']}/{manifest['workload']}"


def _target(work: Work) -> _Target:
    try:
        return _Target(json.loads(work.manifest))
    except (ValueError, KeyError, TypeError):
        raise Refused("it was not submitted by Kueue, and this site takes nothing else") from None


def seen_attempt(workload: Json, check: str) -> SeenAttempt | None:
    """The attempt that the Workload is marked with; None: it has not begun, and may still be let in."""
    attempt = w.attempt_of(workload)
    if not attempt:
        return None
    began, ending = (
        w.annotation_of(workload, annotations.STARTED) == attempt,
        w.annotation_of(workload, annotations.ENDING),
    )
    runs = w.check_state(workload, check) == w.READY and w.has_quota(workload)
    if w.owner_is_gone(workload):  # the controller cancels its job, and the engine then stops this attempt
        return SeenAttempt(attempt, "stopped" if ending else "running", detail="its owner was deleted")
    if w.is_finished(workload):
        outcome, words = w.end_of(workload)
        return SeenAttempt(attempt, outcome, detail=words)
    if runs and w.is_admitted(workload):
        return SeenAttempt(attempt, "running")
    never_let_in = w.check_state(workload, check) == w.PENDING and not w.is_evicted(workload)
    if ending and (never_let_in or w.is_off(workload)):
        return SeenAttempt(attempt, "stopped", detail="told to stop")
    if began and not w.is_off(workload):  # Kueue is still ending it: it is paid for until its quota is returned
        return SeenAttempt(attempt, "running")
    if began and w.lease_is_up(workload):
        return SeenAttempt(attempt, "stopped", detail="Kueue ended it at the end of its lease")
    if began and w.time_is_up(workload):
        return SeenAttempt(attempt, "failed", detail=f"it ran for its own {MAX_SECONDS} of {w.most_seconds(workload)}")
    return None
