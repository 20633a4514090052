"""The simulated world: it answers the engine's actions with what would have happened, and when.

Start delays, instance shapes, spot losses by rate or by a recorded trace, checkpoints, outages of nodes and sites,
copies over a shared line, deadlines that end a thing by themselves. It knows the true run times; the engine does not.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from penstock.core.ids import is_cluster, node_id, standing_node
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import STANDING, DataSet, JobSpec, Offer, Site
from penstock.core.units import DAY, HOUR, MICRO, NEVER, PERMILLE, Instant, Millis, ceil_div
from penstock.core.values import value
from penstock.sim.engine.chance import exponential

RETRY_MS: Final = 5 * 60_000  #: what a refusing provider suggests
REPLICA_MS: Final = 7 * DAY


@value
class Truth:
    """What the world knows of a job."""

    run_ms: Millis
    spec: JobSpec


@value
class Fault:
    """A standing node or a whole site that goes and comes back: `lab/owned/3`, or `lab`."""

    at: Instant
    what: str
    lasts_ms: Millis


class Zone:
    """Recorded availability of a spot offer: instants at which it changes, starting with none."""

    def __init__(self, changes: list[Instant]) -> None:
        self.changes = changes

    def up(self, at: Instant) -> bool:
        return bisect_right(self.changes, at) % 2 == 1

    def next_change(self, at: Instant) -> Instant:
        k = bisect_right(self.changes, at)
        return self.changes[k] if k < len(self.changes) else NEVER


class Run:
    """An attempt as the world sees it."""

    __slots__ = ("action", "deadlines", "ends_at", "offer", "started_at", "truth", "version")

    def __init__(
        self, action: a.StartAttempt, truth: Truth, offer: Offer, started_at: Instant, deadlines: dict[str, Instant]
    ) -> None:
        self.action, self.truth, self.offer = action, truth, offer
        self.started_at, self.deadlines = started_at, deadlines
        left, speed = truth.run_ms - action.resume_ms, action.speed_permille
        self.ends_at = started_at + (left if speed == PERMILLE else ceil_div(left * PERMILLE, speed))
        self.version = 0

    def kept_at(self, at: Instant) -> Millis:
        """Work that the last checkpoint before `at` holds: one after every interval of running."""
        every = self.truth.spec.checkpoint_every_ms
        if not every:
            return 0
        return self.action.resume_ms + (self.done_at(at) - self.action.resume_ms) // every * every

    def done_at(self, at: Instant) -> Millis:
        """How much of its whole run is done."""
        return self.action.resume_ms + max(0, at - self.started_at) * self.action.speed_permille // PERMILLE


def offers_of(site: Site) -> dict[str, Offer]:
    """By id: of GPUs, and of its transient cluster."""
    cluster = () if site.cluster is None else (site.cluster.offer,)
    return {offer.id: offer for offer in (*site.offers, *cluster)}


class World:
    def __init__(
        self,
        sites: Iterable[Site],
        truths: Mapping[str, Truth],
        *,
        seed: int = 0,
        zones: Mapping[str, Zone] | None = None,
        faults: Iterable[Fault] = (),
        data: Mapping[str, DataSet] | None = None,
        line_bits_per_s: int = 10_000_000_000,
    ) -> None:
        self.offers: dict[str, Offer] = {}
        for site in sites:
            self.offers |= offers_of(site)
        self.truths, self.seed, self.zones = truths, seed, zones or {}
        self.data, self.line_bits_per_s, self.line_free_at = data or {}, line_bits_per_s, 0
        self.heap: list[tuple[Instant, int, Happening, Any]] = []
        self.soon: list[tuple[Happening, Any]] = []  #: answers due at the instant they were asked for
        self.now: Instant = 0
        self.count = 0
        self.runs: dict[str, Run] = {}
        self.nodes: dict[str, tuple[Offer, Instant, list[str]]] = {}  #: rented: offer, ready at, who started there
        self.deadlines: dict[str, Instant] = {}
        self.meter: dict[str, tuple[Instant, Instant | None]] = {}  #: rented things: billed from, until
        for fault in faults:
            self._later(fault.at, self._break, fault)

    # --- time --------------------------------------------------------------------------------------------------------

    def next_at(self) -> Instant:
        if self.soon:
            return self.now
        return self.heap[0][0] if self.heap else NEVER

    def happen(self, now: Instant) -> list[e.Fact]:
        """Everything that happens at this instant."""
        facts = self.answers(now) if self.soon else []
        heap = self.heap
        while heap and heap[0][0] <= now:
            _, _, happening, about = heappop(heap)
            facts += happening(about, now)
        return facts

    def answers(self, now: Instant) -> list[e.Fact]:
        """What was asked for at this instant and is answered at once."""
        soon, self.soon = self.soon, []
        facts: list[e.Fact] = []
        for happening, about in soon:
            facts += happening(about, now)
        return facts

    def _later(self, at: Instant, happening: "Happening", about: Any) -> None:
        if at <= self.now:
            self.soon.append((happening, about))
        else:
            self.count += 1
            heappush(self.heap, (at, self.count, happening, about))

    # --- actions -----------------------------------------------------------------------------------------------------

    def do(self, action: a.Action, now: Instant) -> None:
        self.now = now
        DO[type(action)](self, action, now)

    def launch(self, action: a.LaunchNode, now: Instant) -> None:
        node = action.node
        if node in self.nodes:
            return
        offer = self.offers[action.offer]
        if not self._has_room(offer, now):
            self._later(now, self._refuse_node, node)
            return
        ready_at = now + offer.start_ms
        self.nodes[node] = (offer, ready_at, [])
        self.deadlines[node] = action.deadline_at
        self.meter[node] = (now, None)
        self._later(ready_at, self._ready, node)
        self._later(action.deadline_at, self._expire, node)
        self._doom(offer, node, now, self._lose_node)

    def _expire(self, node: str, now: Instant) -> list[e.Fact]:
        """A node on which nothing runs ends by itself at its deadline; what runs there ends with its own plan."""
        if node not in self.nodes or any(attempt in self.runs for attempt in self.nodes[node][2]):
            return []
        if now < self.deadlines[node]:
            return []
        return [*self._all_in(node, now, e.AttemptStopped), *self._end_node(node, now)]

    def _all_in(self, node: str, now: Instant, how: type[e.AttemptStopped] | type[e.AttemptLost]) -> list[e.Fact]:
        """What runs in a transient cluster ends with it."""
        site = self.nodes[node][0].site if is_cluster(node) else ""
        attempts = [attempt for attempt, run in self.runs.items() if run.offer.site == site]
        return [fact for attempt in attempts for fact in self._cut_short(attempt, now, how)]

    def _has_room(self, offer: Offer, now: Instant) -> bool:
        return offer.id not in self.zones or self.zones[offer.id].up(now)

    def _refuse_node(self, node: str, now: Instant) -> list[e.Fact]:
        return [e.NodeRefused(now, node, RETRY_MS)]

    def _ready(self, node: str, now: Instant) -> list[e.Fact]:
        return [e.NodeReady(now, node)] if node in self.nodes else []

    def start(self, action: a.StartAttempt, now: Instant) -> None:
        attempt = action.attempt
        if attempt in self.runs:
            return
        offer, truth = self.offers[action.offer], self.truths[action.job]
        started_at = now
        deadlines: dict[str, Instant] = {}
        if offer.term in STANDING:
            started_at += offer.start_ms if attempt.endswith(".1") else offer.start_ms + truth.spec.restart_ms
        elif offer.sold_by == "attempt":
            if not self._has_room(offer, now):
                self._later(now, self._refuse_attempt, attempt)
                return
            started_at += offer.start_ms
            self.meter[attempt] = (now, None)
            deadlines[attempt] = action.deadline_at
            self._doom(offer, attempt, now, self._lose_run)
        elif action.nodes[0] != node_id(attempt, 0) and not attempt.endswith(".1"):
            started_at += truth.spec.restart_ms  # a node that starts takes as long as that; this one has
        for node in action.nodes:
            deadlines[node] = self.deadlines[node]
            self.nodes[node][2].append(attempt)
        run = self.runs[attempt] = Run(action, truth, offer, started_at, deadlines)
        self._later(started_at, self._started, attempt)
        self._schedule(run)

    def _refuse_attempt(self, attempt: str, now: Instant) -> list[e.Fact]:
        return [e.AttemptRefused(now, attempt, RETRY_MS)]

    def _started(self, attempt: str, now: Instant) -> list[e.Fact]:
        return [e.AttemptStarted(now, attempt)] if attempt in self.runs else []

    def _schedule(self, run: Run) -> None:
        """Schedule its end or its deadline, whichever comes first; voids an older plan."""
        run.version += 1
        at = run.ends_at
        for deadline in run.deadlines.values():
            if deadline < at:
                at = deadline
        self._later(at, self._over, (run, run.version))

    def _over(self, plan: tuple[Run, int], now: Instant) -> list[e.Fact]:
        run, version = plan
        attempt = run.action.attempt
        if run.version != version or self.runs.pop(attempt, None) is None:
            return []
        self._stop_meter(attempt, now)
        if now >= run.ends_at:
            return [e.AttemptEnded(now, attempt, "done")]
        gone: list[e.Fact] = [e.AttemptStopped(now, attempt, run.kept_at(now))]
        return gone + [fact for node in run.action.nodes for fact in self._end_node(node, now)]

    def stop(self, action: a.StopAttempt, now: Instant) -> None:
        self._later(now, self._stopped, action.attempt)

    def _stopped(self, attempt: str, now: Instant) -> list[e.Fact]:
        return self._cut_short(attempt, now, e.AttemptStopped)

    def _cut_short(self, attempt: str, now: Instant, how: type[e.AttemptStopped] | type[e.AttemptLost]) -> list[e.Fact]:
        """Its run ends now, unless it had just succeeded."""
        run = self.runs.pop(attempt, None)
        if run is None:
            return []
        self._stop_meter(attempt, now)
        if now >= run.ends_at:
            return [e.AttemptEnded(now, attempt, "done")]
        return [how(now, attempt, run.kept_at(now))]

    def release(self, action: a.ReleaseNode, now: Instant) -> None:
        self._later(now, self._end_node, action.node)

    def _end_node(self, node: str, now: Instant) -> list[e.Fact]:
        if self.nodes.pop(node, None) is None:
            return []
        self._stop_meter(node, now)
        return [e.NodeGone(now, node)]

    def set_deadline(self, action: a.SetDeadline, now: Instant) -> None:
        thing = action.thing
        if thing in self.deadlines:
            self.deadlines[thing] = action.deadline_at
        if thing in self.nodes:
            self._later(action.deadline_at, self._expire, thing)
        for attempt in self.nodes[thing][2] if thing in self.nodes else (thing,):
            run = self.runs.get(attempt)
            if run is not None and thing in run.deadlines:
                run.deadlines[thing] = action.deadline_at
                self._schedule(run)
        self._later(now, self._confirm, action)

    def _confirm(self, action: a.SetDeadline, now: Instant) -> list[e.Fact]:
        return [e.DeadlineSet(now, action.thing, action.deadline_at)]

    def copy(self, action: a.CopyData, now: Instant) -> None:
        """Transfers share one line, one after the other."""
        size = self.data[action.data_set].size_bytes
        self.line_free_at = max(now, self.line_free_at) + ceil_div(size * 8 * 1000, self.line_bits_per_s)
        self._later(self.line_free_at, self._landed, action)

    def _landed(self, action: a.CopyData, now: Instant) -> list[e.Fact]:
        return [e.ReplicaLanded(now, action.data_set, action.site, now + REPLICA_MS)]

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def _doom(self, offer: Offer, thing: str, now: Instant, lose: "Happening") -> None:
        """Schedule when a rented thing is reclaimed."""
        zone = self.zones.get(offer.id)
        if zone is not None:
            at = zone.next_change(now)
        elif offer.loss_ppm_per_hour:
            mean_hours = MICRO / offer.loss_ppm_per_hour
            at = now + max(1, int(exponential(mean_hours * HOUR, self.seed, "loss", thing)))
        else:
            return
        if at < NEVER:
            self._later(at, lose, thing)

    def _lose_node(self, node: str, now: Instant) -> list[e.Fact]:
        known = self.nodes.get(node)
        if known is None:
            return []
        facts = [fact for attempt in known[2] for fact in self._lose_run(attempt, now)]
        facts += self._all_in(node, now, e.AttemptLost)
        del self.nodes[node]
        self._stop_meter(node, now)
        return [*facts, e.NodeLost(now, node)]

    def _lose_run(self, attempt: str, now: Instant) -> list[e.Fact]:
        return self._cut_short(attempt, now, e.AttemptLost)

    def _break(self, fault: Fault, now: Instant) -> list[e.Fact]:
        """A standing node fails with what runs on it, or a site with everything."""
        back_at = now + fault.lasts_ms
        lost = [fact for attempt in self._running_on(fault.what) for fact in self._lose_run(attempt, now)]
        if any(offer.site == fault.what for offer in self.offers.values()):
            here = [node for node, (offer, _, _) in self.nodes.items() if offer.site == fault.what]
            lost += [fact for node in here for fact in self._lose_node(node, now)]
            self._later(back_at, self._site_back, fault.what)
            return [*lost, e.SiteLost(now, fault.what)]
        self._later(back_at, self._node_back, fault.what)
        return [*lost, e.NodeLost(now, fault.what)]

    def _site_back(self, site: str, now: Instant) -> list[e.Fact]:
        return [e.SiteBack(now, site)]

    def _node_back(self, node: str, now: Instant) -> list[e.Fact]:
        return [e.NodeReady(now, node)]

    def _running_on(self, broken: str) -> list[str]:
        offer, number = standing_node(broken)
        return [
            attempt
            for attempt, run in self.runs.items()
            if run.offer.site == broken
            or (run.offer.id == offer and any(node == number for node, _ in run.action.slots))
        ]

    def _stop_meter(self, thing: str, now: Instant) -> None:
        metered = self.meter.get(thing)
        if metered is not None:
            self.meter[thing] = (metered[0], now)


Happening: TypeAlias = Callable[[Any, Instant], list[e.Fact]]
DO: Final[dict[type, Callable[[World, Any, Instant], None]]] = {
    a.LaunchNode: World.launch,
    a.ReleaseNode: World.release,
    a.StartAttempt: World.start,
    a.StopAttempt: World.stop,
    a.SetDeadline: World.set_deadline,
    a.CopyData: World.copy,
}
