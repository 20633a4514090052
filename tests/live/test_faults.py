"""Faults that the plane survives, each named by its row of the list of faults, with what one must see."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.core.decide.rules import BuiltInRules, Candidate, Verdict
from penstock.core.engine import Engine, Step, replay
from penstock.core.model import events as e
from penstock.core.model.actions import Action, LaunchNode, SetDeadline, thing_of
from penstock.core.units import DAY, HOUR, MINUTE, Instant, Millis
from penstock.drivers.driver import SiteInventory, Work
from penstock.journal.journal import Unwritable
from penstock.journal.open import database, open_journal
from penstock.journal.schema import Changes
from penstock.journal.writer import JournalWriter
from penstock.live.clock import Clock
from penstock.live.plane import NotReady, Quarantined
from penstock.sim.engine.rehearsal import Rehearsal
from tests.live.kit import at, given, job, story
from tests.live.memory import MemoryJournal
from tests.live.virtual import VirtualClock
from tests.stories.kit import cap, offer, policy, site, usd

NOTHING = Work(())


@story("09:00")
async def test_row_1_fifty_submits_at_once_against_a_budget_for_ten(clock: VirtualClock) -> None:
    """Exactly ten holds; forty wait for money, naming the scope."""
    world = given(clock, offer("cloud", price="1", sizes=(1,)), policy(least_lease_ms=12 * HOUR))
    # Twelve hours and two minutes of grace, and a micro-unit for rounding.
    per_lease = -(-usd("1") * (12 * 60 + 2) // 60) + 1
    world.facts.append(e.CapSet(0, "team:a", 10 * per_lease + per_lease // 2))
    async with world.up() as plane:
        await asyncio.gather(*(plane.submit(job(gpus=1, team="a"), NOTHING) for _ in range(50)))
        await world.until("09:01")
        state = world.state()
        assert len(state.ledger.leases) == 10
        (budget,) = [row for row in plane.view.budgets if row.scope == "team:a"]
        assert (budget.held, budget.spent) == (10 * per_lease, 0)
    denied = [event.because for event in world.events(e.WaitPromised)]
    assert [(because.kind, because.scope) for because in denied] == [("CapBinds", "team:a")] * 40
    assert len(world.world.nodes) == 10


class Killed(BaseException):
    """What SIGKILL would be, at exactly this point."""


class DiesAfterAppend(MemoryJournal):
    """It is written, and that is the last thing that happens."""

    armed = False

    def append(
        self,
        epoch: int,
        steps: Sequence[Step],
        changes: Changes,
        blobs: Mapping[str, bytes],
        keys: Mapping[str, str],
    ) -> None:
        super().append(epoch, steps, changes, blobs, keys)
        if self.armed and any(isinstance(event, e.StartPromised) for step in steps for event in step.outputs):
            self.armed = False
            raise Killed


@story("09:00")
async def test_row_2_killed_between_the_hold_and_the_providers_call(clock: VirtualClock) -> None:
    """After the restart it is started once."""
    journal = DiesAfterAppend()
    world = given(clock, offer("cloud", price="1", start="5m"), runs={"j0": "30m"}, journal=journal)
    async with world.up() as plane:
        journal.armed = True
        submitting = asyncio.create_task(plane.submit(job(), NOTHING))
        await _dead(plane)
        submitting.cancel()
        await world.dies()
    assert world.world.nodes == {}
    assert world.state().ledger.exposure()[0] > 0  # held, and nothing asked for yet
    async with world.up():
        await world.until("09:10")
        assert list(world.world.nodes) == ["j0.1/n0"]
        await world.until("10:00")
    assert world.state().ended == {"done": 1}
    assert list(world.world.meter) == ["j0.1/n0"]
    assert world.state().ledger.exposure()[0] == 0


class DiesAfterLaunch(Rehearsal):
    """The provider did it, and nobody was left to hear that."""

    armed = True

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        if isinstance(action, LaunchNode) and self.armed:
            self.armed = False
            self.stage.site_of[action.node] = self.site
            self.stage.do(action)
            await asyncio.Event().wait()
        return await super().do(action, work)


@story("09:00")
async def test_row_3_killed_between_the_providers_call_and_recording(clock: VirtualClock) -> None:
    """Adopted by its id: one thing, one hold."""
    world = given(clock, offer("cloud", price="1", start="5m"), runs={"j0": "30m"})
    world.drivers["cloud"] = DiesAfterLaunch("cloud", world.stage)
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:01")
        await world.dies()
    assert list(world.world.nodes) == ["j0.1/n0"]
    await world.until("09:02")
    async with world.up() as plane:
        await world.until("09:20")
        assert list(world.world.nodes) == ["j0.1/n0"]
        assert len(plane.sequencer.state_now().ledger.leases) == 1
        await world.until("10:00")
    assert len(world.events(e.StartPromised)) == len(world.events(e.Settled)) == 1
    assert list(world.world.meter) == ["j0.1/n0"]


async def _dead(plane: Any) -> None:
    with pytest.raises(Killed):
        await plane.over


@story("09:00")
async def test_row_12_the_journal_cannot_be_written(clock: VirtualClock) -> None:
    """Submits are refused clearly, nothing is launched, nothing that sites say is lost, and it recovers by itself."""
    journal = MemoryJournal()
    world = given(clock, site("lab"), offer("cloud"), runs={"j0": "20m"}, journal=journal)
    async with world.up(look_ms=10 * HOUR) as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        journal.broken = "disk full"
        with pytest.raises(NotReady, match=r"journal cannot be written \(disk full\).*Free space"):
            await plane.submit(job(), NOTHING)
        assert "disk full" in plane.ready
        with pytest.raises(NotReady):
            await plane.submit(job(), NOTHING)
        assert [alarm.kind for alarm in plane.view.alarms] == ["journal"]
        await world.until("09:30")  # its job ends meanwhile
        assert world.world.nodes == {}
        assert world.events(e.AttemptEnded) == []
        journal.broken = ""
        await world.until("09:31")
        assert plane.ready == ""
        assert plane.view.alarms == ()
        assert len(world.events(e.AttemptEnded)) == 1
        assert (await plane.submit(job(), NOTHING)).answer == "j1"
    assert world.state().ended == {"done": 1}


class Photographed(Rehearsal):
    """At every call that spends money the disk is copied as it is: what a power cut at this instant would leave."""

    folder: Path

    def photograph(self, thing: str) -> None:
        image = self.folder / f"image-{len(list(self.folder.iterdir()))}"
        image.mkdir()
        for name in ("j.db", "j.db-wal"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, image / name)
        with closing(JournalWriter(database(str(image / "j.db")))) as restored:
            state = replay((row.at, row.inputs, row.outputs) for row in restored.read()).state
        assert thing in state.ledger.leases, f"{thing} was asked for before its hold was on the disk"

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        if isinstance(action, LaunchNode | SetDeadline):
            self.photograph(thing_of(action))
        return await super().do(action, work)


@story("09:00")
async def test_row_13_power_cut_right_after_authorising(clock: VirtualClock, tmp_path: Path) -> None:
    """Whatever was asked for, its hold is on the disk before."""
    with closing(open_journal(str(tmp_path / "j.db"))) as journal:
        world = given(clock, offer("cloud", price="1", start="5m"), cap("org", "100"), journal=journal)
        cloud = world.drivers["cloud"] = Photographed("cloud", world.stage)
        cloud.folder = tmp_path
        async with world.up(beat_ms=HOUR, look_ms=HOUR) as plane:
            await asyncio.gather(*(plane.submit(job(lease_max_ms=HOUR), NOTHING) for _ in range(3)))
            await world.until("10:30")
        assert len(world.events(e.LeaseRenewed)) >= 3
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) >= 6


class Watched(Rehearsal):
    """Notes when it was looked at."""

    looks: list[Instant]

    async def look(self) -> SiteInventory:
        self.looks.append(self.stage.clock())
        return await super().look()


class Steppable(VirtualClock):
    """A wall clock that somebody sets."""

    stepped_ms: Millis = 0
    followed_ms: Millis = 0

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock.loop)
        self.wall = lambda: (self.loop.now + self.stepped_ms) / 1000

    def now(self) -> Instant:
        return Clock.now(self)


@pytest.mark.parametrize("by", [-HOUR, DAY])
def test_row_29_the_wall_clock_steps(by: Millis) -> None:
    """Nothing expires before sites were read again, and `at` never falls."""

    @story("09:00")
    async def scenario(virtual: VirtualClock) -> None:
        clock = Steppable(virtual)
        world = given(clock, offer("cloud", price="1"), cap("org", "1000"), runs={"j0": "20h"})
        cloud = world.drivers["cloud"] = Watched("cloud", world.stage)
        cloud.looks = []
        async with world.up(look_ms=10 * HOUR) as plane:
            await plane.submit(job(run="20h"), NOTHING)
            await world.until("09:30")
            before = clock.now()
            cloud.looks.clear()
            rows = plane.number
            clock.stepped_ms = by
            await world.until("09:31" if by < 0 else "09:41")  # a jump ahead is believed after ten minutes
            assert cloud.looks[0] - before < 11 * MINUTE  # at the old time, before anything of the new one
            new = list(world.journal.read(rows))
            assert [fact.by_ms for fact in new[0].inputs if isinstance(fact, e.ClockJumped)] == [by]
            times = [row.at for row in world.journal.read()]
            assert times == sorted(times)
            assert clock.now() - before >= max(by, 0)
            assert [alarm.kind for alarm in plane.view.alarms] == ["clock"]
            await world.until("09:50")
            assert len(world.events(e.ClockJumped)) == 1
        world.state()

    scenario()


@pytest.mark.parametrize("comes_back", [True, False])
def test_row_29_what_ends_while_the_clock_is_in_doubt_is_charged_by_the_time_that_proves_right(
    comes_back: bool,
) -> None:
    """Charged at once, a job that ended during a pause of the machine would cost minutes instead of hours."""

    @story("09:00")
    async def scenario(virtual: VirtualClock) -> None:
        clock = Steppable(virtual)
        world = given(clock, offer("cloud", price="1"), cap("org", "1000"), runs={"j0": "5m"})
        async with world.up() as plane:
            await plane.submit(job(run="5m"), NOTHING)
            await world.until("09:02")
            clock.stepped_ms = 6 * HOUR
            await world.until("09:09")
            assert world.events(e.AttemptEnded) == []
            assert "jumped 6 h ahead" in plane.view.alarms[-1].text
            clock.stepped_ms = 0 if comes_back else 6 * HOUR
            await world.until("09:14")
            (end,) = world.events(e.AttemptEnded)
            assert end.at - at("09:09") < 10 * MINUTE if comes_back else end.at > at("15:00")
            assert len(world.events(e.ClockJumped)) == (0 if comes_back else 1)
        world.state()

    scenario()


class Poisoned(BuiltInRules):
    """Rules with a bug: one job makes them raise."""

    def verdict(self, asked: Candidate) -> Verdict:
        if asked.spec.team == "poison":
            raise ZeroDivisionError("a bug in a rule")
        return super().verdict(asked)


@story("09:00")
async def test_row_30_an_event_that_makes_the_engine_raise(clock: VirtualClock) -> None:
    """Set aside with an alarm; all other jobs go on, those that came in the same instant included."""
    world = given(clock, site("lab", nodes=4))
    async with world.up(rules=Poisoned()) as plane:
        good, bad, other = await asyncio.gather(
            plane.submit(job(), NOTHING),
            plane.submit(job(team="poison"), NOTHING),
            plane.submit(job(), NOTHING),
            return_exceptions=True,
        )
        assert isinstance(bad, Quarantined)
        assert not isinstance(good, BaseException)
        assert not isinstance(other, BaseException)
        assert [good.answer, other.answer] == ["j0", "j1"]
        assert [alarm.kind for alarm in plane.view.alarms] == ["quarantine"]
        assert (await plane.submit(job(), NOTHING)).answer == "j2"
        await world.until("09:30")
        assert plane.view.running == 3
    (aside,) = world.events(e.EventQuarantined)
    assert (aside.what, "ZeroDivisionError: a bug in a rule" in aside.error) == ("JobSubmitted", True)
    async with world.up() as plane:  # the alarm outlives the process, and the record replays
        assert [alarm.kind for alarm in plane.view.alarms] == ["quarantine"]


class Broken(Engine):
    """From some time on it raises whatever it is told."""

    since: Instant = 0

    def handle(self, *events: e.Fact) -> Step:
        if events[0].at >= self.since:
            self.dead = True
            raise ZeroDivisionError("a bug")
        return super().handle(*events)


@story("09:00")
async def test_row_30_an_engine_that_raises_whatever_it_is_told_takes_nothing_and_loses_nothing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = given(clock, site("lab"), runs={"j0": "10m"})
    monkeypatch.setattr("penstock.live.sequencer.Engine", Broken)
    monkeypatch.setattr(Broken, "since", at("09:05"))
    async with world.up(look_ms=10 * HOUR) as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:20")  # its job ended meanwhile
        assert plane.ready == (
            "The engine failed (ZeroDivisionError: a bug); Penstock starts nothing. Report this with the journal."
        )
        with pytest.raises(NotReady):
            await plane.submit(job(), NOTHING)
        assert world.events(e.AttemptEnded, e.EventQuarantined) == []
        monkeypatch.setattr(Broken, "since", at("23:00"))
        await world.until("09:22")
        assert plane.ready == ""
        assert plane.view.ended == (("done", 1),)


def test_row_12_a_journal_on_a_disk_that_is_full_says_unwritable(tmp_path: Path) -> None:
    """SQLite's own error for it, made by a limit on the file's size."""
    with closing(open_journal(str(tmp_path / "j.db"))) as journal:
        epoch = journal.claim("a", 0, 1000)
        journal.db.db.execute(f"pragma max_page_count={journal.db.all('pragma page_count')[0][0]}")  # type: ignore[attr-defined]  # a SQLite database
        step = Engine().handle(e.PeriodOpened(0, "month 1" * 10_000, 0, 1))
        with pytest.raises(Unwritable, match="full"):
            journal.append(epoch, [step], Changes(), {}, {})
