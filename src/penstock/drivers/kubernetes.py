"""A site that is a Kubernetes cluster: an attempt is a Job of its own there. `wiring` makes one for each such site.

Nothing is installed in the cluster; it is watched and asked. All that must not be forgotten is written on the Job
itself: whose attempt it is, its deadline, why we end it. So a control plane that starts again finds everything in the
cluster, and the Job keeps its deadline, and its result, while there is none.

`execution.py` says what a Job looks like, `pods.py` what its end means, `executions.py` what is there now.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn, ParamSpec

from penstock.core import events as e
from penstock.core.actions import LaunchNode, StartAttempt
from penstock.core.model import STANDING, Site
from penstock.core.units import DAY, HOUR, MINUTE, NEVER, PERMILLE, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.data.checkpoints import Store, safe_name
from penstock.drivers.driver import NoCapacity, Refused, Say, Seen, SeenAttempt, Unreachable, Work
from penstock.drivers.execution import (
    Order,
    execution_job,
    is_gang,
    origin_of,
    rendezvous,
    seconds_left,
    tombstone,
)
from penstock.drivers.executions import Execution, Executions
from penstock.drivers.inventory import headroom_at
from penstock.drivers.podlogs import Kubelets, PodLog
from penstock.drivers.pods import Trouble, began_at, end_of, has_begun, is_active, node_of, said, trouble_of
from penstock.kube import errors, names
from penstock.kube.client import CONFIG_MAPS, JOBS, LEASES, NODES, PODS, Cluster, Obj
from penstock.kube.maps import Maps
from penstock.kube.places import Place
from penstock.kube.portability import Rewritten, Unmapped, rewrite

P = ParamSpec("P")
LEASE_LABELS: Final = {"app.kubernetes.io/name": "penstock"}
BREATH_SECONDS: Final = 0.05  #: from the answer to a start until its end is said, if it ended meanwhile
LOG_SECONDS: Final = 5.0  #: how long an end waits for the last lines of its log
ROOM_SECONDS: Final = 0.3  #: changes of nodes and of other people's pods are told together
TICK_SECONDS: Final = 60.0  #: what failed is tried again, hours change, tombstones grow old
CONFLICTS: Final = 8  #: somebody else writes to our Jobs that often at most
FAULTS: Final = 2  #: of one node within an hour, then it is avoided for one
FULL: Final = ("exceeded quota", "forbidden: maximum")


@value
class KubernetesSettings:
    """How a cluster is used. The sites file says what it offers."""

    namespace: str = "penstock"
    namespaces: tuple[str, ...] = ()  # further ones that home Jobs come from or are mapped to
    places: tuple[tuple[str, Place], ...] = ()  # how each offer is spelt there, by its id
    shared: bool = False  # other installations work in this cluster too, in namespaces of their own
    secret: str = ""  # a Secret there whose keys become variables: how to reach the checkpoints
    maps: Maps | None = None
    grace_ms: Millis = 30 * SECOND  # to write a last checkpoint at the deadline; rented: at most half of `kill`
    room_ms: Millis = MINUTE  # how long a standing offer may leave a pod without a node
    scale_ms: Millis = 15 * MINUTE  # the same where nodes are made as pods ask for them
    image_ms: Millis = 2 * MINUTE  # how long a place may fail to fetch an image, or to begin
    typo_ms: Millis = 10 * SECOND  # the same for an image that is not there
    retry_ms: Millis = 30 * SECOND  # what a full cluster suggests
    keep_ms: Millis = DAY  # how long a Job stays after its end is on record
    log_bytes: int = 64 << 20  # of each attempt
    hour: Callable[[], int] = lambda: datetime.now().astimezone().hour  # of the day, for headroom


class KubernetesDriver:
    def __init__(
        self,
        site: Site,
        folder: Path,
        installation: str,
        checkpoints: Store,
        clock: Callable[[], Instant],
        connect: Callable[[], Cluster],
        settings: KubernetesSettings,
    ) -> None:
        self.site, self.folder, self.installation = site, folder.absolute(), installation
        self.checkpoints, self.clock, self.connect, self.settings = checkpoints, clock, connect, settings
        self.offers = {offer.id: offer for offer in site.offers}
        self.places: Mapping[str, Place] = {offer: Place() for offer in self.offers} | dict(settings.places)
        self.namespaces = tuple(dict.fromkeys((settings.namespace, *settings.namespaces)))
        self.say: Say = _to_nobody
        self.kubelets = Kubelets()
        self.faults: dict[str, list[Instant]] = {}  #: of nodes
        self.told_nodes: dict[str, tuple[tuple[str, int], ...]] = {}
        self.telling_room: asyncio.TimerHandle | None = None
        self.tasks: dict[str, asyncio.Task[None]] = {}  #: what is being seen to, each once
        self.opened = False

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        self.say = say
        if not hasattr(self, "cluster"):
            self.cluster = self.connect()
            both = {offer.id: (offer, self.places[offer.id]) for offer in self.site.offers}
            self.there = Executions(
                self.cluster,
                self.installation,
                self.namespaces,
                both,
                self._log_of,
                self._look_at,
                self._room_changed,
                self._in_step_again,
            )
        async with self._asking():
            await self._claim()
        await self.there.follow()
        self.opened = True
        for one in self.there:
            self._look_at(one)
        self._tell_room()
        self._see_to("tick", self._tick)

    async def close(self) -> None:
        self.say = _to_nobody
        if self.telling_room is not None:
            self.telling_room.cancel()
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if hasattr(self, "cluster"):
            await self.there.close()
            await self.cluster.close()

    async def _claim(self) -> None:
        """This installation's from now on: a Lease in our namespace says so. Another's, anywhere, is looked for too."""
        await self._claim_lease()
        if self.settings.shared:
            return
        try:
            found, _ = await self.cluster.list(LEASES, labels="app.kubernetes.io/name=penstock")
        except errors.Forbidden:
            return  # our own namespace is all that we may see
        for lease in found:
            self._check_owner(lease)

    async def _claim_lease(self) -> None:
        namespace = self.settings.namespace
        lease = {
            "metadata": {"name": names.LEASE, "labels": LEASE_LABELS},
            "spec": {"holderIdentity": self.installation},
        }
        try:
            self._check_owner(await self.cluster.get(LEASES, names.LEASE, namespace))
        except errors.NotFound:
            try:
                await self.cluster.create(LEASES, lease, namespace)
            except errors.AlreadyExists:
                self._check_owner(await self.cluster.get(LEASES, names.LEASE, namespace))
            except errors.NotFound:
                raise Refused(f"cluster {self.cluster.context} has no namespace {namespace}; create it") from None

    def _check_owner(self, lease: Obj) -> None:
        owner, where = lease["spec"].get("holderIdentity"), lease["metadata"].get("namespace")
        if lease["metadata"]["name"] == names.LEASE and owner != self.installation:
            raise Refused(
                f"cluster {self.cluster.context} belongs to installation {owner} (Lease {where}/{names.LEASE}), and"
                f" this is {self.installation}: let that one leave first, or delete its Lease if it is no more."
            )

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def launch_node(self, ask: LaunchNode) -> None:
        raise Refused(f"{ask.offer}: nodes of a cluster are not rented one by one; write 'sold_by: attempt'")

    async def release_node(self, node: str) -> None:
        """None was ever launched."""

    # --- starting ----------------------------------------------------------------------------------------------------

    async def start(self, ask: StartAttempt, work: Work, earlier: str) -> None:
        if ask.offer not in self.offers:
            raise Refused(f"site {self.site.id} has no offer {ask.offer}")
        async with self._asking():
            one = self._known(ask.attempt) or await self._order(ask, work, earlier)
            self._check_own(one, ask.attempt, self._origin(ask, work))
        if one.end is not None and said(one.job, names.ENDING) != "refused":
            if one.concluded:  # otherwise it is about to be said
                self._say_end(one)
            return
        one.starters += 1
        try:
            await self._until_begun(one, ask)
        finally:
            one.starters -= 1
            if one.concluded and not one.starters:
                asyncio.get_running_loop().call_later(BREATH_SECONDS, self._say_end, one)

    async def _order(self, ask: StartAttempt, work: Work, earlier: str) -> Execution:
        """Make its Job, unless somebody did. What is there under its name is its own, or nothing is touched."""
        given = self._manifest(work)
        namespace = str(given.manifest.get("metadata", {}).get("namespace", "")) or self.settings.namespace
        if namespace not in self.namespaces:
            raise Refused(f"site {self.site.id} does not use namespace {namespace}; add it to its 'namespaces'")
        order = self._order_of(ask, work, await self._variables(ask, earlier), namespace)
        for copy in given.copies:
            await self._create_once(copy, namespace)
        ordered_at = self.clock()
        try:
            job = await self.cluster.create(JOBS, execution_job(order, given.manifest, ordered_at))
        except errors.AlreadyExists:
            return self.there.note(await self.cluster.get(JOBS, self._name(ask.attempt), namespace))
        one = self.there.note(job)
        one.ordered_at = ordered_at
        return one

    def _origin(self, ask: StartAttempt, work: Work) -> str:
        return origin_of(self._manifest(work).manifest, ask)

    def _manifest(self, work: Work) -> Rewritten:
        if not work.manifest:
            return Rewritten({})
        try:
            found = json.loads(work.manifest)
            return rewrite(found, self.settings.maps or Maps(self.site.id))
        except Unmapped as error:
            raise Refused(f"{error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"its Job cannot be read ({type(error).__name__}: {error})") from None

    def _order_of(self, ask: StartAttempt, work: Work, env: dict[str, str], namespace: str) -> Order:
        offer, avoided = self.offers[ask.offer], self._avoided()
        grace_ms = self.settings.grace_ms
        return Order(
            ask,
            work,
            offer,
            self.places[ask.offer],
            self.installation,
            namespace,
            env=tuple(env.items()),
            secret=self.settings.secret,
            hosts=self.there.hostnames(ask.places),
            avoid=() if ask.places else self.there.hostnames(avoided),
            grace_ms=grace_ms if offer.term in STANDING else min(grace_ms, offer.kill_ms // 2),
        )

    async def _variables(self, ask: StartAttempt, earlier: str) -> dict[str, str]:
        try:
            return await asyncio.to_thread(self.checkpoints.ready, self.site.id, ask.job, ask.attempt, earlier)
        except OSError as error:
            raise Unreachable(f"the checkpoint of {earlier} could not be brought to {self.site.id}: {error}") from error

    async def _create_once(self, config_map: Obj, namespace: str) -> None:
        try:
            await self.cluster.create(CONFIG_MAPS, config_map, namespace)
        except errors.AlreadyExists:
            return  # its name says what is in it

    def _check_own(self, one: Execution, attempt: str, origin: str = "") -> None:
        """A name is only a name: what was made for another attempt, or from another Job, is left alone."""
        theirs = (one.attempt, said(one.job, names.ORIGIN) or origin)
        if theirs != (attempt, origin or theirs[1]) or one.job["owner"] != names.label_value(self.installation):
            raise Refused(
                f"Job {one.namespace}/{one.name} was not made for this: it belongs to {theirs[0] or 'nobody'}"
                f" ({theirs[1]}); look whose it is, and delete it if it is nobody's"
            )

    async def _until_begun(self, one: Execution, ask: StartAttempt) -> None:
        while True:
            one.news.clear()
            if one.begun and said(one.job, names.ENDING) not in ("refused", "failed"):
                return
            if one.concluded:
                self._answer_never(one)
            if one.name not in self.there.by_name:
                raise Unreachable(f"the Job of {one.attempt} was deleted before it began")
            left_ms = self._patience(one, ask)
            if left_ms is not None and left_ms <= 0:
                async with self._asking():
                    await self._give_up(one)
            await _news_within(one.news, None if left_ms is None else max(0.05, left_ms / SECOND))

    def _answer_never(self, one: Execution) -> NoReturn:
        """It is over and never ran: the engine looks elsewhere, or how it ended is said."""
        assert one.end is not None
        if said(one.job, names.ENDING) == "refused" or one.end.phase == "lost":
            raise NoCapacity(one.end.words, self.settings.retry_ms)
        raise asyncio.CancelledError

    def _patience(self, one: Execution, ask: StartAttempt) -> Millis | None:
        """How long its trouble may still last; None without any."""
        if one.trouble is None or said(one.job, names.ENDING):
            return None
        settings = self.settings
        room_ms = settings.room_ms if self.offers[ask.offer].term in STANDING else settings.scale_ms
        most = {"room": room_ms, "pods": room_ms, "user": settings.typo_ms}.get(one.trouble.kind, settings.image_ms)
        return one.trouble_at + most - self.clock()

    async def _give_up(self, one: Execution) -> None:
        """This place does not run it. What a user wrote wrong is told; all else is tried elsewhere."""
        trouble = one.trouble
        assert trouble is not None
        words = trouble.words
        if trouble.node and trouble.kind in ("place", "image"):
            words += self._fault(trouble.node)
        await self._end(one, "failed" if trouble.kind == "user" else "refused", words)

    # --- ending ------------------------------------------------------------------------------------------------------

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        async with self._asking():
            one = await self._find(attempt) or await self._bury(attempt)
            self._check_own(one, attempt)
            if one.concluded:
                self._say_end(one)
            elif one.end is None:
                await self._end(one, "stopped", "told to stop", grace_ms)

    async def _bury(self, attempt: str) -> Execution:
        """It may be on its way to us: whoever comes to make it finds its name taken."""
        for namespace in self.namespaces:
            try:
                found = await self.cluster.create(JOBS, tombstone(self.installation, attempt, namespace))
            except errors.AlreadyExists:
                found = await self.cluster.get(JOBS, self._name(attempt), namespace)
            self.there.note(found)
        return self.there.by_name[self._name(attempt)]

    async def _end(self, one: Execution, how: str, words: str, grace_ms: Millis | None = None) -> None:
        """Leave word on the Job why, then let its deadline pass. The first reason counts, however often it is told."""
        grace_s = None if grace_ms is None else max(1, math.ceil(grace_ms / SECOND))
        if grace_s is not None and grace_s != one.job["spec"]["grace"] and one.pods:
            await self._change(one, lambda job: _ending(job, how, words, at_once=False))
            for pod in [pod for pod in one.pods.values() if is_active(pod)]:
                await self._delete_pod(pod, grace_s)
        await self._change(one, lambda job: _ending(job, how, words, at_once=True))

    async def _delete_pod(self, pod: Obj, grace_s: int | None = None) -> None:
        meta = pod["metadata"]
        try:
            await self.cluster.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_s=grace_s)
        except (errors.NotFound, errors.Conflict):
            return  # gone already

    async def set_deadline(self, thing: str, deadline_at: Instant) -> Instant:
        async with self._asking():
            one = await self._find(thing)
            if one is None:
                raise Unreachable(f"{thing} is not here, or not yet")
            stands = _deadline(one.job)
            if one.end is not None or said(one.job, names.ENDING) or stands <= self.clock():
                return stands if stands < NEVER else deadline_at
            await self._move_deadline(one, deadline_at)
            return deadline_at

    async def _move_deadline(self, one: Execution, deadline_at: Instant) -> None:
        """The cluster counts from the Job's start by its own clock, of which an answer tells us the time."""
        self.there.note(await self.cluster.get(JOBS, one.name, one.namespace))
        said_at = self.cluster.said_at

        def change(job: Obj) -> Obj | None:
            if said(job, names.ENDING):
                return None
            left = seconds_left(deadline_at, self.clock())
            start = (job["status"] or {}).get("startTime")
            ran = max(0, int((said_at - datetime.fromisoformat(start)).total_seconds())) if start else 0
            noted = None if left is None else str(deadline_at)
            return {
                "metadata": {"annotations": {names.DEADLINE: noted}},
                "spec": {"activeDeadlineSeconds": None if left is None else ran + left},
            }

        await self._change(one, change)

    async def copy(self, data_set: str) -> Instant:
        raise Refused(f"site {self.site.id} is a cluster: data set {data_set} must be there already")

    # --- what is there -----------------------------------------------------------------------------------------------

    async def look(self) -> Seen:
        """What the watches show, if they are in step and the cluster answers now."""
        async with self._asking():
            self._check_owner(await self.cluster.get(LEASES, names.LEASE, self.settings.namespace))
        self.there.check()
        seen = [self._seen(one) for one in self.there if not one.forgotten]
        return Seen(tuple(one for one in seen if one is not None))

    def _seen(self, one: Execution) -> SeenAttempt | None:
        if one.end is not None:
            return SeenAttempt(one.attempt, one.end.phase, one.kept_ms, 0, one.end.words)
        if one.begun:
            return SeenAttempt(one.attempt, "running", one.kept_ms, _deadline(one.job))
        return None  # whoever ordered it waits for that, or will tell it again

    async def log(self, attempt: str, after: int, most: int) -> tuple[bytes, bool]:
        one = self._known(attempt)
        growing = one is not None and not (one.concluded or one.forgotten)
        kept = one.log if one is not None else self._log_of(attempt)
        text, size = await asyncio.to_thread(kept.read, after, most)
        return text, growing or after + len(text) < size

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        one = self._known(attempt)
        marks = (one.log if one is not None else self._log_of(attempt)).marks
        return (marks["step"], marks.get("of", 0)) if "step" in marks else None

    async def forget(self, attempt: str) -> None:
        """Its Job stays a while, so that a late start meets it; then the cluster takes it away."""
        async with self._asking():
            one = await self._find(attempt)
            if one is not None and one.end is not None:
                await self._change(one, self._forgotten)
                if one.job["metadata"].get("deletionTimestamp"):
                    await self._leave_stone(one)

    def _forgotten(self, job: Obj) -> Obj | None:
        if said(job, names.FORGOTTEN):
            return None
        kept = [one for one in job["metadata"].get("finalizers") or () if one != names.RESULT]
        return {
            "metadata": {"annotations": {names.FORGOTTEN: "true"}, "finalizers": kept or None},
            "spec": {"ttlSecondsAfterFinished": self.settings.keep_ms // SECOND},
        }

    async def _leave_stone(self, one: Execution) -> None:
        """Somebody deleted its Job, and only our finalizer kept it; now its name would be free."""
        stone = tombstone(self.installation, one.attempt, one.namespace)
        stone["metadata"]["annotations"] |= {names.FORGOTTEN: "true", names.ENDING: "lost", names.WORDS: "deleted"}
        del stone["metadata"]["finalizers"]
        try:
            await self.cluster.create(JOBS, stone)
        except (errors.AlreadyExists, errors.Forbidden, errors.NotFound):
            return  # another's finalizer keeps it, or the whole namespace is going

    def _known(self, attempt: str) -> Execution | None:
        return self.there.by_name.get(self._name(attempt))

    def _name(self, attempt: str) -> str:
        return names.execution_name(self.installation, attempt)

    async def _find(self, attempt: str) -> Execution | None:
        """What we see, or else what the cluster says: a watch may be a moment behind."""
        if (one := self._known(attempt)) is not None:
            return one
        for namespace in self.namespaces:
            try:
                return self.there.note(await self.cluster.get(JOBS, self._name(attempt), namespace))
            except errors.NotFound:
                continue
        return None

    # --- news --------------------------------------------------------------------------------------------------------

    def _look_at(self, one: Execution) -> None:
        """Something of it changed."""
        pods = list(one.pods.values())
        one.begun = one.begun or has_begun(one.job, pods)
        if self.opened and one.end is None:
            self._follow_log(one)
            self._mind(one, pods)
            one.end = end_of(one.job, pods, self.there.node_names())
            if one.end is not None:
                self._see_to(f"end of {one.name}", self._conclude, one)
        one.news.set()

    def _mind(self, one: Execution, pods: list[Obj]) -> None:
        """What it needs of us while it is not over."""
        job, ending = one.job, said(one.job, names.ENDING)
        self._note_trouble(one, pods)
        if not ending and job["metadata"].get("deletionTimestamp"):
            self._see_to(f"deleted {one.name}", self._take_down, one)
        if ending and job["spec"].get("suspend") and job["spec"].get("parallelism", 1):
            self._see_to(f"still {one.name}", self._end, one, ending, said(job, names.WORDS))
        if not ending and any(self._is_orphan(pod) for pod in pods):
            self._see_to(f"orphan {one.name}", self._check_nodes, one)
        if not ending and one.ordered_at is not None and (job["status"] or {}).get("startTime"):
            late, one.ordered_at = self.clock() - one.ordered_at > SECOND, None
            if late and _deadline(job) < NEVER:  # its time counts from its start, and that was long after we said so
                self._see_to(f"late {one.name}", self._move_deadline, one, _deadline(job))
        if is_gang(job["spec"]) and one.leader is not None:
            address = str(one.leader["status"].get("podIP", ""))
            if address and address != one.address:
                one.address = address
                self._see_to(f"gang {one.name}", self._tell_address, one, address)

    def _note_trouble(self, one: Execution, pods: list[Obj]) -> None:
        job = one.job
        found = trouble_of(job, pods)
        if not pods and not job["spec"].get("suspend"):
            found = Trouble("pods", "the cluster makes no pod for it; a quota or a rule may be in the way")
        if one.begun or (found is not None and rendezvous(one.name) in found.words):
            found = None  # the pods of a gang wait for us to say where they meet
        if found is None or one.trouble is None or found.kind != one.trouble.kind:
            one.trouble_at = self.clock()
        one.trouble = found

    def _is_orphan(self, pod: Obj) -> bool:
        return is_active(pod) and bool(node_of(pod)) and self.there.nodes.get(node_of(pod)) is None

    async def _check_nodes(self, one: Execution) -> None:
        """A pod's node is not in our list. The list may be behind: only the cluster's own word ends the attempt."""
        for node in {node_of(pod) for pod in one.pods.values() if self._is_orphan(pod)}:
            try:
                await self.cluster.get(NODES, node)
            except errors.NotFound:
                await self._end(one, "lost", f"node {node} is gone")
                return

    async def _take_down(self, one: Execution) -> None:
        """Somebody deleted its Job. Our finalizer keeps it, and its pods would run on with nobody to count them."""
        await self._end(one, "lost", "somebody deleted its Job")
        for pod in list(one.pods.values()):
            await self._delete_pod(pod)

    async def _tell_address(self, one: Execution, address: str) -> None:
        meta = one.job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        where = {"metadata": {"name": rendezvous(one.name), "ownerReferences": [owner]}, "data": {"address": address}}
        try:
            await self.cluster.create(CONFIG_MAPS, where, one.namespace)
        except errors.AlreadyExists:
            await self.cluster.patch(CONFIG_MAPS, rendezvous(one.name), {"data": where["data"]}, one.namespace)

    # --- ends --------------------------------------------------------------------------------------------------------

    async def _conclude(self, one: Execution) -> None:
        """Its last checkpoint may stand in the last lines of its log: these first, then how it ended."""
        self._follow_log(one)
        if one.log.task is not None and not one.log.task.done():
            if not one.log.heard and not one.log.failed:
                await asyncio.wait([one.log.task], timeout=BREATH_SECONDS * 10)
            if one.log.heard:
                await asyncio.wait([one.log.task], timeout=LOG_SECONDS)
        pods = list(one.pods.values())
        one.end = end_of(one.job, pods, self.there.node_names(), one.log.finished) or one.end
        assert one.end is not None
        words = one.end.words + (self._fault(one.end.node) if one.end.node else "")
        one.end = replace(one.end, began=one.begun, words=words)
        one.concluded = True
        one.news.set()
        if not one.starters:
            self._say_end(one)

    def _say_end(self, one: Execution) -> None:
        at, attempt, end = self.clock(), one.attempt, one.end
        if end is None or said(one.job, names.ENDING) == "refused":
            return  # that it never ran is the answer to its start
        match end.phase:
            case "stopped":
                self.say(e.AttemptStopped(at, attempt, one.kept_ms))
            case "lost":
                self.say(e.AttemptLost(at, attempt, one.kept_ms))
            case outcome:
                self.say(e.AttemptEnded(at, attempt, "done" if outcome == "done" else "failed", end.words))

    def _fault(self, node: str) -> str:
        """Note that a node failed an attempt; in words, what follows from that."""
        now = self.clock()
        self.faults[node] = [at for at in self.faults.get(node, []) if now - at < HOUR] + [now]
        self._room_changed()
        return f"; node {node} failed {FAULTS} times and is avoided for an hour" if node in self._avoided() else ""

    def _avoided(self) -> tuple[str, ...]:
        now = self.clock()
        return tuple(node for node, ats in self.faults.items() if len([at for at in ats if now - at < HOUR]) >= FAULTS)

    # --- logs --------------------------------------------------------------------------------------------------------

    def _log_of(self, attempt: str) -> PodLog:
        folder = self.folder / "logs" / safe_name(attempt)
        return PodLog(folder, self.settings.log_bytes, self.kubelets, lambda: self._marked(attempt))

    def _follow_log(self, one: Execution) -> None:
        pod = one.leader
        began = began_at(pod) if pod is not None else None
        if pod is not None and began is not None and not one.forgotten:
            where = {"namespace": one.namespace, "container": pod["container"]}
            name = str(pod["metadata"]["name"])
            one.log.follow(self.cluster, name, where, began, lambda: one.end is not None or not self._runs(one, name))

    def _in_step_again(self, why: str) -> None:
        """While the cluster itself did not answer, its kubelets could not be asked either."""
        if not why:
            self.kubelets.failed = 0

    def _runs(self, one: Execution, pod: str) -> bool:
        return pod in one.pods and is_active(one.pods[pod])

    def _marked(self, attempt: str) -> None:
        """It printed that it wrote a checkpoint, or how far it is."""
        one = self._known(attempt)
        if one is None or one.end is not None:
            return
        if "checkpoint_ms" in one.log.marks and one.kept_ms > one.kept_told:
            one.kept_told = one.kept_ms
            self.say(e.AttemptCheckpointed(self.clock(), attempt, one.kept_ms))
        of, step = one.log.marks.get("of", 0), one.log.marks.get("step", 0)
        permille = min(PERMILLE, PERMILLE * step // of) if of else 0
        if permille // 100 != one.tenths:
            one.tenths = permille // 100
            self.say(e.AttemptProgressed(self.clock(), attempt, permille))

    # --- room --------------------------------------------------------------------------------------------------------

    def _room_changed(self) -> None:
        if self.opened and self.telling_room is None:
            self.telling_room = asyncio.get_running_loop().call_later(ROOM_SECONDS, self._tell_room)

    def _tell_room(self) -> None:
        self.telling_room = None
        if not (self.there.nodes.in_step.is_set() and self.there.others.in_step.is_set()):
            return  # half of what others hold is not known: what we said last stands
        for offer in self.site.offers:
            if offer.term in STANDING:
                keep_free = headroom_at(self.places[offer.id], self.settings.hour())
                nodes = self.there.usable(offer.id, self._avoided(), keep_free)
                if nodes != self.told_nodes.get(offer.id):
                    self.told_nodes[offer.id] = nodes
                    self.say(e.NodesSeen(self.clock(), offer.id, nodes))

    # --- keeping house -----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for one in self.there:
                if one.end is None:
                    self._look_at(one)
            self._tell_room()
            await self._prune()

    async def _prune(self) -> None:
        """Tombstones that nobody can come late for any more. What the cluster itself finishes, it takes away itself."""
        for one in self.there:
            meta = one.job["metadata"]
            age_ms = (self.cluster.said_at - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds() * SECOND
            if one.forgotten and one.job["spec"].get("suspend") and age_ms > self.settings.keep_ms:
                try:
                    await self.cluster.delete(JOBS, one.name, one.namespace, uid=meta["uid"])
                except errors.KubeError:
                    continue  # the next time

    def _see_to(
        self, what: str, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs
    ) -> None:
        """Do it beside all else, once at a time. What fails is tried again when something changes, or with the tick."""
        if what not in self.tasks:
            self.tasks[what] = asyncio.create_task(self._seen_to(work, *args, **named), name=what)
            self.tasks[what].add_done_callback(lambda _: self.tasks.pop(what, None))

    async def _seen_to(self, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
        try:
            await work(*args, **named)
        except (errors.KubeError, Unreachable):
            return

    # --- asking ------------------------------------------------------------------------------------------------------

    async def _change(self, one: Execution, change: Callable[[Obj], Obj | None]) -> None:
        """What is to be changed depends on what is there: if that moved on meanwhile, it is thought over again."""
        for _ in range(CONFLICTS):
            wanted = change(one.job)
            if wanted is None:
                return
            try:
                seen = one.job["metadata"]["resourceVersion"]
                self.there.note(await self.cluster.patch(JOBS, one.name, wanted, one.namespace, seen=seen))
                return
            except errors.Conflict:
                self.there.note(await self.cluster.get(JOBS, one.name, one.namespace))
        raise Unreachable(f"somebody else keeps changing Job {one.name}")

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """The cluster's errors as a driver's."""
        try:
            yield
        except errors.Invalid as error:
            raise Refused(f"{self.site.id} does not take its Job: {error}") from error
        except errors.Forbidden as error:
            if error.by_account:
                words = f"our account there may not {error.verb} {error.resource}; grant it that (docs/kubernetes.md)"
                raise Unreachable(words) from error
            if any(word in str(error) for word in FULL):
                raise NoCapacity(str(error), self.settings.retry_ms) from error
            raise Refused(f"{self.site.id} does not admit it: {error}") from error
        except errors.KubeError as error:
            raise Unreachable(str(error)) from error


def _ending(job: Obj, how: str, words: str, *, at_once: bool) -> Obj | None:
    """The change that ends a Job. A suspended one has no deadline that could pass: it is left with nothing to run."""
    meta: Obj = {} if said(job, names.ENDING) else {"annotations": {names.ENDING: how, names.WORDS: words}}
    spec: Obj = {"activeDeadlineSeconds": 1} if at_once and job["spec"].get("activeDeadlineSeconds") != 1 else {}
    if job["spec"].get("suspend") and job["spec"].get("parallelism", 1):
        spec["parallelism"] = 0
    return {"metadata": meta, "spec": spec} if meta or spec else None


def _deadline(job: Obj) -> Instant:
    return int(said(job, names.DEADLINE) or NEVER)


async def _news_within(news: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return


def _to_nobody(_: e.Fact) -> None:
    """Before `open` and after `close`."""
