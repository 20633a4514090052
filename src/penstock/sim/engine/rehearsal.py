"""Rehearsal driver: the simulated world behind the drivers' protocol, so that the live plane runs without real sites.

`penstock up --rehearse` puts one `Rehearsal` per site on one `Stage`. The stage uses the caller's clock, at any speed.
Under virtual time it answers like the simulator's world, at the same instants and with the same random numbers, so
whole journals can be compared.

The stage outlives its drivers, as a site outlives its control plane, and remembers what is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.capacity.contract import Capacity, SeenNode
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Site
from penstock.core.units import MINUTE, NEVER, SECOND, Instant, Millis
from penstock.drivers.driver import (
    BaseDriver,
    Command,
    NoCapacity,
    Refused,
    Say,
    SeenAttempt,
    SiteInventory,
    Unreachable,
    Work,
)
from penstock.kube.exec_protocol import Printed, Typed
from penstock.sim.engine.chance import normal
from penstock.sim.engine.world import Run, Truth, World, offers_of
from penstock.site_answers import check_leads

UNKNOWN_RUN_MS: Final = 30 * MINUTE  #: run time of a job without an estimate

#: Sleeps until an instant of the stage's clock.
Until: TypeAlias = Callable[[Instant], Awaitable[None]]
#: The call that a fact answers. Without a waiting call the fact is reported.
ANSWERED: Final[dict[type, type]] = {fact: action for action, facts in a.ANSWERS.items() for fact in facts}


class Guessed(Mapping[str, Truth]):
    """True run times when nobody knows them: near the estimate, with a random factor per job."""

    def __init__(self, spec_of: Callable[[str], JobSpec], seed: int = 0, spread: float = 0.25) -> None:
        self.spec_of, self.seed, self.spread = spec_of, seed, spread

    def __getitem__(self, job: str) -> Truth:
        spec = self.spec_of(job)
        expected = spec.expected_run_ms or UNKNOWN_RUN_MS
        return Truth(max(1, int(expected * (1 + self.spread * max(-2.0, min(2.0, normal(self.seed, job)))))), spec)

    def __iter__(self) -> Iterator[str]:
        return iter(())  # looked up by name, never iterated

    def __len__(self) -> int:
        return 0


class Stage:
    """The world, its clock, and the calls that wait for answers."""

    def __init__(self, world: World, clock: Callable[[], Instant], until: Until | None = None) -> None:
        self.world, self.clock = world, clock
        self.until = until or self._sleep_until
        self.say: dict[str, Say] = {}  #: by site
        self.site_of: dict[str, str] = {}  #: of attempts and rented nodes
        self.waiting: dict[tuple[type, str], list[asyncio.Future[e.Fact]]] = {}
        self.begun: dict[str, None] = {}  #: nodes that became ready, attempts that ran
        self.over: dict[str, e.Fact] = {}
        self.forgotten: dict[str, None] = {}
        self.unheard: list[tuple[str, e.Fact]] = []  #: facts from while no driver was open
        self.logs: dict[str, bytes] = {}
        self.poked = asyncio.Event()
        self.moving: asyncio.Task[None] | None = None

    def use(self, site: Site) -> None:
        """What a site offers from now on. Offers that are gone are still known: jobs may run there."""
        self.world.offers |= offers_of(site)

    # --- time --------------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Let time pass. A test with its own clock may call `happen` instead."""
        if self.moving is None:
            self.moving = asyncio.create_task(self._keep_moving(), name="rehearsal")

    async def halt(self) -> None:
        moving, self.moving = self.moving, None
        if moving is not None:
            moving.cancel()
            with suppress(asyncio.CancelledError):
                await moving

    async def _keep_moving(self) -> None:
        while True:
            self.poked.clear()
            at = self.world.next_at()
            if at <= self.clock():
                self.happen()
                await asyncio.sleep(0)  # let answered callers run before more happens
            else:
                await self._until_or_poked(at)

    async def _until_or_poked(self, at: Instant) -> None:
        """Sleep, but wake up if something earlier is scheduled."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self.poked.wait())]
        if at < NEVER:
            waits.append(asyncio.ensure_future(self.until(at)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _sleep_until(self, at: Instant) -> None:
        """By the loop's own time. A clock at another speed comes with a sleep of its own: `at_speed`."""
        await asyncio.sleep(max(0, at - self.clock()) / SECOND)

    def happen(self) -> None:
        """Process everything that is due."""
        for fact in self.world.happen(self.clock()):
            self._tell(fact)

    # --- who hears what ----------------------------------------------------------------------------------------------

    def _tell(self, fact: e.Fact) -> None:
        about = a.thing_of_fact(fact)
        self._remember(fact, about)
        if not self._answer(ANSWERED.get(type(fact), type(fact)), about, fact):
            self.speak(self._site_of(about), fact)
        if isinstance(fact, a.OVER):
            self._call_off(about)

    def _remember(self, fact: e.Fact, about: str) -> None:
        if isinstance(fact, a.OVER) and about in self.site_of:
            self.over[about] = fact
        elif isinstance(fact, e.NodeReady | e.AttemptStarted):
            self.begun[about] = None
        if about in self.logs:
            self.logs[about] += f"rehearsal: {type(fact).__name__} at {fact.at}\n".encode()

    def _answer(self, kind: type, about: str, fact: e.Fact) -> bool:
        """True if a call waited for this fact."""
        asked = [future for future in self.waiting.pop((kind, about), ()) if not future.done()]
        for future in asked:
            future.set_result(fact)
        return bool(asked)

    def _call_off(self, about: str) -> None:
        """It ended before it started: that is reported, and the start call is cancelled."""
        for kind in (a.LaunchNode, a.StartAttempt):
            for future in self.waiting.pop((kind, about), ()):
                future.cancel()

    def _site_of(self, about: str) -> str:
        """A rented thing's recorded site; other things have offer or site in their name."""
        offer = self.world.offers.get(about.rpartition("/")[0])
        return self.site_of.get(about) or (offer.site if offer else about.rpartition(" at ")[2])

    def speak(self, site: str, fact: e.Fact) -> None:
        if site in self.say:
            self.say[site](fact)
        else:
            self.unheard.append((site, fact))

    def listen(self, site: str, say: Say) -> None:
        self.say[site] = say
        for _, fact in [pair for pair in self.unheard if pair[0] == site]:
            say(fact)
        self.unheard = [pair for pair in self.unheard if pair[0] != site]

    # --- what is asked -----------------------------------------------------------------------------------------------

    async def ask(self, action: a.Action) -> e.Fact:
        """Wait for the world's answer."""
        answer = self.wait_for(action)
        self.do(action)
        return await answer

    def wait_for(self, action: a.Action) -> "asyncio.Future[e.Fact]":
        future: asyncio.Future[e.Fact] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault((type(action), a.thing_of(action)), []).append(future)
        return future

    def do(self, action: a.Action) -> None:
        self.world.do(action, self.clock())
        self.poked.set()

    async def begin(self, site: str, ask: a.LaunchNode | a.StartAttempt, thing: str, known: bool) -> None:
        """Wait until it has begun. `known`: the world has been asked already."""
        if ask.offer not in self.world.offers:
            raise Refused(f"site {site} has no offer {ask.offer}")
        if thing in self.begun:
            return
        self.site_of[thing] = site
        fact = await (self.wait_for(ask) if known else self.ask(ask))
        if isinstance(fact, e.NodeRefused | e.AttemptRefused):
            raise NoCapacity(f"{ask.offer} has no capacity now", fact.retry_ms)

    async def set_deadline(self, thing: str, deadline_at: Instant) -> Instant:
        if thing not in self.site_of:
            raise Unreachable(f"{thing} is not here, or not yet")
        fact = await self.ask(a.SetDeadline(thing, deadline_at))
        assert isinstance(fact, e.DeadlineSet)
        return fact.deadline_at

    def end(self, site: str, fact: e.Fact) -> None:
        """End a thing that the world never knew."""
        self.site_of[a.thing_of_fact(fact)] = site
        self._tell(fact)

    def is_over(self, thing: str) -> bool:
        """If so, its end is reported or refused again."""
        fact = self.over.get(thing)
        if isinstance(fact, e.NodeRefused | e.AttemptRefused):
            raise NoCapacity(f"there was no capacity for {thing}", fact.retry_ms)
        if fact is not None:
            self.speak(self.site_of[thing], fact)
        return fact is not None


