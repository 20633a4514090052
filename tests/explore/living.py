"""The same months through the real live loop: plane, sequencer, dispatch, recovery and a journal in SQLite; only the
clock and the drivers' world are simulated. The control plane is killed at random instants, as by SIGKILL, and started
again on the same file.

`lived(month, folder)` returns how often it was killed, or raises.
"""

import asyncio
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.fold.apply import fold_step
from penstock.core.fold.invariants import check
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.units import DAY, HOUR, MINUTE, Instant
from penstock.drivers.driver import Driver
from penstock.journal.open import open_journal
from penstock.live.plane import Plane, Setup
from penstock.policy.rules import PolicyRules
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.simulator import truths
from penstock.sim.engine.world import Fault, World, Zone
from penstock.sim.traces.trace import TraceJob
from tests.explore.audit import Books, Violated, rule
from tests.explore.months import Month
from tests.live.virtual import SameThread, VirtualClock, run
from tests.parity_live import SimulatedMonths

KILLS: Final = 4
#: After the last fact: whoever has not ended by then waits for money, for a person, or for a spot node that lasts.
THEN: Final = 2 * DAY
OPENS: Final = (e.CapSet, e.DataSetRegistered, e.SiteJoined, e.GuaranteeChanged, e.PolicySet)
TOLD: Final = (
    e.JobSubmitted,
    e.CancelRequested,
    e.SuspendRequested,
    e.ResumeRequested,
    e.Paused,
    e.Resumed,
    e.CapSet,
    e.PolicySet,
    e.MoveRequested,
)


def lived(month: Month, folder: Path) -> int:
    life = Life(month, folder / f"{month.seed}.db")
    run(month.zero, life.play)
    life.audit()
    return life.kills


class Life:
    def __init__(self, month: Month, path: Path) -> None:
        self.month, self.path, self.kills = month, path, 0
        first = [fact for fact in month.script if fact.at == month.zero and isinstance(fact, OPENS)]
        self.opening = tuple(first)
        self.script = [fact for fact in month.script if isinstance(fact, TOLD) and fact not in first]
        jobs = [TraceJob(fact.job, fact.at, month.runs[fact.job], fact.spec) for fact in month.jobs]
        self.sites = [fact.site for fact in first if isinstance(fact, e.SiteJoined)]
        self.world = World(
            self.sites,
            truths(jobs),
            seed=month.seed,
            zones={name: Zone(changes) for name, changes in month.zones.items()},
            faults=[Fault(*fault) for fault in month.faults],
            data={fact.data_set.id: fact.data_set for fact in first if isinstance(fact, e.DataSetRegistered)},
        )

    async def play(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.stage = Stage(self.world, clock.now, clock.until)
        self.drivers: dict[str, Driver] = {site.id: Rehearsal(site.id, self.stage) for site in self.sites}
        await self.begin()
        for at, fact in self.coming():
            await clock.until(at)
            await clock.loop.idle(last=True)
            self.nothing_runs_twice()
            if fact is None:
                await self.dies()
                await clock.until(at + int(uniform(self.month.seed, "away", at) * 20 * MINUTE))
                await self.begin()
            else:
                await self.tell(fact)
        end = clock.now() + THEN
        while self.plane.view.running + self.plane.view.waiting and clock.now() < end:
            await clock.until(clock.now() + HOUR)
            self.nothing_runs_twice()
        await self.plane.stop()
        self.journal.close()

    def coming(self) -> list[tuple[Instant, e.Fact | None]]:
        """What people say, and when the control plane is killed."""
        last = max([fact.at for fact in self.script], default=self.month.zero) + 6 * HOUR
        chances = [uniform(self.month.seed, "kill", k) for k in range(KILLS)]
        kills = [(self.month.zero + int(luck * (last - self.month.zero)), None) for luck in chances]
        told: list[tuple[Instant, e.Fact | None]] = [(fact.at, fact) for fact in self.script]
        return sorted([*told, *kills], key=lambda entry: entry[0])

    async def begin(self) -> None:
        self.journal = open_journal(str(self.path))
        setup = Setup(
            opening=self.opening,
            calendar=SimulatedMonths(),
            lease_ms=HOUR,
            beat_ms=HOUR,
            look_ms=HOUR,
            rules=PolicyRules(),
        )
        self.plane = Plane(self.journal, self.drivers, setup, self.clock, SameThread())
        await self.plane.start()

    async def dies(self) -> None:
        """Nothing is said goodbye to: what was on its way is forgotten."""
        self.kills += 1
        for task in [*self.plane._tasks, *self.plane.dispatch.cancel()]:
            task.cancel()
            await asyncio.wait([task])
        self.stage.say.clear()
        if not self.plane.over.done():
            self.plane.over.set_result(None)
        self.journal.close()

    async def tell(self, fact: e.Fact) -> None:
        try:
            await self.plane.tell(fact)
        except BadInput:  # about a job that has ended, say
            return

    def nothing_runs_twice(self) -> None:
        jobs = [running.action.job for running in self.world.runs.values()]
        rule(len(jobs) == len(set(jobs)), "a job runs twice at once", sorted(self.world.runs))

    def audit(self) -> None:
        """The whole record, step by step: invariants, and all money by its own count."""
        journal, state, books = open_journal(str(self.path)), State(), Books()
        submitted = 0
        for row in journal.read():
            fold_step(state, row.at, row.inputs, row.outputs)
            check(state)
            books.hear(row)
            for fact in row.inputs:
                submitted += max(1, fact.spec.count) if isinstance(fact, e.JobSubmitted) else 0
                if isinstance(fact, e.EventQuarantined):
                    raise Violated(f"a fact was set aside: {fact.error}")
        journal.close()
        wanted = sum(fact.spec.count for fact in self.month.jobs)
        rule(submitted == wanted, "a submission is lost", f"{submitted} of {wanted}")
        rule(sum(state.ended.values()) + len(state.jobs) == wanted, "a job is lost", len(state.jobs))
