"""What is rented, by the journal; and leaks, by what sites say."""

from penstock.core.model import events as e
from penstock.core.model.actions import Action, LaunchNode
from penstock.core.model.reasons import KeptWarm
from penstock.core.model.types import WarmPool
from penstock.core.units import HOUR, NEVER
from penstock.drivers.driver import Refused, SiteInventory, Unreachable, Work
from penstock.explain.story import tell
from penstock.live.rented import Leak, leaks, rented
from penstock.sim.engine.rehearsal import Rehearsal
from tests.live.kit import at, given, job, story
from tests.live.virtual import VirtualClock
from tests.stories.kit import offer, usd

NOTHING = Work(("true",))


@story("09:00")
async def test_a_rented_node_is_shown_with_whom_it_is_for_until_when_and_its_cost(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud", price="1", start="5m", renewable=False), runs={"j0": "3h"})
    async with world.up() as plane:
        await plane.submit(job(run="3h", lease_max_ms=2 * HOUR), NOTHING)
        await world.until("10:00")
        (node,) = await plane.consider(lambda state, _: rented(state))
        assert (node.id, node.offer, node.phase, node.on, node.team) == (
            "j0.1/n0", "cloud", "busy", ("j0.1",), "default",
        )  # fmt: skip
        assert (node.asked_at, node.deadline_at, node.renewable) == (at("09:00"), at("11:00"), False)
        assert node.spent + node.held >= usd("16")
        assert node.because is not None
        assert await leaks(plane) == ()


@story("09:00")
async def test_a_warm_node_is_shown_with_its_budget_and_outlives_a_restart(clock: VirtualClock) -> None:
    pool = WarmPool(1, 8, ("org", "team:platform"))
    world = given(clock, offer("cloud", price="1", start="5m", warm=pool), runs={"j0": "1h"})
    async with world.up():
        await world.until("09:20")
    async with world.up() as plane:
        (node,) = await plane.consider(lambda state, _: rented(state))
        assert (node.id, node.phase, node.team, node.warm, node.on) == ("cloud/w1", "idle", "platform", True, ())
        assert node.because == KeptWarm(1, 0, "team:platform", NEVER, "")
        await plane.submit(job(run="1h", team="red"), NOTHING)
        await world.until("09:30")
        taken, filled = await plane.consider(lambda state, _: rented(state))
        assert (taken.id, taken.team, taken.warm, taken.on) == ("cloud/w1", "red", False, ("j0.1",))
        assert (filled.id, filled.team, filled.warm) == ("cloud/w2", "platform", True)
        assert await leaks(plane) == ()


@story("09:00")
async def test_what_a_site_has_and_the_journal_does_not_know_is_a_stray_by_name(clock: VirtualClock) -> None:
    world = given(clock, offer("cloud", price="1", start="5m"))
    async with world.up(look_ms=24 * HOUR) as plane:
        stray = LaunchNode("gone.1/n0", "cloud", 8, "gone.1", at("21:00"))
        world.stage.site_of["gone.1/n0"] = "cloud"
        world.stage.do(stray)
        says = "gone.1/n0 is rented at cloud, and the journal does not know it; it is given back at the next look"
        assert await leaks(plane) == (Leak("cloud", "stray", "gone.1/n0", says),)


@story("09:00")
async def test_an_orphan_is_swept_at_the_next_look(clock: VirtualClock) -> None:
    """As a late create of a control plane leaves it that was stopped and replaced."""
    world = given(clock, offer("cloud", price="1", start="5m"))
    async with world.up() as plane:
        world.stage.site_of["gone.1/n0"] = "cloud"
        world.stage.do(LaunchNode("gone.1/n0", "cloud", 8, "gone.1", at("21:00")))
        assert [leak.thing for leak in await leaks(plane)] == ["gone.1/n0"]
        await world.until("09:02")
        assert await leaks(plane) == ()


class Forgetful(Rehearsal):
    """Shows nothing, or does not answer."""

    silent = False

    async def look(self) -> SiteInventory:
        if self.silent:
            raise Unreachable("no route")
        return SiteInventory()


@story("09:00")
async def test_what_the_journal_has_and_no_list_shows_is_missing_and_a_failed_list_is_not_none(
    clock: VirtualClock,
) -> None:
    world = given(clock, offer("cloud", price="1", start="5m"), runs={"j0": "3h"})
    cloud = world.drivers["cloud"] = Forgetful("cloud", world.stage)
    async with world.up(look_ms=24 * HOUR) as plane:
        await plane.submit(job(run="3h"), NOTHING)
        await world.until("10:00")
        assert [(leak.kind, leak.thing) for leak in await leaks(plane)] == [
            ("missing", "j0.1/n0"),
            ("missing", "j0.1"),
        ]
        cloud.silent = True
        says = "cloud could not be asked, so nobody knows what is there: no route"
        assert await leaks(plane) == (Leak("cloud", "unknown", "cloud", says),)
    assert world.events(e.NodeLost) == []


class Misconfigured(Rehearsal):
    """Its settings are wrong, so it rents nothing."""

    words = "cloud does not take it; repair the offer's 'rent': there is no node class gpu-smal"

    async def do(self, action: Action, work: Work | None = None) -> e.Fact | None:
        if isinstance(action, LaunchNode):
            raise Refused(self.words)
        return await super().do(action, work)


@story("09:00")
async def test_wrong_settings_of_an_offer_are_a_sentence_on_the_offer_in_doctor_and_in_why(clock: VirtualClock) -> None:
    """The offer said only until when it is closed, and `why` that the start took no time."""
    world = given(clock, offer("cloud", price="1", start="5m"), runs={"j0": "1h"})
    world.drivers["cloud"] = Misconfigured("cloud", world.stage)
    async with world.up() as plane:
        await plane.submit(job(run="1h"), NOTHING)
        await world.until("09:10")
        (place,) = plane.view.sites
        (cloud,) = place.offers
        assert (cloud.says, cloud.closed_until_at) == (Misconfigured.words, at("10:00"))
        alarms = [(alarm.kind, alarm.text) for alarm in plane.view.alarms]
        assert ("settings", f"cloud: {Misconfigured.words}") in alarms
        assert world.world.nodes == {}
        await world.until("10:00")
    assert f"cloud gave no node: {Misconfigured.words}." in [line.text for line in tell(world.journal.read(), "j0")]