class RehearsedNodes(Capacity):
    """Rents the nodes of one site of the stage."""

    def __init__(self, site: str, stage: Stage) -> None:
        super().__init__()
        self.site, self.stage, self.world = site, stage, stage.world

    async def ask(self, ask: a.LaunchNode) -> None:
        check_leads()
        if not self.stage.is_over(ask.node):
            await self.stage.begin(self.site, ask, ask.node, ask.node in self.world.nodes)

    async def list(self) -> tuple[SeenNode, ...]:
        here = [name for name, (offer, _, _) in self.world.nodes.items() if offer.site == self.site]
        return tuple([SeenNode(name, self.world.deadlines[name]) for name in here])

    async def release(self, node: str) -> None:
        if node in self.stage.over:
            return
        if node in self.world.nodes:
            await self.stage.ask(a.ReleaseNode(node))
        else:
            self.stage.end(self.site, e.NodeGone(self.stage.clock(), node))

    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        return await self.stage.set_deadline(node, deadline_at)


class Rehearsal(BaseDriver):
    """One site of the stage, as a driver."""

    def __init__(self, site: str, stage: Stage) -> None:
        self.site, self.stage, self.world = site, stage, stage.world
        self.capacity = RehearsedNodes(site, stage)

    async def open(self, say: Say) -> None:
        self.stage.listen(self.site, say)
        for offer in self.stage.world.offers.values():
            if offer.site == self.site and offer.guarantee == "watchman":  # in a simulated world it lives
                say(e.GuaranteeChanged(self.stage.clock(), offer.id, offer.guarantee))
        self.stage.move()

    async def close(self) -> None:
        self.stage.say.pop(self.site, None)
        if not self.stage.say:
            await self.stage.halt()

    async def do(self, action: a.Action, work: Work | None = None) -> e.Fact | None:
        """What a site must remember has a method below. All else is asked of the world, whose answer is the fact."""
        if isinstance(action, (a.SetDeadline, *a.LIFE)):
            return await super().do(action, work)
        return await self.stage.ask(action)

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def start(self, ask: a.StartAttempt, work: Work) -> None:  # noqa: ARG002 - nothing really runs
        if self.stage.is_over(ask.attempt):
            return
        known = ask.attempt in self.world.runs
        if not known and any(node not in self.world.nodes for node in ask.nodes):
            self.stage.end(self.site, e.AttemptLost(self.stage.clock(), ask.attempt, ask.resume_ms))
            return
        self.stage.logs.setdefault(ask.attempt, f"rehearsal: {ask.attempt} at {ask.offer}\n".encode())
        await self.stage.begin(self.site, ask, ask.attempt, known)

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        if attempt in self.world.runs:
            self.stage.do(a.StopAttempt(attempt, grace_ms))
        elif attempt not in self.stage.over or isinstance(self.stage.over[attempt], e.AttemptRefused):
            self.stage.end(self.site, e.AttemptStopped(self.stage.clock(), attempt, 0))
        else:
            self.stage.is_over(attempt)

    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        return await self.stage.set_deadline(attempt, deadline_at)

    # --- what is there -----------------------------------------------------------------------------------------------

    async def look(self) -> SiteInventory:
        here = [
            run for name, run in self.world.runs.items() if name in self.stage.begun and run.offer.site == self.site
        ]
        ended = [seen for name, fact in self.stage.over.items() if (seen := self._seen(name, fact))]
        nodes = tuple([seen.node for seen in await self.capacity.list()])
        return SiteInventory((*map(_running, here), *ended), nodes)

    def _seen(self, attempt: str, fact: e.Fact) -> SeenAttempt | None:
        if attempt in self.stage.forgotten or self.stage.site_of[attempt] != self.site:
            return None
        match fact:
            case e.AttemptEnded():
                return SeenAttempt(attempt, fact.outcome)
            case e.AttemptStopped():
                return SeenAttempt(attempt, "stopped", fact.kept_ms)
            case e.AttemptLost():
                return SeenAttempt(attempt, "lost", fact.kept_ms)
        return None

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        if rank:
            raise Refused(f"{attempt} is rehearsed as one process, of rank 0")
        text = self.stage.logs.get(attempt, b"")
        return text[after : after + most], attempt in self.world.runs or after + most < len(text)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:  # noqa: ARG002 - as above
        raise Refused("a rehearsal runs no programs, so there is nothing to run a command in")

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """Seconds of work done, and in total."""
        run = self.world.runs.get(attempt)
        if run is None:
            return None
        return run.done_at(self.stage.clock()) // SECOND, run.truth.run_ms // SECOND

    async def forget(self, attempt: str) -> None:
        if attempt in self.stage.over:
            self.stage.forgotten[attempt] = None
            self.stage.logs.pop(attempt, None)


def at_speed(clock: Callable[[], Instant], speed: float) -> Until:
    """Sleep by the loop's time, of which a second is `speed` seconds of the clock."""

    async def until(at: Instant) -> None:
        await asyncio.sleep(max(0, at - clock()) / SECOND / speed)

    return until


def _running(run: Run) -> SeenAttempt:
    # Checkpoints show only at the end, as in the simulator: a look must not change the journal.
    deadline_at = min(run.deadlines.values(), default=NEVER)
    return SeenAttempt(run.action.attempt, "running", run.action.resume_ms, deadline_at)
