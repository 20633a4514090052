"""Nodes of a cluster, rented one by one: what all ways to rent them have in common.

A way is a subclass. It says how the provider's object is made, found and ended: `create`, `find`, `fetch`, `fetch_all`
and `end`. This file says when a node is ready, when it is given up, and when it is surely gone, for all ways alike.
"""

import asyncio
import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import ClassVar, Final, TypeVar

from penstock.capacity.contract import Capacity, SeenNode, object_name
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import HOUR, MINUTE, NEVER, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.formatting import duration
from penstock.kube import annotations, errors
from penstock.kube.client import NODES, Cluster, Obj
from penstock.kube.informer import Informer
from penstock.kube.node_notices import notice_of
from penstock.kube.node_selection import NodeSelection
from penstock.site_answers import NeverReady, NoCapacity, Refused, Say, Unreachable, check_leads

T = TypeVar("T")
STARTS: Final = 3  #: times the offer's `start` that a node may take
LEAST_MS: Final[Millis] = 2 * MINUTE
MOST_MS: Final[Millis] = 20 * MINUTE
#: How long the offer is closed: stock comes back by itself, a quota and settings want a person.
RETRY_MS: Final[dict[Shortage, Millis]] = {"": 5 * MINUTE, "stock_out": 5 * MINUTE, "quota": 4 * HOUR, "settings": HOUR}
NEVER_READY_MS: Final[Millis] = 15 * MINUTE
BREATH_SECONDS: Final = 0.05  #: from an ask's answer until what happened meanwhile is said
#: How long a request may be on its way that nobody waits for any more: by whoever led before us, or one of ours whose
#: answer never came. Until then a node that is not there may still come.
LATE_SECONDS: Final = 15.0
#: How often a release asks while caches that are in step show what it waits for, and a start while they do not show
#: yet what was made for it.
FOLLOWED_SECONDS: Final = 10.0
TRIES: Final = 4  #: of a release to which nobody answers, before it says so
LEAK_SECONDS: Final = 5.0  #: after its object is gone, a Node that is still there is deleted by us
MOST_REMEMBERED: Final = 10_000  #: nodes given back: a late `ask` comes within minutes, not days
ROLE: Final = "docs/clouds.md says which rights it needs"


@value
class RentingSite:
    """The site that a way rents for. `cluster` and `offers` are asked whenever they are needed: the first is there once
    the site is connected.
    """

    name: str
    installation: str
    clock: Callable[[], Instant]
    cluster: Callable[[], Cluster]
    offers: Callable[[], Mapping[str, tuple[Offer, NodeSelection]]]


@value
class RentedMachine:
    """A rented node's object at its provider, as it is now."""

    node: str
    name: str
    uid: str = ""  # another one under the same name is another machine
    asked_at: str = ""  # our mark of when it was asked for, which its Node has, too
    age_seconds: float = 0.0  # by the provider's own clock
    deadline_at: Instant = NEVER  # that truly stands
    ending: bool = False  # it was told to go, by us or by others
    launched: bool = False  # a machine is there, and billed
    status: str = ""  # what the provider says of one that is not ready
    shortage: Shortage = ""  # what that means, where it is known


