"""The demo's jobs once more, simulated: under the policy that really ran, to compare with what was really charged, and
under two others, to compare with that. `tale` calls `days`.
"""

from collections.abc import Iterable
from dataclasses import replace
from statistics import median_low
from typing import Final

from penstock.config import read_sites
from penstock.core.model import Offer, Policy, Site, Waiting
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value
from penstock.demo.machine import SITES
from penstock.demo.seen import Seen, Tale
from penstock.sim.scenario import Scenario, run
from penstock.sim.traces import TraceJob
from penstock.sim.world import Fault, Zone
from penstock.wiring import policy

SPOT: Final = "nimbus/spot"


@value
class Day:
    """One policy's day."""

    name: str
    rent: Money
    mean_wait_ms: Millis  # neither running nor ended
    last_ms: Millis  # from the first submission to the last end
    unfinished: int


def days(seen: Seen) -> list[Day]:
    """Everything on demand, owned only, ours: each with the jobs, run times and spot losses that really were."""
    file = read_sites(str(SITES))
    ours, jobs = policy(file), [_as_it_ran(tale) for tale in seen.jobs.values()]
    sites = _as_they_were(file.sites, seen)
    only_rented = tuple(_endless(site) for site in sites if site.id == "stratus")
    here = Scenario(tuple(jobs), sites, {SPOT: _spot(seen)}, caps=file.caps, faults=_faults(seen))
    return [
        _day(
            "everything on demand", Scenario(tuple(jobs), only_rented, {}), Policy("nowait", waiting=Waiting("nowait"))
        ),
        _day("owned only", here, replace(ours, burst=False, home=False)),
        _day("ours", here, ours),
    ]


def really(seen: Seen) -> Day:
    """The same figures of the day that was."""
    tales = list(seen.jobs.values())
    ends = [tale.tries[-1].ended_at or 0 for tale in tales]
    waits = [end - tale.submitted_at - _ran_ms(tale) for tale, end in zip(tales, ends, strict=True)]
    first = min(tale.submitted_at for tale in tales)
    return Day("what really happened", seen.charged(), sum(waits) // len(tales), max(ends) - first, 0)


def _day(name: str, scenario: Scenario, chosen: Policy) -> Day:
    ends: list[Instant] = []

    def see(step: object, _: object) -> None:
        ends.append(step.at)  # type: ignore[attr-defined]  # a Step; only its instant is of use here

    report, engine = run(scenario, chosen, see)
    rent = sum(account.spent for (scope, _), account in engine.state.ledger.accounts.items() if scope == "org")
    wait_ms = round(report.mean_wait_h * 3_600_000)
    return Day(name, rent, wait_ms, ends[-1] - scenario.jobs[0].submit_at, report.unfinished_jobs)


def _as_it_ran(tale: Tale) -> TraceJob:
    """How long it would have run in one piece: what its last attempt began with, and what that one then did."""
    last = tale.tries[-1]
    ran = (last.ended_at or 0) - (last.started_at or 0)
    again = tale.spec.restart_ms if len(tale.tries) > 1 else 0
    kept = tale.tries[-2].kept_ms if len(tale.tries) > 1 else 0
    return TraceJob(tale.id, tale.submitted_at, max(1, kept + ran - again), tale.spec)


def _ran_ms(tale: Tale) -> Millis:
    return sum((one.ended_at or 0) - one.started_at for one in tale.tries if one.started_at is not None)


def _as_they_were(sites: Iterable[Site], seen: Seen) -> tuple[Site, ...]:
    """With the starts that were measured: a node's own, and the program's."""
    return tuple(replace(site, offers=tuple(_measured(offer, seen) for offer in site.offers)) for site in sites)


def _measured(offer: Offer, seen: Seen) -> Offer:
    took = [
        one.started_at - one.promise.at
        for one in seen.tries.values()
        if one.promise.offer == offer.id and one.started_at is not None and not one.promise.after
    ]
    # The median: who was asked for just before the control plane was killed began late.
    return replace(offer, start_ms=median_low(took)) if took else offer


def _endless(site: Site) -> Site:
    offers = [replace(o, shapes=tuple(replace(s, count=None) for s in o.shapes)) for o in site.offers]
    return replace(site, offers=tuple(offers))


def _spot(seen: Seen) -> Zone:
    """Losses whose node could be had again in the same instant: it goes and comes at once."""
    changes: list[Instant] = [0]
    for one in seen.lost():
        if one.ended_at is not None and one.ended_at == one.node_lost_at:
            changes += [one.ended_at] * 2
    return Zone(changes)


def _faults(seen: Seen) -> tuple[Fault, ...]:
    """Losses whose node was heard of a little later than its job: until then the site had no room."""
    return tuple(
        Fault(one.ended_at, one.promise.offer.partition("/")[0], one.node_lost_at - one.ended_at)
        for one in seen.lost()
        if one.ended_at is not None and one.node_lost_at is not None and one.node_lost_at > one.ended_at
    )
