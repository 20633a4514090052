"""What is really rented, as somebody sees it who asks the cluster and the journal again and again. `bench.kill_clouds`
uses it.

The end of a run hides most mistakes about money: what was rented before it was on record, or was still there after its
hold was closed, is long gone by then. So it is asked at every instant whether anything is alive without an open hold.
Journal, then cluster, then journal: only what no order of the two explains is a finding.
"""

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.auditor import Auditor
from bench.cloud_grounds import CloudGround
from bench.kube_witness import PodLife, Witness
from penstock.core.fold.ledger import Lease
from penstock.core.units import Instant
from penstock.drivers.kubernetes.scaling import POOL_LABEL
from penstock.kube import annotations
from penstock.kube.client import NODES, Cluster, Kind

#: A claim counts from its creation, in whole seconds, and a request may be late by one.
TOLERANCE_MS: Final = 3_000
#: How long an orphan may be there while somebody leads and is not stopped: a claim with our marks that the journal
#: never had, made by the bench itself. And as much longer as lists are late. Whoever leads sweeps it at the next look,
#: 2 s here and 30 s usually, asks again if a question or an answer is lost, and may be killed before all of it is gone.
SWEPT_S: Final = 120.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Rented:
    """A claim or a Node that is there now."""

    uid: str
    kind: str
    name: str  #: of the claim
    node: str  #: as the journal calls it
    made_at: Instant  #: in whole seconds
    ends_at: Instant | None  #: by itself; None: a Node, or never
    pool: str
    movable: bool = False  #: its end is


@dataclass(frozen=True)
class Books:
    """What the journal says at one instant."""

    leases: dict[str, Lease]
    known: frozenset[str]
    settled: dict[str, Instant]
    warm: frozenset[str] = frozenset()  #: nodes that a pool keeps ready

    @classmethod
    def of(cls, auditor: Auditor) -> "Books":
        auditor.follow()
        state = auditor.engine.state
        warm = [node for node in state.warm.nodes if state.nodes[node].phase == "idle"]
        return cls(dict(state.ledger.leases), frozenset(auditor.holds), dict(auditor.settled), frozenset(warm))


class CloudWitness(Witness):
    def __init__(self, late_s: float = 0.0) -> None:
        """`late_s`: how old a list may be that a control plane sees."""
        super().__init__()
        self.limit_s = SWEPT_S + late_s
        self.asked = 0  #: how often
        self.seen: dict[str, Rented] = {}  #: all that was ever there, by uid
        self.planted: dict[str, float] = {}  #: names of orphans that the bench made, and when they were seen first
        self.there_s: dict[str, float] = {}  #: how long each of them was there
        self.strangers: set[str] = set()  #: names of claims that are nobody's of ours, made by the bench
        self.most = 0  #: nodes at once
        self.taken: set[str] = set()  #: nodes that the bench took away
        self.node_ids: dict[str, str] = {}  #: by Node: the rented node that it is

    async def ask(
        self, cluster: Cluster, ground: CloudGround, auditor: Auditor, now_s: float
    ) -> Iterator[tuple[str, str]]:
        """What is wrong now. `now_s`: a clock that stands still while nobody leads."""
        before = Books.of(auditor)
        there = await rented(cluster, ground)
        after = Books.of(auditor)
        self.asked += 1
        self.seen |= {one.uid: one for one in there}
        self.most = max(self.most, sum(one.kind == "claim" for one in there))
        unpaid = self._unpaid(there, before, after, now_s)
        vanished = _vanished(there, before, after, self.taken, int(time.time() * 1000))
        misplaced = _misplaced(self.pods.values(), self.node_ids, auditor.nodes)
        return iter([*_twice(there), *_marks(there), *unpaid, *_ends(there, after), *vanished, *misplaced])

    def hear(self, kind: Kind, what: str, obj: Json) -> None:
        super().hear(kind, what, obj)
        node = (obj["metadata"].get("annotations") or {}).get(annotations.NODE_ID, "")
        if kind is NODES and node:
            self.node_ids[obj["metadata"]["name"]] = node

    async def ask_strangers(self, cluster: Cluster, ground: CloudGround) -> Iterator[tuple[str, str]]:
        """Those that were there when the question left."""
        before = frozenset(self.strangers)
        claims, _ = await cluster.list(ground.kind, ground.namespace)
        return _adopted(before, claims)

    def _unpaid(self, there: Iterable[Rented], before: Books, after: Books, now_s: float) -> Iterator[tuple[str, str]]:
        """All of it, but orphans that the bench made: those must be swept soon."""
        for one in there:
            never, settled = one.node not in after.known, one.node in before.settled
            if one.node in before.leases or one.node in after.leases or not (never or settled):
                continue
            if one.name in self.planted:
                if not self.planted[one.name]:
                    self.planted[one.name] = now_s
                self.there_s[one.name] = now_s - self.planted[one.name]
                if self.there_s[one.name] < self.limit_s:
                    continue
            why = "was never held for" if never else "was settled before it was gone"
            why = "was not swept" if one.name in self.planted else why
            yield "over_cap", f"{one.kind} {one.name} of {one.node} is there, and {why}"