class ClusterNodes(Capacity):
    #: How often a start or a release asks, beside what informers say.
    ask_seconds: ClassVar[float] = 1.0
    late_seconds: float = LATE_SECONDS
    #: What the site lacks if it does not know the kind of object that a way makes. Empty: it may be a passing error.
    lacks: ClassVar[str] = ""

    def __init__(self, site: RentingSite, least_ms: Millis = LEAST_MS) -> None:
        """`least_ms`: how long any node may take."""
        super().__init__()
        self.least_ms = least_ms
        self.site, self.installation, self.clock = site.name, site.installation, site.clock
        self.cluster_now, self.offers_now = site.cluster, site.offers
        self.ours = f"{annotations.INSTALLATION}={annotations.label_value(site.installation)}"
        self.creating: dict[str, asyncio.Task[RentedMachine]] = {}  #: by node: a create that is not answered yet
        self.opened_at = -math.inf  #: by the event loop's clock
        self.doubted_at: dict[str, float] = {}  #: nodes that this process asked for last without an answer
        self.released: dict[str, None] = {}  #: nodes that were given back: never asked for again
        self.asking: dict[str, int] = {}  #: `ask` calls in flight: they answer, and nothing is said beside
        self.noticed: dict[str, None] = {}  #: nodes whose end was said in advance
        self.news: dict[str, list[asyncio.Event]] = {}  #: by name: whoever waits for news of this one alone
        self.named: dict[str, dict[str, Obj]] = {}  #: by name: its Nodes
        self.newest: dict[str, str] = {}  #: by name: the `asked_at` of the machine that an `ask` made or found last
        self.tasks: list[asyncio.Task[None]] = []
        self.beside: set[asyncio.Task[None]] = set()  #: what nobody waits for

    # --- what a way says ---------------------------------------------------------------------------------------------

    @abstractmethod
    async def create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        """Make its object; the one that is there already if its marks are ours. Raises `Refused` if they are not.

        Whatever rents something is made with `sent_at`, in the instant that it leaves.
        """

    @abstractmethod
    async def find(self, machine: RentedMachine) -> RentedMachine | None:
        """How it is now, by a cache if there is one; None: it is surely gone."""

    @abstractmethod
    async def fetch(self, node: str) -> RentedMachine | None:
        """The same, asked of the provider; None: there is none of ours."""

    @abstractmethod
    async def fetch_all(self) -> Sequence[RentedMachine]:
        """All of this installation. Asked of the provider: a cache may be behind."""

    @abstractmethod
    async def end(self, machine: RentedMachine) -> None:
        """Tell it to go. Returns at once; `fetch` says when it is gone."""

    async def why_gone(self, machine: RentedMachine) -> tuple[str, Shortage]:
        """Why a machine that was asked for went by itself, in the provider's words; empty: nothing says it."""
        return machine.status, machine.shortage

    def shows(self, machine: RentedMachine) -> bool | None:  # noqa: ARG002 - most have none
        """Whether a cache that is in step shows its object, and not an earlier one of its name; None: there is no such
        cache.
        """
        return None

    def has(self, name: str) -> bool:  # noqa: ARG002 - most have no cache
        """Whether a cache shows an object of that name, whichever it is."""
        return False

    def informers(self) -> list[Informer]:
        """Beside that of Nodes: what else is followed. They are opened and closed with this."""
        return []

    @asynccontextmanager
    async def errors(self) -> AsyncIterator[None]:
        """The provider's errors as a site's. Every call of the above is made inside it."""
        try:
            yield
        except errors.Invalid as error:
            raise Refused(f"{self.site} does not take it; repair the offer's 'rent': {error}") from error
        except errors.Forbidden as error:
            if error.by_account:
                words = f"our account at {self.site} may not {error.verb} {error.resource}; {ROLE}"
                raise Refused(words) from error
            raise Refused(f"{self.site} does not admit it: {error}") from error
        except errors.KubeError as error:
            if self.lacks and isinstance(error, errors.NotFound):
                raise Refused(f"{self.site} {self.lacks} ({error})") from error
            raise Unreachable(str(error)) from error

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        await super().open(say)
        if not self.tasks:
            self.opened_at = asyncio.get_running_loop().time()
            self.nodes = Informer(self.cluster_now(), NODES, self.node_changed, labels=self.ours)
            self.tasks = [asyncio.create_task(informer.run()) for informer in (*self.informers(), self.nodes)]

    async def close(self) -> None:
        await super().close()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait([*self.tasks, *self.beside])

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, ask: LaunchNode) -> None:
        """Make its object unless it is there, and wait until its Node shows the offer's GPUs. One whose deadline has
        passed, as after a restart, is not rented any more: nothing would pay for it.
        """
        if ask.node not in self.released and self.clock() >= ask.deadline_at:
            await self.release(ask.node)
        if ask.node in self.released:
            self.say(e.NodeGone(self.clock(), ask.node))
            return
        offer, place = self._offer(ask.offer)
        self.asking[ask.node] = self.asking.get(ask.node, 0) + 1
        try:
            machine = await self._create_once(ask, offer, place)
            await self._until_ready(machine, ask, offer, place)
        finally:
            self.asking[ask.node] -= 1
            if not self.asking[ask.node]:
                del self.asking[ask.node]
                asyncio.get_running_loop().call_later(BREATH_SECONDS, self._tell_notice, ask.node)

    def _offer(self, name: str) -> tuple[Offer, NodeSelection]:
        known = self.offers_now()
        if name not in known:
            raise Refused(f"site {self.site} has no offer {name}")
        if known[name][1].rent is None:
            raise Refused(f"{name}: nodes are not rented one by one there; write 'sold_by: attempt', or 'rent'")
        return known[name]

    async def _create_once(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        """One create for a node at a time. A caller that is cancelled leaves it to whoever comes next."""
        if ask.node not in self.creating:
            task = asyncio.create_task(self._create(ask, offer, place))
            self.creating[ask.node] = task
            task.add_done_callback(lambda _: self.creating.pop(ask.node, None))
        return await asyncio.shield(self.creating[ask.node])

    async def _create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        try:
            async with self.errors():
                machine = await self.create(ask, offer, place)
        except Unreachable:
            note(self.doubted_at, ask.node, asyncio.get_running_loop().time())
            raise
        if self.newest.get(machine.name) != machine.asked_at:
            self.noticed.pop(ask.node, None)  # that was about an earlier one
        note(self.newest, machine.name, machine.asked_at)
        return machine

    def sent_at(self, ask: LaunchNode) -> Instant:
        """The time, for a request that leaves now: what is rented counts from it. Raises `Unreachable` if another
        control plane may lead by now, or its deadline has passed, as after a sleep between any two lines: then nothing
        is asked for.
        """
        check_leads()
        now = self.clock()
        if now >= ask.deadline_at:
            raise Unreachable(f"the deadline of {ask.node} has passed: it is not asked for any more")
        return now

    def unsure_seconds(self, node: str) -> float:
        """How long somebody's request for it may still be on its way: that it is not there says nothing until then."""
        since = max(self.opened_at, self.doubted_at.get(node, -math.inf))
        return max(0.0, since + self.late_seconds - asyncio.get_running_loop().time())

    async def _until_ready(self, machine: RentedMachine, ask: LaunchNode, offer: Offer, place: NodeSelection) -> None:
        """`machine`: as the answer to its creation says, so it is not asked about at once. A cache that does not show
        it yet is behind, and only one that has shown it says that it is gone.
        """
        most_ms, time_now = self.longest_start_ms(offer), asyncio.get_running_loop().time
        gives_up = time_now() + most_ms / SECOND - machine.age_seconds
        looked_at, was_shown = time_now(), False
        with self.news_of(machine.name) as news:
            while True:
                news.clear()
                if ask.node in self.released:
                    raise asyncio.CancelledError  # given back while it started
                if notice := self.notice_on_node(machine.name):
                    await self._never_came(ask, machine, notice)
                if self.is_up(machine.name, place.resource, ask.gpus):
                    return
                current: RentedMachine | None = machine
                shown = self.shows(machine)
                rests_seconds = self.ask_seconds if shown is None else FOLLOWED_SECONDS
                if shown or was_shown or time_now() - looked_at >= rests_seconds:
                    async with self.errors():
                        current = await self.find(machine)
                    looked_at, was_shown = time_now(), bool(shown)
                machine = current or machine
                if current is None or current.ending:
                    await self._never_came(ask, machine)
                left = gives_up - time_now()
                if left <= 0:
                    await self._give_up(ask, machine, place, most_ms)
                await _within(news, min(left, self.ask_seconds))

    def longest_start_ms(self, offer: Offer) -> Millis:
        """How long one may take until it is ready."""
        return min(max(STARTS * offer.start_ms, self.least_ms), MOST_MS)

    async def nodes_there(self, labels: str) -> Sequence[Obj]:
        """Nodes with these labels, asked of the cluster."""
        listed, _ = await self.cluster_now().list(NODES, labels=labels)
        return listed

    async def _never_came(self, ask: LaunchNode, machine: RentedMachine, notice: str = "") -> None:
        """The provider could not get a machine, or took it away. One that had been there has cost something."""
        if ask.node in self.released:
            raise asyncio.CancelledError
        words, shortage = await self.why_gone(machine) if not notice else (notice, None)
        await self._delete(ask.node)
        words = words or "it was deleted, and nothing says why"
        if machine.launched or shortage is None:
            raise NeverReady(f"a node of {ask.offer} was taken away while it started: {words}", NEVER_READY_MS)
        raise NoCapacity(words, RETRY_MS[shortage], shortage)

    async def _give_up(self, ask: LaunchNode, machine: RentedMachine, place: NodeSelection, most_ms: Millis) -> None:
        """Providers have no such limit: a node whose GPUs never register would be billed for ever."""
        joined = bool(self.nodes_of(machine.name))
        await self._delete(ask.node)
        what = f"its Node shows fewer than {ask.gpus} {place.resource}" if joined else "it never joined the cluster"
        status = f" ({machine.status})" if machine.status else ""
        words = f"a node of {ask.offer} was given back after {duration(most_ms)}: {what}{status}"
        raise NeverReady(words, NEVER_READY_MS, "" if joined else machine.shortage)

    # --- listing and giving back -------------------------------------------------------------------------------------

    async def list(self) -> tuple[SeenNode, ...]:
        """Machines, and Nodes whose machine is gone."""
        try:
            async with self.errors():
                machines = await self.fetch_all()
                nodes = await self.nodes_there(self.ours)
        except (Refused, Unreachable) as error:  # whatever it is, it does not mean that there are none
            raise Unreachable(f"what is rented at {self.site} cannot be listed; {ROLE}: {error}") from error
        seen = {node_of(obj): deadline_of(obj) for obj in nodes if node_of(obj)}
        seen |= {machine.node: machine.deadline_at for machine in machines if machine.node}
        return tuple([SeenNode(node, deadline_at) for node, deadline_at in seen.items()])

    async def release(self, node: str) -> None:
        note(self.released, node, None)
        self.wake(self.name_of(node))
        if node in self.creating:  # a create that arrives after the delete would be nobody's
            with suppress(Exception):
                await asyncio.shield(self.creating[node])
        await self._delete(node)

    async def _delete(self, node: str) -> None:
        """Returns when the machine and its Node are gone. One lost answer does not end the call: whoever is told that
        nobody answers asks again after a pause that grows to a minute, and the node is billed meanwhile.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                await self._delete_while_heard(node)
                return
            except Unreachable:
                if not tries_left:
                    raise
            await asyncio.sleep(self.ask_seconds)

    async def _delete_while_heard(self, node: str) -> None:
        """Returns when the machine and its Node are gone. That is asked of the provider and of the cluster; caches only
        say when it is worth asking.
        """
        name, gone_at = self.name_of(node), None
        with self.news_of(name) as news:
            async with self.errors():
                while True:
                    news.clear()
                    machine = await self.fetch(node)
                    if machine is not None:
                        gone_at = None
                        if not machine.ending:
                            await self.end(machine)
                        await self._while_shown(machine, news)
                        continue
                    left = await self.nodes_there(f"{annotations.NODE}={name}")
                    if not left and not self.unsure_seconds(node):
                        return
                    now = asyncio.get_running_loop().time()
                    gone_at = gone_at or now
                    if now - gone_at >= LEAK_SECONDS:
                        await self._delete_leaked(left)
                    await _within(news, self.ask_seconds if left else self.unsure_seconds(node))

    async def _while_shown(self, machine: RentedMachine, news: asyncio.Event) -> None:
        """Until its object may be gone. A cache that follows it says so; and no cache is believed for long."""
        now = asyncio.get_running_loop().time
        if not self.shows(machine):
            await _within(news, self.ask_seconds)
            return
        until = now() + FOLLOWED_SECONDS
        while self.shows(machine) and now() < until:
            news.clear()
            await _within(news, until - now())

    async def _delete_leaked(self, nodes: Sequence[Obj]) -> None:
        for node in nodes:
            if "deletionTimestamp" not in node["metadata"]:
                with suppress(errors.NotFound, errors.Conflict):
                    await self.cluster_now().delete(NODES, node["metadata"]["name"], uid=str(node["metadata"]["uid"]))

    async def extend(self, node: str, deadline_at: Instant) -> Instant:  # noqa: ARG002 - it cannot be moved
        """The deadline that it was asked with, unless a way can move it."""
        async with self.errors():
            machine = await self.fetch(node)
        if machine is None:
            raise Unreachable(f"{node} is not here, or not yet")
        return machine.deadline_at

    # --- news --------------------------------------------------------------------------------------------------------

    def name_of(self, node: str) -> str:
        """Of a node's object at its provider, and the value of the label `penstock.dev/node` on its Node."""
        return annotations.node_name(object_name(self.installation, node))

    def tells(self, node: str) -> bool:
        """Whether news of it are said: nobody gave it back, and no call is about to answer."""
        return bool(node) and node not in self.released and not self.asking.get(node)

    def node_changed(self, before: Obj | None, now: Obj | None) -> None:
        if now is not None and not self.is_earlier(now) and (words := notice_of(now)):
            self.say_notice(node_of(now), words)
        index(self.named, before, now)
        self.wake(label_of(now or before))

    def say_notice(self, node: str, words: str) -> None:
        """It will be taken away soon. Said once: a taint, a condition and a deletion may all announce one end."""
        if self.tells(node) and node not in self.noticed:
            note(self.noticed, node, None)
            self.say(e.NodeNotice(self.clock(), node, words))

    def say_gone(self, obj: Obj) -> None:
        """Its object is gone, which goes last: nothing of it is billed any more. Not before it is sure that no request
        for it is on its way, and that it is not there again.
        """
        later = asyncio.get_running_loop().call_later
        later(self.unsure_seconds(node_of(obj)), self._say_if_gone, node_of(obj), obj)

    def _say_if_gone(self, node: str, obj: Obj) -> None:
        """Its own deadline passed, or it was taken away."""
        if self.unsure_seconds(node):
            self.say_gone(obj)
        elif self.tells(node) and not self.is_earlier(obj) and not self.has(str(obj["metadata"]["name"])):
            at = self.clock()
            self.say(e.NodeGone(at, node) if at >= deadline_of(obj) else e.NodeLost(at, node))

    def _tell_notice(self, node: str) -> None:
        """What came while an `ask` was about to answer."""
        if words := self.notice_on(self.name_of(node)):
            self.say_notice(node, words)

    def notice_on(self, name: str) -> str:
        """Why this one will be gone soon; empty: nothing says so. A way whose object says more adds to it."""
        return self.notice_on_node(name)

    def notice_on_node(self, name: str) -> str:
        return next(filter(None, map(notice_of, self.nodes_of(name))), "")

    def nodes_of(self, name: str) -> tuple[Obj, ...]:
        return tuple([node for node in self.named.get(name, {}).values() if not self.is_earlier(node)])

    def is_earlier(self, obj: Obj) -> bool:
        """True for what belongs to an earlier machine of this name, which caches and the cluster may still show: it
        says nothing about the one that was asked for since.
        """
        mark, newest = asked_at_of(obj), self.newest.get(label_of(obj), "")
        return bool(mark and newest) and mark != newest

    def is_up(self, name: str, resource: str, gpus: int) -> bool:
        """Its Node is ready, with all that its offer promises."""
        return any(is_ready(node, resource, gpus) for node in self.nodes_of(name))

    def age_seconds(self, obj: Obj) -> float:
        """By the cluster's own clock."""
        made = datetime.fromisoformat(str(obj["metadata"]["creationTimestamp"]))
        return max(0.0, (self.cluster_now().time_there - made).total_seconds())

    def wake(self, name: str) -> None:
        """Whoever waits for news of this one looks again. Nobody else does: of 500 nodes each has news many times."""
        for news in self.news.get(name, ()):
            news.set()

    @contextmanager
    def news_of(self, name: str) -> Iterator[asyncio.Event]:
        """Set when something about it has changed."""
        news = asyncio.Event()
        self.news.setdefault(name, []).append(news)
        try:
            yield news
        finally:
            self.news[name].remove(news)
            if not self.news[name]:
                del self.news[name]


async def _within(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await news.wait()


def note(remembered: dict[str, T], node: str, about: T) -> None:
    """Keep the youngest `MOST_REMEMBERED` only."""
    remembered.pop(node, None)
    remembered[node] = about
    while len(remembered) > MOST_REMEMBERED:
        del remembered[next(iter(remembered))]


def index(named: dict[str, dict[str, Obj]], before: Obj | None, now: Obj | None) -> None:
    """Keep what an informer shows by the name of the rented node that it belongs to."""
    if before is not None:
        of_it = named.get(label_of(before), {})
        of_it.pop(str(before["metadata"]["uid"]), None)
        if not of_it:
            named.pop(label_of(before), None)
    if now is not None:
        named.setdefault(label_of(now), {})[str(now["metadata"]["uid"])] = now


def label_of(obj: Obj | None) -> str:
    """The name of the rented node that an object belongs to, as its label says; empty: none."""
    return str((obj["metadata"].get("labels") or {}).get(annotations.NODE, "")) if obj is not None else ""


def node_of(obj: Obj) -> str:
    """The rented node that an object belongs to, by our mark; empty: none."""
    return str((obj["metadata"].get("annotations") or {}).get(annotations.NODE_ID, ""))


def asked_at_of(obj: Obj) -> str:
    """Our mark of when its machine was asked for; empty: it has none, or not yet."""
    return str((obj["metadata"].get("annotations") or {}).get(annotations.ASKED_AT, ""))


def deadline_of(obj: Obj) -> Instant:
    """As it was written on the object when it was asked for."""
    written = str((obj["metadata"].get("annotations") or {}).get(annotations.NODE_DEADLINE, ""))
    return int(written) if written.isdigit() else NEVER


def is_ready(node: Obj, resource: str, gpus: int) -> bool:
    """Registered, healthy, and with the GPUs that the offer promises. Ready without GPUs is not ready."""
    status = node.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    count = str((status.get("allocatable") or {}).get(resource, "0"))
    taints = [taint.get("key") for taint in node.get("spec", {}).get("taints") or ()]
    return ready and count.isdigit() and int(count) >= gpus and "karpenter.sh/unregistered" not in taints
