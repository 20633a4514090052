"""Front door, drivers, journal and two clusters together: nothing is rehearsed, only the pods are kwok's."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model.actions import StopAttempt
from penstock.core.model.types import Policy, Waiting
from penstock.core.units import HOUR
from penstock.devcluster import ClusterGroup
from penstock.drivers.kubernetes import driver, terminate
from penstock.front.binding_driver import BindingDriver
from penstock.kube import annotations
from tests.clusters import emptied_namespace
from tests.front.kit import DELAY, LIMIT_S, Clustered, Json, binding, complete, failed, home_job, ours, running

pytestmark = pytest.mark.slow
Made = Callable[..., Clustered]


@pytest.fixture
def penstock(own_bed: ClusterGroup, tmp_path: Path) -> Iterator[Made]:
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")
    with emptied_namespace(lab, east) as namespace:
        yield lambda **more: Clustered(lab, east, namespace, tmp_path, **more)


def lasting(name: str, delay: str = "", **more: Any) -> dict[str, Any]:
    job = home_job(name, **more)
    if delay:
        job["spec"]["template"]["metadata"] = {"annotations": {DELAY: delay}}
    return job


def test_one_runs_at_home_the_next_bursts_and_both_home_jobs_complete(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(lasting("a"))
            job = await here.shows("a", running)
            assert binding(job)["site"] == "lab"
            here.apply(lasting("b"))
            job = await here.shows("b", running)
            assert binding(job)["site"] == "east"
            (there,) = here.executions("east")
            assert annotations.QUEUE not in there["metadata"]["labels"]
            assert there["spec"].get("managedBy") in (None, "kubernetes.io/job-controller")
            here.finish("lab")
            await here.shows("a", complete)
            here.finish("east")
            job = await here.shows("b", complete)
            assert job["status"]["succeeded"] == 1
            await here.says("b", "Succeeded")

    asyncio.run(tell())


def test_a_job_with_an_unmapped_volume_waits_and_says_so(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(lasting("a"))
            await here.shows("a", running)
            volume = {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}}
            here.apply(lasting("b", pod={"volumes": [volume]}))
            event = await here.says("b", "OnlyOwned")
            assert "it needs volume scratch, and east has no map for it" in event["message"]
            assert here.executions("east") == []

    asyncio.run(tell())


def unsuited(job: Json) -> str:
    """What the Job says if no node suits it."""
    conditions: list[Json] = (job.get("status") or {}).get("conditions") or []
    return next((str(condition["message"]) for condition in conditions if condition["reason"] == "NothingSuits"), "")


def test_a_job_that_no_node_can_take_says_so_at_once_rents_nothing_and_leaves_the_gpus_to_others(
    penstock: Made,
) -> None:
    """It closed the owned offer after a minute without a word, and the next Job burst beside idle GPUs. Then it was
    tried there again and again; now nothing is started that no node suits.
    """

    async def tell() -> None:
        here = penstock(policy=Policy("test", waiting=Waiting("constant", HOUR)))
        here.settings["lab"] = replace(here.settings["lab"], room_ms=5000, retry_ms=2000)
        async with here:
            here.apply(lasting("a", gpus=1, pod={"nodeSelector": {"lab.example/disk": "nvme"}}))
            waiting = await here.shows("a", lambda job: unsuited(job) != "")
            assert "none of the 1 nodes of lab/a100 suits it: 1 lacks node selector lab.example/disk=nvme" in unsuited(
                waiting
            )
            here.apply(lasting("b", gpus=8))
            assert binding(await here.shows("b", running))["site"] == "lab"
            here.finish("lab")
            await here.shows("b", complete)
            (node,) = here.clusters["lab"].get("nodes")["items"]
            here.clusters["lab"].kubectl("label", "node", node["metadata"]["name"], "lab.example/disk=nvme")
            assert binding(await here.shows("a", running))["site"] == "lab"  # repaired, and tried again
            assert here.executions("east") == []
            here.clusters["lab"].kubectl("label", "node", node["metadata"]["name"], "lab.example/disk-")

    asyncio.run(tell())


def test_config_map_volume_and_image_are_mapped_where_it_bursts_and_all_of_it_goes_with_the_home_job(
    penstock: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran elsewhere stayed for a day, and a copy for ever."""
    monkeypatch.setattr(driver, "TICK_SECONDS", 0.5)
    monkeypatch.setattr(terminate, "GONE_MS", 0)
    maps = {
        "images": (("lab.internal/", "mirror.example/"),),
        "volumes": (("scratch", "emptyDir"),),
        "copy_config_maps": True,
    }

    async def tell() -> None:
        async with penstock(maps=maps) as here:
            here.given.kubectl("-n", here.namespace, "create", "configmap", "settings", "--from-literal=lr=0.1")
            volumes = [
                {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}},
                {"name": "c", "configMap": {"name": "settings"}},
            ]
            container = {
                "name": "train", "image": "lab.internal/train:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}
            }  # fmt: skip
            here.apply(lasting("a"))
            await here.shows("a", running)
            here.apply(lasting("b", pod={"volumes": volumes, "containers": [container]}))
            await here.shows("b", running)
            (there,) = here.executions("east")
            pod = there["spec"]["template"]["spec"]
            assert pod["containers"][0]["image"] == "mirror.example/train:1"
            mounted = {volume["name"]: volume for volume in pod["volumes"]}
            assert mounted["s"]["emptyDir"] == {}
            copied = here.clusters["east"].get("-n", here.namespace, "configmap", mounted["c"]["configMap"]["name"])
            assert copied["data"] == {"lr": "0.1"}
            assert [owner["uid"] for owner in copied["metadata"]["ownerReferences"]] == [there["metadata"]["uid"]]
            await buries(here, "j1.0", "j9.1")
            await until_there_are(here, "j1.1", "j9.1")  # j1.1 is bound: j1.0 cannot come any more
            here.delete("b")
            await here.is_gone("b")
            await until_there_are(here, "j9.1")  # nobody knows whether that one still comes
            async with asyncio.timeout(LIMIT_S):
                while here.clusters["east"].get("-n", here.namespace, "configmaps", "-l", annotations.COPY)["items"]:
                    await asyncio.sleep(0.2)

    asyncio.run(tell())


