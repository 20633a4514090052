"""Nodes rented as NodeClaims, by the real Karpenter with its kwok provider: what the contract's suite does not tell."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capacity.contract import object_name
from penstock.capacity.karpenter import KarpenterNodes
from penstock.capacity.nodeclaim import node_claim
from penstock.core.model import events as e
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.devcluster import DevCluster, karpenter
from penstock.drivers.driver import NeverReady, NoCapacity, Refused, Work
from penstock.kube import annotations
from tests.awaiting import story
from tests.capacity.behind import behind
from tests.contract.kit import NEVER_DISRUPT, KarpenterGround, Watch, home_job, launch, no_evictions, opened, start

pytestmark = pytest.mark.slow


@pytest.fixture
def ground(cloud: DevCluster, cloud_namespace: str, tmp_path: Path) -> KarpenterGround:
    return KarpenterGround(cloud.kubeconfig, cloud_namespace, tmp_path)


WARM = "lab/nodes/w1"  #: a node that a pool asks for, ahead of any job
HELD = "test.penstock.dev/held"  #: a finalizer of the test's own


def name_of(ground: KarpenterGround, node: str) -> str:
    return annotations.node_name(object_name(ground.installation, node))


def blind_offers(ground: KarpenterGround) -> None:
    """From now on its nodes never show their GPUs."""
    rent = ground.settings.places[0][1].rent
    assert rent is not None
    blind = replace(rent, instance_types=("a100-blind",))
    places = tuple((offer, replace(place, rent=blind)) for offer, place in ground.settings.places)
    ground.settings = replace(ground.settings, places=places)


def node_named(cloud: DevCluster, claim: str) -> str:
    """The Node of a claim; empty: it has not joined."""
    nodes = cloud.get("nodes", "-l", f"{annotations.NODE}={claim}")["items"]
    return str(nodes[0]["metadata"]["name"]) if nodes else ""


def taint(cloud: DevCluster, node: str, key: str) -> None:
    cloud.kubectl("taint", "node", node, f"{key}=soon:NoSchedule")


async def gone_from(cloud: DevCluster, path: str) -> None:
    while (await asyncio.to_thread(cloud.api.ask, "GET", path)).code != 404:
        await asyncio.sleep(0.5)


def capacity_of(lab: Watch) -> KarpenterNodes:
    assert isinstance(lab.driver.capacity, KarpenterNodes)
    return lab.driver.capacity


@pytest.mark.parametrize(
    ("words", "shortage", "retry_ms"),
    [("no a100 left in zone-a", "stock_out", 5 * MINUTE), ("VcpuLimitExceeded: 0 of 96", "quota", 4 * HOUR)],
)
@story
async def test_a_refusal_tells_a_stock_out_from_a_quota_and_leaves_nothing(
    ground: KarpenterGround, cloud: DevCluster, words: str, shortage: str, retry_ms: int
) -> None:
    cloud.apply(karpenter.node_class(ground.settings.namespace, stock_out=words))
    async with opened(ground) as lab:
        with pytest.raises(NoCapacity, match="InsufficientCapacityError") as refused:
            await lab.driver.capacity.ask(launch("a.1/n0"))
        assert (refused.value.shortage, refused.value.retry_ms) == (shortage, retry_ms)
        assert words in str(refused.value)
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_node_without_its_gpus_is_given_back_at_our_own_deadline(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(karpenter.node_class(ground.settings.namespace))
    blind_offers(ground)
    ground.site = replace(ground.site, offers=tuple(replace(offer, start_ms=SECOND) for offer in ground.site.offers))
    async with opened(ground) as lab:
        nodes = capacity_of(lab)
        nodes.least_ms = 6 * SECOND
        with pytest.raises(NeverReady, match=r"given back after 6 s: its Node shows fewer than 2 nvidia\.com/gpu"):
            await nodes.ask(launch("a.1/n0"))
        assert await nodes.list() == ()


@story
async def test_a_node_ends_at_its_deadline_without_us_also_with_a_pod_that_may_not_be_evicted(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    """Nothing that is asked for it later changes its end."""
    cloud.apply(*ground.classes(), no_evictions(ground.settings.namespace))
    async with opened(ground) as lab:
        deadline_at = ground.clock() + 25 * SECOND
        await lab.driver.capacity.ask(launch("a.1/n0", gpus=8, deadline_at=deadline_at))
        assert await lab.driver.capacity.extend("a.1/n0", deadline_at + HOUR) == deadline_at
        stays = Work((), manifest=json.dumps(home_job("a", NEVER_DISRUPT)))
        there = start("a", offer="lab/nodes", nodes=("a.1/n0",), deadline_at=deadline_at + HOUR)
        await lab.driver.start(there, stays)
    name = name_of(ground, "a.1/n0")
    claim = cloud.api.ask("GET", f"{karpenter.CLAIMS}/{name}").body
    assert "karpenter.sh/nodepool" not in claim["metadata"]["labels"]
    assert claim["spec"]["terminationGracePeriod"] == "5s"
    async with opened(ground) as lab:
        assert (await lab.hears(e.NodeNotice, "a.1/n0")).words
        await lab.hears(e.NodeGone, "a.1/n0")
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_claim_that_others_delete_is_a_notice_and_then_a_loss(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        cloud.api.ask("DELETE", f"{karpenter.CLAIMS}/{name_of(ground, 'a.1/n0')}")
        await lab.hears(e.NodeNotice, "a.1/n0")
        await lab.hears(e.NodeLost, "a.1/n0")
        assert [type(fact) for fact in lab.said] == [e.NodeNotice, e.NodeLost]


@story
async def test_a_taint_of_the_cloud_s_own_handler_is_a_notice_said_once(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        taint(cloud, node_named(cloud, name_of(ground, "a.1/n0")), "aws-node-termination-handler/spot-itn")
        notice = await lab.hears(e.NodeNotice, "a.1/n0")
        assert notice.words == "the cloud takes its node back (aws-node-termination-handler/spot-itn)"
        cloud.api.ask("DELETE", f"{karpenter.CLAIMS}/{name_of(ground, 'a.1/n0')}")
        await lab.hears(e.NodeLost, "a.1/n0")
        assert [type(fact) for fact in lab.said] == [e.NodeNotice, e.NodeLost]


@story
async def test_a_node_with_a_notice_before_its_gpus_came_is_given_back_and_never_ready(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    blind_offers(ground)
    async with opened(ground) as lab:
        asked = asyncio.create_task(lab.driver.capacity.ask(launch("a.1/n0")))
        while not (there := node_named(cloud, name_of(ground, "a.1/n0"))):
            await asyncio.sleep(0.1)
        taint(cloud, there, "ToBeDeletedByClusterAutoscaler")
        with pytest.raises(NeverReady, match="taken away while it started: the cluster autoscaler removes its node"):
            await asked
        assert await lab.driver.capacity.list() == ()
        assert lab.said == []


@story
async def test_karpenter_leaves_a_node_of_ours_that_looks_empty_while_it_ends_those_of_its_pools(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    """As a node looks whose job still pulls its image."""
    name = ground.settings.namespace
    cloud.apply(*ground.classes(), karpenter.node_pool(name, types=("a100-8x",), labels={"pool": name}))
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        mine = cloud.api.ask("GET", f"{karpenter.CLAIMS}/{name_of(ground, 'a.1/n0')}").body
        pooled = {"name": f"{name}-pooled", "labels": {"karpenter.sh/nodepool": name}}
        cloud.apply({**mine, "metadata": pooled, "spec": {**mine["spec"], "taints": []}, "status": None})
        await gone_from(cloud, f"{karpenter.CLAIMS}/{name}-pooled")
        claim = cloud.api.ask("GET", f"{karpenter.CLAIMS}/{name_of(ground, 'a.1/n0')}").body
        assert "deletionTimestamp" not in claim["metadata"]
        assert lab.said == []
        await lab.driver.capacity.release("a.1/n0")


@story
async def test_a_claim_of_somebody_else_with_the_node_s_name_is_refused_and_not_touched(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        mine = cloud.api.ask("GET", f"{karpenter.CLAIMS}/{name_of(ground, 'a.1/n0')}").body
        theirs = {key: mine["spec"][key] for key in ("nodeClassRef", "requirements", "resources")}
        name = name_of(ground, "b.1/n0")
        cloud.apply({**mine, "metadata": {"name": name}, "spec": theirs, "status": None})
        try:
            with pytest.raises(Refused, match="is not of this installation"):
                await lab.driver.capacity.ask(launch("b.1/n0"))
            assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]
            assert cloud.api.ask("GET", f"{karpenter.CLAIMS}/{name}").body["metadata"].get("deletionTimestamp") is None
        finally:
            cloud.api.ask("DELETE", f"{karpenter.CLAIMS}/{name}")
        await lab.driver.capacity.release("a.1/n0")


@story
async def test_a_gang_runs_as_a_job_on_its_own_nodes_and_nowhere_else(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    nodes = ("long.1/n0", "long.1/n1")
    later = ground.clock() + HOUR
    async with opened(ground) as lab:
        await asyncio.gather(*(lab.driver.capacity.ask(launch(node, gpus=8, deadline_at=later)) for node in nodes))
        await lab.start("long", offer="lab/nodes", nodes=nodes, width=1, deadline_at=later)
        pods = cloud.get("pods", "-n", ground.settings.namespace)["items"]
        there = {node["metadata"]["name"]: node for node in cloud.get("nodes")["items"]}
        ran_on = [there[pod["spec"]["nodeName"]]["metadata"]["labels"][annotations.NODE] for pod in pods]
        assert set(ran_on) <= {name_of(ground, node) for node in nodes}
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")
        for node in nodes:
            await lab.driver.capacity.release(node)
        assert (await lab.driver.look()).nodes == ()


@story
async def test_a_node_that_a_predecessor_may_still_ask_for_is_not_gone_before_that_request_has_arrived(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        nodes = capacity_of(lab)
        nodes.late_seconds = asyncio.get_running_loop().time() - nodes.opened_at + 6.0
        releasing = asyncio.create_task(nodes.release("a.1/n0"))
        await asyncio.sleep(1.0)
        offer, place = nodes.offers_now()["lab/nodes"]
        late = node_claim(launch("a.1/n0"), offer, place, ground.installation, ground.clock())
        cloud.apply({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", **late})
        assert [seen.node for seen in await nodes.list()] == ["a.1/n0"]
        await releasing
        assert await nodes.list() == ()


@story
async def test_a_node_whose_deadline_has_passed_is_not_rented_any_more(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    """Whoever led again after a kill repeated an ask whose deadline was over, and rented a node that nobody paid."""
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        capacity_of(lab).late_seconds = 1.0
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() - SECOND))
        assert capacity_of(lab).cluster_now().requests["create nodeclaims.karpenter.sh"] == 0
        await lab.hears(e.NodeGone, "a.1/n0")
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_node_that_was_just_asked_for_is_not_judged_by_an_earlier_claim_that_late_caches_show(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    """The claim was deleted again at once: a cache still showed the end of the first one of that name. Or it was taken
    for ready, because another still showed the first one's Node.
    """
    cloud.apply(*ground.classes())
    name = name_of(ground, WARM)
    path = f"{karpenter.CLAIMS}/{name}"
    async with opened(ground) as lab:
        nodes, later = capacity_of(lab), ground.clock() + HOUR
        await nodes.ask(launch(WARM, deadline_at=later))
        with behind(nodes, [nodes.claims], nodes.nodes):
            cloud.api.ask("PATCH", path, {"metadata": {"finalizers": ["karpenter.sh/termination", HELD]}})
            cloud.api.ask("DELETE", path)
            await lab.hears(e.NodeNotice, WARM)
            with behind(nodes, [nodes.claims], nodes.claims):
                while cloud.api.ask("GET", path).body["metadata"]["finalizers"] != [HELD]:
                    await asyncio.sleep(0.1)
                cloud.api.ask("PATCH", path, {"metadata": {"finalizers": []}})
                asked = asyncio.create_task(nodes.ask(launch(WARM, deadline_at=later)))
                while not node_named(cloud, name):
                    await asyncio.sleep(0.1)
                assert not asked.done()
        await asked
        while nodes.notice_on(name) or len(nodes.claims.objects) != 1:
            await asyncio.sleep(0.1)
        assert [seen.node for seen in await nodes.list()] == [WARM]
        assert [type(fact) for fact in lab.said] == [e.NodeNotice]
        cloud.api.ask("DELETE", path)


@story
async def test_of_many_nodes_asked_for_and_given_back_at_once_each_takes_a_handful_of_requests(
    ground: KarpenterGround, cloud: DevCluster
) -> None:
    """Each was asked about although the answer to its creation had said all. Each release listened to the news of all
    nodes, and asked at every one of them: 23 requests for one of 50.
    """
    cloud.apply(*ground.classes())
    async with opened(ground) as lab:
        nodes, cluster = capacity_of(lab), capacity_of(lab).cluster_now()
        names = [f"a.1/n{number}" for number in range(6)]
        await asyncio.gather(nodes.claims.in_step.wait(), nodes.nodes.in_step.wait())
        before = cluster.requests.copy()
        await asyncio.gather(*(nodes.ask(launch(name)) for name in names))
        asked = {
            call: count
            for call, count in (cluster.requests - before).items()
            if "node" in call and not call.startswith("watch")
        }
        assert asked == {"create nodeclaims.karpenter.sh": len(names)}  # the rest is watched
        before = cluster.requests.copy()
        await asyncio.gather(*(nodes.release(name) for name in names))
        assert (cluster.requests - before).total() <= 7 * len(names)  # four, and two for each ten seconds it takes
