"""Reports a cluster's free capacity to the engine, and avoids nodes that failed attempts. `KubernetesDriver` has one;
the informers of nodes and of other people's pods call `changed`.
"""

import asyncio
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.types import STANDING
from penstock.core.units import HOUR, Instant
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.inventory import headroom_at

TOGETHER_SECONDS: Final = 0.3  #: changes within this time are reported together
FAULTS: Final = 2  #: failures of one node within an hour; then we avoid it for an hour


class CapacityReporter:
    def __init__(self, here: Connection) -> None:
        self.here = here
        self.faults: dict[str, list[Instant]] = {}  #: node -> when it failed attempts
        self.told: dict[str, tuple[tuple[str, int], ...]] = {}  #: offer -> its nodes as last reported
        self.telling: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        if self.here.opened and self.telling is None:
            self.telling = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self.tell)

    def tell(self) -> None:
        here, self.telling = self.here, None
        there = here.executions
        if not (there.nodes.in_step.is_set() and there.others.in_step.is_set()):
            return  # other people's pods are only partly known: the last report stands
        for offer in here.site.offers:
            if offer.term in STANDING:
                keep_free = headroom_at(here.places[offer.id], here.settings.hour())
                nodes = there.usable(offer.id, self.avoided(), keep_free)
                if nodes != self.told.get(offer.id):
                    self.told[offer.id] = nodes
                    here.say(e.NodesSeen(here.clock(), offer.id, nodes))

    def close(self) -> None:
        if self.telling is not None:
            self.telling.cancel()

    # --- faults ------------------------------------------------------------------------------------------------------

    def fault(self, node: str) -> str:
        """Count a failure of a node; returns what follows from it, as text."""
        now = self.here.clock()
        self.faults[node] = [at for at in self.faults.get(node, []) if now - at < HOUR] + [now]
        self.changed()
        return f"; node {node} failed {FAULTS} times and is avoided for an hour" if node in self.avoided() else ""

    def avoided(self) -> tuple[str, ...]:
        now = self.here.clock()
        return tuple(node for node, ats in self.faults.items() if len([at for at in ats if now - at < HOUR]) >= FAULTS)
