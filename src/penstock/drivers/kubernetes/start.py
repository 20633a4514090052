"""Starts an attempt: creates its execution Job and waits until it runs, or gives up because the offer is full or
something keeps this job from it. `KubernetesDriver.start` calls it.
"""

import asyncio
from collections import Counter
from typing import Final, NoReturn, cast

from penstock.capacity.contract import object_name
from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.reasons import Obstacle, Shortage
from penstock.core.model.types import NODE_WITH, STANDING
from penstock.core.units import MINUTE, SECOND, Instant, Millis
from penstock.data.checkpoints import Store
from penstock.drivers.driver import NoCapacity, Refused, Undelivered, Unreachable, Unstartable, Work
from penstock.drivers.kubernetes import copies, host_names, ownership, terminate
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.capacity import CapacityReporter
from penstock.drivers.kubernetes.connection import FULL, Connection
from penstock.drivers.kubernetes.execution_job import ExecutionRequest, execution_job, is_batch, origin_of
from penstock.drivers.kubernetes.execution_job import host_names as names_in
from penstock.drivers.kubernetes.pods import Trouble, annotation_of, is_short_of
from penstock.drivers.kubernetes.provisioning_request import asked_first
from penstock.drivers.kubernetes.scaling import CLOSED_MS
from penstock.drivers.kubernetes.trouble import scheduler_ms
from penstock.kube import annotations, errors
from penstock.kube.client import JOBS
from penstock.kube.gpu_requests import NotWhole
from penstock.kube.job_needs import job_needs
from penstock.kube.maps import Maps
from penstock.kube.portability import Rewritten, Unmapped, job_in, parsed, rewrite
from penstock.kube.references import part

SILENT_SECONDS: Final = 10.0  #: without any answer; claims are renewed every five
TOLD_AFTER: Final = 2  #: tries to create a Job; the next one comes a second after the first
STARTS: Final = 3  #: of an offer's start-up times, until a node that is said to come has not come


