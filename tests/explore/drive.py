"""Drives the engine through a month in the simulator's world, and asks after every step what must be true.

`run(month)` returns a digest of all that was decided, or raises. People answer approvals or do not, sites refuse
starts, stops take time, the control plane dies and folds its journal, and somebody wakes it when nothing is due.
"""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from penstock.core.decide.cycle import next_deadline
from penstock.core.engine import Engine, Step, replay
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import STANDING, DataSet
from penstock.core.units import DAY, NEVER, SECOND, Instant
from penstock.forecast import live as live_forecast
from penstock.policy import hours
from penstock.policy.rules import PolicyRules
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.simulator import MONTH_MS, open_month, truths
from penstock.sim.engine.world import Fault, World, Zone
from penstock.sim.traces.trace import TraceJob
from tests.explore.audit import Audit, Violated, rule
from tests.explore.months import Month
from tests.explore.unequal import Scheduler

#: A month that lasts longer teaches nothing more.
MOST_STEPS: Final = 2_000
MOST_MS: Final = 30 * DAY
#: Steps of one instant: each job may start, be refused and stop a few times, and then time must pass.
OF_ONE_INSTANT: Final = 60
#: Rented starts of one job at one offer, one after the other, that kept no work: some, and then one a day.
IN_VAIN: Final = 20 + MOST_MS // DAY


def run(month: Month, woken: bool = True) -> str:
    """`woken`: also when nothing is due, if the month says so."""
    drive = Drive(month, woken)
    drive.play()
    return drive.digest()


