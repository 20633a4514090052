"""What rents nodes (`capacity/contract.py`): the same stories for every way to rent."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.capacity.contract import NoNodes, SeenNode, object_name
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode, ReleaseNode, SetDeadline
from penstock.core.units import HOUR
from penstock.devcluster import ClusterGroup, DevCluster
from penstock.drivers.driver import NoCapacity, Refused, Unreachable
from penstock.site_answers import still_leads
from tests.awaiting import story
from tests.capacity.pool_grounds import CLOUDS, pool_ground
from tests.contract.kit import (
    ClusterApiGround,
    Ground,
    KarpenterGround,
    LocalGround,
    RehearsalGround,
    launch,
    opened,
    site,
)

SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("karpenter", "cluster_api", *CLOUDS)]


@pytest.fixture(params=["local", "rehearsal", *SLOW])
def renting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Where nodes are rented one by one."""
    if request.param in CLOUDS:
        made: ClusterGroup = request.getfixturevalue("shared_bed")
        namespace = request.getfixturevalue("namespace")
        with pool_ground(request.param, made.cluster("lab"), namespace, tmp_path, monkeypatch) as ground:
            yield ground
    elif request.param == "cluster_api":
        yield _by_cluster_api(request, tmp_path)
    elif request.param == "karpenter":
        yield _by_karpenter(request, tmp_path)
    else:
        yield _renting(request.param, tmp_path)


def _by_cluster_api(request: pytest.FixtureRequest, folder: Path) -> Ground:
    managing: DevCluster = request.getfixturevalue("managing")
    ground = ClusterApiGround(managing.kubeconfig, request.getfixturevalue("managed_namespace"), folder)
    managing.apply(*ground.pools())
    return ground


def _by_karpenter(request: pytest.FixtureRequest, folder: Path) -> Ground:
    cloud: DevCluster = request.getfixturevalue("cloud")
    ground = KarpenterGround(cloud.kubeconfig, request.getfixturevalue("cloud_namespace"), folder)
    cloud.apply(*ground.classes())
    return ground


