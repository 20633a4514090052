"""What must be true after every step of a month, seen from outside: from the record and the world, not from the
engine's own sums.
"""

from collections.abc import Iterable
from typing import Any

from penstock.core.engine import Engine, Step
from penstock.core.fold.invariants import check
from penstock.core.model import events as e
from penstock.core.model.types import Hold, Part
from penstock.core.units import HOUR, NEVER, Instant, Money, ceil_div
from penstock.journal.journal import Row
from penstock.sim.engine.world import World
from tests.explore.unequal import Scheduler

#: Of so many steps the nodes of every waiting job are looked at after one.
LOOKED_AT = 5


class Violated(AssertionError):
    """A rule does not hold. Its words begin with the rule's name: `shrink` keeps cases of one name apart."""


def rule(holds: bool, name: str, about: object = "") -> None:
    if not holds:
        raise Violated(f"{name}: {about}")


class Thing:
    """Something rented, by its hold."""

    def __init__(self, hold: Hold) -> None:
        self.hold, self.scopes = hold, hold.scopes
        self.held: tuple[Part, ...] = hold.parts
        self.charged: Money = 0
        self.settled = False


class Books:
    """What every scope has held and spent, added up from the amounts of the record alone."""

    def __init__(self) -> None:
        self.caps: dict[str, Money] = {}
        self.rate_caps: dict[str, Money] = {}
        self.totals: dict[tuple[str, str], Money] = {}
        self.things: dict[str, Thing] = {}
        self.grew: dict[tuple[str, str], Money] = {}  #: in this step

    def hear(self, step: Step | Row) -> None:
        self.grew = {}
        for fact in step.inputs:
            if isinstance(fact, e.CapSet):
                _put(self.caps, fact.scope, fact.per_period)
                _put(self.rate_caps, fact.scope, fact.per_hour)
        for promise in step.outputs:
            self._take(promise)
        for key, more in self.grew.items():
            scope, cap = key[0], self.caps.get(key[0])
            rule(
                more <= 0 or cap is None or self.totals[key] <= cap, "a cap is overrun", f"{scope}: {self.totals[key]}"
            )

    def _take(self, promise: e.Promise) -> None:
        match promise:
            case e.StartPromised():
                for hold in [*([promise.hold] if promise.hold else []), *[ask.hold for ask in promise.nodes]]:
                    self._open(hold)
            case e.WarmPromised() | e.ClusterPromised():
                self._open(promise.ask.hold)
            case e.LeaseRenewed():
                self._book(promise.hold, promise.charged, promise.parts)
            case e.LeaseShortened():
                self._book(promise.hold, (), promise.parts)
            case e.Settled():
                self._book(promise.hold, promise.charged, ())
                self.things[promise.hold].settled = True
            case e.PayerChanged():
                self._book(promise.node, promise.charged, ())
                thing = self.things[promise.node]
                thing.scopes = promise.hold.scopes
                self._book(promise.node, (), promise.hold.parts)
            case _:
                pass

    def _open(self, hold: Hold) -> None:
        rule(hold.id not in self.things, "one thing is paid for twice", hold.id)
        self.things[hold.id] = Thing(hold)
        self._add(hold.scopes, hold.parts, 1)
        for scope in hold.scopes:
            cap = self.rate_caps.get(scope)
            if cap is not None:
                live = [thing for thing in self.things.values() if not thing.settled and scope in thing.scopes]
                rate = sum(thing.hold.terms.most_per_hour for thing in live)
                rule(rate <= cap, "an hourly cap is overrun", f"{scope}: {rate}")

    def _book(self, name: str, charged: Iterable[Part], held: tuple[Part, ...]) -> None:
        thing = self.things[name]
        rule(not thing.settled, "what is settled is charged no more", name)
        self._add(thing.scopes, thing.held, -1)
        self._add(thing.scopes, charged, 1)
        self._add(thing.scopes, held, 1)
        thing.charged += sum(part.amount for part in charged)
        thing.held = held

    def _add(self, scopes: tuple[str, ...], parts: Iterable[Part], sign: int) -> None:
        for part in parts:
            for scope in scopes:
                key = (scope, "" if scope.startswith("job:") else part.period)
                self.totals[key] = self.totals.get(key, 0) + sign * part.amount
                self.grew[key] = self.grew.get(key, 0) + sign * part.amount


