"""The same trace through the live plane: real loop, dispatch, recovery and journal; only clock and driver are replaced.

`live_rows` gives what the journal holds at the end, to be compared with the simulator's steps row by row.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.core.engine import Step
from penstock.core.model import events as e
from penstock.core.model.types import Policy
from penstock.core.units import HOUR, SECOND, Instant
from penstock.drivers.driver import Driver
from penstock.journal.journal import Journal
from penstock.live.plane import Plane, Setup
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.simulator import MONTH_MS, open_month, opening, truths
from penstock.sim.engine.world import World
from penstock.sim.scenario import Scenario
from penstock.sim.traces.trace import TraceJob
from tests.live.virtual import SameThread, VirtualClock, run


class SimulatedMonths:
    def month(self, at: Instant) -> tuple[str, Instant, Instant]:
        opened = open_month(0, at // MONTH_MS)
        return opened.period, opened.starts_at, opened.ends_at


def live(made: Scenario, policy: Policy, journal: Journal, last: Step) -> None:
    """Run until the journal holds as many rows as the simulator's, or its last instant is long past."""

    async def main(clock: VirtualClock) -> None:
        plane = _plane(made, policy, journal, clock)
        await plane.start()
        submitting = asyncio.create_task(_submit(plane, made.jobs, clock))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at((last.at + HOUR) / SECOND):
                while plane.number < last.number:
                    await plane.heard(plane.number)
        await submitting
        await plane.stop()

    run(made.jobs[0].submit_at, main)


def _plane(made: Scenario, policy: Policy, journal: Journal, clock: VirtualClock) -> Plane:
    world = World(
        made.sites,
        truths(made.jobs),
        seed=made.seed,
        zones=made.zones,
        faults=made.faults,
        data={item.id: item for item in made.data},
    )
    stage = Stage(world, clock.now, clock.until)
    drivers: dict[str, Driver] = {site.id: Rehearsal(site.id, stage) for site in made.sites}
    policy = replace(policy, currency=made.currency, data_rules=made.data_rules + policy.data_rules)
    first = opening(made.sites, policy, made.jobs[0].submit_at, made.caps, made.data)
    facts = tuple(fact for fact in first if not isinstance(fact, e.PeriodOpened))  # the plane opens months itself
    setup = Setup(opening=facts, calendar=SimulatedMonths(), lease_ms=2 * HOUR, beat_ms=HOUR, look_ms=HOUR)
    return Plane(journal, drivers, setup, clock, SameThread())


async def _submit(plane: Plane, jobs: Sequence[TraceJob], clock: VirtualClock) -> None:
    tasks = []
    for job in jobs:
        if job.submit_at > clock.now():
            await clock.until(job.submit_at)
        tasks.append(asyncio.create_task(plane.tell(e.JobSubmitted(0, 0, job.id, job.spec))))
    await asyncio.gather(*tasks)


def plain(row: Any | Step) -> tuple[int, Instant, tuple[Any, ...], tuple[Any, ...]]:
    return row.number, row.at, row.inputs, row.outputs
