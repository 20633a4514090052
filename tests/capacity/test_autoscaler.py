"""Rented nodes by the Job alone, and all nodes at once: a real cluster-autoscaler adds nodes from zero and takes them
away. Its limits are those of `devcluster.autoscaler`: three a100 at most, one of few, five nodes in all.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import SECOND
from penstock.core.units import money as usd
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, autoscaler, programs
from penstock.drivers.driver import NoCapacity, Unstartable, Work
from penstock.drivers.kubernetes import provisioning, trouble
from penstock.kube.node_selection import NodeSelection
from tests.awaiting import story
from tests.clusters import emptied_namespace
from tests.conftest import Part
from tests.contract.kit import NEVER_DISRUPT, KubernetesGround, home_job, opened, start
from tests.front.kit import Clustered, binding, complete, running
from tests.front.kit import home_job as job_of_a_person

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not autoscaler.is_available(), reason=Part.AUTOSCALER),
]
AT_ONCE: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
LIMIT_S: Final = 60


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """A home cluster without nodes, and one where the autoscaler adds them. Its limits count for the whole cluster, so
    one test uses it at a time.
    """
    if "PENSTOCK_TEST_KUBECONFIGS" in os.environ:
        pytest.skip(Part.OUR_CLUSTERS)
    plans = [ClusterPlan("lab"), ClusterPlan("cloud", autoscaler=True)]
    with ClusterGroup(tmp_path_factory.mktemp("beds") / "bed", plans) as made:
        yield made


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "FIRST_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(trouble, "STABLE_SECONDS", 0.5)
    monkeypatch.setattr(provisioning, "LOOK_SECONDS", (0.5,))


@pytest.fixture
def cloud(bed: ClusterGroup) -> DevCluster:
    return bed.cluster("cloud")


@pytest.fixture
def namespace(bed: ClusterGroup, cloud: DevCluster) -> Iterator[str]:
    """Afterwards all nodes are gone."""
    with emptied_namespace(bed.cluster("lab"), cloud) as name:
        yield name
    until(lambda: not nodes(cloud))


def until(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    give_up = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.2)


def nodes(cloud: DevCluster) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cloud.api.ask("GET", "/api/v1/nodes").body["items"]
    return items


def pods(cloud: DevCluster, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cloud.api.ask("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return items


def ground(
    cloud: DevCluster, namespace: str, folder: Path, group: str, provisioning_class: str = ""
) -> KubernetesGround:
    """One offer of a node group, at zero nodes."""
    offer = Offer(f"lab/{group}", "lab", "on_demand", (NodeShape(8, 8),), sold_by="attempt", start_ms=60_000)
    place = NodeSelection(selector=((autoscaler.GROUP, group),), provisioning_class=provisioning_class)
    # It takes a request up in its next round.
    no_node_ms = 3 * SECOND if provisioning_class else SECOND
    made = KubernetesGround(cloud.kubeconfig, namespace, folder, no_node_ms=no_node_ms, places=((offer.id, place),))
    made.site = Site("lab", (offer,))
    return made


def wanting(count: int, gpus: int = 8) -> Work:
    gang: dict[str, Any] = {"parallelism": count, "completions": count, "completionMode": "Indexed"}
    job = home_job("a", NEVER_DISRUPT, **(gang if count > 1 else {}))
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    return Work((), manifest=json.dumps(job))


# --- by the Job alone ------------------------------------------------------------------------------------------------


class Autoscaled(Clustered):
    """Home Jobs in `lab`, where there is no GPU, and one rented offer of a node group."""

    def __init__(self, bed: ClusterGroup, namespace: str, folder: Path, group: str) -> None:
        super().__init__(bed.cluster("lab"), bed.cluster("cloud"), namespace, folder)
        lab, east = self.sites
        offer = Offer(
            "east/gpus", "east", "on_demand", (NodeShape(8, 8, usd("16")),), "A100", sold_by="attempt", start_ms=10_000
        )
        self.sites = (lab, replace(east, offers=(offer,)))
        place = NodeSelection(selector=((autoscaler.GROUP, group),))
        self.settings["east"] = replace(self.settings["east"], places=((offer.id, place),), no_node_ms=SECOND)


def test_a_home_job_bursts_to_a_node_that_comes_from_zero_and_goes_after(
    bed: ClusterGroup, cloud: DevCluster, namespace: str, tmp_path: Path
) -> None:
    async def tell() -> None:
        async with Autoscaled(bed, namespace, tmp_path, "a100") as here:
            assert nodes(cloud) == []
            here.apply(job_of_a_person("a"))
            job = await here.shows("a", running)
            assert binding(job)["site"] == "east"
            (node,) = nodes(cloud)
            assert node["metadata"]["labels"][autoscaler.GROUP] == "a100"
            assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
            (pod,) = pods(cloud, namespace)
            assert pod["spec"]["nodeName"] == node["metadata"]["name"]
            here.finish("east")
            await here.shows("a", complete)
            await asyncio.to_thread(until, lambda: not nodes(cloud))

    asyncio.run(tell())


def test_a_gang_beyond_the_clusters_limit_is_taken_back_and_why_says_that_the_limit_is_reached(
    bed: ClusterGroup, cloud: DevCluster, namespace: str, tmp_path: Path
) -> None:
    """It was kept from the offer for good, as one that no node could ever take."""
    count = autoscaler.MOST_NODES + 1

    async def tell() -> None:
        async with Autoscaled(bed, namespace, tmp_path, "many") as here:
            gang = {"parallelism": count, "completions": count, "completionMode": "Indexed"}
            here.apply(job_of_a_person("a", spec=gang))
            await here.says("a", "StartFailed")
            why = "\n".join(here.why("j0"))
            assert (
                "reached its limit (NotTriggerScaleUp: pod didn't trigger scale-up: max total nodes in cluster" in why
            )
            assert "Penstock tries east/gpus again" in why
            await asyncio.to_thread(until, lambda: not nodes(cloud))

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("group", "count", "words", "shortage"),
    [
        ("few", 2, "max node group size reached", ""),
        ("out", 1, "in backoff after failed scale-up", "stock_out"),
    ],
)
@story
async def test_a_limit_and_a_stock_out_are_temporary_and_leave_nothing(
    cloud: DevCluster, namespace: str, tmp_path: Path, group: str, count: int, words: str, shortage: str
) -> None:
    async with opened(ground(cloud, namespace, tmp_path, group)) as site:
        with pytest.raises(NoCapacity, match=words) as full:
            await site.driver.start(start("a", offer=f"lab/{group}", width=8 * count), wanting(count))
        assert full.value.shortage == shortage
        assert pods(cloud, namespace) == []
    await asyncio.to_thread(until, lambda: not nodes(cloud))
    if shortage:
        await asyncio.sleep(autoscaler.BACKOFF_S)  # its words are on every pod that waits until then


@story
async def test_a_pod_that_no_group_has_a_node_for_is_kept_from_the_offer(
    cloud: DevCluster, namespace: str, tmp_path: Path
) -> None:
    async with opened(ground(cloud, namespace, tmp_path, "a100")) as site:
        with pytest.raises(Unstartable, match=r"Insufficient nvidia.com/gpu") as never:
            await site.driver.start(start("a", offer="lab/a100", width=16), wanting(1, 16))
        assert never.value.obstacle == "unfit"
    assert nodes(cloud) == []


# --- all at once -----------------------------------------------------------------------------------------------------


class Sampler(threading.Thread):
    """Counts pods and nodes, again and again, until it is stopped."""

    def __init__(self, cloud: DevCluster, namespace: str) -> None:
        super().__init__()
        self.cloud, self.namespace = cloud, namespace
        self.seen: set[tuple[int, int]] = set()
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.seen.add((len(pods(self.cloud, self.namespace)), len(nodes(self.cloud))))

    def stop(self) -> set[tuple[int, int]]:
        self.over.set()
        self.join()
        return self.seen


@story
async def test_a_gang_has_no_pod_before_all_of_its_nodes_are_there_and_they_go_with_it(
    cloud: DevCluster, namespace: str, tmp_path: Path
) -> None:
    count = autoscaler.GROUPS["a100"].most
    async with opened(ground(cloud, namespace, tmp_path, "a100", AT_ONCE)) as site:
        sampler = await asyncio.to_thread(Sampler, cloud, namespace)
        try:
            await site.driver.start(start("a", offer="lab/a100", width=8 * count), wanting(count))
        finally:
            seen = await asyncio.to_thread(sampler.stop)
        assert {there for made, there in seen if made} <= {count}
        assert len(pods(cloud, namespace)) == len(nodes(cloud)) == count
        await site.driver.stop("a.1", SECOND)
        await asyncio.to_thread(until, lambda: not nodes(cloud), 20)  # not when ten minutes of booking are over


@story
async def test_a_gang_beyond_its_groups_limit_gets_no_node_at_all(
    cloud: DevCluster, namespace: str, tmp_path: Path
) -> None:
    count = autoscaler.GROUPS["a100"].most + 1
    async with opened(ground(cloud, namespace, tmp_path, "a100", AT_ONCE)) as site:
        sampler = await asyncio.to_thread(Sampler, cloud, namespace)
        try:
            with pytest.raises(NoCapacity, match="CapacityIsNotFound") as none:
                await site.driver.start(start("a", offer="lab/a100", width=8 * count), wanting(count))
        finally:
            seen = await asyncio.to_thread(sampler.stop)
        assert none.value.shortage == "stock_out"
        assert seen == {(0, 0)}