@pytest.fixture(params=["local", "rehearsal"])
def renewing(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """Where a node's deadline can be moved."""
    return _renting(request.param, tmp_path)


def _renting(kind: str, folder: Path) -> Ground:
    return LocalGround(folder) if kind == "local" else RehearsalGround(site())


@pytest.fixture(params=["local", "rehearsal"])
def shaky(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """Where spot nodes are taken away within seconds: by the site's own list, or by a rate."""
    return LocalGround(tmp_path, losses=(4000,)) if request.param == "local" else RehearsalGround(site(losses=True))


@story
async def test_a_node_is_ready_after_its_start_and_gone_when_given_back(renting: Ground) -> None:
    async with opened(renting) as lab:
        asked_at = renting.clock()
        await lab.driver.capacity.ask(launch("a.1/n0"))
        assert renting.clock() - asked_at >= 150
        assert (await lab.driver.look()).nodes == ("a.1/n0",)
        await lab.driver.capacity.ask(launch("a.1/n0"))
        await lab.driver.capacity.release("a.1/n0")
        assert (await lab.driver.look()).nodes == ()
        await lab.driver.capacity.release("a.1/n0")


@story
async def test_a_node_that_was_given_back_is_not_launched_by_a_late_asking(renting: Ground) -> None:
    async with opened(renting) as lab:
        await lab.driver.capacity.release("a.1/n0")
        await lab.driver.capacity.ask(launch("a.1/n0"))
        await lab.hears(e.NodeGone, "a.1/n0")
        assert (await lab.driver.look()).nodes == ()


@story
async def test_a_node_given_back_while_it_starts_answers_the_launch_with_nothing(renting: Ground) -> None:
    async with opened(renting) as lab:
        asked = asyncio.create_task(lab.driver.capacity.ask(launch("a.1/n0", "lab/slow")))
        while "a.1/n0" not in (await lab.driver.look()).nodes:
            await asyncio.sleep(0)
        await lab.driver.capacity.release("a.1/n0")
        await asyncio.wait([asked])
        assert asked.cancelled()
        assert (await lab.driver.look()).nodes == ()


@story
async def test_a_node_s_deadline_ends_what_runs_on_it_and_the_node(renewing: Ground) -> None:
    async with opened(renewing) as lab:
        await lab.driver.capacity.ask(launch("long.1/n0", deadline_at=renewing.clock() + HOUR))
        await lab.start("long", offer="lab/nodes", nodes=("long.1/n0",), width=2, deadline_at=renewing.clock() + HOUR)
        await lab.driver.capacity.extend("long.1/n0", renewing.clock() + 100)
        await lab.hears(e.AttemptStopped, "long.1")
        await lab.hears(e.NodeGone, "long.1/n0")
        assert (await lab.driver.look()).nodes == ()


@story
async def test_a_node_that_no_attempt_asked_for_waits_for_one_and_runs_it(renting: Ground) -> None:
    async with opened(renting) as lab:
        later = renting.clock() + HOUR
        await lab.driver.do(LaunchNode("lab/nodes/w1", "lab/nodes", 2, "", later))
        assert (await lab.driver.look()).nodes == ("lab/nodes/w1",)
        await lab.start("long", offer="lab/nodes", nodes=("lab/nodes/w1",), width=2, deadline_at=later)
        running = [seen.attempt for seen in (await lab.driver.look()).attempts if seen.phase == "running"]
        assert running == ["long.1"]
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")
        await lab.driver.do(ReleaseNode("lab/nodes/w1"))
        assert (await lab.driver.look()).nodes == ()


@story
async def test_a_node_on_which_nothing_ever_ran_ends_at_its_deadline(renewing: Ground) -> None:
    """The promise behind its hold: if nobody renews it, nobody pays for it any more."""
    async with opened(renewing) as lab:
        await lab.driver.do(LaunchNode("lab/nodes/w1", "lab/nodes", 2, "", renewing.clock() + HOUR))
        await lab.driver.do(SetDeadline("lab/nodes/w1", renewing.clock() + 100))
        await lab.hears(e.NodeGone, "lab/nodes/w1")
        assert (await lab.driver.look()).nodes == ()


@story
async def test_two_that_share_a_node_run_beside_each_other_and_its_deadline_ends_both(renewing: Ground) -> None:
    async with opened(renewing) as lab:
        later = renewing.clock() + HOUR
        await lab.driver.capacity.ask(launch("long.1/n0", deadline_at=later))
        for number in (1, 2):
            await lab.start("long", number, offer="lab/nodes", nodes=("long.1/n0",), deadline_at=later)
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")
        await lab.start("long", 3, offer="lab/nodes", nodes=("long.1/n0",), deadline_at=later)
        running = [one.attempt for one in (await lab.driver.look()).attempts if one.phase == "running"]
        assert running == ["long.2", "long.3"]
        await lab.driver.capacity.extend("long.1/n0", renewing.clock() + 100)
        await lab.hears(e.AttemptStopped, "long.2")
        await lab.hears(e.AttemptStopped, "long.3")
        await lab.hears(e.NodeGone, "long.1/n0")


@story
async def test_what_runs_on_a_node_lives_as_long_as_the_node_s_lease_is_renewed(renewing: Ground) -> None:
    async with opened(renewing) as lab:
        first = renewing.clock() + 40_000
        await lab.driver.capacity.ask(launch("long.1/n0", deadline_at=first))
        await lab.start("long", offer="lab/nodes", nodes=("long.1/n0",), width=2, deadline_at=first)
        later = renewing.clock() + HOUR
        assert await lab.driver.capacity.extend("long.1/n0", later) == later
        seen = await lab.sees("long.1")
        assert seen is not None
        assert seen.deadline_at == later
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_a_spot_node_is_lost_with_what_runs_on_it(shaky: Ground) -> None:
    async with opened(shaky) as lab:
        await lab.driver.capacity.ask(launch("long.1/n0", "lab/spot", gpus=1))
        await lab.start("long", offer="lab/spot", nodes=("long.1/n0",))
        await lab.hears(e.AttemptLost, "long.1")
        await lab.hears(e.NodeLost, "long.1/n0")
        seen = await lab.driver.look()
        assert [one.phase for one in seen.attempts] == ["lost"]
        assert seen.nodes == ()


@story
async def test_a_loss_that_nobody_heard_is_said_to_whoever_comes_next(shaky: Ground) -> None:
    async with opened(shaky) as lab:
        await lab.driver.capacity.ask(launch("long.1/n0", "lab/spot", gpus=1))
        await lab.start("long", offer="lab/spot", nodes=("long.1/n0",))
    async with opened(shaky) as lab:
        await lab.hears(e.AttemptLost, "long.1")
        await lab.hears(e.NodeLost, "long.1/n0")


@story
async def test_a_list_names_each_node_with_the_deadline_that_stands(renting: Ground) -> None:
    async with opened(renting) as lab:
        later = renting.clock() + HOUR
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=later))
        assert await lab.driver.capacity.list() == (SeenNode("a.1/n0", later),)
        stands = await lab.driver.capacity.extend("a.1/n0", later + HOUR)
        assert await lab.driver.capacity.list() == (SeenNode("a.1/n0", stands),)


