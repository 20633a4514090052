"""Discrete-event simulator: the live engine with a heap of events as its clock. `scenario.run` calls it."""

import gc
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from penstock.core.decide.cycle import next_deadline
from penstock.core.engine import Engine, Step
from penstock.core.fold.state import State
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.model.types import DataSet, Policy, Site
from penstock.core.units import DAY, NEVER, Instant, Millis, Money
from penstock.forecast import live as live_forecast
from penstock.policy import hours
from penstock.policy.rules import PolicyRules
from penstock.sim.engine.chance import normal
from penstock.sim.engine.world import Truth, World
from penstock.sim.traces.trace import TraceJob

Knowledge: TypeAlias = Literal["e0", "e1", "e2"]
MONTH_MS: Final = 30 * DAY  #: a simulated budget period
STILL_MONTHS: Final = 6  #: without any progress, after the last submission: it goes on like this for ever


def known(jobs: Iterable[TraceJob], knowledge: Knowledge, seed: int = 0) -> list[TraceJob]:
    """What the engine may know of run times: the truth, a wrong estimate, or only history."""
    match knowledge:
        case "e0":
            return [_expecting(job, job.run_ms) for job in jobs]
        case "e1":
            return [_expecting(job, max(1, round(job.run_ms * math.exp(normal(seed, job.id))))) for job in jobs]
        case "e2":
            return [_expecting(job, None) for job in jobs]


def _expecting(job: TraceJob, expected_ms: int | None) -> TraceJob:
    return TraceJob(job.id, job.submit_at, job.run_ms, replace(job.spec, expected_run_ms=expected_ms))


def truths(jobs: Iterable[TraceJob]) -> dict[str, Truth]:
    """True run times by job id; an array's members share one."""
    by_job: dict[str, Truth] = {}
    for job in jobs:
        truth = Truth(job.run_ms, job.spec)
        if job.spec.count == 1:
            by_job[job.id] = truth
        else:
            by_job |= dict.fromkeys(members(job.id, job.spec.count), truth)
    return by_job


def opening(
    sites: Iterable[Site],
    policy: Policy,
    at: Instant,
    caps: Iterable[tuple[str, Money | None, Money | None]] = (),
    data: Iterable[DataSet] = (),
) -> list[e.Fact]:
    """The facts before the first job: budget periods, caps, sites, data and policy."""
    month = at // MONTH_MS
    facts: list[e.Fact] = [open_month(at, month + k) for k in range(2)]
    facts += [e.CapSet(at, *cap) for cap in caps]
    facts += [e.DataSetRegistered(at, item) for item in data]
    for site in sites:
        facts += [e.SiteJoined(at, site), *proofs(at, site)]
    return [*facts, e.PolicySet(at, 1, policy)]


def proofs(at: Instant, site: Site) -> list[e.Fact]:
    """In a simulated world watchmen live."""
    return [e.GuaranteeChanged(at, offer.id, offer.guarantee) for offer in site.offers if offer.guarantee == "watchman"]


def open_month(at: Instant, number: int) -> e.PeriodOpened:
    return e.PeriodOpened(at, f"month {number + 1}", number * MONTH_MS, (number + 1) * MONTH_MS)


def simulate(
    jobs: Sequence[TraceJob],
    world: World,
    first: Sequence[e.Fact],
    see: Callable[[Step, Engine], None],
    engine: Engine | None = None,
) -> Engine:
    """Run until every job has ended or nothing can happen any more. `see` gets each step."""
    engine = engine or Engine(PolicyRules())
    # There are no reference cycles, and the garbage collector would cost a third of the run.
    was_on = gc.isenabled()
    gc.disable()
    try:
        _run(jobs, world, first, see, engine)
    finally:
        if was_on:
            gc.enable()
    return engine


def _run(
    jobs: Sequence[TraceJob],
    world: World,
    first: Sequence[e.Fact],
    see: Callable[[Step, Engine], None],
    engine: Engine,
) -> None:
    handle, do, state = engine.handle, world.do, engine.state
    step = handle(*first, *hours.due(state, first, first[0].at))
    see(step, engine)
    for action in step.actions:  # pools of warm nodes are filled at once
        do(action, first[0].at)
    coming, total = 0, len(jobs)
    comes_at = jobs[0].submit_at if jobs else NEVER
    month = first[0].at // MONTH_MS + 2
    opens_at = (month - 1) * MONTH_MS  # open the next period when this one begins
    now = moved_at = first[0].at
    standstill = _Standstill()
    while True:
        facts = world.answers(now) if world.soon else []
        if not facts:
            now = happens_at = world.next_at()
            deadline = next_deadline(state)
            if comes_at < now:
                now = comes_at
            if deadline < now:
                now = deadline
            if now == NEVER:
                return
            if happens_at <= now:
                facts = world.happen(now)
            while comes_at <= now:
                job = jobs[coming]
                facts.append(e.JobSubmitted(now, coming, job.id, job.spec))
                coming += 1
                comes_at = jobs[coming].submit_at if coming < total else NEVER
            while opens_at <= now:
                facts.append(open_month(now, month))
                month += 1
                opens_at += MONTH_MS
                if coming == total and standstill.lasts(state):
                    return
            if not facts and deadline > now:  # the world's event for now was cancelled
                continue
            if state.policy.governance.windows or state.warm.offers:
                facts += hours.due(state, facts, now)
                facts += live_forecast.due(state, now)
            if not facts:
                facts.append(e.Woke(now))
        step = handle(*facts)
        see(step, engine)
        actions = step.actions
        for action in actions:
            do(action, now)
        if state.warm.offers and coming == total:
            world.soon += [(_close_pools, site) for site in state.sites.values()]
        if coming < total or actions or state.attempts or state.nodes:
            moved_at = now
        elif not state.jobs or now - moved_at > 2 * MONTH_MS:  # the rest waits for money that no period will have
            return


def _close_pools(site: Site, now: Instant) -> list[e.Fact]:
    """After the last submission nobody keeps nodes for another job: a run would never end."""
    offers = tuple(replace(offer, warm=None) for offer in site.offers)
    return [e.SiteJoined(now, replace(site, offers=offers))] if offers != site.offers else []


class _Standstill:
    """Months in which no job ended, kept more of its work or ran throughout: each month's cap buys less than one
    checkpoint, and what it buys is lost. It would go on for ever, so the run ends, and the jobs count as unfinished.
    """

    def __init__(self) -> None:
        self.months = 0
        self.jobs: dict[str, Millis] = {}
        self.running: dict[str, None] = {}

    def lasts(self, state: State) -> bool:
        """Asked once a month, when all jobs have been submitted."""
        jobs = {name: job.kept_ms for name, job in state.jobs.items()}
        running = dict.fromkeys(state.attempts)
        is_still = jobs == self.jobs and not any(attempt in self.running for attempt in running)
        self.months, self.jobs, self.running = self.months + 1 if is_still else 0, jobs, running
        return self.months >= STILL_MONTHS
