"""A real API server: Jobs in several pages, read with an account that may list Jobs and pods and nothing else."""

import asyncio
from typing import Any

from penstock.assess.sources.kubernetes import read_cluster
from penstock.core.units import HOUR, MINUTE
from penstock.devcluster.external import ExternalCluster
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, PODS
from tests.assess.months import zulu
from tests.awaiting import story

Json = dict[str, Any]
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]


def a_job(name: str, namespace: str) -> Json:
    """One that no controller of this cluster touches, so that its status is ours to write."""
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"managedBy": "example.com/nobody", "suspend": False, "template": template},
    }


def over(created_at: int) -> Json:
    done = zulu(created_at + HOUR)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": done} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    times = {"startTime": zulu(created_at + 30 * MINUTE), "completionTime": done}
    return {**times, "succeeded": 1, "ready": 0, "conditions": conditions}


async def may_list(account: Access, namespace: str) -> None:
    """Returns when the API server knows its rights."""
    asking = connect(account)
    while not all([await asking.may("list", kind, namespace) for kind in (JOBS, PODS)]):
        await asyncio.sleep(0.05)
    await asking.close()


@story
async def test_jobs_come_in_pages_and_what_may_not_be_listed_is_said(lab: ExternalCluster, namespace: str) -> None:
    admin = connect(Access(str(lab.kubeconfig)))
    names = [f"job-{k}" for k in range(12)]
    for name in names:
        await admin.create(JOBS, a_job(name, namespace))
    await admin.get(JOBS, "job-0", namespace)  # whose answer tells the cluster's time
    created_at = int(admin.time_there.timestamp() * 1000)
    await admin.patch_status(JOBS, "job-0", over(created_at), namespace)
    await admin.close()
    account = Access(str(lab.token_for(f"assess-{namespace}", RULES)))
    await may_list(account, namespace)
    cluster = connect(account)
    reading = await read_cluster(cluster, namespace, page=5)
    assert cluster.requests["list jobs.batch"] == 3
    assert {verb.split()[0] for verb in cluster.requests} == {"list", "get"}
    await cluster.close()
    by_name = {job.name: job for job in reading.jobs}
    assert sorted(by_name) == sorted(names)
    first = by_name["job-0"]
    assert (first.gpus, first.team, first.outcome, first.started_by, first.wait_ms) == (
        *(4, namespace, "succeeded", "job", None),
    )
    assert {by_name[name].outcome for name in names[1:]} == {"queued"}
    assert any(words.startswith("nodes cannot be listed") for words in reading.coverage.missing)
