"""Reports a cluster's free capacity to the engine, and avoids nodes that failed attempts. `KubernetesDriver` has one;
the informers of nodes and of other people's pods call `changed`.
"""

import asyncio
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import STANDING
from penstock.core.units import HOUR, Instant
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.inventory import has_room, headroom_at
from penstock.drivers.kubernetes.pods import is_active, node_of

TOGETHER_SECONDS: Final = 0.3  #: changes within this time are reported together
FAULTS: Final = 2  #: jobs that one node failed within an hour; then we avoid it for an hour


class CapacityReporter:
    def __init__(self, here: Connection) -> None:
        self.here = here
        self.faults: dict[str, dict[str, Instant]] = {}  #: node -> jobs that it failed, and when
        self.reported: dict[str, tuple[tuple[str, int], ...]] = {}  #: offer -> its nodes
        self.telling: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        if self.here.opened and self.telling is None:
            self.telling = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self.tell)

    def tell(self) -> None:
        here, self.telling = self.here, None
        cache = here.executions
        if not (cache.nodes.in_step.is_set() and cache.others.in_step.is_set()):
            return  # other people's pods are only partly known: the last report stands
        for offer in here.site.offers:
            if offer.term in STANDING:
                keep_free = headroom_at(here.places[offer.id], here.settings.hour())
                nodes = cache.usable(offer.id, self.avoided(), keep_free)
                if nodes != self.reported.get(offer.id):
                    self.reported[offer.id] = nodes
                    here.say(e.NodesSeen(here.clock(), offer.id, nodes))

    def close(self) -> None:
        if self.telling is not None:
            self.telling.cancel()

    # --- faults ------------------------------------------------------------------------------------------------------

    def fault(self, node: str, job: str) -> str:
        """Count a failure of a node; returns what follows from it, as text. One job's failures count once: it may be
        the job that is broken.
        """
        now = self.here.clock()
        known = {other: at for other, at in self.faults.get(node, {}).items() if now - at < HOUR}
        self.faults[node] = {**known, job: now}
        self.changed()
        return f"; node {node} failed {FAULTS} jobs and is avoided for an hour" if node in self.avoided() else ""

    def avoided(self) -> tuple[str, ...]:
        now = self.here.clock()
        return tuple(
            node
            for node, failed in self.faults.items()
            if len([at for at in failed.values() if now - at < HOUR]) >= FAULTS
        )

    # --- room --------------------------------------------------------------------------------------------------------

    def is_too_small_for(self, ask: StartAttempt) -> bool:
        """True if all of the offer's nodes together, or its largest for one pod, have fewer GPUs than it wants: then it
        would not fit if it were alone here, and others may.
        """
        here, cache = self.here, self.here.executions
        if not cache.nodes.in_step.is_set() or ask.nodes:
            return False
        sizes = cache.sizes(ask.offer)
        execution = here.known(ask.attempt)
        asked = (
            [pod["gpus"].get(here.places[ask.offer].resource, 0) for pod in execution.pods.values()]
            if execution
            else []
        )
        return ask.width > sum(sizes) or max(asked, default=0) > max(sizes, default=0)

    def has_room_for(self, execution: Execution, ask: StartAttempt) -> bool:
        """True if the offer's nodes have free GPUs for its waiting pods, by what we know: then it is not full."""
        here, cache = self.here, self.here.executions
        if not (cache.nodes.in_step.is_set() and cache.others.in_step.is_set()):
            return False
        free = cache.usable(ask.offer, self.avoided(), 0)
        ours = [pod for other in cache for pod in other.pods.values() if is_active(pod) and node_of(pod)]
        waiting = [pod for pod in execution.pods.values() if is_active(pod) and not node_of(pod)]
        chosen = [(node, gpus) for node, gpus in free if not ask.places or node in ask.places]
        return has_room(chosen, ours, waiting, here.places[ask.offer].resource)