class Audit:
    def __init__(self, world: World, scheduler: Scheduler) -> None:
        self.world, self.scheduler, self.books = world, scheduler, Books()
        self.members: dict[str, None] = {}

    def see(self, step: Step, engine: Engine) -> None:
        check(engine.state)
        self.books.hear(step)
        self.nothing_runs_twice()
        self.nothing_is_overfull()
        self.gpus_are_counted_where_they_are(engine)
        if step.number % LOOKED_AT == 0:
            self.nodes_are_known(engine)
        self.meters_are_covered(step.at)
        self.jobs_are_conserved(step, engine)

    def nothing_runs_twice(self) -> None:
        jobs = [run.action.job for run in self.world.runs.values()]
        if len(jobs) != len(set(jobs)):
            runs = sorted(self.world.runs)
            raise Violated(f"a job runs twice at once: {[a for a in runs if jobs.count(a.rpartition('.')[0]) > 1]}")

    def nothing_is_overfull(self) -> None:
        used: dict[tuple[str, int], int] = {}
        for run in self.world.runs.values():
            for node, gpus in run.action.slots:
                used[run.offer.id, node] = used.get((run.offer.id, node), 0) + gpus
        for (offer, node), gpus in used.items():
            rule(gpus <= self.world.offers[offer].shapes[-1].gpus, "a node is overfull", f"{offer} {node}: {gpus}")

    def gpus_are_counted_where_they_are(self, engine: Engine) -> None:
        """Of all that run and of which no word is on its way."""
        for attempt in engine.state.attempts.values():
            run = self.world.runs.get(attempt.id) if attempt.phase == "running" else None
            if run is not None and attempt.id not in self.scheduler.untold:
                there, counted = sorted(run.action.slots), sorted(attempt.slots)
                rule(there == counted, "GPUs are counted where they are not", f"{attempt.id}: {counted}, on {there}")

    def nodes_are_known(self, engine: Engine) -> None:
        """Nodes are closed to a job that do not suit it, or that it was tried on, and no others."""
        scheduler = self.scheduler
        for job in engine.state.jobs.values():
            for offer in scheduler.seen if job.queued and job.shape.judged else ():
                back = (job.setbacks or {}).get(offer)
                if offer not in job.shape.standing or (back is not None and back.retry_at < NEVER):
                    continue
                bits, suits = job.shape.barred.get(offer, 0), scheduler.suits(job.id, offer)
                for node in scheduler.seen[offer]:
                    closed = bool(bits >> node & 1)
                    knows = closed or node in suits
                    rule(knows, "a node does not suit a job that may use it", f"{job.id}: {offer} {node}")
                    tried = node not in suits or scheduler.cramped(job.id, offer, node)
                    rule(tried or not closed, "a node suits a job that may not use it", f"{job.id}: {offer} {node}")

    def meters_are_covered(self, now: Instant) -> None:
        for name, (since, until) in self.world.meter.items():
            thing = self.books.things[name]
            if until is None:
                shown = ceil_div(thing.hold.terms.price_per_hour * (now - since), HOUR)
                covered = thing.charged + sum(part.amount for part in thing.held)
                rule(shown <= covered, "a meter passes what is held", f"{name}: {shown} of {covered}")

    def jobs_are_conserved(self, step: Step, engine: Engine) -> None:
        state = engine.state
        for fact in step.inputs:
            if isinstance(fact, e.JobSubmitted):
                self.members |= dict.fromkeys(f"{fact.job}/{k}" for k in range(max(1, fact.spec.count)))
        rule(sum(state.ended.values()) + len(state.jobs) == len(self.members), "a job is lost", step.number)

    def finish(self, engine: Engine, quiet: bool) -> None:
        """`quiet`: nothing will ever happen again."""
        state = engine.state
        for job in state.jobs.values():
            told = job.because is not None or job.id in state.suspended
            rule(told or not job.queued or state.paused, "a job waits without a reason", job.id)
            rule(not quiet or job.attempt is None, "a job is forgotten where it is", f"{job.id} is {job.phase}")
        if not state.jobs and not state.nodes:
            rule(not state.ledger.leases, "money is held for nobody", list(state.ledger.leases))
        for name, (since, until) in self.world.meter.items():
            thing = self.books.things[name]
            if until is not None and thing.settled:
                used = thing.hold.terms.price_per_hour * (until - since) // HOUR
                rule(thing.charged >= used, "a bill is not paid", f"{name}: {thing.charged} of {used}")


def _put(table: dict[str, Any], key: str, amount: Money | None) -> None:
    if amount is None:
        table.pop(key, None)
    else:
        table[key] = amount
