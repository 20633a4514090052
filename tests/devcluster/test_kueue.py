"""A cluster with Kueue: its webhook and its quotas are at work, as on a site that runs Kueue already."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.assess.history import SourceReading
from penstock.assess.sources.kubernetes import read_cluster
from penstock.assess.sources.reading import from_text
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, NodePlan, kueue, programs
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS
from tests.conftest import Part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not kueue.is_available(), reason=Part.KUEUE),
]
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
]


@pytest.fixture
def queued(tmp_path: Path) -> Iterator[DevCluster]:
    """Eight GPUs, of which Kueue gives out two; every Job of the namespace `default` goes through it."""
    with ClusterGroup(tmp_path / "bed", [ClusterPlan("lab", (NodePlan(gpus=8),), kueue=True)]) as bed:
        cluster = bed.cluster("lab")
        cluster.apply(*kueue.queue("team", "default", gpus=2))
        # Until Kueue knows the queue, its webhook lets Jobs pass by it.
        cluster.kubectl("wait", "localqueue/default", "--for=condition=Active", "--timeout=55s")
        yield cluster


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def test_jobs_run_within_the_quota_and_wait_suspended_beyond_it(queued: DevCluster) -> None:
    for name in ("first", "second"):
        queued.kubectl("create", "-f", "-", stdin=json.dumps(job(name)))
    queued.kubectl("wait", "job/first", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
    queued.kubectl("wait", "job/second", "--for=condition=Suspended", "--timeout=55s")
    assert queued.get("job/second")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    queued.kubectl("delete", "job/first")
    queued.kubectl("wait", "job/second", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
    queued.kubectl("create", "-f", "-", stdin=json.dumps(job("third")))
    queued.kubectl("wait", "job/third", "--for=condition=Suspended", "--timeout=55s")
    assert_assess_reads_the_true_waits(queued)


def assert_assess_reads_the_true_waits(queued: DevCluster) -> None:
    """`penstock assess` with an account that may list Jobs and Workloads, and no pods: what Kueue says is the start."""
    second = queued.get("job/second")["metadata"]
    (workload,) = [
        one
        for one in queued.get("workloads")["items"]
        if second["uid"] in {owner["uid"] for owner in one["metadata"].get("ownerReferences", [])}
    ]
    times = {
        one["type"]: from_text(one["lastTransitionTime"])
        for one in workload["status"]["conditions"]
        if one["status"] == "True"
    }
    assert from_text(second["creationTimestamp"]) <= times["QuotaReserved"] <= times["Admitted"]
    account = Access(str(queued.token_for("assess", RULES)))
    found = {one.name: one for one in asyncio.run(seen_by(account)).jobs}
    assert {name: (one.started_by, one.outcome) for name, one in found.items()} == {
        "second": ("kueue", "running"),
        "third": ("", "queued"),
    }
    assert found["second"].wait_ms == times["Admitted"] - from_text(second["creationTimestamp"])


async def seen_by(account: Access) -> SourceReading:
    """As soon as the API server knows its rights."""
    cluster = connect(account)
    try:
        while not await cluster.may("list", JOBS, "default"):
            await asyncio.sleep(0.05)
        return await read_cluster(cluster, "default")
    finally:
        await cluster.close()
