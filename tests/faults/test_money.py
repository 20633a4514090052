"""Rows 4, 5, 7, 9, 10 and 11 of the list of faults: money holds. The real plane under virtual time, so hours are short.

The bill is the world's own: what was rented, from when until when. It never asks the ledger.
"""

import pytest

from penstock.core.fold.ledger import Account
from penstock.core.model import events as e
from penstock.core.model.actions import Action, ReleaseNode, SetDeadline
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis, Money
from penstock.drivers.driver import Unreachable, Work
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from tests.live.kit import Living, at, given, job, story
from tests.live.virtual import VirtualClock
from tests.stories.kit import cap, offer, usd

NOTHING = Work(())
PER_HOUR: Money = usd("8")  #: of one node of eight GPUs at a dollar


def bill(world: Living, now: Instant) -> Money:
    """What the provider wants so far, for all that was ever rented."""
    times = [(now if until is None else until) - since for since, until in world.world.meter.values()]
    return sum(-(-PER_HOUR * ms // HOUR) for ms in times)


def account(world: Living, scope: str = "org", period: str = "month 1") -> Account:
    return world.state().ledger.accounts[scope, period]


@story("09:00")
async def test_row_04_dead_for_an_hour_with_room_in_the_caps_no_job_is_stopped(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud", guarantee="timer"), cap("org", "10000"), runs={"j0": "5h", "j1": "90m"})
    async with world.up() as plane:
        await plane.submit(job(run="5h"), NOTHING)
        await plane.submit(job(run="90m"), NOTHING)
        await world.until("10:00")
        exposure, held = plane.view.exposure, account(world).held
        spent = account(world).spent
        await world.dies()
    assert exposure == held > 0
    await world.until("11:00")  # j1 has ended meanwhile, and its node is still there
    assert bill(world, clock.now()) <= held + spent
    async with world.up():
        await world.until("15:00")
    assert world.state().ended == {"done": 2}
    assert world.events(e.AttemptLost, e.AttemptStopped) == []
    assert len(world.events(e.StartPromised)) == 2
    assert account(world).spent == bill(world, clock.now()) <= held + spent


@story("09:00")
async def test_row_04_dead_with_a_cap_nearly_reached_its_jobs_are_checkpointed_and_gone(clock: VirtualClock) -> None:
    """By the deadline and the time to kill; and the bill is within what was said."""
    world = given(clock, offer("cloud", guarantee="timer"), cap("org", "10"), runs={"j0": "5h"})
    async with world.up() as plane:
        await plane.submit(job(run="5h"), NOTHING)
        await world.until("09:50")
        exposure, books = plane.view.exposure, account(world)
        until_at = plane.view.exposure_until_at
        (lease,) = world.state().ledger.leases.values()
        deadline_at = lease.deadline_at
        await world.dies()
    assert clock.now() < deadline_at < clock.now() + HOUR
    assert books.held == exposure
    await world.until("10:50")
    ((_, gone_at),) = world.world.meter.values()
    assert gone_at is not None
    assert deadline_at <= gone_at <= until_at
    assert bill(world, clock.now()) <= books.held + books.spent <= usd("10")
    async with world.up():
        await world.until("10:51")
        assert world.state().jobs["j0"].kept_ms >= 45 * MINUTE
        assert account(world).spent + account(world).held <= usd("10")


class Renews(Rehearsal):
    """Deadlines reach it late, or not at all."""

    late_ms: Millis | None = None

    def __init__(self, site: str, stage: Stage, late_ms: Millis | None) -> None:
        super().__init__(site, stage)
        self.late_ms = late_ms

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        if isinstance(action, SetDeadline):
            if self.late_ms is None:
                raise Unreachable("lost on the way")
            await self.stage.until(self.stage.clock() + self.late_ms)
        return await super().do(action, work)


@story("09:00")
async def test_row_05_a_renewal_that_is_lost_leaves_the_old_deadline_and_the_job_its_checkpoint(
    clock: VirtualClock,
) -> None:
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "90m"})
    world.drivers["cloud"] = Renews("cloud", world.stage, None)
    async with world.up() as plane:
        await plane.submit(job(run="90m", lease_max_ms=HOUR), NOTHING)
        await world.until("09:50")
        assert [alarm.kind for alarm in plane.view.alarms] == ["unreachable"]
        await world.until("10:10")
        first = world.world.meter["j0.1/n0"]
        assert first == (at("09:00"), at("10:00"))
        await world.until("12:00")
    assert world.state().ended == {"done": 1}
    assert [start.resume_ms for start in world.events(e.StartPromised)] == [0, HOUR]
    assert account(world).spent <= bill(world, clock.now()) + usd("2")  # learned late, its grace and kill are counted


@story("09:00")
async def test_row_05_a_renewal_five_minutes_late_counts_from_when_it_was_sent(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "90m"})
    world.drivers["cloud"] = Renews("cloud", world.stage, 5 * MINUTE)
    async with world.up() as plane:
        await plane.submit(job(run="90m", lease_max_ms=HOUR), NOTHING)
        await world.until("09:49")
        run = world.world.runs["j0.1"]
        (promised,) = [event.deadline_at for event in world.events(e.LeaseRenewed)]
        assert min(run.deadlines.values()) == at("10:00")  # the old one stands
        await world.until("09:51")
        assert min(run.deadlines.values()) == promised == at("09:45") + HOUR
        await world.until("12:00")
    assert world.state().ended == {"done": 1}
    assert len(world.events(e.StartPromised)) == 1


