"""Every Job is given back, and nothing of ours stays."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.core.model.types import JobSpec
from penstock.devcluster import ClusterGroup
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import Work
from penstock.drivers.kubernetes.execution_job import tombstone
from penstock.front.uninstall import restore_jobs
from penstock.front.uninstall.sweep import ClusterSweep
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import CONFIG_MAPS, JOBS, LEASES, NODES, Cluster
from penstock.kube.errors import Forbidden
from tests.clusters import emptied_namespace
from tests.front.kit import DELAY, LIMIT_S, SITES, Clustered, Penstock, binding, complete, home_job, running

pytestmark = pytest.mark.slow
Json = dict[str, Any]
SCRATCH = {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}}


@pytest.fixture
def penstock(lab: ExternalCluster, namespace: str, tmp_path: Path) -> Callable[..., Penstock]:
    return lambda **more: Penstock(lab, namespace, tmp_path, sites=SITES[:1], **more)


@pytest.fixture
def clustered(own_bed: ClusterGroup, tmp_path: Path) -> Iterator[Callable[..., Clustered]]:
    """At home in one cluster, with another one to burst to."""
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")
    with emptied_namespace(lab, east) as namespace:
        yield lambda **more: Clustered(lab, east, namespace, tmp_path, **more)


def lasting(name: str) -> Json:
    """On kwok's nodes, once it is an ordinary Job."""
    job = home_job(name, gpus=1, annotations={"deadline": "8h"})
    job["spec"]["template"]["metadata"] = {"annotations": {DELAY: "200ms"}, "labels": {"app": "train"}}
    return job


def waiting(job: Json) -> bool:
    return bool((job.get("status") or {}).get("conditions")) and not running(job)


def test_what_waits_becomes_an_ordinary_job_and_what_runs_is_shown_to_its_end(
    penstock: Callable[..., Penstock],
) -> None:
    async def tell() -> None:
        async with penstock(runs={"j0": 6}) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(lasting("b"))
            first = await here.shows("b", waiting)
            await here.manager.leave("lab")
            job = await here.shows(
                "b", lambda shown: complete(shown) and shown["metadata"]["uid"] != first["metadata"]["uid"]
            )
            assert "managedBy" not in job["spec"] or job["spec"]["managedBy"] == "kubernetes.io/job-controller"
            await here.shows(
                "a", lambda shown: complete(shown) and annotations.QUEUE not in shown["metadata"].get("labels", {})
            )
            async with asyncio.timeout(LIMIT_S):
                await here.manager.controllers["lab"].left.wait()
            there = here.given.get("-n", here.namespace, "jobs,configmaps,leases", "--show-managed-fields=false")[
                "items"
            ]
            assert annotations.DOMAIN not in json.dumps([(item["metadata"], item.get("status")) for item in there])
            assert {item["metadata"]["name"] for item in there} == {"a", "b", "kube-root-ca.crt"}
            assert here.phase("j0") == "done"

    asyncio.run(tell())


def marks_in(here: Clustered, site: str) -> str:
    """Every word of ours in a cluster, as kubectl shows it."""
    there = here.clusters[site].get("-n", here.namespace, "jobs,pods,configmaps,leases")["items"]
    trimmed = [
        {key: value for key, value in item.items() if key != "spec" or item["kind"] == "Lease"} for item in there
    ]
    return "\n".join(line for line in json.dumps(trimmed, indent=1).splitlines() if "penstock" in line)


def test_what_runs_elsewhere_ends_there_and_then_no_cluster_bears_a_mark_of_ours(
    clustered: Callable[..., Clustered],
) -> None:
    async def tell() -> None:
        async with clustered() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            assert binding(await here.shows("b", running))["site"] == "east"
            here.apply(home_job("c", gpus=1, pod={"volumes": [SCRATCH]}))
            first = await here.shows("c", waiting)
            assert "penstock" in marks_in(here, "east")
            await here.manager.leave("lab")
            for site in ("lab", "east"):
                here.finish(site)
            await here.shows(
                "b", lambda job: complete(job) and annotations.QUEUE not in (job["metadata"].get("labels") or {})
            )
            await here.shows("c", lambda job: job["metadata"]["uid"] != first["metadata"]["uid"])
            await left(here)
            assert [marks_in(here, site) for site in ("lab", "east")] == ["", ""]
            assert here.phase("j1") == "done"

    asyncio.run(tell())


def test_what_keeps_checkpoints_is_brought_home_and_shown_to_its_end(clustered: Callable[..., Clustered]) -> None:
    async def tell() -> None:
        async with clustered() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b", annotations={"checkpoint-every": "1s", "run-time": "4h"}))
            assert binding(await here.shows("b", running))["site"] == "east"
            await here.manager.leave("lab", bring_home=True)
            here.finish("lab")
            await here.starts("j1", "lab")
            assert binding(await here.shows("b", running))["site"] == "lab"
            here.finish("lab")
            await here.shows("b", complete)
            await left(here)
            tries = here.reader.attempts("j1")
            assert [(attempt.site, attempt.outcome) for attempt in tries] == [("east", "stopped"), ("lab", "done")]
            assert [marks_in(here, site) for site in ("lab", "east")] == ["", ""]

    asyncio.run(tell())


def test_what_is_still_there_is_named(clustered: Callable[..., Clustered]) -> None:
    """Something of ours that is no home Job's keeps us there; it is told which."""

    async def tell() -> None:
        async with clustered() as here:
            accepted = await here.plane.submit(JobSpec(8, user="ada"), Work((), image="x"))
            await here.ends(accepted.answer, "placed")
            await here.manager.leave("lab")
            controller = here.manager.controllers["lab"]
            async with asyncio.timeout(LIMIT_S):
                while not controller.sweep.remains:
                    await asyncio.sleep(0.05)
            name = annotations.execution_name(here.plane.installation, f"{accepted.answer}.1")
            assert controller.sweep.remains == [f"Job {here.namespace}/{name}, whose end is not on record yet"]
            await here.plane.tell(e.CancelRequested(0, accepted.answer))
            await left(here)

    asyncio.run(tell())