class Drive:
    def __init__(self, month: Month, woken: bool = True) -> None:
        self.month, self.woken = month, woken
        sites = [fact.site for fact in month.script if isinstance(fact, e.SiteJoined)]
        jobs = [TraceJob(fact.job, fact.at, month.runs[fact.job], fact.spec) for fact in month.jobs]
        data = [fact.data_set for fact in month.script if isinstance(fact, e.DataSetRegistered)]
        self.world = World(
            sites,
            truths(jobs),
            seed=month.seed,
            zones={name: Zone(changes) for name, changes in month.zones.items()},
            faults=[Fault(*fault) for fault in month.faults],
            data={item.id: item for item in data} or {"none": DataSet("none", 1, "")},
        )
        self.engine = Engine(PolicyRules())
        self.scheduler = Scheduler(month, self.world, self.after)
        self.audit = Audit(self.world, self.scheduler)
        self.steps: list[Step] = []
        self.script = list(month.script)
        self.later: list[tuple[Instant, int, Callable[[Instant], list[e.Fact]]]] = []
        self.asked = 0
        self.opens = month.zero // MONTH_MS + 1  # the last month that is known
        self.now, self.count, self.at_once = month.zero, 0, 0  # steps, and those of this instant
        self.in_vain: dict[tuple[str, str], tuple[int, int]] = {}  #: by job and offer: starts, with so much kept
        self.quiet = False
        self.record = hashlib.sha256()

    def play(self) -> None:
        self.step(self.told(self.now))
        while self.count < MOST_STEPS:
            facts = self.world.answers(self.now) if self.world.soon else []
            if not facts:
                at = self.next_at()
                if at == NEVER or at > self.month.zero + MOST_MS or self.is_over():
                    self.quiet = at == NEVER
                    break
                self.wake_before(at)
                self.now = at
                facts = self.happens(at)
                if not facts and next_deadline(self.engine.state) > at:
                    continue
            self.step(facts or [e.Woke(self.now)])
        self.audit.finish(self.engine, self.quiet)
        self.restart()

    # --- time --------------------------------------------------------------------------------------------------------

    def next_at(self) -> Instant:
        coming = self.script[0].at if self.script else NEVER
        later = self.later[0][0] if self.later else NEVER
        return max(
            self.now, min(coming, later, self.world.next_at(), next_deadline(self.engine.state), self.month_at())
        )

    def month_at(self) -> Instant:
        """While somebody is there who could wait for it."""
        return self.opens * MONTH_MS if self.engine.state.jobs or self.script else NEVER

    def is_over(self) -> bool:
        """Pools of warm nodes stay for ever, and are no reason to go on."""
        state = self.engine.state
        return not self.script and not state.jobs and (not state.nodes or bool(state.warm.offers))

    def happens(self, now: Instant) -> list[e.Fact]:
        facts = self.world.happen(now)
        while self.later and self.later[0][0] <= now:
            facts += heappop(self.later)[2](now)
        facts += self.told(now)
        while self.opens * MONTH_MS <= now:
            self.opens += 1
            facts.append(open_month(now, self.opens))
        return facts

    def told(self, now: Instant) -> list[e.Fact]:
        facts = []
        while self.script and self.script[0].at <= now:
            fact = self.script.pop(0)
            facts += [fact, *self.scheduler.again(fact)]
        state = self.engine.state
        facts += hours.due(state, facts, now)
        return facts + (live_forecast.due(state, now) if state.warm.offers else [])

    def after(self, ms: int, what: Callable[[Instant], list[e.Fact]]) -> None:
        self.asked += 1
        heappush(self.later, (self.now + ms, self.asked, what))

    def chance(self, permille: int, *key: object) -> bool:
        return permille > 0 and uniform(self.month.seed, *key) * 1_000 < permille

    # --- a step ------------------------------------------------------------------------------------------------------

    def step(self, facts: list[e.Fact]) -> None:
        self.count += 1
        facts = [self.as_it_ends(fact) for fact in facts]
        self.at_once = self.at_once + 1 if self.steps and self.steps[-1].at == self.now else 0
        rule(self.at_once < OF_ONE_INSTANT + 10 * len(self.month.jobs), "an instant does not end", self.now)
        for fact in facts:
            self.scheduler.hear(fact)
        step = self.decided(facts)
        for action in step.actions:
            self.do(action)
        for promise in step.outputs:
            if isinstance(promise, e.ApprovalAsked):
                self.ask(promise)
        self.audit.see(step, self.engine)
        self.nothing_is_in_vain(step)
        if self.chance(self.month.restarts_permille, "restart", self.count):
            self.restart()

    def decided(self, facts: list[e.Fact]) -> Step:
        step = self.engine.handle(*facts)
        self.steps.append(step)
        if step.outputs:
            self.record.update(repr((step.at, step.outputs)).encode())
        return step

    def digest(self) -> str:
        """Of all promises, each with its instant."""
        return self.record.hexdigest()

    def as_it_ends(self, fact: e.Fact) -> e.Fact:
        if isinstance(fact, e.AttemptEnded) and self.chance(self.month.fails_permille, "fails", fact.attempt):
            return e.AttemptEnded(fact.at, fact.attempt, "failed")
        return fact

    def do(self, action: a.Action) -> None:
        """As the world does it; but some starts are refused, and some stops take a while."""
        now = self.now
        if isinstance(action, a.StartAttempt) and self.chance(self.month.refuses_permille, "refuses", action.attempt):
            self.refuse(action)
        elif isinstance(action, a.StartAttempt) and action.offer in self.scheduler.seen:
            self.scheduler.start(action)
        elif isinstance(action, a.StopAttempt) and action.attempt in self.scheduler.pending:
            self.scheduler.stop(action.attempt)
        elif isinstance(action, a.StopAttempt) and self.month.slow_stops:
            takes_ms = int(uniform(self.month.seed, "stops", action.attempt) * 90 * SECOND)
            self.after(takes_ms, lambda at: self.stop(action, at))
        else:
            self.world.do(action, now)

    def stop(self, action: a.StopAttempt, now: Instant) -> list[e.Fact]:
        self.world.do(action, now)
        return []

    def refuse(self, action: a.StartAttempt) -> None:
        causes: tuple[Any, ...] = ("", "unfit", "missing", "denied")
        cause = causes[int(4 * uniform(self.month.seed, "cause", action.attempt))]
        rented = self.world.offers[action.offer].term not in STANDING
        nodes = [node for node in action.nodes if node in self.world.nodes]
        self.after(
            int(uniform(self.month.seed, "takes", action.attempt) * 60 * SECOND),
            lambda at: [e.AttemptRefused(at, action.attempt, 30 * SECOND, cause if nodes or not rented else "")],
        )

    def ask(self, asked: e.ApprovalAsked) -> None:
        """Two of three are answered, of these half with no; some too late."""
        luck = uniform(self.month.seed, "approves", asked.job, asked.rule)
        if luck < 0.66:
            takes_ms = int(uniform(self.month.seed, "answers", asked.job) * 1.2 * (asked.until_at - asked.at))
            approved = luck < 0.4
            self.after(takes_ms, lambda at: [e.ApprovalAnswered(at, asked.job, approved, "somebody", rule=asked.rule)])

    # --- what it must bear -------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """The control plane dies. Another folds the journal, and says again what is outstanding."""
        again = replay(((step.at, step.inputs, step.outputs) for step in self.steps), Engine(PolicyRules()))
        if again.state.digest() != self.engine.state.digest():
            mine, theirs = (list(map(repr, engine.state.canonical())) for engine in (self.engine, again))
            parts = [f"{x} / {y}" for x, y in zip(mine, theirs, strict=False) if x != y]
            raise Violated(f"the fold of the record is another state: {str(parts)[:2_000]}")
        self.engine = again
        for action in list(again.outstanding()):
            if not isinstance(action, a.StartAttempt | a.StopAttempt | a.CopyData):  # on their way
                self.world.do(action, self.now)

    def wake_before(self, at: Instant) -> None:
        if at - self.now < 2 or not self.woken or not self.chance(self.month.wakes_permille, "wakes", self.count):
            return
        self.now += 1 + int(uniform(self.month.seed, "awake", self.count) * (at - self.now - 1))
        step = self.decided([e.Woke(self.now)])
        self.audit.see(step, self.engine)
        rule(not step.outputs, "a wake-up decides what was not due", f"{self.now}: {step.outputs[:2]}")

    def nothing_is_in_vain(self, step: Step) -> None:
        """No job is started for ever without keeping any of its work: rent is paid for nothing."""
        for fact in step.inputs:
            run = self.world.runs.get(fact.attempt) if isinstance(fact, e.AttemptStarted) else None
            if run is not None and run.offer.term not in STANDING:
                key = (run.action.job, run.offer.id)
                starts, kept_ms = self.in_vain.get(key, (0, 0))
                starts = starts + 1 if run.action.resume_ms <= kept_ms else 1
                self.in_vain[key] = (starts, run.action.resume_ms)
                rule(starts < IN_VAIN, "a job is rented for in vain for ever", key)