async def buries(here: Clustered, *attempts: str) -> None:
    """Tombstones of attempts that were told to stop before anything was made for them."""
    gate = here.plane.drivers["east"]
    assert isinstance(gate, BindingDriver)
    for attempt in attempts:
        await gate.driver.do(StopAttempt(attempt, 0))
        await gate.driver.forget(attempt)


async def until_there_are(here: Clustered, *attempts: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while attempts != tuple(
            sorted(execution["metadata"]["annotations"][annotations.ATTEMPT] for execution in here.executions("east"))
        ):
            await asyncio.sleep(0.2)


def test_a_program_that_fails_fails_the_home_job(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            job = lasting("a", "300ms", spec={"backoffLimit": 0})
            job["spec"]["template"]["metadata"]["annotations"]["penstock.dev/exit-code"] = "3"
            here.apply(job)
            job = await here.shows("a", failed)
            assert "3" in str(job["status"]["conditions"])
            assert job["status"]["failed"] == 1

    asyncio.run(tell())


def test_deleting_a_home_job_ends_what_runs_for_it_elsewhere(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(lasting("a"))
            await here.shows("a", running)
            here.apply(lasting("b"))
            await here.shows("b", running)
            here.delete("b")
            await here.is_gone("b")
            pods = here.clusters["east"].get("-n", here.namespace, "pods")["items"]
            assert [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")] == []

    asyncio.run(tell())


def test_another_job_of_the_same_name_is_another_job(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(lasting("a", "300ms", gpus=1))
            await here.shows("a", complete)
            assert ours(await here.shows("a", lambda job: not job["metadata"].get("finalizers"))) != []
            here.delete("a")
            await here.is_gone("a")
            here.apply(lasting("a", "300ms", gpus=1))
            await here.shows("a", complete)
            assert [(count.state, count.jobs) for count in here.reader.counts()] == [("succeeded", 2)]

    asyncio.run(tell())
