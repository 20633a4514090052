"""Rented nodes by the Job alone: a real Karpenter adds nodes for its pods, from zero, and takes them away."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import SECOND
from penstock.devcluster import DevCluster, karpenter
from penstock.drivers.driver import NoCapacity, Unstartable, Work
from penstock.drivers.kubernetes.scaling import POOL_LABEL
from penstock.kube.node_selection import NodeSelection, Toleration
from tests.awaiting import story
from tests.contract.kit import NEVER_DISRUPT, KubernetesGround, home_job, no_evictions, opened, start

pytestmark = pytest.mark.slow
SOLD_OUT = "InsufficientInstanceCapacity: no a100-8x in zone-a"
NO_QUOTA = "VcpuLimitExceeded: more than your current vCPU limit of 96"


class Cloud:
    """Offers at zero nodes, each with a pool of its own that adds them."""

    def __init__(self, cluster: DevCluster, namespace: str, folder: Path) -> None:
        self.cluster, self.name = cluster, namespace
        self.ground = KubernetesGround(cluster.kubeconfig, namespace, folder, no_node_ms=1000)
        self.ground.site = Site("lab", ())

    def offer(self, name: str, stock_out: str = "", most_gpus: int | None = None) -> None:
        pool = f"{self.name}-{name}"
        made = karpenter.node_pool(pool, types=("a100-8x",), taint=self.name, most_gpus=most_gpus)
        self.cluster.apply(karpenter.node_class(pool, stock_out=stock_out), made)
        offer = Offer(f"lab/{name}", "lab", "on_demand", (NodeShape(8, 4),), sold_by="attempt", start_ms=60_000)
        place = NodeSelection(selector=((POOL_LABEL, pool),), tolerations=(Toleration(self.name),))
        ground = self.ground
        ground.site = Site("lab", (*ground.site.offers, offer))
        places = (*ground.settings.places, (offer.id, place))
        ground.settings = type(ground.settings)(namespace=self.name, shared=True, no_node_ms=1000, places=places)

    def nodes(self) -> list[str]:
        items = self.cluster.api.ask("GET", "/api/v1/nodes").body["items"]
        names = [item["metadata"]["name"] for item in items]
        return [name for name in names if name.startswith(f"kwok-{self.name}-")]

    async def until_nodes(self, count: int) -> None:
        while len(await asyncio.to_thread(self.nodes)) != count:
            await asyncio.sleep(0.2)


def wanting(name: str, gpus: int, pods: int = 1) -> Work:
    gang: dict[str, Any] = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"} if pods > 1 else {}
    job = home_job(name, NEVER_DISRUPT, **gang)
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    return Work((), manifest=json.dumps(job))


@story
async def test_a_gang_runs_on_nodes_from_zero(cloud: DevCluster, cloud_namespace: str, tmp_path: Path) -> None:
    here = Cloud(cloud, cloud_namespace, tmp_path)
    await asyncio.to_thread(here.offer, "gpus")
    async with opened(here.ground) as site:
        await site.driver.start(start("a", offer="lab/gpus", width=16), wanting("a", 8, pods=2))
        assert len(await asyncio.to_thread(here.nodes)) == 2


@story
async def test_why_no_node_comes_is_told_apart(cloud: DevCluster, cloud_namespace: str, tmp_path: Path) -> None:
    here = Cloud(cloud, cloud_namespace, tmp_path)
    for name, words in {"out": SOLD_OUT, "quota": NO_QUOTA, "gpus": ""}.items():
        await asyncio.to_thread(here.offer, name, words)
    asked = [("out", 8), ("quota", 8), ("gpus", 16)]
    async with opened(here.ground) as site:
        starts = [site.driver.start(start(name, offer=f"lab/{name}"), wanting(name, gpus)) for name, gpus in asked]
        out, quota, wide = await asyncio.gather(*starts, return_exceptions=True)
        assert isinstance(out, NoCapacity)
        assert (out.shortage, out.retry_ms) == ("stock_out", 300_000)
        assert SOLD_OUT in str(out)
        assert isinstance(quota, NoCapacity)
        assert (quota.shortage, quota.retry_ms) == ("quota", 14_400_000)
        assert NO_QUOTA in str(quota)
        assert isinstance(wide, Unstartable)
        assert wide.obstacle == "unfit"
        assert "no instance type has enough resources" in str(wide)
    async with opened(here.ground) as site:  # the answer survives the control plane
        with pytest.raises(NoCapacity) as again:
            await site.driver.start(start("quota", offer="lab/quota"), wanting("quota", 8))
        assert again.value.shortage == "quota"
    assert await asyncio.to_thread(here.nodes) == []


@story
async def test_a_gang_that_gets_half_of_its_nodes_is_taken_back_and_they_go(
    cloud: DevCluster, cloud_namespace: str, tmp_path: Path
) -> None:
    here = Cloud(cloud, cloud_namespace, tmp_path)
    await asyncio.to_thread(here.offer, "gpus", "", 8)
    async with opened(here.ground) as site:
        with pytest.raises(NoCapacity, match="exceed limits for nodepool") as full:
            await site.driver.start(start("a", offer="lab/gpus", width=16), wanting("a", 8, pods=2))
        assert full.value.shortage == ""
        assert cloud.api.ask("GET", f"/api/v1/namespaces/{cloud_namespace}/pods").body["items"] == []
        await here.until_nodes(0)


@story
async def test_with_us_dead_a_job_that_may_not_be_evicted_ends_at_its_deadline_and_then_its_node_goes(
    cloud: DevCluster, cloud_namespace: str, tmp_path: Path
) -> None:
    here = Cloud(cloud, cloud_namespace, tmp_path)
    await asyncio.to_thread(here.offer, "gpus")
    await asyncio.to_thread(cloud.apply, no_evictions(cloud_namespace))
    async with opened(here.ground) as site:
        deadline_at = here.ground.clock() + 30 * SECOND
        await site.driver.start(start("a", offer="lab/gpus", width=8, deadline_at=deadline_at), wanting("a", 8))
        assert len(await asyncio.to_thread(here.nodes)) == 1
    await here.until_nodes(0)  # nobody of us is alive
    assert here.ground.clock() >= deadline_at - SECOND
