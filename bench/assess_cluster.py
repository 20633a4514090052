"""`python -m bench.assess_cluster`: thousands of Jobs on a real API server, read as `penstock assess` reads them.

    python -m bench.assess_cluster [--jobs 3000] [--seed 3]

Each job of a generated month becomes a Job and its pod, whose status says when it ran. An API server sets the time of
creation itself, so all are submitted while they are written, and each waits and runs from there for as long as in the
month. No controller touches them. Needs the programs of `make kube`. Prints how long reading took, in how many
requests, and in how many Jobs the report's wait, run time and width differ from the truth.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.assess.demo_month import GeneratedJob, generated_month
from penstock.assess.join import join
from penstock.assess.report import assess
from penstock.assess.sources.kubernetes import JOB_UID, read_cluster
from penstock.assess.sources.reading import from_text
from penstock.core.units import Instant
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, programs
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, PODS, Cluster
from tests.assess.months import zulu

Json = dict[str, Any]
NAMESPACE: Final = "default"
WRITERS: Final = 16  #: who write side by side
NOBODY: Final = "example.com/nobody"  #: a controller and a scheduler that do not exist


def main(words: Sequence[str] | None = None) -> int:
    args = parsed(words)
    if not programs.are_available():
        print("The programs of Kubernetes are missing; `make kube` builds them.", file=sys.stderr)
        return 2
    nodes = NodePlan(5, gpus=8, model="H100")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-assess-") as folder,
        ClusterGroup(Path(folder), [ClusterPlan("lab", (nodes,))]) as bed,
    ):
        (lab,) = bed.clusters()
        print(asyncio.run(measured(Access(str(lab.kubeconfig)), generated_month(args.seed, args.jobs).jobs)))
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.assess_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args(words)


async def measured(access: Access, jobs: Sequence[GeneratedJob]) -> str:
    await written(access, jobs)
    cluster = connect(access)
    began, cpu = time.monotonic(), time.process_time()
    reading = await read_cluster(cluster, NAMESPACE)
    read_s, read_cpu_s = time.monotonic() - began, time.process_time() - cpu
    requests = sum(cluster.requests.values())
    await cluster.close()
    by_name = {job.name: (job.wait_ms, job.run_ms, job.gpus) for job in reading.jobs}
    wrong = sum(by_name.get(job.job.id) != truth(job) for job in jobs)
    report = assess(join([reading]), gpu_hour=None, currency="USD")
    return (
        f"{len(reading.jobs):,} of {len(jobs):,} Jobs and their pods read in {read_s:.1f} s ({read_cpu_s:.1f} s of our"
        f" CPU), {requests:,} requests. Wait, run time or width is wrong in {wrong:,} of them; waits are unknown of"
        f" {report.waits.unknown:,}. {report.waits.demand.owned_gpus:,} owned GPUs, by {reading.owned_by}."
    )


def truth(job: GeneratedJob) -> tuple[int, int, int]:
    """Wait and run time in whole seconds, as an API server keeps times; and width."""
    wait_ms, run_ms = (ms // 1000 * 1000 for ms in (job.started_at - job.submitted_at, job.ended_at - job.started_at))
    return wait_ms, max(1000, run_ms), job.job.spec.gpus


async def written(access: Access, jobs: Sequence[GeneratedJob]) -> None:
    cluster, left = connect(access), list(jobs)

    async def write() -> None:
        while left:
            await write_one(cluster, left.pop())

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    await cluster.close()


async def write_one(cluster: Cluster, job: GeneratedJob) -> None:
    name, (wait_ms, run_ms, gpus) = job.job.id, truth(job)
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    pod: Json = {
        "schedulerName": NOBODY,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "x", "resources": limits}],
    }
    spec = {"managedBy": NOBODY, "template": {"spec": pod}}
    made = await cluster.create(JOBS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    created_at = from_text(made["metadata"]["creationTimestamp"])
    started_at = created_at + wait_ms
    ended_at = started_at + run_ms
    labels = {JOB_UID: made["metadata"]["uid"]}
    metadata = {"name": f"{name}-x", "namespace": NAMESPACE, "labels": labels}
    await cluster.create(PODS, {"metadata": metadata, "spec": pod})
    await cluster.patch_status(PODS, f"{name}-x", ran(started_at, ended_at), NAMESPACE)
    await cluster.patch_status(JOBS, name, succeeded(created_at, ended_at), NAMESPACE)


def ran(started_at: Instant, ended_at: Instant) -> Json:
    ended = {"exitCode": 0, "startedAt": zulu(started_at), "finishedAt": zulu(ended_at)}
    container = {"name": "main", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    return {"phase": "Succeeded", "containerStatuses": [{**container, "state": {"terminated": ended}}]}


def succeeded(created_at: Instant, ended_at: Instant) -> Json:
    done = zulu(ended_at)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": done} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    return {"startTime": zulu(created_at), "completionTime": done, "succeeded": 1, "ready": 0, "conditions": conditions}


if __name__ == "__main__":
    sys.exit(main())
