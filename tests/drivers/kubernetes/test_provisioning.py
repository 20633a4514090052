"""All nodes at once, on a real API server with the real definition; the test plays the autoscaler."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.core.model import events as e
from penstock.core.units import SECOND
from penstock.devcluster import DevCluster, programs
from penstock.drivers.driver import NoCapacity, Unstartable, Work
from penstock.drivers.kubernetes import provisioning
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.drivers.kubernetes.provisioning_request import CONSUMED
from penstock.kube import annotations
from penstock.kube.node_selection import NodeSelection
from tests.awaiting import story
from tests.conftest import Part
from tests.contract.kit import FOREVER, KubernetesGround, Watch, home_job, opened, start

DEFINITION: Final = "kueue-kinds/autoscaling"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.is_built(DEFINITION), reason=Part.KUEUE),
]
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
Json = dict[str, Any]


class Autoscaler:
    """Offers `lab/pods`, whose nodes are asked for at once, and says of each request what the test wants."""

    def __init__(self, cluster: DevCluster, namespace: str, folder: Path, **settings: Any) -> None:
        cluster.define(programs.program(DEFINITION), "provisioningrequests.autoscaling.x-k8s.io")
        self.cluster, self.namespace = cluster, namespace
        places = (("lab/pods", NodeSelection(provisioning_class=CLASS)),)
        self.ground = KubernetesGround(cluster.kubeconfig, namespace, folder, places=places, **settings)
        self.group = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests"

    def requests(self) -> list[Json]:
        requests: list[Json] = self.cluster.api.ask("GET", self.group).body["items"]
        return requests

    def templates(self) -> list[Json]:
        templates: list[Json] = self.cluster.api.ask("GET", f"/api/v1/namespaces/{self.namespace}/podtemplates").body[
            "items"
        ]
        return templates

    def pods(self) -> list[Json]:
        return list(self.cluster.get("pods", "-n", self.namespace)["items"])

    def says(self, name: str, **conditions: tuple[bool, str, str]) -> None:
        """Condition: whether it holds, its reason and message."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        rows = [
            {"type": kind, "status": str(holds), "reason": reason, "message": words, "lastTransitionTime": now}
            for kind, (holds, reason, words) in conditions.items()
        ]
        answer = self.cluster.api.ask("PATCH", f"{self.group}/{name}/status", {"status": {"conditions": rows}})
        assert answer.code == 200, answer.body

    @asynccontextmanager
    async def starting(self, site: Watch, job: str, **more: Any) -> AsyncIterator[tuple[str, "asyncio.Task[None]"]]:
        """While its request waits: its name, and the start."""
        going = asyncio.create_task(site.driver.start(start(job, offer="lab/pods", width=4, **more), gang(job)))
        name = annotations.execution_name("home", f"{job}.1")
        await until(lambda: name in [request["metadata"]["name"] for request in self.requests()])
        try:
            yield name, going
        finally:
            going.cancel()
            await asyncio.wait([going])


async def until(holds: Callable[[], Any]) -> None:
    while not await asyncio.to_thread(holds):
        await asyncio.sleep(0.1)


def gang(name: str) -> Work:
    job = home_job(name, FOREVER, parallelism=2, completions=2, completionMode="Indexed")
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    return Work((), manifest=json.dumps(job))


THERE = (True, "CapacityIsProvisioned", "Capacity is found in the cluster")
SOLD_OUT = (False, "CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")


@story
async def test_a_gang_has_no_pod_before_its_nodes_are_there_and_then_uses_them_and_leaves_nothing(
    lab: DevCluster, namespace: str, tmp_path: Path
) -> None:
    cloud = await asyncio.to_thread(Autoscaler, lab, namespace, tmp_path)
    async with opened(cloud.ground) as site, cloud.starting(site, "a") as (name, going):
        (asked,) = await asyncio.to_thread(cloud.requests)
        assert asked["spec"] == {
            "provisioningClassName": CLASS,
            "podSets": [{"podTemplateRef": {"name": name}, "count": 2}],
        }
        (template,) = await asyncio.to_thread(cloud.templates)
        assert template["template"]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
        await asyncio.to_thread(cloud.says, name, Accepted=(True, "Accepted", "ours"))
        queued = await site.hears(e.AttemptQueued, "a.1")
        assert queued.words.startswith("no autoscaler takes up") or "being added" in queued.words
        assert await asyncio.to_thread(cloud.pods) == []

        await asyncio.to_thread(cloud.says, name, Provisioned=THERE)
        await going
        pods = await asyncio.to_thread(cloud.pods)
        assert [pod["metadata"]["annotations"][CONSUMED] for pod in pods] == [name, name]
        await site.driver.stop("a.1", 1000)
        await site.hears(e.AttemptStopped, "a.1")
        assert await asyncio.to_thread(cloud.requests) == []
        assert await asyncio.to_thread(cloud.templates) == []


