"""The live plane, told in stories: what it promises to people and to sites."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.core.model.actions import Action, ReleaseNode, StartAttempt
from penstock.drivers.driver import NoCapacity, Refused, SiteInventory, Undelivered, Unreachable, Unstartable, Work
from penstock.journal.journal import Fenced, Held, Missing, Unwritable
from penstock.live.plane import KeyReused, NotReady
from penstock.sim.engine.rehearsal import Rehearsal
from tests.live.kit import Living, at, given, job, story
from tests.live.memory import MemoryJournal
from tests.live.virtual import SameThread, VirtualClock
from tests.stories.kit import cap, offer, policy, site, span

NOTHING = Work(())


@story("09:00")
async def test_a_job_is_durable_when_it_is_answered_and_runs_to_its_end(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), runs={"j0": "20m"})
    async with world.up() as plane:
        accepted = await plane.submit(job(), Work(("train",)))
        assert (accepted.answer, accepted.again) == ("j0", False)
        assert [event.job for event in world.events(e.JobSubmitted)] == ["j0"]
        await world.until("09:10")
        assert plane.view.running == 1
        await world.until("09:20")
        assert plane.view.running == 0
    (ended,) = world.events(e.AttemptEnded)
    assert (ended.at, ended.outcome) == (at("09:20"), "done")


@story("09:00")
async def test_what_comes_together_is_one_row(clock: VirtualClock) -> None:
    world = given(clock, site("lab"))
    async with world.up() as plane:
        before = plane.number
        answers = await asyncio.gather(*(plane.submit(job(), NOTHING) for _ in range(64)))
        assert {answer.number for answer in answers} == {before + 1}
        assert [answer.answer for answer in answers] == [f"j{k}" for k in range(64)]


@story("09:00")
async def test_a_key_is_answered_once_and_the_same_for_ever(clock: VirtualClock) -> None:
    """FAULTS 14, as far as the plane: the same submit many times, at once and later, is one job."""
    world = given(clock, site("lab"))
    async with world.up() as plane:
        answers = await asyncio.gather(*(plane.submit(job(), NOTHING, key="k", body="b") for _ in range(20)))
        assert {answer.answer for answer in answers} == {"j0"}
        assert sorted(answer.again for answer in answers) == [False] + [True] * 19
        with pytest.raises(KeyReused):
            await plane.submit(job(), NOTHING, key="k", body="another")
    async with world.up() as plane:
        again = await plane.submit(job(), NOTHING, key="k", body="b")
        assert (again.answer, again.again) == ("j0", True)
    assert len(world.events(e.JobSubmitted)) == 1


@story("09:00")
async def test_a_job_that_ran_on_while_nobody_watched_is_taken_up_and_not_started_again(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), runs={"j0": "1h"})
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        await world.dies()
    await world.until("09:30")
    async with world.up() as plane:
        assert plane.view.running == 1
        await world.until("10:00")
    assert [event.at for event in world.events(e.AttemptEnded)] == [at("10:00")]
    assert len(world.events(e.StartPromised)) == 1


@story("09:00")
async def test_what_ended_while_nobody_watched_is_learned_at_the_next_start(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), runs={"j0": "30m"})
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        await world.dies()
    await world.until("11:00")
    async with world.up() as plane:
        assert plane.view.ended == (("done", 1),)
    assert len(world.events(e.AttemptEnded)) == 1
    assert world.stage.forgotten.keys() == {"j0.1"}


@story("09:00")
async def test_pause_starts_nothing_and_lets_everything_run(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), offer("cloud"), runs={"j0": "20m"})
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await plane.tell(e.Paused(0, "p1"))
        await plane.submit(job(), NOTHING)
        await world.until("09:30")
        assert plane.view.paused
        assert plane.view.ended == (("done", 1),)
        assert plane.view.waiting == 1
        await plane.tell(e.Resumed(0, "p1"))
        await world.until("09:31")
        assert plane.view.running == 1


@story("09:00")
async def test_a_second_process_is_refused_and_one_that_stands_by_takes_over(clock: VirtualClock) -> None:
    world = given(clock, site("lab"))
    async with world.up(holder="one"):
        with pytest.raises(Held):
            async with world.up(holder="two"):
                raise AssertionError
        waiting = asyncio.create_task(_start_stand_by(world))
        await world.until("09:05")
        assert not waiting.done()
        await world.dies()
    await waiting
    assert clock.now() <= at("09:06")


async def _start_stand_by(world: object) -> None:
    async with world.up(holder="two", stand_by=True):  # type: ignore[attr-defined]  # a Living
        pass


@story("09:00")
async def test_a_stale_writer_stops_at_once_and_says_no_more_to_any_site(clock: VirtualClock) -> None:
    """FAULTS 6: its writes change nothing, and nothing is launched a second time."""
    journal = MemoryJournal()
    world = given(clock, site("lab"), offer("cloud", start="5m"), journal=journal)
    async with world.up(holder="one") as plane:
        journal.claim("one", clock.now(), 1)  # somebody else is the writer now
        with pytest.raises(NotReady):
            await plane.submit(job(), NOTHING)
        with pytest.raises(Fenced):
            await plane.over
        with pytest.raises(NotReady):
            await plane.submit(job(), NOTHING)
    assert world.events(e.JobSubmitted) == []
    assert world.world.runs == {}


class Late(Rehearsal):
    """A site whose answers can be made to fail."""

    error: Exception | None = None
    asked = 0

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        self.asked += isinstance(action, StartAttempt)
        if self.error is not None and not isinstance(action, ReleaseNode):
            raise self.error
        return await super().do(action, work)

    async def look(self) -> SiteInventory:
        if isinstance(self.error, Unreachable):
            raise self.error
        return await super().look()


@story("09:00")
async def test_a_site_that_cannot_be_asked_is_asked_again_until_it_answers(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), runs={"j0": "10m"})
    lab = world.drivers["lab"] = Late("lab", world.stage)
    async with world.up() as plane:
        lab.error = RuntimeError("a bug of the driver")
        await plane.submit(job(), NOTHING)
        await world.until("09:01")
        assert lab.asked > 3
        assert [alarm.kind for alarm in plane.view.alarms] == ["driver"]
        lab.error = None
        await world.until("09:20")
        assert plane.view.alarms == ()
        assert plane.view.ended == (("done", 1),)


@story("09:00")
async def test_a_site_out_of_reach_is_lost_and_back_and_nothing_there_is_given_up(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), runs={"j0": "1h"})
    lab = world.drivers["lab"] = Late("lab", world.stage)
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        lab.error = Unreachable("no route")
        await world.until("09:15")
        assert [row.reachable for row in plane.view.sites] == [False]
        assert [alarm.kind for alarm in plane.view.alarms] == ["site"]
        lab.error = None
        await world.until("09:17")
        assert [row.reachable for row in plane.view.sites] == [True]
        assert plane.view.running == 1
        await world.until("10:00")
    assert [type(event).__name__ for event in world.events(e.SiteLost, e.SiteBack, e.AttemptLost, e.AttemptEnded)] == [
        "SiteLost",
        "SiteBack",
        "AttemptEnded",
    ]


def two_sites(clock: VirtualClock) -> tuple[Living, Late]:
    """`lab`, which is asked first and may fail, and `spare`."""
    world = given(clock, site("lab"), site("spare"))
    lab = world.drivers["lab"] = Late("lab", world.stage)
    return world, lab


def started_at(world: Living) -> dict[str, str]:
    """Attempts that began, and where."""
    placed = {choice.attempt: choice.offer for choice in world.events(e.StartPromised)}
    return {event.attempt: placed[event.attempt] for event in world.events(e.AttemptStarted)}


@story("09:00")
async def test_a_job_that_comes_while_a_site_does_not_answer_goes_elsewhere_within_seconds(clock: VirtualClock) -> None:
    """For the first minute of an outage new jobs were bound to the dead site and stayed there, the other one idle."""
    world, lab = two_sites(clock)
    async with world.up() as plane:
        await world.until("09:10")
        lab.error = Unreachable("no route")
        await plane.submit(job(8), NOTHING)  # its start may have arrived: it stays
        await world.until("09:10:20")
        assert [row.reachable for row in plane.view.sites if row.id == "lab"] == [False]
        await plane.submit(job(8), NOTHING)
        await world.until("09:10:25")
        assert started_at(world) == {"j1.1": "spare"}
        lab.error = None
        await world.until("09:12")
        assert started_at(world) == {"j0.1": "lab", "j1.1": "spare"}


@story("09:00")
async def test_a_start_that_no_site_can_have_heard_of_is_withdrawn_and_runs_elsewhere_once(clock: VirtualClock) -> None:
    world, lab = two_sites(clock)
    async with world.up() as plane:
        await world.until("09:10")
        lab.error = Undelivered("no route")
        await plane.submit(job(8), NOTHING)
        await world.until("09:11")
        assert started_at(world) == {"j0.2": "spare"}
        asked = lab.asked
        lab.error = None
        await world.until("09:20")
        assert lab.asked == asked
        assert started_at(world) == {"j0.2": "spare"}


@story("09:00")
async def test_a_start_that_may_have_arrived_is_never_withdrawn(clock: VirtualClock) -> None:
    """By its first try, whatever the next ones say; or by a control plane before this one."""
    world, lab = two_sites(clock)
    async with world.up() as plane:
        await world.until("09:10")
        lab.error = Unreachable("timeout")
        await plane.submit(job(8), NOTHING)
        await world.until("09:10:01")
        lab.error = Undelivered("no route")
        await world.until("09:20")
        await world.dies()
    async with world.up():
        await world.until("09:30")
        assert started_at(world) == {}
        lab.error = None
        await world.until("09:32")
        assert started_at(world) == {"j0.1": "lab"}


@story("09:00")
async def test_what_waits_to_be_tried_again_is_tried_as_soon_as_its_site_answers(clock: VirtualClock) -> None:
    """After some minutes without an answer a try was a minute away, and everybody waited for that."""
    world = given(clock, site("lab"), runs={"j0": "10m"})
    lab = world.drivers["lab"] = Late("lab", world.stage)
    async with world.up() as plane:
        lab.error = Unreachable("no route")
        await plane.submit(job(), NOTHING)
        await world.until("09:20:10")
        lab.error, asked = None, lab.asked
        await world.until("09:20:20")  # within one look
        assert (lab.asked, plane.view.running) == (asked + 1, 1)


@story("09:00")
async def test_who_slept_through_its_lease_asks_nothing_of_a_site_before_it_has_asked_the_journal(
    clock: VirtualClock,
) -> None:
    """A leader that was stopped woke up and went on with what it was about to try, while another had taken over."""
    world = given(clock, site("lab"), runs={"j0": "10m"})
    lab = world.drivers["lab"] = Late("lab", world.stage)
    async with world.up() as plane:
        lab.error = RuntimeError("a bug of the driver")
        await plane.submit(job(), NOTHING)
        await world.until("09:01")
        renew = plane.journal.renew
        setattr(plane.journal, "renew", _away)  # noqa: B010 - the database, for a while
        await world.until("09:02")
        asked = lab.asked
        await world.until("09:10")
        assert lab.asked == asked
        setattr(plane.journal, "renew", renew)  # noqa: B010 - and it is back
        await world.until("09:12")
        assert lab.asked > asked


def _away(*_: object) -> None:
    raise Unwritable("the database is away")


@story("09:00")
async def test_no_capacity_sends_the_job_elsewhere(clock: VirtualClock) -> None:
    world = given(clock, offer("cheap", price="1"), offer("dear", price="2"))
    cheap = world.drivers["cheap"] = Late("cheap", world.stage)
    cheap.error = NoCapacity("full", span("5m"))
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:01")
        assert plane.view.running == 1
    assert [event.offer for event in world.events(e.StartPromised)] == ["cheap", "dear"]
    assert [event.node for event in world.events(e.NodeRefused)] == ["j0.1/n0"]


@story("09:00")
async def test_a_job_that_a_site_will_never_take_fails_with_the_sites_words(clock: VirtualClock) -> None:
    world = given(clock, site("lab"))
    lab = world.drivers["lab"] = Late("lab", world.stage)
    lab.error = Refused("there is no such image")
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:01")
        assert plane.view.ended == (("failed", 1),)
    assert [event.detail for event in world.events(e.AttemptEnded)] == ["there is no such image"]


@story("09:00")
async def test_a_job_that_our_own_policy_keeps_from_starting_waits_with_one_alarm_and_starts_when_it_may(
    clock: VirtualClock,
) -> None:
    """It failed, as if the user had done something wrong."""
    world = given(clock, site("lab"), offer("cloud"))
    lab = world.drivers["lab"] = Late("lab", world.stage)
    lab.error = Unstartable("policy penstock-bindings does not know the login", span("30s"), "denied")
    async with world.up() as plane:
        await plane.submit(job(home="lab"), NOTHING)
        await world.until("09:01")
        assert plane.view.ended == ()
        assert [(alarm.kind, "penstock-bindings" in alarm.text) for alarm in plane.view.alarms] == [("denied", True)]
        await world.until("09:03")
        lab.error = None
        await world.until("09:04")
        assert plane.view.running == 1
        assert plane.view.alarms == ()
    assert [event.offer for event in world.events(e.StartPromised)] == ["lab"] * 4  # nothing was rented meanwhile
    assert [event.obstacle for event in world.events(e.AttemptRefused)] == ["denied"] * 3


@story("09:00")
async def test_a_stop_does_not_wait_for_a_start_that_hangs(clock: VirtualClock) -> None:
    world = given(clock, site("lab", start_ms=span("1h")))
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        await plane.tell(e.CancelRequested(0, "j0"))
        await world.until("09:11")
        assert plane.view.ended == (("cancelled", 1),)
        assert plane.dispatch.tasks == {}


class Forgetful(Rehearsal):
    """Its list misses everything for a while."""

    misses = False

    async def look(self) -> SiteInventory:
        return SiteInventory() if self.misses else await super().look()


@story("09:00")
async def test_a_list_that_misses_a_thing_for_three_minutes_changes_nothing(clock: VirtualClock) -> None:
    """FAULTS 8: no release, no relaunch. Still missing after five, it is lost, and the job goes on elsewhere."""
    world = given(clock, site("lab"), runs={"j0": "2h"})
    lab = world.drivers["lab"] = Forgetful("lab", world.stage)
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        lab.misses = True
        await world.until("09:13")
        lab.misses = False
        await world.until("09:20")
        assert world.events(e.AttemptLost) == []
        lab.misses = True
        await world.until("09:30")
        assert [event.attempt for event in world.events(e.AttemptLost)] == ["j0.1"]
        assert plane.view.running == 1


class Uneasy(Rehearsal):
    """It answers, and something there wants a person."""

    warns = ""

    async def look(self) -> SiteInventory:
        return replace(await super().look(), warns=self.warns)


@story("09:00")
async def test_what_wants_a_person_at_a_site_that_answers_is_an_alarm_until_it_is_mended(clock: VirtualClock) -> None:
    world = given(clock, site("lab"))
    lab = world.drivers["lab"] = Uneasy("lab", world.stage)
    async with world.up() as plane:
        lab.warns = "Notices of the cloud cannot be read: access denied"
        await world.until("09:05")
        assert [(alarm.kind, alarm.text) for alarm in plane.view.alarms] == [("site", lab.warns)]
        assert plane.trouble_at("lab") is None  # the site is not out of reach
        lab.warns = ""
        await world.until("09:10")
        assert plane.view.alarms == ()


@story("09:00")
async def test_what_runs_though_its_end_is_on_record_is_stopped(clock: VirtualClock) -> None:
    world = given(clock, site("lab", nodes=2), runs={"j0": "5h"})
    lab = world.drivers["lab"] = Forgetful("lab", world.stage)
    async with world.up() as plane:
        await plane.submit(job(), NOTHING)
        await world.until("09:10")
        lab.misses = True
        await world.until("09:20")
        lab.misses = False
        await world.until("09:22")
        assert list(world.world.runs) == ["j0.2"]
        assert plane.view.running == 1


@story("09:00")
async def test_what_the_journal_never_heard_of_is_left_to_a_person(clock: VirtualClock) -> None:
    """An old backup was restored: killing what it does not know would kill healthy jobs."""
    world = given(clock, site("lab"))
    async with world.up() as plane:
        world.stage.site_of["j7.1"] = "lab"
        world.stage.begun["j7.1"] = None
        world.world.start(StartAttempt("j7.1", "j7", "lab", 8, 1000, 0, ((0, 8),), (), 0), clock.now())
        await world.until("09:02")
        assert [alarm.kind for alarm in plane.view.alarms] == ["stranger"]
        assert list(world.world.runs) == ["j7.1"]


@story("09:00")
async def test_a_site_that_is_no_longer_set_up_is_out_of_reach(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), site("other"))
    async with world.up():
        pass
    del world.drivers["other"]
    world.facts = [fact for fact in world.facts if not (isinstance(fact, e.SiteJoined) and fact.site.id == "other")]
    async with world.up() as plane:
        assert [row.id for row in plane.view.sites if not row.reachable] == ["other"]


@story("09:00")
async def test_a_restart_records_only_what_is_new(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), cap("org", "100"))
    async with world.up() as plane:
        rows = plane.number
    async with world.up() as plane:
        assert plane.number == rows
    world.facts.append(cap("org", "50")(0))
    world.facts[1] = world.facts[-1]
    async with world.up() as plane:
        assert plane.number == rows + 1
        assert plane.sequencer.state_now().ledger.caps == {"org": 50_000_000}


@story("09:00")
async def test_plan_says_what_the_next_submission_is_told_and_changes_nothing(clock: VirtualClock) -> None:
    world = given(clock, site("lab"), offer("cloud", price="2"), policy("10m"), cap("team:poor", "1"))
    async with world.up() as plane:
        before = plane.sequencer.state_now().digest()
        free = await plane.plan(job(run="3h"))
        assert (free.answer, free.offer) == ("start", "lab")
        assert [(choice.offer.id, choice.fits_now, choice.cost) for choice in free.choices] == [
            ("lab", True, 0),
            ("cloud", True, 48_000_000),
        ]
        wide = await plane.plan(job(gpus=9, run="3h", team="poor"))
        assert (wide.answer, wide.until_ms) == ("wait", span("10m"))  # though it can never fit: so this policy is
        assert [(row.offer, row.rule) for row in wide.excluded] == [("lab", "too wide: at most 8 GPUs there")]
        assert getattr(wide.choices[0].denied, "scope", "") == "team:poor"
        assert plane.sequencer.state_now().digest() == before
        await plane.submit(job(run="3h"), NOTHING)
        full = await plane.plan(job())
        assert (full.answer, full.until_ms) == ("wait", span("10m"))
        await plane.submit(job(), NOTHING)
    assert world.events(e.StartPromised, e.WaitPromised) == [free.decision, full.decision]


@story("09:00")
async def test_a_stream_hears_of_every_row(clock: VirtualClock) -> None:
    world = given(clock, site("lab"))
    async with world.up() as plane:
        waiting = asyncio.create_task(plane.heard(plane.number))
        await plane.submit(job(), NOTHING)
        assert await waiting == plane.number


@story("09:00")
async def test_keys_are_forgotten_a_day_after_their_answer(now: VirtualClock) -> None:
    journal = MemoryJournal()
    world = given(now, site("lab"), journal=journal)
    async with world.up():
        await world.until("day 2, 09:30")
        assert at("08:00") <= journal.forgotten <= at("09:30")


@story("09:00")
async def test_whoever_takes_over_knows_which_home_clusters_are_being_left(clock: VirtualClock) -> None:
    """It was kept in a file of the leader's home folder: a standby with its own took over, and accepted Jobs again."""
    home = site("lab", front_door=True)
    world = given(clock, home, offer("cloud"))
    async with world.up() as plane:
        await plane.tell(e.LeaveRequested(0, "lab", "anna"))  # as an older version recorded it
        await plane.caught_up()
        assert plane.view.leaving == ()
        await plane.tell(e.LeaveRequested(0, "lab", "anna", bring_home=False))
    async with world.up(holder="another machine") as plane:
        assert plane.view.leaving == (("lab", False),)
        await plane.tell(e.LeaveRequested(0, "lab", "anna", bring_home=True))
        await world.dies()
    async with world.up(holder="another machine") as plane:
        assert plane.view.leaving == (("lab", True),)
    world.facts = [fact for fact in world.facts if not isinstance(fact, e.SiteJoined) or fact.site.id != "lab"]
    world.drivers.pop("lab")
    async with world.up() as plane:  # it was taken out of the sites file, as `leave` says
        assert plane.view.leaving == ()
        assert [removed.site for removed in world.events(e.SiteRemoved)] == ["lab"]
    world.facts.insert(0, home(0))
    async with world.up() as plane:
        assert plane.view.leaving == ()


