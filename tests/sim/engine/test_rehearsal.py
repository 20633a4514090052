"""The rehearsal answers as the simulator's world does. The contract of drivers is in tests/contract."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.engine import Engine, Step
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Policy
from penstock.core.units import HOUR, MINUTE, NEVER, Instant
from penstock.drivers.driver import NoCapacity, Work, no_capacity
from penstock.sim.engine.rehearsal import Guessed, Rehearsal, Stage, Until, at_speed
from penstock.sim.engine.simulator import MONTH_MS, open_month, opening, truths
from penstock.sim.engine.world import World
from penstock.sim.scenario import Scenario
from tests.parity import chosen, fingerprint, scenario, steps_of

SETTLED = 8  #: turns of the loop in which every call that can go on has gone on


class Miniature:
    """A control plane without a journal: engine, calls and answers, at instants that it sets itself."""

    def __init__(self, made: Scenario, policy: Policy) -> None:
        self.made, self.now = made, made.jobs[0].submit_at
        self.world = World(
            made.sites,
            truths(made.jobs),
            seed=made.seed,
            zones=made.zones,
            faults=made.faults,
            data={item.id: item for item in made.data},
        )
        self.stage = Stage(self.world, lambda: self.now)
        self.drivers = {site.id: Rehearsal(site.id, self.stage) for site in made.sites}
        policy = replace(policy, currency=made.currency, data_rules=made.data_rules + policy.data_rules)
        self.first = opening(made.sites, policy, self.now, made.caps, made.data)
        self.inbox: list[e.Fact] = []
        self.calls: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.engine, self.steps = Engine(), list[Step]()

    async def run(self) -> list[Step]:
        for site in self.drivers:
            self.stage.listen(site, self.inbox.append)
        await self.step(self.first)
        jobs = list(enumerate(self.made.jobs))
        month, moved_at = self.now // MONTH_MS + 2, self.now
        while (at := self.next_at(jobs[0][1].submit_at if jobs else NEVER)) < NEVER:
            self.now = at
            self.stage.happen()
            await settle()
            while jobs and jobs[0][1].submit_at <= at:
                number, job = jobs.pop(0)
                self.inbox.append(e.JobSubmitted(at, number, job.id, job.spec))
            while (month - 1) * MONTH_MS <= at:
                self.inbox.append(open_month(at, month))
                month += 1
            facts, self.inbox[:] = [replace(fact, at=at) for fact in self.inbox], []
            if not facts and (self.engine.next_deadline() or NEVER) > at:
                continue  # what the world had planned for now was called off
            step = await self.step(facts or [e.Woke(at)])
            state = self.engine.state
            if step.actions or jobs or state.attempts or state.nodes:
                moved_at = at
            elif not state.jobs or at - moved_at > 2 * MONTH_MS:
                break
        return self.steps

    def next_at(self, submitted_at: Instant) -> Instant:
        return min(submitted_at, self.world.next_at(), self.engine.next_deadline() or NEVER)

    async def step(self, facts: list[e.Fact]) -> Step:
        step = self.engine.handle(*facts)
        self.steps.append(step)
        for action in step.actions:
            self.call(action)
        await settle()
        return step

    def call(self, action: a.Action) -> None:
        """A newer action about the same thing takes the place of an older one, as in `live/dispatch`."""
        key = a.subject_of(action)
        self.calls[key] = asyncio.create_task(self.answer(action, self.calls.get(key)))

    async def answer(self, action: a.Action, before: asyncio.Task[None] | None) -> None:
        if before is not None and type(action) in a.LIFE:
            before.cancel()
            await asyncio.wait([before])
        offer = self.world.offers.get(getattr(action, "offer", ""))
        site = offer.site if offer else getattr(action, "site", "") or self.stage.site_of[a.thing_of(action)]
        try:
            fact = await self.drivers[site].do(action, Work(()))
        except NoCapacity as error:
            fact = no_capacity(action, error)
        if fact is not None:
            self.inbox.append(fact)


async def settle() -> None:
    for _ in range(SETTLED):
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compute", "penstock"])
def test_the_same_trace_gives_the_same_steps_as_in_the_simulator(name: str) -> None:
    """Spot losses, copies, caps that bind, moves, nodes and a site that break: all at the same instants."""
    made = scenario()
    simulated, _ = steps_of(made, chosen(made, name))
    rehearsed = asyncio.run(Miniature(made, chosen(made, name)).run())
    for step, other in zip(simulated, rehearsed, strict=False):
        assert step == other
    assert fingerprint(simulated) == fingerprint(rehearsed)


def test_at_speed_600_an_hour_takes_six_seconds_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(_until(at_speed(lambda: 0, 600), HOUR))
    assert asked == [6.0]


async def _until(until: Until, at: Instant) -> None:
    await until(at)


def test_a_job_of_which_nothing_is_known_takes_about_what_was_expected_and_always_the_same() -> None:
    specs = {"said": JobSpec(1, expected_run_ms=HOUR), "unsaid": JobSpec(1)}
    guessed = Guessed(specs.__getitem__, seed=3)
    assert guessed["said"] == Guessed(specs.__getitem__, seed=3)["said"]
    assert HOUR // 2 <= guessed["said"].run_ms <= HOUR * 3 // 2
    assert 15 * MINUTE <= guessed["unsaid"].run_ms <= 45 * MINUTE
    assert guessed["said"].spec == specs["said"]
