"""What was rented, by the journal and by the clusters themselves: both are read again and again, side by side. `clouds`
asks it; all figures of that demo come from here.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis, Money, cost_of
from penstock.demo.observer import AttemptTrail, Observer, holds_of
from penstock.devcluster import DevCluster, karpenter
from penstock.kube import annotations

POLL_S: Final = 0.5  #: how often the clusters are asked
NODES: Final = "/api/v1/nodes"


class RentedNode:
    """One node that money was held for, and what was seen of it."""

    def __init__(self, node: str, offer: str, asked_at: Instant, price_per_hour: Money) -> None:
        self.id, self.offer, self.asked_at, self.price_per_hour = node, offer, asked_at, price_per_hour
        self.settled_at: Instant | None = None
        self.charged: Money = 0
        self.fate = ""  #: `stock_out`, `blind`, `notice`; empty: it did as it should
        self.claims: set[str] = set()  #: uids of the NodeClaims that were seen for it
        self.first_s = self.last_s = 0.0  #: when its Node was seen first and last

    @property
    def there_ms(self) -> Millis:
        return int((self.last_s - self.first_s) * SECOND)

    @property
    def is_underbilled(self) -> bool:
        """Its Node was there for longer than was charged."""
        return self.charged < cost_of(self.price_per_hour, self.there_ms)


class CloudObserver(Observer):
    def __init__(
        self, journal: Path, tell: Callable[[Observer, Any], None], clusters: Mapping[str, DevCluster]
    ) -> None:
        super().__init__(journal, tell)
        self.clusters = clusters
        self.rented: dict[str, RentedNode] = {}
        self.node_names: dict[str, str] = {}  #: of Nodes in their cluster, by rented node
        self.ready: set[str] = set()
        self.stock_outs: list[str] = []
        self.without_gpus: list[str] = []
        self.unpaid: set[str] = set()  #: names of claims that were there while no money was held
        self.polled_s = 0.0

    # --- the clusters ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Journal, clusters, journal: only what no order of the two explains counts as unpaid."""
        if time.monotonic() - self.polled_s < POLL_S:
            super().look()
            return
        super().look()
        held = set(self.holds)
        objects = self.there_now()
        super().look()
        held |= set(self.holds)
        self.polled_s = time.monotonic()
        for kind, obj in objects:
            self._see(kind, obj, held)

    def there_now(self) -> list[tuple[str, dict[str, Any]]]:
        """All NodeClaims and Nodes of both clusters, whoever made them."""
        paths = {"claim": karpenter.CLAIMS, "Node": NODES}
        return [
            (kind, obj)
            for cluster in self.clusters.values()
            for kind, path in paths.items()
            for obj in cluster.api.ask("GET", path).body["items"]
        ]

    def _see(self, kind: str, obj: dict[str, Any], held: set[str]) -> None:
        node = str((obj["metadata"].get("annotations") or {}).get(annotations.NODE_ID, ""))
        if node not in held:
            self.unpaid.add(f"{kind} {obj['metadata']['name']} of {node or 'nobody'}")
        known = self.rented.get(node)
        if known is None:
            return
        if kind == "claim":
            known.claims.add(str(obj["metadata"]["uid"]))
        else:
            self.node_names[node] = str(obj["metadata"]["name"])
            known.first_s, known.last_s = known.first_s or time.monotonic(), time.monotonic()

    # --- the journal -------------------------------------------------------------------------------------------------

    def hear(self, event: Any) -> None:
        super().hear(event)
        match event:
            case e.StartPromised():
                for hold in holds_of(event):
                    node = RentedNode(hold.id, event.offer, event.at, hold.terms.price_per_hour)
                    self.rented.setdefault(hold.id, node)
            case e.NodeReady():
                self.ready.add(event.node)
            case e.NodeNotice():
                self.rented[event.node].fate = "notice"
            case e.NodeRefused(billed=True):
                self.without_gpus.append(event.node)
                self.rented[event.node].fate = "blind"
            case e.NodeRefused(shortage="stock_out"):
                self.stock_outs.append(event.node)
                self.rented[event.node].fate = "stock_out"
            case e.LeaseRenewed() | e.Settled():
                self.rented[event.hold].charged += sum(part.amount for part in event.charged)
                if isinstance(event, e.Settled):
                    self.rented[event.hold].settled_at = event.at

    # --- questions ---------------------------------------------------------------------------------------------------

    def runs_on(self, offer: str) -> AttemptTrail | None:
        """The attempt that runs on a node of this offer whose Node was seen."""
        for attempt in self.running():
            holds = [hold.id for hold in holds_of(attempt.promise)]
            if attempt.promise.offer == offer and all(hold in self.node_names for hold in holds):
                return attempt
        return None

    def noticed_attempts(self) -> list[str]:
        """Attempts that were on a node when its notice came."""
        return [
            attempt.id
            for attempt in self.tries.values()
            if any(hold.id in self.noticed for hold in holds_of(attempt.promise))
        ]

    def stopped_in_time(self) -> int:
        """Of those, the ones that were told to stop and did, before their node was gone."""
        return sum(self.tries[attempt].how == "stopped" for attempt in self.noticed_attempts())

    def rented_twice(self) -> int:
        return sum(len(node.claims) > 1 for node in self.rented.values())