class Silent(MemoryJournal):
    """`hangs`: since when, in seconds; what is asked of it then is answered when it goes on."""

    hangs = 0.0

    def silent_s(self) -> float:
        return self.hangs


class HangingThread(SameThread):
    """The engine's thread, which waits for that journal."""

    def __init__(self, journal: Silent) -> None:
        self.journal, self.held = journal, list[tuple[asyncio.Future[Any], Callable[[], Any]]]()

    def call(self, work: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        if not self.journal.hangs:
            return super().call(work, *args)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.held.append((future, lambda: work(*args)))
        return future

    def goes_on(self) -> None:
        self.journal.hangs = 0.0
        for future, work in self.held:
            future.set_result(work())


@story("09:00")
async def test_a_journal_that_does_not_answer_keeps_nobody_waiting(clock: VirtualClock) -> None:
    """A disk that hangs has no deadline of its own: requests hung with it, and it was ready all the while."""
    journal = Silent()
    world = given(clock, site("lab"), journal=journal)
    async with world.up() as plane:
        assert plane.ready == ""
        plane.thread = thread = HangingThread(journal)
        journal.hangs = 5.0
        waiting = asyncio.ensure_future(plane.submit(job(), NOTHING))
        await asyncio.sleep(3)
        assert (plane.ready, waiting.done()) == ("", False)  # a slow answer is one, too
        journal.hangs = 30.0
        with pytest.raises(NotReady, match=r"has not answered for 30 s.* may be recorded"):
            await waiting
        assert "has not answered for 30 s" in plane.ready
        thread.goes_on()
        await world.until("09:01")
        assert plane.ready == ""
        assert len(world.events(e.JobSubmitted)) == 1  # as it was told: it may be


@story("09:00")
async def test_an_idle_plane_whose_heartbeat_fails_is_not_ready_and_comes_back_by_itself(clock: VirtualClock) -> None:
    """The heartbeat's error was dropped: a load balancer went on sending people to it."""
    world = given(clock, site("lab"))
    async with world.up() as plane:
        world.journal.broken = "the disk is full"  # type: ignore[attr-defined]  # a journal in memory
        await world.until("09:01")
        assert "the disk is full" in plane.ready
        world.journal.broken = ""  # type: ignore[attr-defined]  # as above
        await world.until("09:02")
        assert plane.ready == ""


@story("09:00")
async def test_what_lost_steps_began_runs_on_and_nothing_gets_its_id(clock: VirtualClock) -> None:
    """A database came back without its last steps. The next job got the number of a lost one, and at its site the lost
    one's program counted as its own; before that, as an orphan whose end is on record, and it was stopped."""
    journal = MemoryJournal()
    world = given(clock, site("lab", nodes=3), runs={"j1": "5h"}, journal=journal)
    async with world.up() as plane:
        await plane.submit(job(), Work(("kept",)))
        await world.until("09:01")
        there = len(journal.rows)
        await plane.submit(job(), Work(("lost",)))
        await world.until("09:02")
        assert "j1.1" in world.world.runs
        await world.dies()
    journal.lost, journal.restored = Missing(len(journal.rows) - there, "1 accepted job (j1)"), True
    del journal.rows[there:]
    async with world.up() as plane:
        fresh = (await plane.submit(job(), Work(("another",)))).answer
        await world.until("09:10")
        assert (fresh, sorted(world.world.runs)) == ("j10001", ["j0.1", "j1.1", "j10001.1"])
        (restored,) = world.events(e.JournalRestored)
        assert (restored.step, restored.missing, restored.skipped) == (there, 2, 10_000)
        says = f"A person let the journal go on from step {there} without 2 steps that followed it, with 1 accepted job"
        kinds = {alarm.kind: alarm.text for alarm in plane.view.alarms}
        assert kinds == {"journal": f"{says} (j1).", "stranger": kinds["stranger"]}
        assert kinds["stranger"].startswith("j1.1 runs at lab, but the journal does not know it")
        assert not journal.restored
        await world.dies()
    async with world.up() as plane:  # once is enough
        assert len(world.events(e.JournalRestored)) == 1
        await world.until("09:12")
        assert "j1.1" in world.world.runs
