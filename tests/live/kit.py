"""A live Penstock under virtual time: the real plane on the rehearsal's world, and a journal that outlives it.

    @story("09:00")
    async def test_a_rule(clock):
        world = given(clock, site("lab"), offer("cloud"), runs={"j0": "20m"})
        async with world.up() as plane:
            await plane.submit(job(8), Work(()))
            await world.until("09:30")

`world.dies()` is what SIGKILL does: everything in memory is gone, and nothing is said goodbye to.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.engine import replay
from penstock.core.fold.invariants import check
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec
from penstock.core.units import Instant
from penstock.drivers.driver import Driver
from penstock.journal.journal import Journal
from penstock.live.plane import Plane, Setup
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.world import Truth, World
from tests.live.memory import MemoryJournal
from tests.live.virtual import SameThread, VirtualClock, run
from tests.parity_live import SimulatedMonths
from tests.stories.kit import Told, clock, policy, span


def story(at: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """A test that awaits, under virtual time from `at` on. It fails if nothing will ever happen."""

    def wrap(tell: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(tell)
        def test(*args: Any, **kwargs: Any) -> None:
            run(clock(at), lambda now: tell(now, *args, **kwargs))

        signature = inspect.signature(tell)
        fixtures = list(signature.parameters.values())[1:]  # pytest would take the clock for one
        test.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]  # that is how one says it
        return test

    return wrap


class Runs(Mapping[str, Truth]):
    """How long jobs really run: as named, otherwise an hour; all of them checkpoint every quarter of an hour."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = named

    def __getitem__(self, job: str) -> Truth:
        return Truth(span(self.named.get(job, "1h")), JobSpec(1, checkpoint_every_ms=span("15m")))

    def __iter__(self) -> Iterator[str]:
        return iter(self.named)

    def __len__(self) -> int:
        return len(self.named)


class Living:
    """Sites with their world, and a journal; planes come and go."""

    def __init__(self, now: VirtualClock, facts: list[e.Fact], runs: Mapping[str, str], journal: Journal) -> None:
        self.clock, self.facts, self.journal = now, facts, journal
        self.sites = [fact.site for fact in facts if isinstance(fact, e.SiteJoined)]
        self.world = World(self.sites, Runs(runs))
        self.stage = Stage(self.world, now.now, now.until)
        self.drivers: dict[str, Driver] = {site.id: Rehearsal(site.id, self.stage) for site in self.sites}
        self.plane: Plane

    @asynccontextmanager
    async def up(self, **more: Any) -> AsyncIterator[Plane]:
        """A plane from now on; at the end of the block it is stopped, unless it died."""
        setup = Setup(opening=tuple(self.facts), calendar=SimulatedMonths(), **more)
        self.plane = plane = Plane(self.journal, self.drivers, setup, self.clock, SameThread())
        await plane.start()
        try:
            yield plane
        finally:
            if not plane.over.done():
                await plane.stop()

    async def dies(self) -> None:
        plane = self.plane
        for task in [*plane._tasks, *plane.dispatch.cancel()]:
            task.cancel()
            await asyncio.wait([task])
        self.stage.say.clear()
        if not plane.over.done():
            plane.over.set_result(None)

    async def until(self, at: str) -> None:
        """Let everything happen until then, and at that instant."""
        await self.clock.until(clock(at))
        await self.clock.loop.idle(last=True)

    def events(self, *kinds: type) -> list[Any]:
        """What is on record, of these kinds."""
        rows = list(self.journal.read())
        return [event for row in rows for event in (*row.inputs, *row.outputs) if not kinds or type(event) in kinds]

    def state(self) -> State:
        """What the record says, and what must always be true of it."""
        state = replay((row.at, row.inputs, row.outputs) for row in self.journal.read()).state
        check(state)
        return state


def given(now: VirtualClock, *undated: Told, runs: Mapping[str, str] | None = None, journal: Any = None) -> Living:
    facts = [fact(0) for fact in undated]
    if not any(isinstance(fact, e.PolicySet) for fact in facts):
        facts.append(policy()(0))
    return Living(now, facts, runs or {}, journal or MemoryJournal())


def job(gpus: int = 8, run: str = "1h", **more: Any) -> JobSpec:
    return JobSpec(gpus, expected_run_ms=span(run), checkpoint_every_ms=span("15m"), **more)


def at(text: str) -> Instant:
    return clock(text)
