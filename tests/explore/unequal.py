"""Homes whose nodes are not alike, and the scheduler of such a cluster. It puts starts where it likes, on nodes that
suit them, and knows things of nodes that nobody told the engine.

`uneven(month)` adds to a month what its nodes lack, what its jobs need, and when that changes. `drive` asks a
`Scheduler` for every start on nodes that have names. Node k is called node-k, so that slots mean the same to both.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from penstock.core.ids import site_of, standing_node
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import NODE_WITH, STANDING, TOLERATES, NodeShape, Offer, Site
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.world import World
from tests.explore.months import Month

LABEL: Final = "node selector zone=b"
RESOURCE: Final = NODE_WITH + "1 rdma/ib"
TEAM: Final = TOLERATES + "dedicated=vision:NoSchedule"
NEEDS: Final = (LABEL, RESOURCE, TEAM)
#: A start that finds no room is looked at so often, and then given up.
TRIES: Final = 4
EVERY_MS: Final = 30 * SECOND

Slots: TypeAlias = tuple[tuple[int, int], ...]
After: TypeAlias = Callable[[Millis, Callable[[Instant], list[e.Fact]]], None]


def uneven(month: Month) -> Month:
    """Three of five months are."""
    rng = Random(f"{month.seed} nodes")
    sites = [fact.site for fact in month.script if isinstance(fact, e.SiteJoined) and fact.at == month.zero]
    homes = [site for site in sites if any(offer.term in STANDING for offer in site.offers)]
    if not homes or rng.random() < 0.4:
        return month
    if rng.random() < 0.6:
        month, homes = _crowded(rng, month, homes)
    mapped = {site.id for site in sites if site not in homes and rng.random() < 0.5}
    needy = rng.choice([0.2, 0.5, 0.9])
    script = [_with_needs(rng, fact, homes, needy, mapped) for fact in month.script]
    opened = len([fact for fact in script if fact.at == month.zero and not isinstance(fact, e.JobSubmitted)])
    offers = [offer for site in homes for offer in site.offers if offer.term in STANDING]
    first = [fact for offer in offers for fact in _known(rng, month.zero, offer)]
    last = month.jobs[-1].at - month.zero + 12 * HOUR if month.jobs else HOUR
    changes = [
        fact
        for _ in range(rng.choice([0, 2, 6, 20]))
        for fact in _change(rng, month.zero + 1 + rng.randrange(last), rng.choice(offers))
    ]
    later = sorted([*script[opened:], *changes], key=lambda fact: fact.at)
    return replace(
        month,
        script=(*script[:opened], *first, *later),
        strays_permille=rng.choice([0, 100, 500, 900]),
        cramped_permille=rng.choice([0, 0, 100, 500]),
    )


def _crowded(rng: Random, month: Month, homes: list[Site]) -> tuple[Month, list[Site]]:
    """More nodes at home, and narrower jobs that come closer together: they are in each other's way there."""
    shape = NodeShape(rng.choice([2, 4, 8]), rng.choice([3, 4, 6]))
    faster = rng.choice([3, 10, 30])

    def nearer(fact: e.Fact) -> e.Fact:
        if isinstance(fact, e.SiteJoined) and fact.site.id in [home.id for home in homes]:
            return replace(fact, site=_wide(fact.site, shape))
        if isinstance(fact, e.JobSubmitted):
            gpus = rng.choice([1, 1, shape.gpus // 2, shape.gpus, 2 * shape.gpus])
            at, spec = month.zero + (fact.at - month.zero) // faster, fact.spec
            scaling = spec.scaling and ((gpus * 2, 1800),)
            return replace(fact, at=at, spec=replace(spec, gpus=gpus, gpu_models=(), data=(), scaling=scaling))
        return fact

    opened = len([fact for fact in month.script if fact.at == month.zero and not isinstance(fact, e.JobSubmitted)])
    script = [nearer(fact) for fact in month.script]
    later = sorted(script[opened:], key=lambda fact: fact.at)
    return replace(month, script=(*script[:opened], *later)), [_wide(home, shape) for home in homes]


def _wide(home: Site, shape: NodeShape) -> Site:
    return replace(home, offers=(replace(home.offers[0], shapes=(shape,)), *home.offers[1:]))


def _with_needs(rng: Random, fact: e.Fact, homes: list[Site], needy: float, mapped: set[str]) -> e.Fact:
    if isinstance(fact, e.SiteJoined) and fact.site.id in mapped:
        return replace(fact, site=replace(fact.site, has=("*",)))
    if isinstance(fact, e.JobSubmitted) and rng.random() < needy:
        needs = tuple(need for need in NEEDS if rng.random() < 0.4)
        return replace(fact, spec=replace(fact.spec, home=rng.choice(homes).id, needs=needs))
    return fact


def _known(rng: Random, at: Instant, offer: Offer) -> Iterable[e.Fact]:
    yield e.NodesSeen(at, offer.id, tuple((name, offer.shapes[-1].gpus) for name in names_of(offer)))
    for need in ("", *NEEDS):
        if rng.random() < 0.6:
            yield _lacking(rng, at, offer, need)


def _lacking(rng: Random, at: Instant, offer: Offer, need: str) -> e.Fact:
    if need == TEAM:  # it tolerates the taint
        return e.NodesUnsuited(at, offer.id, need, ())
    some = tuple(name for name in names_of(offer) if rng.random() < 0.5)
    return e.NodesUnsuited(at, offer.id, need, some, rng.random() < 0.3)


def _change(rng: Random, at: Instant, offer: Offer) -> Iterable[e.Fact]:
    if rng.random() < 0.6:
        return [e.NodesChanged(at, offer.id, tuple(name for name in names_of(offer) if rng.random() < 0.6))]
    return [_lacking(rng, at, offer, rng.choice(("", *NEEDS)))]


def names_of(offer: Offer) -> list[str]:
    return [f"node-{k}" for k in range(offer.shapes[-1].count or 1)]


class Scheduler:
    def __init__(self, month: Month, world: World, after: After) -> None:
        self.month, self.world, self.after = month, world, after
        self.seen: dict[str, dict[int, int]] = {}  #: by offer and node: GPUs that are not other people's
        self.lacking: dict[tuple[str, str], tuple[tuple[str, ...], bool]] = {}
        self.changed: dict[tuple[str, int], int] = {}
        self.down: set[tuple[str, int | None]] = set()
        self.pending: dict[str, a.StartAttempt] = {}
        self.untold: set[str] = set()  #: attempts that are elsewhere, of which nobody was told yet
        self.names: dict[str, tuple[str, ...]] = {}

    # --- what it sees ------------------------------------------------------------------------------------------------

    def hear(self, fact: e.Fact) -> None:
        match fact:
            case e.NodesSeen():
                told, known = dict(fact.nodes), self.names.get(fact.offer, ())
                self.names[fact.offer] = (*known, *[name for name in told if name not in known])
                most = self.world.offers[fact.offer].shapes[-1].gpus
                self.seen[fact.offer] = {
                    k: min(most, told.get(name, 0)) for k, name in enumerate(self.names[fact.offer])
                }
            case e.NodesUnsuited():
                self.lacking[fact.offer, fact.need] = (fact.nodes, fact.only)
            case e.NodesChanged():
                for k, name in enumerate(self.names.get(fact.offer, ())):
                    self.changed[fact.offer, k] = self.changed.get((fact.offer, k), 0) + (name in fact.nodes)
            case e.NodeLost():
                self.down.add(standing_node(fact.node))
            case e.NodeReady():
                self.down.discard(standing_node(fact.node))
            case _:
                pass

    def again(self, fact: e.Fact) -> list[e.Fact]:
        """A site that comes back says what it said before."""
        if not isinstance(fact, e.SiteJoined):
            return []
        known: list[e.Fact] = []
        for offer in [offer.id for offer in fact.site.offers if offer.id in self.seen]:
            nodes = tuple((self.names[offer][k], gpus) for k, gpus in self.seen[offer].items())
            known.append(e.NodesSeen(fact.at, offer, nodes))
            known += [
                e.NodesUnsuited(fact.at, offer, need, nodes, only)
                for (where, need), (nodes, only) in self.lacking.items()
                if where == offer
            ]
        return known

    def suits(self, job: str, offer: str) -> set[int]:
        """The nodes whose labels, taints and resources it may have, whoever has their GPUs."""
        spec = self.world.truths[job].spec
        at_home = site_of(offer) == spec.home
        needs = [need for need in spec.needs if at_home or need.startswith(NODE_WITH)]
        if not any(need.startswith(TOLERATES) for need in needs):
            needs.append("")
        nodes = set(self.seen[offer])
        for need in needs:
            listed, only = self.lacking.get((offer, need), ((), False))
            nodes = {k for k in nodes if (self.names[offer][k] in listed) == only}
        return nodes

    def cramped(self, job: str, offer: str, node: int) -> bool:
        """It lacks something that nobody was told of, until it changes."""
        luck = uniform(self.month.seed, "cramped", job, offer, node, self.changed.get((offer, node), 0))
        return luck * 1_000 < self.month.cramped_permille

    def free(self, offer: str) -> dict[int, int]:
        free = {k: gpus for k, gpus in self.seen[offer].items() if (offer, k) not in self.down}
        for run in self.world.runs.values():
            for node, gpus in run.action.slots if run.offer.id == offer else ():
                if node in free:
                    free[node] -= gpus
        return free

    # --- what it does ------------------------------------------------------------------------------------------------

    def start(self, action: a.StartAttempt) -> None:
        if action.attempt in self.pending or action.attempt in self.world.runs:
            return
        self.pending[action.attempt] = action
        takes_ms = int(uniform(self.month.seed, "binds", action.attempt) * EVERY_MS) if self.month.slow_stops else 0
        self.after(takes_ms, lambda at: self.bind(action, at, TRIES))

    def stop(self, attempt: str) -> None:
        action = self.pending.pop(attempt)
        self.after(SECOND, lambda at: [e.AttemptStopped(at, attempt, action.resume_ms)])

    def bind(self, action: a.StartAttempt, now: Instant, tries: int) -> list[e.Fact]:
        attempt, offer = action.attempt, action.offer
        if self.pending.get(attempt) is not action:
            return []
        free, suits = self.free(offer), self.suits(action.job, offer)
        room = {k: gpus for k, gpus in free.items() if k in suits and not self.cramped(action.job, offer, k)}
        slots = self.choose(action, room)
        if slots:
            del self.pending[attempt]
            self.world.do(replace(action, slots=slots), now)
            return self.tell(action, slots, now)
        if tries > 1:
            self.after(EVERY_MS, lambda at: self.bind(action, at, tries - 1))
            return []
        del self.pending[attempt]
        least = min(gpus for _, gpus in action.slots)
        nodes = tuple(self.names[offer][k] for k in sorted(suits) if free.get(k, 0) >= least and k not in room)
        if nodes:
            return [e.AttemptRefused(now, attempt, EVERY_MS, "unfit", "2 Insufficient cpu", nodes=nodes)]
        return [e.AttemptRefused(now, attempt, EVERY_MS)]

    def choose(self, action: a.StartAttempt, room: dict[int, int]) -> Slots:
        """As it was promised, if there is room and luck; otherwise other nodes, each pod on one of its own."""
        strays = uniform(self.month.seed, "strays", action.attempt) * 1_000 < self.month.strays_permille
        if not strays and all(room.get(node, 0) >= gpus for node, gpus in action.slots):
            return action.slots
        kept = {k for k, name in enumerate(self.names[action.offer]) if name in action.reserved}
        only = {k for k, name in enumerate(self.names[action.offer]) if name in action.places}
        order = sorted(room, key=lambda k: uniform(self.month.seed, "order", action.attempt, k))
        slots: list[tuple[int, int]] = []
        for _, gpus in action.slots:
            used = {node for node, _ in slots}
            fits = [k for k in order if room[k] >= gpus and k not in used | kept and (k in only or not action.pinned)]
            if not fits:
                return ()
            slots.append((fits[0], gpus))
        return tuple(slots)

    def tell(self, action: a.StartAttempt, slots: Slots, now: Instant) -> list[e.Fact]:
        """Before it runs, as a rule. Who is where it was promised is not spoken of."""
        if sorted(slots) == sorted(action.slots):
            return []
        self.untold.add(action.attempt)
        late = uniform(self.month.seed, "late", action.attempt)
        if late < 0.8:
            return self.say(action, slots, now)
        self.after(int(late * MINUTE), lambda at: self.say(action, slots, at))
        return []

    def say(self, action: a.StartAttempt, slots: Slots, now: Instant) -> list[e.Fact]:
        self.untold.discard(action.attempt)
        return [e.AttemptPlaced(now, action.attempt, tuple((self.names[action.offer][k], gpus) for k, gpus in slots))]
