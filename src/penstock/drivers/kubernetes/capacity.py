"""Reports a cluster's free capacity to the engine, and avoids nodes that failed attempts. `KubernetesDriver` has one;
the informers of nodes and of other people's pods call `changed`.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import STANDING
from penstock.core.units import HOUR, Instant
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.inventory import has_room, headroom_at, left_beside
from penstock.drivers.kubernetes.pods import annotation_of, is_active, node_of
from penstock.drivers.kubernetes.suitability import Suitability
from penstock.kube import annotations

TOGETHER_SECONDS: Final = 0.3  #: changes within this time are reported together
FAULTS: Final = 2  #: jobs that one node failed within an hour; then we avoid it for an hour


class CapacityReporter:
    def __init__(self, here: Connection) -> None:
        self.here = here
        self.faults: dict[str, dict[str, Instant]] = {}  #: node -> jobs that it failed, and when
        self.reported: dict[str, tuple[tuple[str, int], ...]] = {}  #: offer -> its nodes
        self.telling: asyncio.TimerHandle | None = None
        self.suitability: dict[str, Suitability] = {}  #: by standing offer
        self.needs: dict[str, None] = {}  #: of jobs, as far as we were told
        self.unsuited: dict[tuple[str, str], tuple[tuple[str, ...], bool]] = {}  #: by offer and need: as reported
        self.tried: dict[
            str, set[str]
        ] = {}  #: by offer: nodes that could not take a job, until something changes there

    def changed(self) -> None:
        if self.here.opened and self.telling is None:
            self.telling = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self.tell)

    def tell(self) -> None:
        here, self.telling = self.here, None
        cache = here.executions
        if not (cache.nodes.in_step.is_set() and cache.others.in_step.is_set() and cache.devices.are_known):
            return  # other people's pods are only partly known: the last report stands
        for offer in here.site.offers:
            if offer.term in STANDING:
                self._tell_unsuited(offer.id)  # first: taints keep jobs off GPUs that are counted below
                keep_free = headroom_at(here.places[offer.id], here.settings.hour())
                nodes = cache.usable(offer.id, self.avoided(), keep_free)
                if nodes != self.reported.get(offer.id):
                    self.reported[offer.id] = nodes
                    here.say(e.NodesSeen(here.clock(), offer.id, nodes))

    def _tell_unsuited(self, offer: str) -> None:
        known = self._of(offer)
        self._moved(offer, known.look(self.here.executions.with_devices()))
        self._say_unsuited(offer, known.needs)

    def _say_unsuited(self, offer: str, needs: Iterable[str]) -> None:
        known = self._of(offer)
        for need in needs:
            told = known.told(need)
            if told != self.unsuited.get((offer, need), ((), False)):
                self.unsuited[offer, need] = told
                self.here.say(e.NodesUnsuited(self.here.clock(), offer, need, *told))

    def _of(self, offer: str) -> Suitability:
        place = self.here.places[offer]
        known = self.suitability.get(offer)
        if known is None or known.place != place:
            known = self.suitability[offer] = Suitability(place)
            known.learn(self.needs)
        return known

    def consider(self, needs: Iterable[str]) -> None:
        """Jobs have these needs: say which nodes do not meet them, now and whenever it changes."""
        needs = list(needs)
        self.needs |= dict.fromkeys(needs)
        if self.here.opened and self.here.executions.nodes.in_step.is_set():
            for offer in self._standing():
                self._say_unsuited(offer, self._of(offer).learn(needs))

    def judged(self, needs: Iterable[str]) -> list[e.NodesUnsuited]:
        """What would be said of these."""
        if not (self.here.opened and self.here.executions.nodes.in_step.is_set()):
            return []
        needs = list(needs)
        for offer in self._standing():
            self._of(offer).learn(needs)
        known = [(offer, need) for offer in self._standing() for need in needs if need in self._of(offer).needs]
        return [e.NodesUnsuited(0, offer, need, *self._of(offer).told(need)) for offer, need in known]

    def _standing(self) -> list[str]:
        return [offer.id for offer in self.here.site.offers if offer.term in STANDING]

    # --- nodes that could not take a job -----------------------------------------------------------------------------

    def remember(self, offer: str, nodes: Iterable[str]) -> None:
        self.tried.setdefault(offer, set()).update(nodes)

    def forget_tried(self) -> None:
        """Nodes that could not take a job earlier, which nobody watched while we were away: they may be tried again."""
        for execution in self.here.executions:
            tried, offer = (annotation_of(execution.job, name) for name in (annotations.TRIED, annotations.OFFER))
            if tried and offer in self._standing():
                self.remember(offer, tried.split(","))
        for offer, names in self.tried.items():
            self._moved(offer, set(names))

    def pods_moved(self, nodes: Collection[str]) -> None:
        """Pods came to these nodes or left them: CPU, memory or ports may be free, or a pod that another looks for."""
        for offer in list(self.tried) if self.here.opened else ():
            self._moved(offer, nodes)

    def _moved(self, offer: str, nodes: Collection[str]) -> None:
        changed = self.tried.get(offer, set()).intersection(nodes)
        if changed:
            self.tried[offer] -= changed
            self.here.say(e.NodesChanged(self.here.clock(), offer, tuple(sorted(changed))))

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

    def headroom(self, offer: str) -> tuple[str, ...]:
        """Nodes of a standing offer whose free GPUs are all kept for others now."""
        here = self.here
        keep_free = headroom_at(here.places[offer], here.settings.hour())
        if not keep_free or here.offers[offer].term not in STANDING:
            return ()
        free = dict(here.executions.usable(offer, self.avoided(), 0))
        return tuple(
            name for name, gpus in here.executions.usable(offer, self.avoided(), keep_free) if free[name] > gpus == 0
        )

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

    def room_for(self, execution: Execution, ask: StartAttempt, needs: Iterable[str] | None = None) -> tuple[str, ...]:
        """The offer's nodes with free GPUs for its waiting pods, by what we know, if they suffice for all of them: then
        the offer is not full. Empty if it is, or if we do not know. `needs`: only of nodes that meet these.
        """
        here, cache = self.here, self.here.executions
        if not (cache.nodes.in_step.is_set() and cache.others.in_step.is_set() and cache.devices.are_known):
            return ()
        known = self._of(ask.offer)
        if here.offers[ask.offer].term not in STANDING:
            known.look(cache.with_devices())
        suited = known.nodes.keys() if needs is None else known.suited(needs)
        resource = here.places[ask.offer].resource
        ours = [pod for other in cache for pod in other.pods.values() if is_active(pod) and node_of(pod)]
        waiting = [pod for pod in execution.pods.values() if is_active(pod) and not node_of(pod)]
        among = set(suited).intersection(ask.places) if ask.pinned else set(suited)
        free = [(node, gpus) for node, gpus in cache.usable(ask.offer, self.avoided(), 0) if node in among]
        left = left_beside(free, ours, resource)
        least = min((int(pod["gpus"].get(resource, 0)) for pod in waiting), default=1)
        return tuple(node for node, gpus in left.items() if gpus >= least) if has_room(left, waiting, resource) else ()
