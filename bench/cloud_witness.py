"""What is really rented, as somebody sees it who asks the cluster and the journal again and again. `bench.kill_clouds`
uses it.

The end of a run hides most mistakes about money: what was rented before it was on record, or was still there after its
hold was closed, is long gone by then. So it is asked at every instant whether anything is alive without an open hold.
Journal, then cluster, then journal: only what no order of the two explains is a finding.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.auditor import Auditor
from bench.kube_witness import Witness
from penstock.core.fold.ledger import Lease
from penstock.core.units import Instant
from penstock.drivers.kubernetes.scaling import POOL_LABEL
from penstock.kube import annotations
from penstock.kube.client import NODE_CLAIMS, NODES, Cluster

#: A claim counts from its creation, in whole seconds, and a request may be late by one.
TOLERANCE_MS: Final = 3_000
#: How long an orphan may be there, which the bench itself makes: a claim with our marks that the journal never had.
#: Much of that time nobody lives who could sweep it.
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


@dataclass(frozen=True)
class Books:
    """What the journal says at one instant."""

    leases: dict[str, Lease]
    known: frozenset[str]
    settled: dict[str, Instant]

    @classmethod
    def of(cls, auditor: Auditor) -> "Books":
        auditor.follow()
        leases = dict(auditor.engine.state.ledger.leases)
        return cls(leases, frozenset(auditor.holds), dict(auditor.settled))


class CloudWitness(Witness):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0  #: how often
        self.seen: dict[str, Rented] = {}  #: all that was ever there, by uid
        self.planted: dict[str, float] = {}  #: names of orphans that the bench made, and when they were seen first
        self.most = 0  #: nodes at once

    async def ask(self, cluster: Cluster, auditor: Auditor, now_s: float) -> Iterator[tuple[str, str]]:
        """What is wrong now."""
        before = Books.of(auditor)
        there = await rented(cluster)
        after = Books.of(auditor)
        self.asked += 1
        self.seen |= {one.uid: one for one in there}
        self.most = max(self.most, sum(one.kind == "claim" for one in there))
        unpaid = self._unpaid(there, before, after, now_s)
        return iter([*_twice(there), *_marks(there), *unpaid, *_ends(there, after)])

    def _unpaid(self, there: Iterable[Rented], before: Books, after: Books, now_s: float) -> Iterator[tuple[str, str]]:
        """All of it, but orphans that the bench made: those must be swept soon."""
        for one in there:
            never, settled = one.node not in after.known, one.node in before.settled
            if one.node in before.leases or one.node in after.leases or not (never or settled):
                continue
            if one.name in self.planted:
                if not self.planted[one.name]:
                    self.planted[one.name] = now_s
                if now_s - self.planted[one.name] < SWEPT_S:
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


def _marks(there: Iterable[Rented]) -> Iterator[tuple[str, str]]:
    for one in there:
        if one.pool:
            yield (
                "lost",
                f"{one.kind} {one.name} of {one.node} is in NodePool {one.pool}, which may end it when it likes",
            )


def _ends(there: Iterable[Rented], books: Books) -> Iterator[tuple[str, str]]:
    """It ends by itself when what is held for it does: not later, for nobody would pay, and not sooner, for a job
    counts on it."""
    for one in there:
        lease = books.leases.get(one.node)
        if lease is None or one.kind != "claim":
            continue
        if one.ends_at is None or one.ends_at > lease.deadline_at + TOLERANCE_MS + lease.hold.terms.kill_ms // 2:
            yield "over_cap", f"{one.node} ends at {one.ends_at}, and is paid for until {lease.deadline_at}"
        elif one.ends_at < lease.deadline_at - TOLERANCE_MS:
            yield "lost", f"{one.node} ends at {one.ends_at}, and the journal counts on it until {lease.deadline_at}"


async def rented(cluster: Cluster) -> list[Rented]:
    """All claims and Nodes with marks of any installation; read from the API server, which knows them all."""
    claims, _ = await cluster.list(NODE_CLAIMS, labels=annotations.NODE)
    nodes, _ = await cluster.list(NODES, labels=annotations.NODE)
    return [*(_rented("claim", claim) for claim in claims), *(_rented("Node", node) for node in nodes)]


def _rented(kind: str, obj: Json) -> Rented:
    meta = obj["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    made_at = int(datetime.fromisoformat(meta["creationTimestamp"]).timestamp()) * 1000
    lasts = _seconds(str(obj["spec"].get("expireAfter", "")))
    ends_at = None if lasts is None else made_at + lasts * 1000
    node, pool = notes.get(annotations.NODE_ID, meta["name"]), labels.get(POOL_LABEL, "")
    return Rented(meta["uid"], kind, labels[annotations.NODE], node, made_at, ends_at, pool)


def _seconds(text: str) -> int | None:
    """As Go writes a duration; None: there is none."""
    units = {"h": 3_600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)([hms])", text)
    return sum(int(number) * units[unit] for number, unit in parts) if parts else None
