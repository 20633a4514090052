"""Simulates the demo's jobs again: under the policy that ran, to compare with the real charges, and under two others.
`script` calls `days`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Final, TypeAlias

from penstock.config import read_sites
from penstock.core.engine import Engine, Step
from penstock.core.ids import site_of
from penstock.core.model.types import Offer, Policy, Site, Waiting
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value
from penstock.demo.machine import POLICY, SITES
from penstock.demo.observer import JobTrail, Observer
from penstock.live.config_facts import policy_of
from penstock.policy.file import governed, read_policy
from penstock.sim.engine.simulator import opening, simulate, truths
from penstock.sim.engine.world import Fault, World, Zone
from penstock.sim.traces.trace import TraceJob

SPOT: Final = "nimbus/spot"
ON_DEMAND: Final = "stratus"

Caps: TypeAlias = tuple[tuple[str, Money | None, Money | None], ...]


@value
class SimulatedDay:
    """One policy's day."""

    name: str
    rent: Money
    mean_wait_ms: Millis  # neither running nor ended
    last_ms: Millis  # from the first submission to the last end
    ways: dict[str, tuple[str, ...]]  # by job: the offers it was at


def days(seen: Observer) -> list[SimulatedDay]:
    """Everything on demand, owned only, ours: each with the jobs, run times, starts and losses that really were."""
    sites = read_sites(str(SITES))
    file = governed(sites, read_policy(str(POLICY), sites))
    ours, jobs = policy_of(file), [_as_it_ran(trail) for trail in seen.jobs.values()]
    rented = tuple(_endless(site) for site in file.sites if site.id == ON_DEMAND)
    at_once = Policy("nowait", waiting=Waiting("nowait"))
    return [
        _day("everything on demand", seen, jobs, rented, at_once),
        _day("owned only", seen, jobs, file.sites, replace(ours, burst=False, home=False), file.caps),
        _day("ours", seen, jobs, file.sites, ours, file.caps),
    ]


def day_of(name: str, seen: Observer) -> SimulatedDay:
    """Counts a day, simulated or real, in the same way."""
    trails = [trail for trail in seen.jobs.values() if trail.done]
    ends = [trail.tries[-1].ended_at or 0 for trail in trails]
    waits = [end - trail.submitted_at - _ran_ms(trail) for trail, end in zip(trails, ends, strict=True)]
    first = min(trail.submitted_at for trail in trails)
    ways = {trail.id: tuple(attempt.promise.offer for attempt in trail.tries if attempt.started_at) for trail in trails}
    return SimulatedDay(name, seen.charged(), sum(waits) // len(trails), max(ends) - first, ways)


def _day(
    name: str, seen: Observer, jobs: Sequence[TraceJob], sites: Sequence[Site], chosen: Policy, caps: Caps = ()
) -> SimulatedDay:
    """The engine is told what the sites file says; the world does what was measured."""
    world = World(_as_they_were(sites, seen), truths(jobs), zones={SPOT: _spot(seen)}, faults=_faults(seen, sites))
    simulated = Observer()

    def see(step: Step, _: Engine) -> None:
        for event in (*step.inputs, *step.outputs):
            simulated.hear(event)

    simulate(jobs, world, opening(sites, chosen, jobs[0].submit_at, caps), see)
    return day_of(name, simulated)


def _as_it_ran(trail: JobTrail) -> TraceJob:
    """Its run time in one piece: what its last attempt resumed from, and what that attempt then did."""
    last = trail.tries[-1]
    ran = (last.ended_at or 0) - (last.started_at or 0)
    again = trail.spec.restart_ms if len(trail.tries) > 1 else 0
    kept = trail.tries[-2].kept_ms if len(trail.tries) > 1 else 0
    return TraceJob(trail.id, trail.submitted_at, max(1, kept + ran - again), trail.spec)


def _ran_ms(trail: JobTrail) -> Millis:
    return sum(
        (attempt.ended_at or 0) - attempt.started_at for attempt in trail.tries if attempt.started_at is not None
    )


def _as_they_were(sites: Iterable[Site], seen: Observer) -> tuple[Site, ...]:
    """Offers with the measured start times of node and program."""
    return tuple(replace(site, offers=tuple(_measured(offer, seen) for offer in site.offers)) for site in sites)


def _measured(offer: Offer, seen: Observer) -> Offer:
    took = [
        attempt.started_at - attempt.promise.at
        for attempt in seen.tries.values()
        if attempt.promise.offer == offer.id and attempt.started_at is not None and not attempt.promise.after
    ]
    # The median: who was asked for just before the control plane was killed began late.
    return replace(offer, start_ms=median_low(took)) if took else offer


def _endless(site: Site) -> Site:
    offers = [replace(o, shapes=tuple(replace(s, count=None) for s in o.shapes)) for o in site.offers]
    return replace(site, offers=tuple(offers))


def _spot(seen: Observer) -> Zone:
    """Preemptions whose node was available again at once."""
    changes: list[Instant] = [0]
    for attempt in seen.lost():
        if attempt.ended_at is not None and attempt.ended_at == attempt.node_lost_at:
            changes += [attempt.ended_at] * 2
    return Zone(changes)


def _faults(seen: Observer, sites: Sequence[Site]) -> Iterator[Fault]:
    """Preemptions whose node was reported a little later than its job: until then the site was full."""
    known = [site.id for site in sites]
    for attempt in seen.lost():
        site, at = site_of(attempt.promise.offer), attempt.ended_at or 0
        if site in known and (attempt.node_lost_at or 0) > at:
            yield Fault(at, site, (attempt.node_lost_at or 0) - at)
