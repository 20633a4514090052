"""Node pools of a managed cluster, rented by the cloud's own API: one pool of one node for each rented node.

`NodePools` is the same for all clouds. What differs is a `PoolApi`, one file for each cloud; an SDK's calls block, and
run in a few threads. A pool has the node's name, and marks that say whose it is: after a crash, or if the answer to a
create is lost, the same name is asked for again, and what is there is ours if its marks say so.

A pool of a cloud is a group: it replaces a machine that ends. So a node whose machine goes is lost, and we end its pool
before anything new is billed for long.
"""

import asyncio
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import ClassVar, Final, TypeVar

from penstock.capacity.cluster_nodes import ClusterNodes, RentedMachine, RentingSite, is_ready, label_of, note
from penstock.capacity.contract import object_name
from penstock.capacity.machine_notices import NoticeQueue, QueueReaders
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import DAY, NEVER, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.kube import annotations
from penstock.kube.client import Obj
from penstock.kube.node_selection import NodeSelection, PoolWay, RentedNodes, Taint
from penstock.site_answers import NoCapacity, Refused, Unreachable

THREADS: Final = 8  #: calls to one cloud at the same time
CALL_SECONDS: Final = 20.0  #: how long one request may take; each way gives it to its SDK
MOST_KNOWN: Final = 10_000  #: machines whose Nodes are recognised
LONGEST_MS: Final[Millis] = 30 * DAY  #: of a deadline that is written on a pool
#: Marks of a pool: tags, or whatever the cloud keeps on it. The last two are instants of the control plane's clock.
INSTALLATION: Final = "penstock-installation"
NODE: Final = "penstock-node"
DEADLINE: Final = "penstock-deadline"
ASKED: Final = "penstock-asked"
MOST_MARK: Final = 256  #: letters of a mark's text, at AWS and Azure

Answer = TypeVar("Answer")


class PoolExists(Exception):
    """A pool of this name is there already: ours, or somebody else's."""


@value
class PoolOrder:
    """What a pool shall be, whatever the cloud."""

    name: str
    rent: RentedNodes
    types: tuple[str, ...]  # instance types, at least one
    gpus: int
    spot: bool
    mig: str  # a profile; empty: whole GPUs
    labels: tuple[tuple[str, str], ...]  # of its Node
    taints: tuple[Taint, ...]  # of its Node
    marks: tuple[tuple[str, str], ...]
    lasts_ms: Millis


@value
class CloudPool:
    """A pool as its cloud shows it."""

    name: str
    marks: tuple[tuple[str, str], ...]
    ending: bool = False  # it is being deleted
    failed: bool = False  # no machine will come of it
    launched: bool = False  # a machine is there, or was, and is billed
    status: str = ""  # what the cloud says of one that is not well
    shortage: Shortage = ""

    def mark(self, key: str) -> str:
        return dict(self.marks).get(key, "")


class PoolApi(ABC):
    """The pools of one cluster at its cloud. What it raises is a site's answer (`site_answers`), or `PoolExists`."""

    @abstractmethod
    async def create(self, order: Callable[[], PoolOrder]) -> None:
        """Returns when the cloud has taken it. Raises `PoolExists`, and never changes a pool that is there. `order` is
        called when the request leaves, and raises if it shall not.
        """

    @abstractmethod
    async def get(self, name: str) -> CloudPool | None:
        """None: the cluster is there, and this pool is not."""

    @abstractmethod
    async def list(self) -> Sequence[CloudPool]:
        """All that may be ours, of all pages."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Returns when the cloud has taken it, also if the pool is gone or going."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Ask no more."""


class BlockingPools(ABC):
    """The same by an SDK whose calls block, each for a bounded time."""

    @abstractmethod
    def create(self, order: PoolOrder) -> None: ...

    @abstractmethod
    def get(self, name: str) -> CloudPool | None: ...

    @abstractmethod
    def list(self) -> Sequence[CloudPool]: ...

    @abstractmethod
    def delete(self, name: str) -> None: ...


