"""A generated month as its sources would show it: sacct of three ages, a table, Kubernetes objects, OpenMetrics."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from penstock.assess.demo_month import GeneratedJob, GeneratedMonth
from penstock.assess.history import MonthHistory
from penstock.assess.waits import quantile
from penstock.core.units import HOUR, MINUTE, SECOND

Json = dict[str, Any]


def wall(at: int) -> str:
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%dT%H:%M:%S}"


def zulu(at: int) -> str:
    return wall(at) + "Z"


# --- the truth --------------------------------------------------------------------------------------------------------


def assert_true(history: MonthHistory, month: GeneratedMonth, within: float = 0.05) -> None:
    """Waits and demand of the report are those of the month, within five hundredths."""
    from penstock.assess.waits import waits_of

    measured, waits = waits_of(history), month.waits_ms
    assert measured.all.jobs == len(month.jobs)
    near(measured.all.sum_ms, sum(waits), within)
    near(measured.all.p95_ms, quantile(waits, 950), within, least=2 * MINUTE)
    near(measured.all.median_ms, quantile(waits, 500), within, least=2 * MINUTE)
    near(measured.demand.gpu_hours, gpu_hours(month), within)


def gpu_hours(month: GeneratedMonth) -> float:
    return sum(job.job.spec.gpus * job.job.run_ms for job in month.jobs) / HOUR


def near(measured: float, truth: float, within: float, least: float = 1.0) -> None:
    assert abs(measured - truth) <= max(least, within * truth), f"{measured:,} is not near {truth:,}"


# --- sacct ------------------------------------------------------------------------------------------------------------


def sacct_16(month: GeneratedMonth) -> str:
    """Slurm 16, printed with -p: no TRES of GPUs, Elapsed in words, a pipe at each end of line."""
    rows = ["JobID|JobName|User|Account|Submit|Start|End|Elapsed|State|NNodes|ReqGRES|AllocGRES|"]
    for k, job in enumerate(month.jobs):
        spec = job.job.spec
        gres = f"gpu:{spec.gpus}"
        who = f"{k + 1}|{spec.name}|{spec.user}|{spec.team}"
        rows.append(f"{who}|{_times(job)}|{_words(job)}|COMPLETED|1|{gres}|{gres}|")
        rows.append(f"{k + 1}.batch|batch||{spec.team}|{_times(job)}|{_words(job)}|COMPLETED|1|{gres}|{gres}|")
    return "\n".join(rows) + "\n"


def sacct_20(month: GeneratedMonth) -> str:
    """Slurm 20: TRES without models; jobs without GPUs between the others."""
    rows = ["JobID|JobName|User|Account|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES"]
    for k, job in enumerate(month.jobs):
        spec = job.job.spec
        tres = f"billing=8,cpu=8,gres/gpu={spec.gpus},mem=64G,node=1"
        rows.append(f"{k + 1}|{spec.name}|{spec.user}|{spec.team}|{_eligible_times(job)}|COMPLETED|{tres}")
        rows.append(f"c{k + 1}|prep|{spec.user}|{spec.team}|{_eligible_times(job)}|FAILED|cpu=8,mem=64G")
    return "\n".join(rows) + "\n"


def _eligible_times(job: GeneratedJob) -> str:
    """Submit, Eligible, Start, End, ElapsedRaw."""
    submit, start, end = _times(job).split("|")
    return f"{submit}|{submit}|{start}|{end}|{job.job.run_ms // SECOND}"


def sacct_24(month: GeneratedMonth) -> str:
    """Slurm 24: models in TRES, planned and cancelled jobs, CRLF."""
    rows = ["JobIDRaw|JobID|JobName|User|Account|Submit|Eligible|Start|End|ElapsedRaw|State|NNodes|AllocTRES|ReqTRES"]
    for k, job in enumerate(month.jobs):
        spec = job.job.spec
        tres = f"cpu=8,gres/gpu:h100={spec.gpus},gres/gpu={spec.gpus},mem=64G"
        who = f"{k + 1}|{k + 1}|{spec.name}|{spec.user}|{spec.team}"
        rows.append(f"{who}|{_eligible_times(job)}|COMPLETED|1|{tres}|{tres}")
    submit = wall(month.jobs[0].submitted_at)
    never = f"{submit}|{submit}|None|{submit}|0|CANCELLED by 1001|1||gres/gpu=4"
    rows.append(f"900001|900001|never|ada|vision|{never}")
    return "\r\n".join(rows) + "\r\n"


def _times(job: GeneratedJob) -> str:
    return "|".join(map(wall, (job.submitted_at, job.started_at, job.ended_at)))


def _words(job: GeneratedJob) -> str:
    minutes, seconds = divmod(job.job.run_ms // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"


# --- a table ----------------------------------------------------------------------------------------------------------


def table(month: GeneratedMonth) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["job_id", "team", "gpus", "submit", "start", "end"])
    for job in month.jobs:
        times = [zulu(at) for at in (job.submitted_at, job.started_at, job.ended_at)]
        writer.writerow([job.job.id, job.job.spec.team, job.job.spec.gpus, *times])
    return out.getvalue()


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def kube_job(job: GeneratedJob, **labels: str) -> Json:
    spec = job.job.spec
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(spec.gpus)}}}
    conditions = [{"type": "Complete", "status": "True", "lastTransitionTime": zulu(job.ended_at)}]
    return {
        "kind": "Job",
        "metadata": {
            "name": job.job.id,
            "namespace": spec.team,
            "uid": f"uid-{job.job.id}",
            "creationTimestamp": zulu(job.submitted_at),
            "labels": labels,
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {
            "startTime": zulu(job.submitted_at),  # as without Kueue: its controller saw it at once
            "completionTime": zulu(job.ended_at),
            "succeeded": 1,
            "conditions": conditions,
        },
    }


def kube_pod(job: GeneratedJob) -> Json:
    ended = {"startedAt": zulu(job.started_at), "finishedAt": zulu(job.ended_at)}
    return {
        "metadata": {
            "name": f"{job.job.id}-x",
            "namespace": job.job.spec.team,
            "labels": {"batch.kubernetes.io/controller-uid": f"uid-{job.job.id}"},
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]},
    }


def kube_workload(job: GeneratedJob) -> Json:
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": zulu(job.started_at)}
    return {
        "metadata": {"ownerReferences": [{"kind": "Job", "uid": f"uid-{job.job.id}"}]},
        "status": {"conditions": [reserved, {**reserved, "type": "Admitted"}]},
    }


def kube_nodes(count: int, gpus: int = 8) -> list[Json]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return [
        {"metadata": {"name": f"n{k}", "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}
        for k in range(count)
    ]


# --- OpenMetrics ------------------------------------------------------------------------------------------------------


def open_metrics(month: GeneratedMonth, every_ms: int, from_at: int, to_at: int) -> str:
    """What kube-state-metrics and the DCGM exporter would have exposed, scraped at an interval."""
    families: dict[str, Callable[[GeneratedJob], list[tuple[str, float]]]] = {
        "kube_pod_container_resource_requests": _requests,
        "kube_pod_created": lambda job: [("", job.submitted_at / SECOND)],
        "kube_pod_start_time": lambda job: [("", job.started_at / SECOND)],
        "kube_pod_completion_time": lambda job: [("", job.ended_at / SECOND)],
        "kube_pod_labels": lambda job: [(f',label_job_name="{job.job.id}"', 1)],
        "DCGM_FI_DEV_GPU_UTIL": _use,
        "DCGM_FI_DEV_FB_USED": lambda job: [(f',gpu="{k}"', 60_000) for k in range(job.job.spec.gpus)],
        "DCGM_FI_DEV_FB_FREE": lambda job: [(f',gpu="{k}"', 20_000) for k in range(job.job.spec.gpus)],
    }
    lines = []
    for name, samples in families.items():
        lines.append(f"# TYPE {name} gauge")
        for job in month.jobs:
            lines += _series(name, job, samples(job), every_ms, from_at, to_at)
    lines.append("# TYPE kube_node_status_allocatable gauge")
    allocatable = 'kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu",unit="integer"}'
    lines += [f"{allocatable} {month.owned_gpus} {at / SECOND}" for at in range(from_at, to_at, every_ms)]
    return "\n".join([*lines, "# EOF", ""])


def _requests(job: GeneratedJob) -> list[tuple[str, float]]:
    return [(',resource="nvidia_com_gpu",unit="integer"', job.job.spec.gpus)]


def _use(job: GeneratedJob) -> list[tuple[str, float]]:
    return [(f',gpu="{k}"', job.used_permille / 10) for k in range(job.job.spec.gpus)]


def _series(
    name: str, job: GeneratedJob, samples: Iterable[tuple[str, float]], every_ms: int, from_at: int, to_at: int
) -> Iterator[str]:
    """A pod stays listed for an hour after its end; GPUs are seen only while it runs."""
    begin, end = job.submitted_at, job.ended_at + HOUR
    if name == "kube_pod_start_time":
        begin = job.started_at
    elif name == "kube_pod_completion_time":
        begin = job.ended_at
    elif name.startswith("DCGM"):
        begin, end = job.started_at, job.ended_at
    first = max(-(-begin // every_ms) * every_ms, from_at)
    for labels, number in samples:
        who = f'namespace="{job.job.spec.team}",pod="{job.job.id}-x"{labels}'
        for at in range(first, min(end, to_at), every_ms):
            yield f"{name}{{{who}}} {number} {at / SECOND}"