class Starter:
    def __init__(self, here: Connection, capacity: CapacityReporter, checkpoints: Store) -> None:
        self.here, self.capacity, self.checkpoints = here, capacity, checkpoints
        self.failed: Counter[str] = Counter()  #: by attempt: how often its Job could not be created

    # --- its Job -----------------------------------------------------------------------------------------------------

    async def order(self, ask: StartAttempt, work: Work, given: Rewritten) -> Execution:
        """Create the Job unless it exists. A Job of this name that is not ours is not touched."""
        here = self.here
        namespace = str(given.manifest.get("metadata", {}).get("namespace", "")) or here.settings.namespace
        if namespace not in here.namespaces:
            raise Refused(f"site {here.site.id} does not use namespace {namespace}; add it to its 'namespaces'")
        if names := names_in(given.manifest):
            copied = any(copy["kind"] == "Service" for copy in given.copies)
            await host_names.check(self.here, names, namespace, copied=copied)
        order = self._order_of(ask, work, await self._variables(ask), namespace)
        made = [copy for copy in given.copies if await copies.ensure(here, copy, namespace)]
        ordered_at = here.clock()
        wanted = execution_job(order, given.manifest, ordered_at)
        if not is_batch(given.manifest):
            wanted = asked_first(wanted, order.place.provisioning_class)
        try:
            job = await here.cluster.create(JOBS, wanted)
        except errors.AlreadyExists:
            existing = await here.cluster.get(JOBS, here.name(ask.attempt), namespace)
            ownership.check_own(here, existing, ask.attempt, origin_of(given.manifest, ask))
            return here.executions.note(existing)
        self.failed.pop(ask.attempt, None)
        here.ending.discard(namespace)
        execution = here.executions.note(job)
        execution.ordered_at = ordered_at
        for copy in made:
            await copies.own(here, copy, execution)
        return execution

    def manifest(self, work: Work, offer: str) -> Rewritten:
        """The home Job rewritten for this site; empty if there is none. Raises `Refused`."""
        if not work.manifest:
            return Rewritten({})
        try:
            labels = dict(self.here.places[offer].selector)
            return rewrite(parsed(work.manifest), self.here.settings.maps or Maps(self.here.site.id), labels)
        except Unmapped as error:
            raise Refused(f"{error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"its Job cannot be read ({type(error).__name__}: {error})") from None

    def _order_of(self, ask: StartAttempt, work: Work, env: dict[str, str], namespace: str) -> ExecutionRequest:
        here, offer = self.here, self.here.offers[ask.offer]
        grace_ms = here.settings.grace_ms
        return ExecutionRequest(
            ask=ask,
            work=work,
            offer=offer,
            place=here.places[ask.offer],
            installation=here.installation,
            namespace=namespace,
            env=tuple(env.items()),
            secret=here.settings.secret,
            hosts=here.executions.hostnames(ask.places),
            pinned=ask.pinned,
            rented=tuple(annotations.node_name(object_name(here.installation, node)) for node in ask.nodes),
            avoid=() if ask.pinned else here.executions.hostnames(self._kept_off(ask)),
            grace_ms=grace_ms if offer.term in STANDING else min(grace_ms, offer.kill_ms // 2),
        )

    def _kept_off(self, ask: StartAttempt) -> tuple[str, ...]:
        """Nodes that failed others, that are reserved for another job, or whose GPUs are all kept free for others."""
        return tuple(dict.fromkeys((*self.capacity.avoided(), *ask.reserved, *self.capacity.headroom(ask.offer))))

    async def _variables(self, ask: StartAttempt) -> dict[str, str]:
        site = self.here.site.id
        try:
            return await asyncio.to_thread(self.checkpoints.ready, site, ask.job, ask.attempt, ask.earlier)
        except OSError as error:
            raise Unreachable(f"the checkpoint of {ask.earlier} could not be brought to {site}: {error}") from error

    async def check_answers(self) -> None:
        """Ask for something harmless first if the cluster has been silent. Only before the first create can we say that
        nothing of the attempt is there: a request without an answer may still take effect.
        """
        if self.here.cluster.silent_s < SILENT_SECONDS:
            return
        try:
            await ownership.check_still_ours(self.here)
        except errors.Unavailable as error:
            raise Undelivered(str(error)) from error

    def report(self, attempt: str, words: str) -> None:
        """Say on the home Job, too, why it is not created, once it was tried twice: nothing runs before that is
        mended.
        """
        self.failed[attempt] += 1
        if self.failed[attempt] == TOLD_AFTER:
            self.here.say(e.AttemptStuck(self.here.clock(), attempt, f"its Job is not created: {words}"))

    # --- its beginning -----------------------------------------------------------------------------------------------

    async def until_begun(self, execution: Execution, ask: StartAttempt, work: Work) -> None:
        while True:
            execution.news.clear()
            if execution.begun and annotation_of(execution.job, annotations.ENDING) not in ("refused", "failed"):
                return
            if execution.concluded:
                self._answer_never(execution)
            if execution.name not in self.here.executions.by_name:
                raise Unreachable(f"the Job of {execution.attempt} was deleted before it began")
            left_ms = self._patience(execution, ask)
            if left_ms is not None and left_ms <= 0:
                async with self.here.asking():
                    await self._give_up(execution, ask, work)
            await _news_within(execution.news, None if left_ms is None else max(0.05, left_ms / SECOND))

    def _answer_never(self, execution: Execution) -> NoReturn:
        """It ended before it ran: `NoCapacity` or `Unstartable`, or cancelled because the end is reported as a fact."""
        assert execution.end is not None
        words, retry_ms = execution.end.words, self.here.settings.retry_ms
        if annotation_of(execution.job, annotations.ENDING) == "refused" or execution.end.phase == "lost":
            if obstacle := annotation_of(execution.job, annotations.OBSTACLE) or (
                "unfit" if execution.end.node else ""
            ):
                tried = annotation_of(execution.job, annotations.TRIED)
                nodes = tuple(tried.split(",")) if tried else ()
                self.capacity.remember(annotation_of(execution.job, annotations.OFFER), nodes)
                raise Unstartable(words, retry_ms, cast("Obstacle", obstacle), nodes)
            shortage = cast("Shortage", annotation_of(execution.job, annotations.SHORTAGE))
            raise NoCapacity(words, CLOSED_MS.get(shortage, retry_ms), shortage)
        raise asyncio.CancelledError

    def _patience(self, execution: Execution, ask: StartAttempt) -> Millis | None:
        """How much longer its trouble may last; None if it has none."""
        if execution.trouble is None or annotation_of(execution.job, annotations.ENDING):
            return None
        settings = self.here.settings
        if execution.trouble.scaling:
            return self._patience_with_autoscaler(execution, ask) - self.here.clock()
        room_ms = settings.room_ms if self.here.offers[ask.offer].term in STANDING else settings.scale_ms
        most = {"room": room_ms, "pods": room_ms}.get(execution.trouble.kind, settings.image_ms)
        if _fails_job(execution, execution.trouble):
            most = settings.typo_ms
        return execution.trouble_at + max(most, scheduler_ms(execution.trouble)) - self.here.clock()

    def _patience_with_autoscaler(self, execution: Execution, ask: StartAttempt) -> Instant:
        """Until when it may have no node. One that is coming has the offer's start-up time, with some to spare."""
        settings, start_ms = self.here.settings, self.here.offers[ask.offer].start_ms
        if execution.scaling is not None and execution.scaling.kind == "coming":
            return execution.trouble_at + min(settings.scale_ms, max(STARTS * start_ms, MINUTE))
        return execution.scaling_at + settings.no_node_ms

    async def _give_up(self, execution: Execution, ask: StartAttempt, work: Work) -> None:
        """End the start here. An image that does not exist fails the job, unless it is a home Job, which stays pending
        as in plain Kubernetes. Anything else is the offer's (it is full) or this job's own.
        """
        trouble = execution.trouble
        assert trouble is not None
        words, job = trouble.words, annotation_of(execution.job, annotations.JOB)
        if trouble.node and trouble.kind in ("place", "image"):
            words += self.capacity.fault(trouble.node, job)
        if _fails_job(execution, trouble):
            await terminate.end(self.here, execution, "failed", words)
            return
        tried = self._tried(execution, ask, work) if trouble.kind == "room" else ()
        if obstacle := self._obstacle(ask, trouble, tried):
            if tried:
                await self._note(execution, annotations.TRIED, ",".join(tried))
            await self._note(execution, annotations.OBSTACLE, obstacle)
        elif trouble.scaling in CLOSED_MS:
            await self._note(execution, annotations.SHORTAGE, trouble.scaling)
        await terminate.end(self.here, execution, "refused", words)

    async def _note(self, execution: Execution, name: str, text: str) -> None:
        """On the Job, so that a control plane that restarts answers the same."""
        note = {"metadata": {"annotations": {name: text}}}
        await self.here.change(execution, lambda _: note if not annotation_of(execution.job, name) else None)

    def _tried(self, execution: Execution, ask: StartAttempt, work: Work) -> tuple[str, ...]:
        """Nodes that have the GPUs for it, and that the scheduler did not take: of those that suit it by what we know,
        or else of all. While there are some, the offer is not full.
        """
        suited = self.capacity.room_for(execution, ask, self._needs(work))
        return suited or self.capacity.room_for(execution, ask)

    def _needs(self, work: Work) -> tuple[str, ...]:
        """What its pods ask of a node here: away from home only amounts, because labels are mapped."""
        if not work.manifest:
            return ()
        job = job_in(parsed(work.manifest))
        try:
            needs = job_needs(job).needs
        except NotWhole:
            return ()
        at_home = part(part(job, "metadata"), "annotations").get(annotations.HOME) == self.here.site.id
        return needs if at_home else tuple(need for need in needs if need.startswith(NODE_WITH))

    def _obstacle(self, ask: StartAttempt, trouble: Trouble, tried: tuple[str, ...]) -> Obstacle:
        """What keeps this job, and not others, from the offer; empty: the offer is full."""
        match trouble.kind:
            case "missing" | "user":
                return "missing"
            case "image" | "place":
                return "unfit"
            case "pods":
                return "unfit" if any(word in trouble.words for word in FULL) else "missing"
            case "room":
                return self._why_no_node(ask, trouble, tried)

    def _why_no_node(self, ask: StartAttempt, trouble: Trouble, tried: tuple[str, ...]) -> Obstacle:
        """The autoscaler's words where it has any, else our own inventory together with the scheduler's."""
        if trouble.scaling:
            return "unfit" if trouble.scaling == "impossible" else ""
        if self.capacity.is_too_small_for(ask):
            return "unfit"
        resource = self.here.places[ask.offer].resource
        taken = ask.pinned and is_short_of(trouble.words, resource)  # by others, on the very nodes that it asks for
        return "unfit" if tried and not taken else ""


def _fails_job(execution: Execution, trouble: Trouble) -> bool:
    """True for an image that does not exist, unless a home Job names it."""
    is_home_job = annotation_of(execution.job, annotations.ORIGIN) != annotation_of(execution.job, annotations.JOB)
    return trouble.kind == "user" and not is_home_job


async def _news_within(news: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return