class PoolsInThreads(PoolApi):
    """Calls an SDK off the event loop, in a few threads. It is imported there, too, when it is first needed."""

    def __init__(self, connect: Callable[[], BlockingPools]) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="node-pools")
        self.lock, self.connect, self.made = threading.Lock(), connect, list[BlockingPools]()

    def _blocking(self) -> BlockingPools:
        with self.lock:
            if not self.made:
                self.made.append(self.connect())
            return self.made[0]

    async def _run(self, call: Callable[[BlockingPools], Answer]) -> Answer:
        """With the caller's context: whoever sends something asks whether we still lead."""
        run = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self.threads, run, lambda: call(self._blocking()))

    async def create(self, order: Callable[[], PoolOrder]) -> None:
        await self._run(lambda pools: pools.create(order()))

    async def get(self, name: str) -> CloudPool | None:
        return await self._run(lambda pools: pools.get(name))

    async def list(self) -> Sequence[CloudPool]:
        return await self._run(lambda pools: pools.list())

    async def delete(self, name: str) -> None:
        await self._run(lambda pools: pools.delete(name))

    async def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


class NodePools(ClusterNodes):
    ask_seconds: ClassVar[float] = 5.0  #: clouds count requests
    #: A pool that was asked for and is not shown counts as there for so long: a cloud may show it late.
    settle_seconds: ClassVar[float] = 30.0

    def __init__(
        self,
        site: RentingSite,
        way: type[PoolWay],
        connect: Callable[[PoolWay], PoolApi],
        longest_name: int = 40,
        queue_of: Callable[[PoolWay], NoticeQueue | None] = lambda _: None,
    ) -> None:
        """`queue_of`: where the cloud says which machines it takes away, if an offer names such a queue."""
        super().__init__(site)
        self.way, self.connect, self.longest_name = way, connect, longest_name
        self.apis: dict[PoolWay, PoolApi] = {}  #: all that were ever needed: an offer may be gone before its nodes
        self.known: dict[str, RentedMachine] = {}  #: by name: a Node carries that and not the node's id
        #: By node: when a create was answered, or its answer lost, whose pool nobody has seen yet.
        self.sent: dict[str, float] = {}
        self.queue_of = queue_of
        self.queues = QueueReaders(self._announced)
        self.announced: dict[str, str] = {}  #: by name: why its machine will go, as the cloud's own queue said
        self.ends: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self.ends:
            task.cancel()
        await self.queues.close()
        await super().close()
        for api in dict.fromkeys(self.apis.values()):
            await api.close()

    # --- whom to ask -------------------------------------------------------------------------------------------------

    def _places(self) -> Sequence[PoolApi]:
        """The clusters at the cloud that offers name: one, unless somebody writes different ones."""
        for _, place in self.offers_now().values():
            if place.rent is not None and isinstance(place.rent.way, self.way):
                self._api(place.rent.way)
        return tuple(dict.fromkeys(self.apis.values()))

    def _api(self, way: PoolWay) -> PoolApi:
        if way not in self.apis:
            same = [api for known, api in self.apis.items() if known.where() == way.where()]
            self.apis[way] = same[0] if same else self.connect(way)
            if queue := self.queue_of(way):
                self.queues.follow(queue)
        return self.apis[way]

    def pool_name(self, node: str) -> str:
        """A letter first: no cloud takes a name that begins with a digit."""
        name = self.name_of(node)
        return (
            name if len(name) <= self.longest_name else f"p{object_name(self.installation, node)}"[: self.longest_name]
        )

    # --- one pool ----------------------------------------------------------------------------------------------------

    async def create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        assert place.rent is not None
        assert isinstance(place.rent.way, self.way)
        api, rent = self._api(place.rent.way), place.rent
        order = self.order(ask, offer, rent, self.clock())  # raises what is wrong with the offer
        self.sent[ask.node] = NEVER  # until it is answered
        try:
            await api.create(lambda: self.order(ask, offer, rent, self.sent_at(ask)))
        except PoolExists:
            self.sent.pop(ask.node, None)
            return await self._adopt(ask.node, api, order.name)
        except (Refused, NoCapacity):
            self.sent.pop(ask.node, None)  # there is none
            raise
        finally:  # else it is there, or may be: it was answered, or the answer was lost
            if ask.node in self.sent:
                self.sent[ask.node] = asyncio.get_running_loop().time()
        return self._known(self._machine(CloudPool(order.name, order.marks)))

    async def _adopt(self, node: str, api: PoolApi, name: str) -> RentedMachine:
        """A pool of this name is there: it is ours if its marks say so. A cloud's "conflict" alone says nothing."""
        pool = await api.get(name)
        if pool is None or pool.ending:
            raise Unreachable(f"the pool of {node} was deleted just now, or is not shown yet")
        if not self._is_own(pool, node):
            raise Refused(f"pool {name} is not of this installation, and has the name of {node}; look at it")
        return self._known(self._machine(pool))

    def order(self, ask: LaunchNode, offer: Offer, rent: RentedNodes, now: Instant) -> PoolOrder:
        """Everything that must survive us is on it: whose it is, for which node, until when."""
        lasts_ms = min(max(SECOND, ask.deadline_at - now), LONGEST_MS)
        types = rent.types_for(offer, ask.gpus)
        if not types:
            raise Refused(f"{offer.id} has no node type with {ask.gpus} GPUs; give it one")
        owner, node = annotations.label_value(self.installation), escaped(ask.node)
        if len(node) > MOST_MARK:
            raise Refused(f"the id of {ask.node[:60]}... is too long for a cloud's tags; give the job a shorter name")
        marks = {
            INSTALLATION: owner,
            NODE: node,
            DEADLINE: str(min(ask.deadline_at, now + lasts_ms)),
            ASKED: str(now),
        }
        labels = {**dict(rent.labels), annotations.INSTALLATION: owner, annotations.NODE: self.name_of(ask.node)}
        ours = annotations.rented_taint(self.installation)
        return PoolOrder(
            name=self.pool_name(ask.node),
            rent=rent,
            types=types,
            gpus=ask.gpus,
            spot=offer.term == "spot",
            mig=offer.mig_profile,
            labels=tuple(labels.items()),
            taints=(Taint(ours["key"], ours["value"], ours["effect"]), *rent.taints),
            marks=tuple(marks.items()),
            lasts_ms=lasts_ms,
        )

    def _is_own(self, pool: CloudPool, node: str = "") -> bool:
        owner, whose = pool.mark(INSTALLATION), unescaped(pool.mark(NODE))
        return owner == annotations.label_value(self.installation) and (whose == node if node else bool(whose))

    def _machine(self, pool: CloudPool) -> RentedMachine:
        node = unescaped(pool.mark(NODE))
        age_ms = max(0, self.clock() - instant_of(pool.mark(ASKED), self.clock()))
        return RentedMachine(
            node=node,
            name=self.name_of(node),
            age_seconds=age_ms / SECOND,
            deadline_at=instant_of(pool.mark(DEADLINE), NEVER),
            ending=pool.ending,
            launched=pool.launched,
            status=pool.status,
            shortage=pool.shortage,
        )

    def _known(self, machine: RentedMachine) -> RentedMachine:
        self.known[machine.name] = machine
        while len(self.known) > MOST_KNOWN:
            del self.known[next(iter(self.known))]
        return machine

    # --- what is there -----------------------------------------------------------------------------------------------

    async def find(self, machine: RentedMachine) -> RentedMachine | None:
        """One that failed counts as going: nothing comes of waiting, and `_never_came` says why."""
        pool = await self._get(machine.node)
        if pool is None:
            return machine if self._is_settling(machine.node) else None
        return replace(self._machine(pool), ending=pool.ending or pool.failed)

    async def fetch(self, node: str) -> RentedMachine | None:
        pool = await self._get(node)
        if pool is not None:
            return self._machine(pool)
        # A create was sent just now: whoever takes it for gone would close its hold while it comes up.
        return RentedMachine(node, self.name_of(node)) if self._is_settling(node) else None

    async def _get(self, node: str) -> CloudPool | None:
        for api in self._places():
            pool = await api.get(self.pool_name(node))
            if pool is not None and self._is_own(pool, node):
                self.sent.pop(node, None)
                return pool
        return None

    def _is_settling(self, node: str) -> bool:
        sent_at = self.sent.get(node)
        if sent_at is None:
            return False
        if asyncio.get_running_loop().time() - sent_at < self.settle_seconds:
            return True
        del self.sent[node]
        return False

    async def fetch_all(self) -> Sequence[RentedMachine]:
        listed = await asyncio.gather(*[api.list() for api in self._places()])
        pools = [pool for pools in listed for pool in pools if self._is_own(pool)]
        return [self._known(self._machine(pool)) for pool in pools]

    async def end(self, machine: RentedMachine) -> None:
        for api in self._places():
            name = self.pool_name(machine.node)
            pool = await api.get(name)
            if pool is not None and self._is_own(pool, machine.node) and not pool.ending:
                await api.delete(name)

    def is_up(self, name: str, resource: str, gpus: int) -> bool:
        """A TPU slice has several Nodes: all of them together show its chips."""
        ready = [node for node in self.nodes_of(name) if is_ready(node, resource, 1)]
        return sum(int(node["status"]["allocatable"][resource]) for node in ready) >= gpus

    # --- news --------------------------------------------------------------------------------------------------------

    def node_changed(self, before: Obj | None, now: Obj | None) -> None:
        """Our Nodes have no mark but the pool's name: the node's id is looked up."""
        super().node_changed(before, now)
        name = label_of(now or before)
        machine = self.known.get(name)
        if now is None:
            self.announced.pop(name, None)
        if machine is not None and now is None and self.tells(machine.node):
            self._lose(machine)
        elif machine is not None and (words := self.notice_on(name)):
            self.say_notice(machine.node, words)

    def notice_on(self, name: str) -> str:
        """Managed node groups cordon a machine that they will end."""
        cordoned = any((node.get("spec") or {}).get("unschedulable") for node in self.nodes_of(name))
        return super().notice_on(name) or ("its Node was cordoned" if cordoned else "")

    def notice_on_node(self, name: str) -> str:
        return super().notice_on_node(name) or self.announced.get(name, "")

    def _announced(self, machine_id: str, words: str) -> None:
        """Of a machine that is not ours, or has no Node yet, there is nothing to say."""
        for name, nodes in self.named.items():
            if any(
                str((node.get("spec") or {}).get("providerID", "")).endswith(f"/{machine_id}")
                for node in nodes.values()
            ):
                note(self.announced, name, words)
                self.wake(name)
                if name in self.known:
                    self.say_notice(self.known[name].node, words)
                return

    def warns(self) -> str:
        return self.queues.warns()

    def _lose(self, machine: RentedMachine) -> None:
        """Its machine is gone, and its pool would replace it."""
        self.say(e.NodeNotice(self.clock(), machine.node, "its Node is gone from the cluster; its pool is ended"))
        task = asyncio.get_running_loop().create_task(self._end_lost(machine))
        self.ends.add(task)
        task.add_done_callback(self.ends.discard)

    async def _end_lost(self, machine: RentedMachine) -> None:
        """Said to be lost only when nothing of it is billed any more."""
        while True:
            try:
                await self._delete(machine.node)
                break
            except (Refused, Unreachable):
                await asyncio.sleep(self.ask_seconds)
        if self.tells(machine.node):
            at = self.clock()
            lost = at < machine.deadline_at
            self.say(e.NodeLost(at, machine.node) if lost else e.NodeGone(at, machine.node))


def escaped(text: str) -> str:
    """A text as a tag that every cloud takes: other letters than a name's become `=` and two digits."""
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if re.fullmatch(rb"[A-Za-z0-9._/:-]", bytes([byte])) else f"={byte:02x}" for byte in raw)


def unescaped(text: str) -> str:
    """Back again; empty for what `escaped` never writes."""
    if not re.fullmatch(r"(?:[A-Za-z0-9._/:-]|=[0-9a-f]{2})*", text):
        return ""
    raw = re.sub(rb"=([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
    return raw.decode("utf-8", "surrogatepass") if _is_text(raw) else ""


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def instant_of(mark: str, unsaid: Instant) -> Instant:
    """Marks can be written by others: what is no instant says nothing."""
    return int(mark) if re.fullmatch("[0-9]{1,15}", mark) else unsaid