async def left(here: Clustered) -> None:
    """No home, and no other cluster."""
    async with asyncio.timeout(LIMIT_S):
        await here.manager.parted["lab"].wait()
        await here.manager.elsewhere["east"].left.wait()


def test_one_that_comes_while_we_leave_is_an_ordinary_job_too(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            await here.manager.leave("lab")
            here.apply(lasting("late"))
            job = await here.shows("late", complete)
            assert annotations.QUEUE not in (job["metadata"].get("labels") or {})
            assert here.phase("j1") == ""

    asyncio.run(tell())


def test_one_that_dies_between_two_lives_of_a_job_loses_nothing(
    lab: ExternalCluster, namespace: str, penstock: Callable[..., Penstock]
) -> None:
    """Ours may delete Jobs and make none: it fails in the middle. Whoever comes next goes on from what was kept."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete"]},
    ]
    limited = lab.token_for(f"half-{namespace}", rules)

    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(lasting("b"))
            waits = await here.shows("b", waiting)
            await here.goes_down()
            half = connect(Access(kubeconfig=str(limited)))
            with pytest.raises(Forbidden):
                await restore_jobs.give_back(half, waits)
            await half.close()
            await here.is_gone("b")
            here.kept.write_text("lab\n")
            await here.comes_up()
            await here.shows("b", complete)

    asyncio.run(tell())


def test_an_ordinary_job_is_what_it_was_without_us() -> None:
    applied = home_job("a", annotations={"deadline": "8h"})
    applied["metadata"] |= {"uid": "u", "namespace": "n", "finalizers": [annotations.CANCEL], "resourceVersion": "7"}
    applied["metadata"]["labels"]["app"] = "train"
    applied["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    applied["spec"]["template"]["metadata"] = {"labels": {"app": "train", "job-name": "a", "controller-uid": "u"}}
    made = restore_jobs.ordinary(applied)
    assert made["metadata"] == {"name": "a", "namespace": "n", "labels": {"app": "train"}, "annotations": {}}
    assert set(made["spec"]) == {"template"}
    assert made["spec"]["template"]["metadata"] == {"labels": {"app": "train"}}


def test_a_copy_that_another_installation_uses_stays_until_that_one_leaves(
    lab: ExternalCluster, namespace: str
) -> None:
    async def tell() -> None:
        cluster = connect(Access(kubeconfig=str(lab.kubeconfig)))
        for installation in ("one", "two"):
            stone = tombstone(installation, "j0.1", namespace)
            del stone["metadata"]["finalizers"]
            await cluster.create(JOBS, stone)
        jobs = (await cluster.list(JOBS, namespace))[0]
        copied = {"metadata": {"name": "settings-0", "labels": {annotations.COPY: "config-map"}}, "data": {"lr": "0.1"}}
        await cluster.create(CONFIG_MAPS, copied, namespace)
        for job in jobs:
            owner = {"apiVersion": "batch/v1", "kind": "Job"} | {key: job["metadata"][key] for key in ("name", "uid")}
            await cluster.add_owner(CONFIG_MAPS, "settings-0", owner, namespace)
        assert await _swept(cluster, "one", namespace) == []
        assert (await cluster.get(CONFIG_MAPS, "settings-0", namespace))["data"] == {"lr": "0.1"}
        assert await _swept(cluster, "two", namespace) == []
        assert (await cluster.list(CONFIG_MAPS, namespace, labels=annotations.COPY))[0] == []
        await cluster.close()

    asyncio.run(tell())


def test_a_rented_node_is_waited_for_and_named_and_the_cluster_keeps_its_owner_meanwhile(
    lab: ExternalCluster, namespace: str
) -> None:
    async def tell() -> None:
        cluster = connect(Access(kubeconfig=str(lab.kubeconfig)))
        labels, notes = {annotations.INSTALLATION: namespace}, {annotations.NODE_DEADLINE: "1800000000000"}
        await cluster.create(NODES, {"metadata": {"name": namespace, "labels": labels, "annotations": notes}})
        lease = {"metadata": {"name": annotations.LEASE}, "spec": {"holderIdentity": namespace}}
        await cluster.create(LEASES, lease, namespace)
        sweep = ClusterSweep("lab", cluster, (namespace,), namespace)
        parting = asyncio.create_task(sweep.part())
        async with asyncio.timeout(LIMIT_S):
            while not sweep.remains:
                await asyncio.sleep(0.05)
            assert sweep.remains == [f"Node {namespace}, rented until 2027-01-15 08:00 UTC at the latest"]
            await asyncio.sleep(0.5)
            assert (await cluster.get(LEASES, annotations.LEASE, namespace))["spec"]["holderIdentity"] == namespace
            await cluster.delete(NODES, namespace)
            await parting
        assert sweep.left.is_set()
        assert (await cluster.list(LEASES, namespace))[0] == []
        await cluster.close()

    asyncio.run(tell())


async def _swept(cluster: Cluster, installation: str, namespace: str) -> list[str]:
    """What remains when the cluster has collected what it collects."""
    assert await restore_jobs.sweep(cluster, installation, namespace, restore_jobs.anybodys) == []
    async with asyncio.timeout(LIMIT_S):
        while remains := await restore_jobs.remains(cluster, installation, namespace):
            await asyncio.sleep(0.2)
    return remains
