"""A toy training operator: plays PyTorchJobs on kwok's nodes. `cluster` starts it as a process beside Kueue.

The definition is our own and takes any fields; Kueue reads its real ones. While a PyTorchJob is not suspended, each of
its replicas is a pod; suspended, it has none. It succeeds when all of its pods have.
"""

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.kube import errors
from penstock.kube.access import Access, connect
from penstock.kube.client import PODS, Cluster, Kind, Obj
from penstock.kube.informer import Informer

GROUP: Final = "kubeflow.org"
PYTORCH_JOBS: Final = Kind("PyTorchJob", "pytorchjobs", f"{GROUP}/v1")
MANAGED_BY: Final = "kueue.x-k8s.io/multikueue"  #: such a PyTorchJob is played at its worker, not here
JOB_NAME: Final = "training.kubeflow.org/job-name"
AGAIN_SECONDS: Final = 0.5


def command(kubeconfig: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.devcluster.toy_trainer", str(kubeconfig)]


def definition() -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob", "listKind": "PyTorchJobList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"pytorchjobs.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a toy"},
        },
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


class ToyTrainer:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.news = asyncio.Event()
        self.jobs = Informer(cluster, PYTORCH_JOBS, self._changed)
        self.pods = Informer(cluster, PODS, self._changed, labels=JOB_NAME)

    def _changed(self, _: Obj | None, __: Obj | None) -> None:
        self.news.set()

    async def run(self) -> None:
        """A round whenever something changed."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self.jobs, self.pods):
                tasks.create_task(informer.run())
            while True:
                await self.news.wait()
                self.news.clear()
                for job in [job for job in self.jobs if self.pods.in_step.is_set()]:
                    try:
                        await self._see_to(job)
                    except errors.KubeError:
                        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.news.set)

    async def _see_to(self, job: Obj) -> None:
        policy = job["spec"].get("runPolicy") or {}
        if "deletionTimestamp" in job["metadata"] or policy.get("managedBy") == MANAGED_BY or _is_over(job):
            return
        pods = [pod for pod in self.pods if _owner(pod) == job["metadata"]["uid"]]
        if policy.get("suspend"):
            for pod in [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]:
                with suppress(errors.NotFound):
                    await self.cluster.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=0)
        else:
            for pod in _wanted(job):
                if pod["metadata"]["name"] not in {there["metadata"]["name"] for there in pods}:
                    with suppress(errors.AlreadyExists):
                        await self.cluster.create(PODS, pod)
        await self._show(job, pods)

    async def _show(self, job: Obj, pods: list[Obj]) -> None:
        meta, phases = job["metadata"], [pod["status"].get("phase") for pod in pods]
        active = sum(phase in ("Pending", "Running") for phase in phases)
        done = bool(phases) and len(phases) == len(_wanted(job)) and set(phases) == {"Succeeded"}
        status: Obj = {"replicaStatuses": {"Worker": {"active": active, "succeeded": phases.count("Succeeded")}}}
        status["conditions"] = [_condition("Succeeded" if done else "Running", done or "Running" in phases)]
        shown = job.get("status") or {}
        if _plain(shown) != _plain(status):
            await self.cluster.patch_status(PYTORCH_JOBS, meta["name"], status, meta["namespace"])


def _wanted(job: Obj) -> list[Obj]:
    """A pod for each replica."""
    meta = job["metadata"]
    owner = {"apiVersion": PYTORCH_JOBS.api, "kind": "PyTorchJob", "name": meta["name"], "uid": meta["uid"]}
    pods = []
    for role, row in job["spec"]["pytorchReplicaSpecs"].items():
        for number in range(int(row.get("replicas", 1))):
            template = row["template"]
            named = {
                **(template.get("metadata") or {}),
                "name": f"{meta['name']}-{role.lower()}-{number}",
                "namespace": meta["namespace"],
                "ownerReferences": [owner | {"controller": True}],
            }
            named["labels"] = {**(named.get("labels") or {}), JOB_NAME: meta["name"]}
            pods.append({"metadata": named, "spec": {"restartPolicy": "Never", **template["spec"]}})
    return pods


def _owner(pod: Obj) -> str:
    return next((str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences") or ()), "")


def _is_over(job: Obj) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Succeeded" and row["status"] == "True" for row in conditions)


def _plain(status: Obj) -> tuple[Any, list[tuple[str, str]]]:
    """Without times."""
    rows = [(row["type"], row["status"]) for row in status.get("conditions") or ()]
    return status.get("replicaStatuses"), rows


def _condition(kind: str, holds: bool) -> Obj:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    word = "True" if holds else "False"
    return {"type": kind, "status": word, "reason": "Played", "message": "", "lastTransitionTime": now}


async def main(kubeconfig: str) -> None:
    await ToyTrainer(connect(Access(kubeconfig))).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
