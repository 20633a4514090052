"""Transient clusters in a simulated world, by the running plane: they come, are shared, outlive a restart, and go."""

from penstock.core.model import events as e
from penstock.core.model.reasons import ClusterNeeded, ClusterWanted
from penstock.core.units import HOUR, MINUTE
from penstock.drivers.driver import Work
from penstock.live.rented import leaks, rented
from penstock.live.transient import ClusterOfSite, transient_clusters
from tests.live.kit import at, given, job, story
from tests.live.virtual import VirtualClock
from tests.stories.kit import usd
from tests.stories.test_transient import burst

NOTHING = Work(("true",))


@story("09:00")
async def test_a_cluster_comes_for_a_job_is_shared_outlives_a_restart_and_goes(clock: VirtualClock) -> None:
    world = given(clock, burst(fee="6"), runs={"j0": "1h", "j1": "1h"})
    async with world.up() as plane:
        await plane.submit(job(run="1h", team="red"), NOTHING)
        await world.until("09:05")
        await plane.submit(job(run="1h", team="blue"), NOTHING)
        await world.until("09:10")
        (coming,) = await plane.consider(lambda state, _: transient_clusters(state))
        assert (coming.cluster, coming.state, coming.used_by) == ("burst/c1", "starting", ("j0.1", "j1.1"))
        assert coming.because == ClusterNeeded("team:platform", usd("6"), 15 * MINUTE, "sites.yaml:9")
    async with world.up() as plane:
        await world.until("09:30")
        (up,) = await plane.consider(lambda state, _: transient_clusters(state))
        assert (up.state, up.used_by, up.asked_at) == ("up", ("j0.1", "j1.1"), at("09:00"))
        things = await plane.consider(lambda state, _: rented(state))
        assert [(thing.id, thing.gpus, thing.team, thing.on) for thing in things] == [
            ("burst/c1", 0, "platform", ("j0.1", "j1.1"))
        ]
        assert await leaks(plane) == ()
        await world.until("10:45")
        assert await plane.consider(lambda state, _: transient_clusters(state)) == (NONE,)
        assert await plane.consider(lambda state, _: rented(state)) == ()


NONE = ClusterOfSite(
    "burst", "", "none", "team:platform", usd("6"), idle_ms=10 * MINUTE, soft=False, because=None
)  # a simulated watchman lives


@story("09:00")
async def test_a_person_has_it_up_and_sends_it_away(clock: VirtualClock) -> None:
    world = given(clock, burst(fee="6"))
    async with world.up() as plane:
        await plane.tell(e.ClusterAsked(0, "burst", at("09:00") + 2 * HOUR))
        await world.until("09:20")
        (up,) = await plane.consider(lambda state, _: transient_clusters(state))
        assert (up.state, up.wanted_until) == ("up", at("11:00"))
        assert up.because == ClusterWanted("team:platform", usd("6"), at("11:00"))
        await plane.tell(e.ClusterDismissed(0, "burst"))
        await world.until("09:21")
        assert await plane.consider(lambda state, _: transient_clusters(state)) == (NONE,)
