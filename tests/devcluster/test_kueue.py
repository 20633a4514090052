"""A cluster with Kueue: its webhook and its quotas are at work, as on a site that runs Kueue already."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, NodePlan, kueue, programs
from tests.conftest import Part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.found(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not kueue.found(), reason=Part.KUEUE),
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
