"""A JobSet, on its real controller: the Jobs that it makes are home Jobs, and what becomes of them is its status."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, NodePlan, jobset, programs
from penstock.front import job_spec
from penstock.front.applying import Applier
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from tests.conftest import Part
from tests.front.kit import DELAY, Penstock, complete, home_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not jobset.is_available(), reason=Part.JOBSET),
]
Json = dict[str, Any]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[DevCluster]:
    with ClusterGroup(tmp_path / "bed", [ClusterPlan("lab", (NodePlan(1, gpus=8),), jobset=True)]) as bed:
        yield bed.cluster("lab")


def replicated(name: str, replicas: int) -> Json:
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": home_job("x", 1)["spec"]["template"]}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


JOB_SET: Json = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "train"},
    "spec": {"replicatedJobs": [replicated("driver", 1), replicated("worker", 2)]},
}


def test_the_jobs_of_a_job_set_are_home_jobs_and_it_completes_with_them(lab: DevCluster, tmp_path: Path) -> None:
    namespace = lab.new_namespace()

    async def tell() -> None:
        async with Penstock(lab, namespace, tmp_path, runs={f"j{k}": 0.5 for k in range(3)}) as here:
            cluster = connect(Access(kubeconfig=str(lab.kubeconfig)))
            try:
                lines = [(await Applier(cluster, "vision", namespace).apply(JOB_SET)).line for _ in range(2)]
            finally:
                await cluster.close()
            assert lines == ["jobset.jobset.x-k8s.io/train created", "jobset.jobset.x-k8s.io/train unchanged"]
            for name in ("train-driver-0", "train-worker-0", "train-worker-1"):
                job = await here.shows(name, complete)
                assert job["spec"]["managedBy"] == annotations.MANAGER
            lab.kubectl("-n", namespace, "wait", "jobset/train", "--for=condition=Completed", "--timeout=50s")
            assert {row.team for row in (here.reader.spec(f"j{k}") for k in range(3)) if row} == {"vision"}

    asyncio.run(tell())


def without_gpus(name: str) -> Json:
    made = replicated(name, 1)
    template = made["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {DELAY: "1s"}}
    for container in template["spec"]["containers"]:
        del container["resources"]
    return made


MIXED: Json = {**JOB_SET, "spec": {"replicatedJobs": [without_gpus("driver"), replicated("worker", 2)]}}


def test_a_job_set_with_a_driver_without_gpus_is_taken_whole_and_stays_in_one_cluster(
    lab: DevCluster, tmp_path: Path
) -> None:
    """`kubectl penstock apply` refused all of it: "It asks for no GPUs"."""
    namespace = lab.new_namespace()

    async def tell() -> None:
        async with Penstock(lab, namespace, tmp_path, runs={f"j{k}": 0.5 for k in range(2)}) as here:
            cluster = connect(Access(kubeconfig=str(lab.kubeconfig)))
            try:
                lines = [(await Applier(cluster, "vision", namespace).apply(MIXED)).line for _ in range(2)]
            finally:
                await cluster.close()
            assert lines == ["jobset.jobset.x-k8s.io/train created", "jobset.jobset.x-k8s.io/train unchanged"]
            for name in ("train-worker-0", "train-worker-1"):
                await here.shows(name, complete)
            lab.kubectl("-n", namespace, "wait", "jobset/train", "--for=condition=Completed", "--timeout=50s")
            driver = lab.get("job", "train-driver-0", "-n", namespace)
            assert driver["spec"].get("managedBy") in (None, "kubernetes.io/job-controller")
            specs = [here.reader.spec(f"j{k}") for k in range(2)]
            assert all(spec is not None and job_spec.BESIDE in spec.needs for spec in specs)

    asyncio.run(tell())