@story
async def test_why_the_nodes_do_not_come_is_told_apart_and_outlives_the_control_plane(
    lab: DevCluster, namespace: str, tmp_path: Path
) -> None:
    cloud = await asyncio.to_thread(Autoscaler, lab, namespace, tmp_path, no_node_ms=SECOND)
    quota = (True, "OutOfResources", "Quota 'NVIDIA_A100_GPUS' exceeded")
    async with opened(cloud.ground) as site:
        async with cloud.starting(site, "quota") as (name, going):
            await asyncio.to_thread(cloud.says, name, Failed=quota)
            with pytest.raises(NoCapacity, match="NVIDIA_A100_GPUS") as none:
                await going
            assert (none.value.shortage, none.value.retry_ms) == ("quota", 14_400_000)
        async with cloud.starting(site, "out") as (name, going):
            await asyncio.to_thread(cloud.says, name, Provisioned=SOLD_OUT)
            with pytest.raises(NoCapacity, match="CA will try") as none:
                await going
            assert none.value.shortage == "stock_out"
        async with cloud.starting(site, "wrong") as (name, going):
            await asyncio.to_thread(cloud.says, name, Failed=(True, "FailedToCreatePods", "bad template"))
            with pytest.raises(Unstartable, match="bad template") as own:
                await going
            assert own.value.obstacle == "unfit"
        async with cloud.starting(site, "nobody") as (_, going):
            with pytest.raises(NoCapacity, match="no autoscaler takes up") as none:
                await going
            assert none.value.shortage == "settings"
    async with opened(cloud.ground) as site:
        with pytest.raises(NoCapacity) as again:
            await site.driver.start(start("quota", offer="lab/pods", width=4), gang("quota"))
        assert again.value.shortage == "quota"
        await until(lambda: cloud.requests() == [])
    assert await asyncio.to_thread(cloud.pods) == []


@story
async def test_a_control_plane_that_dies_while_its_gang_waits_asks_once_and_goes_on(
    lab: DevCluster, namespace: str, tmp_path: Path
) -> None:
    cloud = await asyncio.to_thread(Autoscaler, lab, namespace, tmp_path)
    async with opened(cloud.ground) as site, cloud.starting(site, "a"):
        (before,) = await asyncio.to_thread(cloud.requests)
    async with opened(cloud.ground) as site, cloud.starting(site, "a") as (name, going):
        (again,) = await asyncio.to_thread(cloud.requests)
        assert again["metadata"]["uid"] == before["metadata"]["uid"]
        await asyncio.to_thread(cloud.says, name, Provisioned=THERE)
        await going


@story
async def test_a_stop_while_it_waits_withdraws_the_request_and_a_late_one_is_swept(
    lab: DevCluster, namespace: str, tmp_path: Path
) -> None:
    cloud = await asyncio.to_thread(Autoscaler, lab, namespace, tmp_path)
    async with opened(cloud.ground) as site, cloud.starting(site, "a") as (_, going):
        (asked,) = await asyncio.to_thread(cloud.requests)
        await site.driver.stop("a.1", 1000)
        await site.hears(e.AttemptStopped, "a.1")
        await going
        assert await asyncio.to_thread(cloud.requests) == []
        meta = {key: asked["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        late = {key: asked[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": meta}
        await asyncio.to_thread(cloud.cluster.apply, late)
        assert isinstance(site.driver, KubernetesDriver)
        await provisioning.sweep(site.driver.here)
        assert await asyncio.to_thread(cloud.requests) == []


@story
async def test_one_that_is_not_asked_for_at_once_starts_as_ever(
    lab: DevCluster, namespace: str, tmp_path: Path
) -> None:
    cloud = await asyncio.to_thread(Autoscaler, lab, namespace, tmp_path)
    cloud.ground.settings = replace(cloud.ground.settings, places=())
    async with opened(cloud.ground) as site:
        await site.driver.start(start("a", offer="lab/pods", width=4), gang("a"))
        assert await asyncio.to_thread(cloud.requests) == []