@story
async def test_a_node_outlives_the_control_plane_and_asked_again_is_the_same(renting: Ground) -> None:
    async with opened(renting) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
    async with opened(renting) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]
        await lab.driver.capacity.release("a.1/n0")
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_node_may_be_asked_for_many_times_at_once(renting: Ground) -> None:
    async with opened(renting) as lab:
        await asyncio.gather(*(lab.driver.capacity.ask(launch("a.1/n0")) for _ in range(5)))
        assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]


@story
async def test_a_control_plane_whose_lease_ended_asks_for_nothing(renting: Ground) -> None:
    """One that is stopped, replaced, and sent on: what it was about to ask for is its successor's affair."""
    async with opened(renting) as lab:
        still_leads.set(lambda: False)
        with pytest.raises(Unreachable, match=r"another control plane may lead|Failed to send"):
            await lab.driver.capacity.ask(launch("a.1/n0"))
        assert await lab.driver.capacity.list() == ()
        still_leads.set(lambda: True)
        await lab.driver.capacity.ask(launch("a.1/n0"))
        assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]
        await lab.driver.capacity.release("a.1/n0")


@story
async def test_the_deadline_of_a_node_that_is_not_here_is_not_known(renting: Ground) -> None:
    async with opened(renting) as lab:
        with pytest.raises(Unreachable):
            await lab.driver.capacity.extend("nothing.1/n0", 5)


@story
async def test_an_offer_that_is_not_there_is_refused(renting: Ground) -> None:
    async with opened(renting) as lab:
        with pytest.raises(Refused, match="no offer lab/moon"):
            await lab.driver.capacity.ask(launch("a.1/n0", "lab/moon"))


@story
async def test_a_site_that_rents_no_nodes_says_so() -> None:
    with pytest.raises(Refused, match="'sold_by: attempt'"):
        await NoNodes().ask(launch("a.1/n0"))
    with pytest.raises(Unreachable):
        await NoNodes().extend("a.1/n0", 5)
    await NoNodes().release("a.1/n0")
    assert await NoNodes().list() == ()


def test_an_object_has_one_name_for_each_node_of_each_installation() -> None:
    names = [
        object_name(home, node) for home in ("a", "ab", "") for node in ("b.1/n0", "1/n0", "b.1/n1", "\udc80.1/n0")
    ]
    assert len(set(names)) == len(names)
    assert object_name("home", "a.1/n0") == object_name("home", "a.1/n0")
    assert {len(name) for name in names} == {20}
    assert len(object_name("home", "a.1/n0", most=12)) == 12


# --- where only local sites have a say of their own ------------------------------------------------------------------


@story
async def test_a_site_that_is_full_has_no_capacity_until_something_ends(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        with pytest.raises(NoCapacity, match="no free node of 2 GPUs") as refused:
            await lab.driver.capacity.ask(launch("b.1/n0"))
        assert refused.value.retry_ms > 0
        await lab.driver.capacity.release("a.1/n0")
        await lab.driver.capacity.ask(launch("c.1/n0"))


@story
async def test_of_fifty_nodes_asked_for_at_once_as_many_are_rented_as_there_are(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        asks = [lab.driver.capacity.ask(launch(f"{k}.1/n0", "lab/spot", gpus=1)) for k in range(50)]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        assert sum(answer is None for answer in answers) == 4
        assert sum(isinstance(answer, NoCapacity) for answer in answers) == 46
