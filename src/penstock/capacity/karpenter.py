"""Rents nodes as Karpenter NodeClaims of our own. The driver of a cluster has one where an offer says `rent: {way:
karpenter}`.

A claim has no NodePool, so Karpenter never consolidates it away from under a job. It says itself when it ends:
`expireAfter` with `terminationGracePeriod`, without which a pod that may not be evicted keeps a node for ever. The spec
of a claim cannot be changed, so its deadline stands for its whole life (`Offer.renewable` is False).

The claim's labels reach its Node, and by them we find both. A node that nobody but us may use carries a taint of ours.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final

from penstock.capacity.contract import Capacity, SeenNode, object_name
from penstock.capacity.nodeclaim import deadline_of, describe, lasts_seconds, node_claim, shortage_of
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis
from penstock.formatting import duration
from penstock.kube import annotations, errors
from penstock.kube.client import EVENTS, NODE_CLAIMS, NODES, Cluster, Obj
from penstock.kube.informer import Informer
from penstock.kube.node_selection import NodeSelection
from penstock.site_answers import NeverReady, NoCapacity, Refused, Say, Unreachable

STARTS: Final = 3  #: times the offer's `start` that a node may take
LEAST_MS: Final[Millis] = 2 * MINUTE
MOST_MS: Final[Millis] = 20 * MINUTE
#: How long the offer is closed: stock comes back by itself, a quota and settings want a person.
RETRY_MS: Final[dict[Shortage, Millis]] = {"": 5 * MINUTE, "stock_out": 5 * MINUTE, "quota": 4 * HOUR, "settings": HOUR}
NEVER_READY_MS: Final[Millis] = 15 * MINUTE
LEAK_SECONDS: Final = 5.0  #: after its claim is gone, a Node that is still there is deleted by us
ASK_SECONDS: Final = 1.0  #: how often a release asks, beside what its informers say
EVENT_SECONDS: Final = 2.0  #: Karpenter writes why it deleted a claim about when it deletes it
ROLE: Final = "docs/clouds.md says which rights it needs"


class KarpenterNodes(Capacity):
    def __init__(
        self,
        site: str,
        installation: str,
        clock: Callable[[], Instant],
        cluster: Callable[[], Cluster],
        offers: Callable[[], Mapping[str, tuple[Offer, NodeSelection]]],
        least_ms: Millis = LEAST_MS,
    ) -> None:
        """`cluster` and `offers` are asked whenever they are needed: the first is there once the site is connected.
        `least_ms`: how long any node may take.
        """
        super().__init__()
        self.least_ms = least_ms
        self.site, self.installation, self.clock = site, installation, clock
        self.cluster_now, self.offers_now = cluster, offers
        self.ours = f"{annotations.INSTALLATION}={annotations.label_value(installation)}"
        self.creating: dict[str, asyncio.Task[Obj]] = {}  #: by node: a create that was sent and is not answered
        self.released: dict[str, None] = {}  #: nodes that were given back: never asked for again
        self.asking: dict[str, int] = {}  #: `ask` calls in flight: they answer, and nothing is said beside
        self.noticed: dict[str, None] = {}  #: claims whose end was said in advance, by uid
        self.news = asyncio.Condition()
        self.tasks: list[asyncio.Task[None]] = []

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        await super().open(say)
        if not self.tasks:
            self.claims = Informer(self.cluster_now(), NODE_CLAIMS, self._claim_changed, labels=self.ours)
            self.nodes = Informer(self.cluster_now(), NODES, self._node_changed, labels=self.ours)
            self.waking: set[asyncio.Task[None]] = set()
            self.tasks = [asyncio.create_task(informer.run()) for informer in (self.claims, self.nodes)]

    async def close(self) -> None:
        await super().close()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait([*self.tasks, *self.waking])

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, ask: LaunchNode) -> None:
        """Create the claim unless it is there, and wait until its Node shows the offer's GPUs."""
        if ask.node in self.released:
            self.say(e.NodeGone(self.clock(), ask.node))
            return
        offer, place = self._offer(ask.offer)
        self.asking[ask.node] = self.asking.get(ask.node, 0) + 1
        try:
            claim = await self._create(ask, offer, place)
            await self._until_ready(claim, ask, offer, place)
        finally:
            self.asking[ask.node] -= 1

    def _offer(self, name: str) -> tuple[Offer, NodeSelection]:
        known = self.offers_now()
        if name not in known:
            raise Refused(f"site {self.site} has no offer {name}")
        if known[name][1].rent is None:
            raise Refused(f"{name}: nodes are not rented one by one there; write 'sold_by: attempt', or 'rent'")
        return known[name]

    async def _create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> Obj:
        """One create for a node at a time. A caller that is cancelled leaves it to whoever comes next."""
        if ask.node not in self.creating:
            claim = node_claim(ask, offer, place, self.installation, self.clock())
            task = asyncio.create_task(self.cluster_now().create(NODE_CLAIMS, claim))
            self.creating[ask.node] = task
            task.add_done_callback(lambda _: self.creating.pop(ask.node, None))
        async with self._errors():
            try:
                return await asyncio.shield(self.creating[ask.node])
            except errors.AlreadyExists:
                return await self._adopt(ask.node)

    async def _adopt(self, node: str) -> Obj:
        """A claim of this name is there: it is ours if its marks say so."""
        name = annotations.node_name(object_name(self.installation, node))
        try:
            found = await self.cluster_now().get(NODE_CLAIMS, name)
        except errors.NotFound:
            raise Unreachable(f"the claim of {node} was deleted just now") from None
        if not self._is_own(found, node):
            raise Refused(f"NodeClaim {name} is not of this installation, and has the name of {node}; look at it")
        return found

    def _is_own(self, claim: Obj, node: str) -> bool:
        labels, notes = (claim["metadata"].get(kind) or {} for kind in ("labels", "annotations"))
        owner = labels.get(annotations.INSTALLATION)
        return owner == annotations.label_value(self.installation) and notes.get(annotations.NODE_ID) == node

    async def _until_ready(self, claim: Obj, ask: LaunchNode, offer: Offer, place: NodeSelection) -> None:
        name, uid = str(claim["metadata"]["name"]), str(claim["metadata"]["uid"])
        most_ms = min(max(STARTS * offer.start_ms, self.least_ms), MOST_MS)
        gives_up = asyncio.get_running_loop().time() + most_ms / SECOND - self._age_seconds(claim)
        launched = False  # a machine was there, and is billed
        while True:
            launched = launched or is_launched(self.claims.get(name) or claim)
            if ask.node in self.released:
                raise asyncio.CancelledError  # given back while it started
            if any(is_ready(node, place.resource, ask.gpus) for node in self._nodes_of(name)):
                return
            if not await self._is_there(name, uid):
                await self._never_came(ask, name, launched)
            left = gives_up - asyncio.get_running_loop().time()
            if left <= 0:
                await self._give_up(ask, offer, place, most_ms)
            await self._news_within(min(left, ASK_SECONDS))

    async def _is_there(self, name: str, uid: str) -> bool:
        """By the informer where it is in step; else nobody knows, and it counts as there."""
        found = self.claims.get(name)
        if found is not None:
            return "deletionTimestamp" not in found["metadata"]
        if not self.claims.in_step.is_set():
            return True
        async with self._errors():
            with suppress(errors.NotFound):
                now = await self.cluster_now().get(NODE_CLAIMS, name)
                return bool(now["metadata"]["uid"] == uid and "deletionTimestamp" not in now["metadata"])
        return False

    async def _never_came(self, ask: LaunchNode, name: str, launched: bool) -> None:
        """Karpenter deletes a claim that it cannot get a machine for, and says why in an Event. A claim that had a
        machine and was deleted has cost something.
        """
        if ask.node in self.released:
            raise asyncio.CancelledError
        words = await self._why_deleted(name)
        await self._delete(ask.node)
        if not words:
            words = "its NodeClaim was deleted, and nothing says why"
        if launched:
            raise NeverReady(f"a node of {ask.offer} was taken away while it started: {words}", NEVER_READY_MS)
        shortage = shortage_of(words)
        raise NoCapacity(words, RETRY_MS[shortage], shortage)

    async def _why_deleted(self, name: str) -> str:
        fields = f"involvedObject.kind=NodeClaim,involvedObject.name={name}"
        until = asyncio.get_running_loop().time() + EVENT_SECONDS
        while True:
            with suppress(errors.KubeError):
                found, _ = await self.cluster_now().list(EVENTS, fields=fields)
                if words := describe(found):
                    return words
            if asyncio.get_running_loop().time() > until:
                return ""
            await asyncio.sleep(0.2)

    async def _give_up(self, ask: LaunchNode, offer: Offer, place: NodeSelection, most_ms: Millis) -> None:
        """Karpenter has no time limit of its own: a node whose GPUs never register would be billed for ever."""
        name = annotations.node_name(object_name(self.installation, ask.node))
        joined = bool(self._nodes_of(name))
        claim = self.claims.get(name) or {}
        await self._delete(ask.node)
        what = f"its Node shows fewer than {ask.gpus} {place.resource}" if joined else "it never joined the cluster"
        status = describe_conditions(claim)
        words = f"a node of {offer.id} was given back after {duration(most_ms)}: {what}{status}"
        raise NeverReady(words, NEVER_READY_MS, "settings" if not joined and status and "Launched" in status else "")

    # --- listing and giving back -------------------------------------------------------------------------------------

    async def list(self) -> tuple[SeenNode, ...]:
        """Claims, and Nodes whose claim is gone. Asked of the API server: a cache may be behind."""
        try:
            claims, _ = await self.cluster_now().list(NODE_CLAIMS, labels=self.ours)
            nodes, _ = await self.cluster_now().list(NODES, labels=self.ours)
        except errors.KubeError as error:  # whatever it is, it does not mean that there are none
            raise Unreachable(f"what is rented at {self.site} cannot be listed; {ROLE}: {error}") from error
        seen: dict[str, Instant] = {}
        for found in (*nodes, *claims):
            if node := (found["metadata"].get("annotations") or {}).get(annotations.NODE_ID):
                seen[node] = self._stands(found)
        return tuple([SeenNode(node, deadline_at) for node, deadline_at in seen.items()])

    async def release(self, node: str) -> None:
        self.released[node] = None
        await self._wake()
        if node in self.creating:  # a create that arrives after the delete would be nobody's
            with suppress(Exception):
                await asyncio.shield(self.creating[node])
        await self._delete(node)

    async def _delete(self, node: str) -> None:
        """Returns when the claim and its Node are gone. Karpenter ends the machine before it lets go of the claim."""
        name = annotations.node_name(object_name(self.installation, node))
        gone_at: float | None = None
        async with self._errors():
            while True:
                claim = await self._own_claim(name, node)
                left, _ = await self.cluster_now().list(NODES, labels=f"{annotations.NODE}={name}")
                if claim is None and not left:
                    return
                now = asyncio.get_running_loop().time()
                gone_at = None if claim is not None else gone_at or now
                if claim is not None and "deletionTimestamp" not in claim["metadata"]:
                    with suppress(errors.NotFound, errors.Conflict):
                        await self.cluster_now().delete(NODE_CLAIMS, name, uid=str(claim["metadata"]["uid"]))
                elif gone_at is not None and now - gone_at >= LEAK_SECONDS:
                    await self._delete_leaked(left)
                await self._news_within(ASK_SECONDS)

    async def _own_claim(self, name: str, node: str) -> Obj | None:
        try:
            found = await self.cluster_now().get(NODE_CLAIMS, name)
        except errors.NotFound:
            return None
        return found if self._is_own(found, node) else None

    async def _delete_leaked(self, nodes: Sequence[Obj]) -> None:
        for node in nodes:
            if "deletionTimestamp" not in node["metadata"]:
                with suppress(errors.NotFound, errors.Conflict):
                    await self.cluster_now().delete(NODES, node["metadata"]["name"], uid=str(node["metadata"]["uid"]))

    async def extend(self, node: str, deadline_at: Instant) -> Instant:  # noqa: ARG002 - it cannot be moved
        """The deadline that it was asked with: `expireAfter` is immutable."""
        name = annotations.node_name(object_name(self.installation, node))
        async with self._errors():
            claim = await self._own_claim(name, node)
        if claim is None:
            raise Unreachable(f"{node} is not here, or not yet")
        return self._stands(claim)

    def _stands(self, found: Obj) -> Instant:
        """What is written on it; or, if the create was late, what Karpenter makes of it, which counts from then."""
        said = deadline_of(found)
        lasts = lasts_seconds(found)
        if lasts is None:  # a Node, whose claim is gone
            return said
        ends_at = self.clock() + int((lasts - self._age_seconds(found)) * SECOND)
        return said if ends_at <= said + 2 * SECOND else ends_at

    def _age_seconds(self, found: Obj) -> float:
        """By the cluster's own clock."""
        made = datetime.fromisoformat(str(found["metadata"]["creationTimestamp"]))
        return max(0.0, (self.cluster_now().time_there - made).total_seconds())

    # --- news --------------------------------------------------------------------------------------------------------

    def _claim_changed(self, before: Obj | None, now: Obj | None) -> None:
        found = now or before
        assert found is not None
        node = (found["metadata"].get("annotations") or {}).get(annotations.NODE_ID, "")
        if node and node not in self.released and not self.asking.get(node):
            if now is None:
                self._say_gone(node, found)
            elif "deletionTimestamp" in now["metadata"] and found["metadata"]["uid"] not in self.noticed:
                self.noticed[found["metadata"]["uid"]] = None
                self.say(e.NodeNotice(self.clock(), node, "Karpenter ends its node"))
        self._wake_soon()

    def _say_gone(self, node: str, claim: Obj) -> None:
        """Its own deadline passed, or it was taken away. The claim goes last, so nothing is billed any more."""
        at = self.clock()
        self.noticed.pop(claim["metadata"]["uid"], None)
        self.say(e.NodeGone(at, node) if at >= deadline_of(claim) else e.NodeLost(at, node))

    def _node_changed(self, _: Obj | None, __: Obj | None) -> None:
        self._wake_soon()

    def _nodes_of(self, name: str) -> tuple[Obj, ...]:
        there = [node for node in self.nodes if (node["metadata"].get("labels") or {}).get(annotations.NODE) == name]
        return tuple(there)

    def _wake_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._wake())
        self.waking.add(task)
        task.add_done_callback(self.waking.discard)

    async def _wake(self) -> None:
        async with self.news:
            self.news.notify_all()

    async def _news_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)), self.news:
                await self.news.wait()

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """The cluster's errors as a site's."""
        try:
            yield
        except errors.Invalid as error:
            raise Refused(f"{self.site} does not take the NodeClaim; repair the offer's 'rent': {error}") from error
        except errors.Forbidden as error:
            if error.by_account:
                words = f"our account at {self.site} may not {error.verb} {error.resource}; {ROLE}"
                raise Refused(words) from error
            raise Refused(f"{self.site} does not admit it: {error}") from error
        except errors.NotFound as error:
            raise Refused(f"{self.site} knows no NodeClaims: Karpenter v1 is not installed there ({error})") from error
        except errors.KubeError as error:
            raise Unreachable(str(error)) from error


def is_ready(node: Obj, resource: str, gpus: int) -> bool:
    """Registered, healthy, and with the GPUs that the offer promises. Ready without GPUs is not ready."""
    status = node.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    count = str((status.get("allocatable") or {}).get(resource, "0"))
    taints = [taint.get("key") for taint in node.get("spec", {}).get("taints") or ()]
    return ready and count.isdigit() and int(count) >= gpus and "karpenter.sh/unregistered" not in taints


def is_launched(claim: Obj) -> bool:
    """The cloud has made a machine for it."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Launched" and c.get("status") == "True" for c in conditions)


def describe_conditions(claim: Obj) -> str:
    """What Karpenter says of a claim that is not there yet."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    wrong = [c for c in conditions if c.get("status") != "True" and c.get("message") and c.get("type") != "Ready"]
    return f" ({wrong[0]['type']}: {wrong[0]['message']})"[:300] if wrong else ""
