"""Nodes rented as pools of EKS, GKE, AKS and OVHcloud, with a real API server for their Nodes: what the contract's
suite does not tell. One story for each trap; the clouds are played (`played_cloud`).
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capacity.contract import SeenNode
from penstock.capacity.spot_queue import SPOT
from penstock.core.model import events as e
from penstock.core.model.types import NodeShape
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.devcluster import ClusterGroup
from penstock.drivers.driver import NeverReady, NoCapacity, Refused, Unreachable, Work
from penstock.kube.access import connect
from penstock.kube.client import PODS
from penstock.kube.node_selection import EksWay, GkeWay, NodeSelection, RentedNodes
from tests.awaiting import story
from tests.capacity.played_eks import instance_of
from tests.capacity.played_gke import PlayedGke
from tests.capacity.played_queue import played_queue
from tests.capacity.pool_grounds import BY_API, CLOUDS, PoolGround, pool_ground, pools_of
from tests.contract.kit import home_job, launch, opened, start

pytestmark = pytest.mark.slow


@pytest.fixture(params=BY_API)
def ground(
    request: pytest.FixtureRequest,
    shared_bed: ClusterGroup,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PoolGround]:
    with pool_ground(request.param, shared_bed.cluster("lab"), namespace, tmp_path, monkeypatch) as made:
        yield made


anywhere = pytest.mark.parametrize("ground", CLOUDS, indirect=True)
on_eks = pytest.mark.parametrize("ground", ["eks"], indirect=True)
on_gke = pytest.mark.parametrize("ground", ["gke"], indirect=True)


STOCK_OUTS = {
    "eks": ("AsgInstanceLaunchFailures", "Could not launch Spot Instances. UnfulfillableCapacity - none left"),
    "gke": ("GCE_STOCKOUT", "europe-west4-a has no A100"),
    "aks": ("AllocationFailed", "none left in westeurope"),
    "ovh": ("FlavorOutOfStock", "h100-1520 is out of stock"),
}


@anywhere
@story
async def test_a_stock_out_closes_the_offer_at_once_and_leaves_no_pool(ground: PoolGround) -> None:
    ground.cloud.faults.issue = STOCK_OUTS[ground.kind]
    async with opened(ground) as lab:
        with pytest.raises(NoCapacity, match=STOCK_OUTS[ground.kind][0]) as refused:
            await lab.driver.capacity.ask(launch("a.1/n0"))
        assert (refused.value.shortage, refused.value.retry_ms) == ("stock_out", 5 * MINUTE)
        assert not isinstance(refused.value, NeverReady)
        assert await lab.driver.capacity.list() == ()
    assert ground.cloud.pools == {}


@story
async def test_a_lost_answer_to_a_create_and_lists_that_are_late_make_one_pool(ground: PoolGround) -> None:
    """The control plane dies with its answer: whoever comes next asks again, sees nothing yet, and rents no second."""
    ground.cloud.faults.lose_answers, ground.cloud.faults.shows_after = 1, 0.5
    async with opened(ground) as lab:
        with pytest.raises((Unreachable, asyncio.CancelledError, TimeoutError)):
            async with asyncio.timeout(2):
                await lab.driver.capacity.ask(launch("a.1/n0", "lab/slow"))
    async with opened(ground) as lab:
        for _ in range(100):
            try:
                async with asyncio.timeout(0.3):
                    await lab.driver.capacity.ask(launch("a.1/n0", "lab/slow"))
            except (Unreachable, TimeoutError):
                pass
            if await lab.driver.capacity.list():
                break
        assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]
        assert ground.cloud.creates == 1
        await lab.driver.capacity.release("a.1/n0")
    assert ground.cloud.pools == {}


@story
async def test_a_pool_that_is_shown_late_is_not_taken_for_gone(ground: PoolGround) -> None:
    """Given back in the same second: to say that it is gone now would close its hold while its machine comes up."""
    ground.cloud.faults.shows_after = 0.7
    async with opened(ground) as lab:
        asked = asyncio.create_task(lab.driver.capacity.ask(launch("a.1/n0", "lab/slow")))
        while not ground.cloud.pools:
            await asyncio.sleep(0.01)
        await lab.driver.capacity.release("a.1/n0")
        assert ground.cloud.pools == {}
        await asyncio.wait([asked])


@story
async def test_a_pool_of_somebody_else_with_the_node_s_name_is_refused_and_not_touched(ground: PoolGround) -> None:
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
    (pool,) = ground.cloud.pools.values()
    ground.rename_owner(pool.name)
    async with opened(ground) as lab:
        with pytest.raises(Refused, match="is not of this installation"):
            await lab.driver.capacity.ask(launch("a.1/n0"))
        assert await lab.driver.capacity.list() == ()
    assert list(ground.cloud.pools) == [pool.name]
    assert pool.goes_at is None


@anywhere
@story
async def test_a_machine_that_is_taken_away_is_lost_with_its_pool_which_would_replace_it(ground: PoolGround) -> None:
    """A pool is a group: a timer on the machine, or a spot notice, ends one machine, and the group buys the next."""
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        (name,) = ground.cloud.pools
        await asyncio.to_thread(ground.cloud.reclaim, name)
        await lab.hears(e.NodeNotice, "a.1/n0")
        await lab.hears(e.NodeLost, "a.1/n0")
        assert ground.cloud.pools == {}  # when it is said, nothing is billed any more
        assert await lab.driver.capacity.list() == ()


@on_gke
@story
async def test_a_release_that_is_not_answered_asks_again_itself(ground: PoolGround) -> None:
    """It said so at once, and was told again after pauses that grow to a minute: the pool was billed meanwhile."""
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        later = (503, {"error": {"code": 503, "message": "later"}})
        ground.cloud.faults.answers = [later, later]
        await lab.driver.capacity.release("a.1/n0")
    assert ground.cloud.pools == {}


@story
async def test_a_cordoned_node_is_a_notice(ground: PoolGround) -> None:
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        (pool,) = ground.cloud.pools.values()
        assert ground.cloud.nodes is not None
        cordon = {"spec": {"unschedulable": True}}
        await asyncio.to_thread(ground.cloud.nodes, "PATCH", f"/api/v1/nodes/{pool.made[0]}", cordon)
        assert (await lab.hears(e.NodeNotice, "a.1/n0")).words == "its Node was cordoned"


@on_eks
@story
async def test_a_notice_in_ec2_s_queue_reaches_the_engine_before_the_node_shows_anything(ground: PoolGround) -> None:
    """A spot machine has two minutes left then: enough for a checkpoint. Nobody marks the Node here."""
    with played_queue() as queue:
        follow(ground, queue.url)
        async with opened(ground) as lab:
            await lab.driver.capacity.ask(launch("a.1/n0"))
            (pool,) = ground.cloud.pools.values()
            queue.announce(SPOT, {"instance-id": "i-0123456789abcdef0"})  # somebody else's machine
            queue.announce(SPOT, {"instance-id": instance_of(pool.made[0])})
            assert (await lab.hears(e.NodeNotice, "a.1/n0")).words == "AWS takes its spot machine back"
            while await asyncio.to_thread(queue.left):
                await asyncio.sleep(0.05)
            assert (await lab.driver.look()).warns == ""


@on_eks
@story
async def test_a_machine_that_is_called_back_while_it_starts_is_given_back_at_once(ground: PoolGround) -> None:
    ground.cloud.faults.blind = True  # its GPUs never register, so the start lasts
    with played_queue() as queue:
        follow(ground, queue.url)
        async with opened(ground) as lab:
            asked = asyncio.create_task(lab.driver.capacity.ask(launch("a.1/n0")))
            while not pools_of(lab).named:
                await asyncio.sleep(0.02)
            (pool,) = ground.cloud.pools.values()
            queue.announce(SPOT, {"instance-id": instance_of(pool.made[0])})
            with pytest.raises(NeverReady, match="while it started: AWS takes its spot machine back"):
                await asked
    assert ground.cloud.pools == {}


@on_eks
@story
async def test_a_queue_that_cannot_be_read_is_said_and_nodes_come_all_the_same(ground: PoolGround) -> None:
    with played_queue() as queue:
        follow(ground, f"{queue.url}-of-nobody")
        async with opened(ground) as lab:
            await lab.driver.capacity.ask(launch("a.1/n0"))
            while not (warns := (await lab.driver.look()).warns):
                await asyncio.sleep(0.05)
            assert "The specified queue does not exist" in warns


def follow(ground: PoolGround, url: str) -> None:
    """Its offers name this queue."""
    assert isinstance(ground.way, EksWay)
    way = ground.way = replace(ground.way, notices=url)
    places = []
    for offer, place in ground.settings.places:
        assert place.rent is not None
        places.append((offer, replace(place, rent=replace(place.rent, way=way))))
    ground.settings = replace(ground.settings, places=tuple(places))


@on_gke
@story
async def test_a_node_without_its_gpus_is_given_back_at_our_own_deadline(ground: PoolGround) -> None:
    ground.cloud.faults.blind = True
    ground.site = replace(ground.site, offers=tuple(replace(offer, start_ms=SECOND) for offer in ground.site.offers))
    async with opened(ground) as lab:
        pools_of(lab).least_ms = 4 * SECOND
        with pytest.raises(NeverReady, match=r"given back after 4 s: its Node shows fewer than 2 nvidia\.com/gpu"):
            await lab.driver.capacity.ask(launch("a.1/n0"))
    assert ground.cloud.pools == {}


def tpu_slices(ground: PoolGround) -> None:
    """Its nodes are slices of 16 chips, on four hosts."""
    assert isinstance(ground.cloud, PlayedGke)
    assert isinstance(ground.way, GkeWay)
    ground.cloud.gpus = 16
    (offer,) = (offer for offer in ground.site.offers if offer.id == "lab/nodes")
    offer = replace(offer, shapes=(NodeShape(16, None, name="ct5lp-hightpu-4t"),))
    ground.site = replace(ground.site, offers=(offer,))
    way = replace(ground.way, accelerator="", topology="4x4")
    ground.settings = replace(
        ground.settings, places=(("lab/nodes", NodeSelection("google.com/tpu", rent=RentedNodes(way))),)
    )


@on_gke
@story
async def test_a_tpu_slice_is_ready_when_all_of_its_hosts_are_and_goes_as_one(ground: PoolGround) -> None:
    tpu_slices(ground)
    async with opened(ground) as lab:
        later = ground.clock() + HOUR
        await lab.driver.capacity.ask(launch("a.1/n0", gpus=16, deadline_at=later))
        (pool,) = ground.cloud.pools.values()
        assert len(pool.made) == 4
        assert await lab.driver.capacity.list() == (SeenNode("a.1/n0", later),)
        await lab.driver.capacity.release("a.1/n0")
    assert ground.cloud.pools == {}


@on_gke
@pytest.mark.parametrize("manifest", [False, True], ids=["an image", "a Job"])
@story
async def test_a_job_of_several_hosts_has_a_pod_on_each_host_of_its_slice(ground: PoolGround, manifest: bool) -> None:
    tpu_slices(ground)
    later = ground.clock() + HOUR
    work = Work(("train",), image="train:1")
    if manifest:  # as GKE's own documents write it
        job = home_job("wide", parallelism=4, completions=4, completionMode="Indexed")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"google.com/tpu": "4"}}
        work = Work((), manifest=json.dumps(job))
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("wide.1/n0", gpus=16, deadline_at=later))
        ask = start("wide", offer="lab/nodes", width=16, nodes=("wide.1/n0",), deadline_at=later)
        starts = asyncio.create_task(lab.driver.start(ask, work))
        (pool,) = ground.cloud.pools.values()
        cluster = connect(ground.access)
        try:
            while len(pods := (await cluster.list(PODS, ground.settings.namespace))[0]) < 4 or not all(
                pod["spec"].get("nodeName") for pod in pods
            ):
                await asyncio.sleep(0.1)
        finally:
            await cluster.close()
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(pool.made)
        starts.cancel()
        await lab.driver.stop("wide.1", 1000)
        await lab.driver.capacity.release("wide.1/n0")
    assert ground.cloud.pools == {}
