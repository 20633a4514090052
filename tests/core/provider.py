"""A provider that is as slow and as greedy as its contract allows, with a meter of its own.

Unlike the simulator's world it takes all of a job's grace and its own worst kill time to let go of a thing, hears of
new deadlines late, may refuse and lose things, and bills by its own price list. It shares no arithmetic with the
engine: what it counts is what the engine's holds are measured against.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Offer, Site
from penstock.core.units import GB, HOUR, MINUTE, NEVER, Instant, Millis, Money

Periods: TypeAlias = list[tuple[Instant, Instant, str]]


@dataclass
class Thing:
    """Something rented: billed from the asking until it is gone."""

    id: str
    offer: Offer
    job: str
    price_per_hour: Money
    fees: Money
    egress: Money
    lag_ms: Millis  # how long it takes this time to be gone; at most `worst_ms`
    worst_ms: Millis
    since: Instant
    deadline: Instant
    until: Instant | None = None
    version: int = 0
    coming: list[Instant] = field(default_factory=list)  # deadlines sent and not yet heard

    def bill(self, at: Instant) -> Money:
        """What the meter shows: whole steps, at least the minimum, rounded up, and the fee."""
        return self._metered(self._billed_until(at)) + self.fees

    def by_period(self, at: Instant, periods: Periods) -> dict[str, Money]:
        until = self._billed_until(at)
        parts = {
            name: self._metered(min(until, end)) - self._metered(max(self.since, start))
            for start, end, name in periods
            if max(self.since, start) < min(until, end)
        }
        for start, end, name in periods:
            if start <= self.since < end:
                parts[name] = parts.get(name, 0) + self.fees
        return parts

    def worst_at(self) -> Instant:
        """Billed no longer than this if nobody says anything more: also if the last word is still on its way."""
        if self.until is not None:
            return self.until
        return max([self.deadline, *self.coming]) + self.worst_ms

    def _billed_until(self, at: Instant) -> Instant:
        used = max(0, (at if self.until is None else min(at, self.until)) - self.since)
        step, minimum = self.offer.billing_step_ms, self.offer.billing_minimum_ms
        return self.since + max(minimum, math.ceil(Fraction(used, step)) * step)

    def _metered(self, until: Instant) -> Money:
        return math.ceil(Fraction(self.price_per_hour * (until - self.since), HOUR))


@dataclass
class Run:
    action: a.StartAttempt
    offer: Offer
    spec: JobSpec
    begins_at: Instant
    ends_at: Instant
    fails: bool

    def kept(self, at: Instant) -> Millis:
        done = max(0, at - self.begins_at) * self.action.speed_permille // 1000
        every = self.spec.checkpoint_every_ms
        return self.action.resume_ms + done // every * every if every else 0


class Provider:
    def __init__(
        self, sites: Iterable[Site], jobs: Mapping[str, tuple[Millis, JobSpec]], seed: int, slow_permille: int,
        hears_after_ms: Millis, refuses_permille: int,
    ) -> None:  # fmt: skip
        self.sites = {site.id: site for site in sites}
        self.offers = {offer.id: offer for site in self.sites.values() for offer in site.offers}
        self.clusters = {site.id: site.cluster.offer for site in self.sites.values() if site.cluster is not None}
        self.offers |= {offer.id: offer for offer in self.clusters.values()}
        self.jobs, self.seed = jobs, seed
        self.slow_permille, self.hears_after_ms, self.refuses_permille = slow_permille, hears_after_ms, refuses_permille
        self.heap: list[tuple[Instant, int, Callable[[Instant], list[e.Fact]]]] = []
        self.count = 0
        self.things: dict[str, Thing] = {}  #: all there ever were
        self.nodes: dict[str, tuple[Thing, int]] = {}  #: live: thing, GPUs
        self.runs: dict[str, Run] = {}
        self.asked: dict[str, bool] = {}  #: every id it was ever asked for, and whether it agreed

    # --- time --------------------------------------------------------------------------------------------------------

    def next_at(self) -> Instant:
        return self.heap[0][0] if self.heap else NEVER

    def happen(self, now: Instant) -> list[e.Fact]:
        facts: list[e.Fact] = []
        while self.heap and self.heap[0][0] <= now:
            facts += heappop(self.heap)[2](now)
        return facts

    def later(self, at: Instant, what: Callable[[Instant], list[e.Fact]]) -> None:
        self.count += 1
        heappush(self.heap, (at, self.count, what))

    def chance(self, *key: object) -> Random:
        return Random("|".join(map(str, (self.seed, *key))))

    # --- what it is asked --------------------------------------------------------------------------------------------

    def do(self, action: a.Action, now: Instant) -> None:
        """A kind of action that is not here is never answered: no provider could be slower."""
        match action:
            case a.LaunchNode():
                self._launch(action, now)
            case a.StartAttempt():
                self._start(action, now)
            case a.StopAttempt(attempt=attempt):
                run = self.runs.get(attempt)
                if run is not None:
                    self.later(now + self._lag(run.spec.grace_ms), lambda at: self._stopped(attempt, at))
            case a.ReleaseNode(node=node):
                if node in self.nodes:
                    self.later(now + self._lag(self.nodes[node][0].offer.kill_ms), lambda at: self._node_gone(node, at))
                elif node in self.things:
                    self.later(now, lambda at: [e.NodeGone(at, node)])
            case a.SetDeadline(thing=name, deadline_at=deadline):
                thing = self.things.get(name)
                if thing is not None:
                    thing.coming.append(deadline)
                self.later(now + self.hears_after_ms, lambda at: self._heard(name, deadline, at))
            case a.CopyData(data_set, site):
                lands_at = now + self.chance(data_set, site).randrange(1, 40) * MINUTE
                self.later(lands_at, lambda at: [e.ReplicaLanded(at, data_set, site, at + 2 * HOUR)])

    def _launch(self, action: a.LaunchNode, now: Instant) -> None:
        node, offer = action.node, self.offers[action.offer]
        if node in self.asked:
            if not self.asked[node]:
                self.later(now, lambda at: [e.NodeRefused(at, node, 5 * MINUTE)])
            return
        self.asked[node] = agrees = self._agrees(node)
        if not agrees:
            self.later(now, lambda at: [e.NodeRefused(at, node, 5 * MINUTE)])
            return
        size = next(size for size in offer.shapes if size.gpus == action.gpus)
        job = action.attempt.rpartition(".")[0]
        thing = self._rent(node, offer, job, size.price_per_hour + offer.extras.per_hour, action.deadline_at, now)
        if job and node.endswith("/n0"):
            thing.egress = self._egress(offer, self.jobs[job][1])
        self.nodes[node] = (thing, action.gpus)
        self.later(now + offer.start_ms, lambda at: [e.NodeReady(at, node)] if node in self.nodes else [])
        self._doom(offer, node, now, lambda at: self._node_lost(node, at))

    def _start(self, action: a.StartAttempt, now: Instant) -> None:
        attempt, offer = action.attempt, self.offers[action.offer]
        if attempt in self.asked:
            if not self.asked[attempt]:
                self.later(now, lambda at: [e.AttemptRefused(at, attempt, 5 * MINUTE)])
            return
        by_attempt = offer.sold_by == "attempt" and offer.term not in ("owned", "reserved")
        self.asked[attempt] = agrees = not by_attempt or self._agrees(attempt)
        if not agrees:
            self.later(now, lambda at: [e.AttemptRefused(at, attempt, 5 * MINUTE)])
            return
        run_ms, spec = self.jobs[action.job]
        if not all(node in self.nodes for node in action.nodes):
            self.later(now, lambda at: [e.AttemptLost(at, attempt, action.resume_ms)])
            return
        if by_attempt:
            price = self._price(offer, action.width)
            thing = self._rent(attempt, offer, action.job, price, action.deadline_at, now)
            thing.egress = self._egress(offer, spec)
            self._doom(offer, attempt, now, lambda at: self._lost(attempt, at))
        if action.nodes and self.nodes[action.nodes[0]][0].job != action.job:  # what else leaves from that node
            self.nodes[action.nodes[0]][0].egress += self._egress(offer, spec)
        begins = now if action.nodes else now + offer.start_ms
        left = math.ceil(Fraction(max(0, run_ms - action.resume_ms) * 1000, action.speed_permille))
        fails = self.chance("fails", attempt).random() < 0.05
        run = self.runs[attempt] = Run(action, offer, spec, begins, begins + left, fails)
        self.later(begins, lambda at: [e.AttemptStarted(at, attempt)] if attempt in self.runs else [])
        self.later(run.ends_at, lambda at: self._ended(attempt, at))

    def _rent(self, name: str, offer: Offer, job: str, price: Money, deadline: Instant, now: Instant) -> Thing:
        worst = (self.jobs[job][1].grace_ms if job else 0) + offer.kill_ms  # on a warm node nothing runs yet
        fees = offer.extras.launch_fee
        thing = Thing(name, offer, job, price, fees, 0, self._lag(worst), worst, now, deadline)
        assert name not in self.things, f"{name} was rented twice"
        self.things[name] = thing
        self._plan_end(thing, now)
        return thing

    def pays(self, node: str, job: str, now: Instant) -> None:
        """From now on this job pays for the node, and its last checkpoint takes its time; nobody: a pool does."""
        known = self.nodes.get(node)
        if known is None:  # it was lost meanwhile, and the engine will hear
            return
        thing = known[0]
        thing.job, thing.worst_ms = job, thing.offer.kill_ms
        if job:
            spec = self.jobs[job][1]
            thing.worst_ms += spec.grace_ms
            thing.egress += self._egress(thing.offer, spec)
        thing.lag_ms = self._lag(thing.worst_ms)
        self._plan_end(thing, now)

    def _price(self, offer: Offer, width: int) -> Money:
        """Whole nodes of the largest size, and the smallest that holds the rest."""
        sizes = [size.gpus for size in offer.shapes]
        prices = {size.gpus: size.price_per_hour + offer.extras.per_hour for size in offer.shapes}
        whole, rest = divmod(width, max(sizes))
        return whole * prices[max(sizes)] + (prices[min(size for size in sizes if size >= rest)] if rest else 0)

    def _egress(self, offer: Offer, spec: JobSpec) -> Money:
        tiers, cost, below = self.sites[offer.site].egress, Fraction(0), 0
        for tier in tiers:
            top = spec.output_bytes if tier.up_to_gb is None else min(spec.output_bytes, tier.up_to_gb * GB)
            cost += Fraction(tier.per_gb * max(0, top - below), GB)
            below = max(below, top)
        return math.ceil(cost) + math.ceil(Fraction(offer.extras.nat_per_gb * spec.output_bytes, GB))

    def _agrees(self, name: str) -> bool:
        return self.chance("refuses", name).randrange(1000) >= self.refuses_permille

    def _lag(self, most: Millis) -> Millis:
        return most * self.slow_permille // 1000

    # --- what happens by itself --------------------------------------------------------------------------------------

    def _plan_end(self, thing: Thing, now: Instant) -> None:
        thing.version += 1
        version = thing.version
        self.later(max(now, thing.deadline + thing.lag_ms), lambda at: self._expired(thing, version, at))

    def _heard(self, name: str, deadline: Instant, now: Instant) -> list[e.Fact]:
        thing = self.things.get(name)
        if thing is not None and deadline in thing.coming:
            thing.coming.remove(deadline)
            if thing.until is None:
                thing.deadline = deadline
                self._plan_end(thing, now)
        return [e.DeadlineSet(now, name, deadline)]

    def _expired(self, thing: Thing, version: int, now: Instant) -> list[e.Fact]:
        if thing.version != version or thing.until is not None:
            return []
        if thing.id not in self.nodes:
            return self._stopped(thing.id, now)
        return self._all_on(thing.id, self._stopped, now) + self._node_gone(thing.id, now)

    def _all_on(self, node: str, end: Callable[[str, Instant], list[e.Fact]], now: Instant) -> list[e.Fact]:
        whole = self.nodes[node][0].offer if node in self.nodes else None
        site = whole.site if whole is not None and whole in self.clusters.values() else ""
        here = [attempt for attempt, run in self.runs.items() if node in run.action.nodes or run.offer.site == site]
        return [fact for attempt in here for fact in end(attempt, now)]

    def _doom(self, offer: Offer, name: str, now: Instant, lose: Callable[[Instant], list[e.Fact]]) -> None:
        if offer.loss_ppm_per_hour:
            hours = self.chance("loss", name).expovariate(offer.loss_ppm_per_hour / 1e6)
            self.later(now + max(1, int(hours * HOUR)), lose)

    def _ended(self, attempt: str, now: Instant) -> list[e.Fact]:
        run = self.runs.get(attempt)
        if run is None or now < run.ends_at:
            return []
        self._drop(attempt, now)
        return [e.AttemptEnded(now, attempt, "failed" if run.fails else "done")]

    def _stopped(self, attempt: str, now: Instant) -> list[e.Fact]:
        run = self.runs.get(attempt)
        if run is None:
            return []
        self._drop(attempt, now)
        return [e.AttemptStopped(now, attempt, run.kept(now))]

    def _lost(self, attempt: str, now: Instant) -> list[e.Fact]:
        run = self.runs.get(attempt)
        if run is None:
            return []
        self._drop(attempt, now)
        return [e.AttemptLost(now, attempt, run.kept(now))]

    def _drop(self, attempt: str, now: Instant) -> None:
        del self.runs[attempt]
        if attempt in self.things:
            self.things[attempt].until = now

    def _node_gone(self, node: str, now: Instant) -> list[e.Fact]:
        known = self.nodes.pop(node, None)
        if known is None:
            return []
        known[0].until = now
        return [e.NodeGone(now, node)]

    def _node_lost(self, node: str, now: Instant) -> list[e.Fact]:
        known = self.nodes.get(node)
        if known is None:
            return []
        facts = self._all_on(node, self._lost, now)
        del self.nodes[node]
        known[0].until = now
        return [*facts, e.NodeLost(now, node)]

    def lose_standing(self, offer: str, number: int, now: Instant) -> list[e.Fact]:
        here = [
            attempt
            for attempt, run in self.runs.items()
            if run.offer.id == offer and any(node == number for node, _ in run.action.slots)
        ]
        return [fact for attempt in here for fact in self._lost(attempt, now)] + [e.NodeLost(now, f"{offer}/{number}")]

    # --- what must never be ------------------------------------------------------------------------------------------

    def twice(self) -> list[str]:
        """Jobs with more than one run at once."""
        jobs = [run.action.job for run in self.runs.values()]
        return [job for job in dict.fromkeys(jobs) if jobs.count(job) > 1]

    def homeless(self) -> list[str]:
        """Runs at sites whose cluster is not there, and sites with two clusters."""
        there = [thing.offer.site for thing, _ in self.nodes.values() if thing.offer in self.clusters.values()]
        runs = [name for name, run in self.runs.items() if run.offer.site in self.clusters]
        return [name for name in runs if self.runs[name].offer.site not in there] + [
            site for site in self.clusters if there.count(site) > 1
        ]

    def guests(self) -> list[str]:
        """Runs on nodes that others pay for."""
        on = [(node, run) for run in self.runs.values() for node in run.action.nodes if node in self.nodes]
        paid = {node: self.jobs[thing.job][1] if thing.job else None for node, (thing, _) in self.nodes.items()}
        payers = [(node, run.spec, paid[node]) for node, run in on]
        return [
            node
            for node, spec, payer in payers
            if payer is None or (spec.team, spec.project) != (payer.team, payer.project)
        ]

    def overfull(self) -> list[str]:
        """Standing nodes with more on them than they have, and rented offers beyond their limits."""
        problems = []
        for offer in self.offers.values():
            if offer.term in ("owned", "reserved"):
                problems += self._overfull_standing(offer)
            else:
                problems += self._overfull_rented(offer)
        return problems

    def _overfull_standing(self, offer: Offer) -> list[str]:
        used: dict[int, int] = {}
        for run in self.runs.values():
            if run.offer.id == offer.id:
                for node, gpus in run.action.slots:
                    used[node] = used.get(node, 0) + gpus
        return [f"{offer.id}/{node}: {gpus}" for node, gpus in used.items() if gpus > offer.shapes[-1].gpus]

    def _overfull_rented(self, offer: Offer) -> list[str]:
        nodes = [gpus for thing, gpus in self.nodes.values() if thing.offer.id == offer.id]
        widths = [run.action.width for run in self.runs.values() if run.offer.id == offer.id and not run.action.nodes]
        problems = []
        if offer.limit_gpus is not None and sum(nodes) + sum(widths) > offer.limit_gpus:
            problems.append(f"{offer.id}: {sum(nodes) + sum(widths)} GPUs")
        over = [size for size in offer.shapes if size.count is not None and nodes.count(size.gpus) > size.count]
        problems += self._overfull_nodes(offer)
        return problems + [f"{offer.id}: {nodes.count(size.gpus)} nodes of {size.gpus}" for size in over]

    def _overfull_nodes(self, offer: Offer) -> list[str]:
        """Rented nodes with more on them than they have, and runs on nodes that were given back under them."""
        used: dict[str, int] = {}
        for run in [run for run in self.runs.values() if run.offer.id == offer.id]:
            left = run.action.width
            for node in run.action.nodes:
                gpus = self.nodes[node][1] if node in self.nodes else 0
                used[node] = used.get(node, 0) + (min(left, gpus) if gpus else left)  # all too much where it is gone
                left -= gpus
        has = {node: gpus for node, (_, gpus) in self.nodes.items()}
        return [f"{node}: {gpus} of {has.get(node, 0)}" for node, gpus in used.items() if gpus > has.get(node, 0)]