def _twice(there: Iterable[Rented]) -> Iterator[tuple[str, str]]:
    """One claim for a node, and one Node for a claim."""
    met: dict[tuple[str, str], Rented] = {}
    for one in there:
        other = met.setdefault((one.kind, one.node), one)
        if other is not one:
            yield "doubled", f"{one.node} is rented twice: as {other.kind} {other.name} and {one.name}"


def _adopted(strangers: Iterable[str], claims: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """What is somebody else's stays as it is, whatever its name: only who took it for its own ends it."""
    stay = {claim["metadata"]["name"] for claim in claims if "deletionTimestamp" not in claim["metadata"]}
    for name in sorted(set(strangers) - stay):
        yield "lost", f"claim {name} is somebody else's, and was adopted: it was told to go"


def _vanished(
    there: Iterable[Rented], before: Books, after: Books, taken: Collection[str], now: Instant
) -> Iterator[tuple[str, str]]:
    """A node that a pool keeps ready, and pays for, stays until its end, unless the bench took it away."""
    claimed = {one.node for one in there if one.kind == "claim"}
    for node in sorted((before.warm & after.warm) - claimed - set(taken)):
        if now < after.leases[node].deadline_at - TOLERANCE_MS:
            yield "lost", f"{node} is kept warm and paid for, and its claim is gone"


def _misplaced(
    pods: Iterable[PodLife], node_ids: Mapping[str, str], promised: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str]]:
    """A pod runs on a node that its attempt was promised, and pays for."""
    for pod in pods:
        node = node_ids.get(pod.node, "")
        if node and pod.attempt in promised and node not in promised[pod.attempt]:
            wanted = ", ".join(sorted(promised[pod.attempt])) or "none"
            yield "lost", f"a pod of {pod.attempt} is on {node}, and it was promised {wanted}"


def _marks(there: Iterable[Rented]) -> Iterator[tuple[str, str]]:
    for one in there:
        if one.pool:
            yield (
                "lost",
                f"{one.kind} {one.name} of {one.node} is in NodePool {one.pool}, which may end it when it likes",
            )


def _ends(there: Iterable[Rented], books: Books) -> Iterator[tuple[str, str]]:
    """It ends by itself when what is held for it does: not later, for nobody would pay, and not sooner, for a job
    counts on it. One that can be moved is moved after it is held for."""
    for one in there:
        lease = books.leases.get(one.node)
        if lease is None or one.kind != "claim":
            continue
        if one.ends_at is None or one.ends_at > lease.deadline_at + TOLERANCE_MS + lease.hold.terms.kill_ms // 2:
            when = f"held for at {lease.opened_at}, made at {one.made_at}"
            yield "over_cap", f"{one.node} ends at {one.ends_at}, and is paid for until {lease.deadline_at}; {when}"
        elif one.ends_at < lease.deadline_at - TOLERANCE_MS and not one.movable:
            yield "lost", f"{one.node} ends at {one.ends_at}, and the journal counts on it until {lease.deadline_at}"


async def rented(cluster: Cluster, ground: CloudGround) -> list[Rented]:
    """All claims and Nodes with marks of any installation; read from the API server, which knows them all. A claim is
    whatever object rents a node.
    """
    claims, _ = await cluster.list(ground.kind, ground.namespace, labels=annotations.NODE)
    nodes, _ = await cluster.list(NODES, labels=annotations.NODE)
    return [*(_rented("claim", claim) for claim in claims), *(_rented("Node", node) for node in nodes)]


def _rented(kind: str, obj: Json) -> Rented:
    meta = obj["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    made_at = int(datetime.fromisoformat(meta["creationTimestamp"]).timestamp()) * 1000
    lasts = _seconds(str(obj["spec"].get("expireAfter", "")))
    ends_at = None if lasts is None else made_at + lasts * 1000
    written = notes.get(annotations.ENDS_AT, "")  # by the cluster's clock, for a watchman
    if written:
        ends_at = int(datetime.fromisoformat(written).timestamp()) * 1000
    node, pool = notes.get(annotations.NODE_ID, meta["name"]), labels.get(POOL_LABEL, "")
    return Rented(meta["uid"], kind, labels[annotations.NODE], node, made_at, ends_at, pool, movable=bool(written))


def _seconds(text: str) -> int | None:
    """As Go writes a duration; None: there is none."""
    units = {"h": 3_600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)([hms])", text)
    return sum(int(number) * units[unit] for number, unit in parts) if parts else None
