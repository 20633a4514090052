"""A cluster's objects: pods and Kueue tell waits, a Job's own start does not, and nothing is written."""

import json
from pathlib import Path
from typing import Any

import httpx2

from penstock.assess.demo_month import generated_month
from penstock.assess.join import join
from penstock.assess.sources.kubernetes import read_cluster, read_seen, reading_of
from penstock.core.units import HOUR
from penstock.kube.client import Cluster
from tests.assess import months
from tests.awaiting import story
from tests.kube.told import Told

MONTH = generated_month(2, jobs=200, days=8)
NOW = max(job.ended_at for job in MONTH.jobs) + HOUR
JOBS = [months.kube_job(job) for job in MONTH.jobs]
PODS = [months.kube_pod(job) for job in MONTH.jobs]


def test_pods_tell_the_waits_and_nodes_the_owned_gpus() -> None:
    reading = reading_of(JOBS, PODS, months.kube_nodes(2), [], now=NOW, source="cluster lab")
    months.assert_true(join([reading]), MONTH)
    assert [(row.gpus, row.model) for row in reading.owned] == [(16, "NVIDIA-H100-80GB-HBM3")]
    assert {job.gpu_model for job in reading.jobs} == {"NVIDIA-H100-80GB-HBM3"}
    assert reading.coverage.unknown_starts == 0


def test_kueue_tells_the_waits_when_the_pods_are_gone() -> None:
    workloads = [months.kube_workload(job) for job in MONTH.jobs]
    reading = reading_of(JOBS, [], [], workloads, now=NOW, source="cluster lab")
    months.assert_true(join([reading]), MONTH)
    assert {job.started_by for job in reading.jobs} == {"kueue"}


def test_reserved_quota_is_no_start_while_kueue_still_checks_the_job() -> None:
    """It counted as started when its quota was reserved, also where an admission check held it back for hours."""
    first = MONTH.jobs[0]
    job, workload = months.kube_job(first), months.kube_workload(first)
    job["spec"]["suspend"], job["status"] = True, {}
    workload["status"]["conditions"][1]["status"] = "False"
    checks = [{"name": "provisioning", "state": "Pending"}]
    (plain,) = reading_of([job], [], [], [workload], now=NOW, source="cluster lab").jobs
    workload["status"]["admissionChecks"] = checks
    (checked,) = reading_of([job], [], [], [workload], now=NOW, source="cluster lab").jobs
    assert (plain.started_by, checked.started_by, checked.outcome) == ("kueue", "", "queued")


def test_without_pods_or_kueue_no_wait_is_made_up() -> None:
    reading = reading_of(JOBS, [], [], [], now=NOW, source="cluster lab")
    assert {job.wait_ms for job in reading.jobs} == {None}
    assert reading.coverage.unknown_starts == len(MONTH.jobs)


def test_running_queued_and_foreign_pods() -> None:
    running, queued, *_ = MONTH.jobs
    alive = months.kube_job(running)
    alive["status"] = {"startTime": months.zulu(running.started_at), "active": 1, "ready": 1}
    waits = months.kube_job(queued)
    waits["status"] = {"active": 1, "startTime": months.zulu(queued.submitted_at)}
    started = {"running": {"startedAt": months.zulu(running.started_at)}}
    service = {
        "metadata": {
            "name": "server-abc",
            "namespace": "serving",
            "creationTimestamp": months.zulu(running.submitted_at),
            "ownerReferences": [{"kind": "ReplicaSet", "name": "server"}],
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"state": started}]},
    }
    pod = months.kube_pod(running)
    pod["status"] = {"phase": "Running", "containerStatuses": [{"state": started}]}
    broken: Any = {"kind": "Job", "metadata": {"name": 7}, "spec": {"parallelism": "many"}}
    reading = reading_of([alive, waits, broken], [pod, service], [], [], now=NOW, source="cluster lab")
    assert [(job.team, job.outcome, job.cut, job.gpus) for job in reading.jobs] == [
        (running.job.spec.team, "running", "end", running.job.spec.gpus),
        (queued.job.spec.team, "queued", "", queued.job.spec.gpus),
        ("serving", "running", "end", 2),
    ]
    assert reading.coverage.left_out == (("not readable as a Job", 1),)


def test_what_shadow_kept_is_read(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    items = [{**months.kube_job(job), "began": months.zulu(job.started_at)} for job in MONTH.jobs]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    months.assert_true(join([read_seen(str(path))]), MONTH)


@story
async def test_only_lists_are_asked_for_page_by_page_and_what_is_forbidden_is_said() -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        path, more = request.url.path, request.url.params.get("continue", "")
        asked.append((request.method, path))
        if path.endswith("/nodes"):
            return httpx2.Response(403, json={"message": 'User "u" cannot list resource "nodes"'})
        if "kueue" in path:
            return httpx2.Response(404, json={"message": "no such API"})
        items, metadata = {"/apis/batch/v1/jobs": JOBS, "/api/v1/pods": PODS}[path], {"resourceVersion": "1"}
        if more:
            return httpx2.Response(200, json={"items": items[100:], "metadata": metadata})
        return httpx2.Response(200, json={"items": items[:100], "metadata": {**metadata, "continue": "100"}})

    cluster = Cluster(Told(answer), "lab", "default")
    reading = await read_cluster(cluster)
    await cluster.close()
    assert {method for method, _ in asked} == {"GET"}
    assert len(reading.jobs) == len(MONTH.jobs)
    assert any('nodes cannot be listed: User "u" cannot' in words for words in reading.coverage.missing)


def test_a_priority_class_is_read_from_the_pod_or_from_kueue_s_label() -> None:
    plain, named, labelled = (months.kube_job(job) for job in MONTH.jobs[:3])
    named["spec"]["template"]["spec"]["priorityClassName"] = "production"
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": "urgent"}
    reading = reading_of([plain, named, labelled], [], [], [], now=NOW, source="cluster lab")
    assert [job.priority for job in reading.jobs] == ["", "production", "urgent"]
