"""A cluster with Kueue: its webhook and its quotas are at work, as on a site that runs Kueue already."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.assess.history import SourceReading
from penstock.assess.sources.kubernetes import read_cluster
from penstock.assess.sources.reading import from_text
from penstock.devcluster import DevCluster, kueue, programs
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


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def test_jobs_run_within_the_quota_and_wait_suspended_beyond_it(
    kueue_cluster: DevCluster, with_quota: Callable[[int], str]
) -> None:
    namespace = with_quota(2)

    def kubectl(*args: str, stdin: str = "") -> None:
        kueue_cluster.kubectl("-n", namespace, *args, stdin=stdin)

    for name in ("first", "second"):
        kubectl("create", "-f", "-", stdin=json.dumps(job(name)))
    kubectl("wait", "job/first", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
    kubectl("wait", "job/second", "--for=condition=Suspended", "--timeout=55s")
    assert (
        kueue_cluster.get("job/second", "-n", namespace)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    )
    kubectl("delete", "job/first")
    kubectl("wait", "job/second", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
    kubectl("create", "-f", "-", stdin=json.dumps(job("third")))
    kubectl("wait", "job/third", "--for=condition=Suspended", "--timeout=55s")
    assert_assess_reads_the_true_waits(kueue_cluster, namespace)


def assert_assess_reads_the_true_waits(cluster: DevCluster, namespace: str) -> None:
    """`penstock assess` with an account that may list Jobs and Workloads, and no pods: what Kueue says is the start."""
    second = cluster.get("job/second", "-n", namespace)["metadata"]
    (workload,) = [
        one
        for one in cluster.get("workloads", "-n", namespace)["items"]
        if second["uid"] in {owner["uid"] for owner in one["metadata"].get("ownerReferences", [])}
    ]
    times = {
        one["type"]: from_text(one["lastTransitionTime"])
        for one in workload["status"]["conditions"]
        if one["status"] == "True"
    }
    assert from_text(second["creationTimestamp"]) <= times["QuotaReserved"] <= times["Admitted"]
    account = Access(str(cluster.token_for("assess", RULES)))
    found = {one.name: one for one in asyncio.run(seen_by(account, namespace)).jobs}
    assert {name: (one.started_by, one.outcome) for name, one in found.items()} == {
        "second": ("kueue", "running"),
        "third": ("", "queued"),
    }
    assert found["second"].wait_ms == times["Admitted"] - from_text(second["creationTimestamp"])


async def seen_by(account: Access, namespace: str) -> SourceReading:
    """As soon as the API server knows its rights."""
    cluster = connect(account)
    try:
        while not await cluster.may("list", JOBS, namespace):
            await asyncio.sleep(0.05)
        return await read_cluster(cluster, namespace)
    finally:
        await cluster.close()