@story("09:00")
async def test_row_05_a_renewal_that_comes_after_the_deadline_changes_nothing(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "30m"})
    world.drivers["cloud"] = Renews("cloud", world.stage, 20 * MINUTE)
    async with world.up() as plane:
        await plane.submit(job(run="30m", lease_max_ms=20 * MINUTE), NOTHING)
        await world.until("10:30")
    assert world.world.meter["j0.1/n0"] == (at("09:00"), at("09:20"))
    assert world.state().ended == {"done": 1}
    assert [start.resume_ms for start in world.events(e.StartPromised)][:2] == [0, 15 * MINUTE]  # its last checkpoint


class NotReturned(Rehearsal):
    """The provider's terminate fails until some time."""

    until_at: Instant = 0
    tries = 0

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        if isinstance(action, ReleaseNode):
            self.tries += 1
            if self.stage.clock() < self.until_at:
                raise Unreachable("terminate failed")
        return await super().do(action, work)


@story("09:00")
async def test_row_07_a_terminate_that_fails_keeps_its_hold_is_tried_again_and_alarms(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "30m"})
    cloud = world.drivers["cloud"] = NotReturned("cloud", world.stage)
    cloud.until_at = at("09:50")
    async with world.up() as plane:
        await plane.submit(job(run="30m"), NOTHING)
        await world.until("09:49")
        assert list(world.state().ledger.leases) == ["j0.1/n0"]
        assert [alarm.kind for alarm in plane.view.alarms] == ["unreachable"]
        assert cloud.tries >= 15
        await world.until("09:55")
        assert plane.view.alarms == ()
    assert world.state().ledger.leases == {}
    assert account(world).spent == bill(world, clock.now())
    (_, until) = world.world.meter["j0.1/n0"]
    assert until is not None
    assert at("09:50") <= until <= at("09:51")


@story("09:00")
async def test_row_07_a_terminate_that_never_works_is_ended_by_the_deadline_of_the_thing(clock: VirtualClock) -> None:
    """A node on its way back was once renewed like any other, so that a terminate that never worked cost for ever."""
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "30m"})
    cloud = world.drivers["cloud"] = NotReturned("cloud", world.stage)
    cloud.until_at = at("23:00")
    async with world.up() as plane:
        await plane.submit(job(run="30m", lease_max_ms=HOUR), NOTHING)
        await world.until("09:59")
        assert [lease.deadline_at for lease in world.state().ledger.leases.values()] == [at("10:00")]
        await world.until("10:30")
        assert world.events(e.LeaseRenewed) == []
        assert world.state().ledger.leases == {}
        assert account(world).spent == bill(world, clock.now())


@story("09:00")
async def test_row_09_a_spot_price_that_doubles_is_within_the_hold_and_above_the_most_it_freezes(
    clock: VirtualClock,
) -> None:
    spot = offer("spot", price="1", most="4", term="spot")
    world = given(clock, spot, cap("org", "1000"), runs={"j0": "2h"})
    async with world.up() as plane:
        await plane.submit(job(run="2h", lease_max_ms=2 * HOUR), NOTHING)
        await world.until("10:00")
        (lease,) = world.state().ledger.leases.values()
        plane.hear(e.Metered(0, "j0.1/n0", 2 * PER_HOUR))  # an hour at twice the price
        await world.until("10:01")
        assert not plane.view.alarms
        assert lease.held + lease.charged >= 2 * PER_HOUR
        plane.hear(e.Metered(0, "j0.1/n0", lease.held + lease.charged + 1))
        await world.until("10:02")
        assert [alarm.kind for alarm in plane.view.alarms] == ["overrun"]
        await plane.submit(job(run="1h"), NOTHING)
        await world.until("10:03")
        assert world.state().jobs["j1"].phase == "waiting"  # nothing is rented under a frozen scope
    assert "org" in world.state().ledger.frozen


@story("09:00")
async def test_row_10_a_cap_lowered_below_what_is_committed_ends_what_runs_with_its_checkpoint(
    clock: VirtualClock,
) -> None:
    world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": "10h"})
    async with world.up() as plane:
        await plane.submit(job(run="10h"), NOTHING)
        await world.until("10:00")
        before = plane.view.exposure
        await plane.tell(e.CapSet(0, "org", usd("9")))
        await plane.submit(job(run="1h"), NOTHING)
        await world.until("10:01")
        lowered = plane.view.exposure
        assert lowered < before / 10  # the long lease was called back, and that is confirmed
        assert world.state().jobs["j1"].phase == "waiting"
        await world.until("11:00")
        assert plane.view.exposure == 0
    state = world.state()
    assert state.jobs["j0"].kept_ms == HOUR
    assert world.events(e.LeaseRenewed) == []
    assert len(world.events(e.StartPromised)) == 1
    assert account(world).spent == bill(world, clock.now()) <= PER_HOUR + lowered


@pytest.mark.parametrize("ends", ["day 31, 01:00", "day 31, 03:30"])
def test_row_11_a_job_that_runs_over_the_months_end_is_exact_in_both(ends: str) -> None:
    """Charged to each month by the time that it ran in it, to a micro-unit; also if leases are renewed on the way."""

    @story("day 30, 22:20:00.123")
    async def month_end(clock: VirtualClock) -> None:
        run_ms = at(ends) - clock.now()
        world = given(clock, offer("cloud"), cap("org", "1000"), runs={"j0": f"{run_ms // SECOND}s"})
        async with world.up() as plane:
            await plane.submit(job(run=f"{run_ms // SECOND}s", lease_max_ms=HOUR), NOTHING)
            await world.until("day 31, 05:00")
        ((since, until),) = world.world.meter.values()
        assert until is not None
        boundary = at("day 31, 00:00")
        whole = -(-PER_HOUR * (until - since) // HOUR)
        first = -(-PER_HOUR * (boundary - since) // HOUR)
        spent = [account(world, period=month).spent for month in ("month 1", "month 2")]
        assert spent == [first, whole - first]
        assert len(world.events(e.LeaseRenewed)) >= 2

    month_end()
