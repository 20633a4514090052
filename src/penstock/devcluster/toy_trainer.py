"""A toy training operator: plays PyTorchJobs, TrainJobs and RayJobs on kwok's nodes. `cluster` starts it as a process
beside Kueue.

The definitions are the real ones, and Kueue reads them as everywhere. While an object is not suspended, its pods are
there; suspended, it has none. It is over when its pods, or a RayJob's submitter, have succeeded.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster
from penstock.devcluster.programs import is_built, program
from penstock.devcluster.toy_training_kinds import PLAYED, RUNTIMES, TRAIN_JOBS, TrainingKind, WantedPod, is_elsewhere
from penstock.kube import errors
from penstock.kube.access import Access, connect
from penstock.kube.client import PODS, Cluster, Obj
from penstock.kube.informer import Informer

HOW: Final = "no definitions of training kinds: `make kube KUEUE=1` fetches them once, beside Kueue"
DEFINITIONS: Final = "kueue-kinds/training"
JOB_NAME: Final = "toy-trainer.penstock.dev/job-name"
AGAIN_SECONDS: Final = 0.5


def is_available() -> bool:
    return is_built(DEFINITIONS)


def install(cluster: ExternalCluster) -> None:
    """The real definitions, before Kueue starts: it looks for them then."""
    if not is_available():
        raise BadInput(f"There are {HOW}.")
    kinds = [f"{played.kind.plural}.{played.kind.api.partition('/')[0]}" for played in PLAYED]
    cluster.define(program(DEFINITIONS), *kinds)


def command(kubeconfig: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.devcluster.toy_trainer", str(kubeconfig)]


class ToyTrainer:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.news = asyncio.Event()
        self.jobs = {played: Informer(cluster, played.kind, self._changed) for played in PLAYED}
        self.runtimes = Informer(cluster, RUNTIMES, self._changed)
        self.pods = Informer(cluster, PODS, self._changed, labels=JOB_NAME)

    def _changed(self, _: Obj | None, __: Obj | None) -> None:
        self.news.set()

    async def run(self) -> None:
        """A round whenever something changed."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (*self.jobs.values(), self.runtimes, self.pods):
                tasks.create_task(informer.run())
            while True:
                await self.news.wait()
                self.news.clear()
                for played, jobs in self.jobs.items():
                    for job in [job for job in jobs if self.pods.in_step.is_set()]:
                        try:
                            await self._see_to(played, job)
                        except errors.KubeError:
                            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.news.set)

    async def _see_to(self, played: TrainingKind, job: Obj) -> None:
        if "deletionTimestamp" in job["metadata"] or is_elsewhere(played, job):
            return
        pods = [pod for pod in self.pods if _owner(pod) == job["metadata"]["uid"]]
        wanted = [] if (over := played.is_over(job)) else self._wanted(played, job)
        if wanted is None:
            return  # its runtime is not there
        if over or played.policy(job).get("suspend"):
            await self._remove([pod for pod in pods if not over or pod["status"].get("phase") != "Succeeded"])
        else:
            await self._make(played, job, wanted, {pod["metadata"]["name"] for pod in pods})
        if not over:
            await self._show(played, job, played.status(job, pods, len(wanted)))

    def _wanted(self, played: TrainingKind, job: Obj) -> list[WantedPod] | None:
        named = job["spec"]["runtimeRef"]["name"] if played.kind == TRAIN_JOBS else ""
        runtime = next((runtime for runtime in self.runtimes if runtime["metadata"]["name"] == named), None)
        return None if named and runtime is None else played.pods(job, runtime or {})

    async def _remove(self, pods: list[Obj]) -> None:
        for pod in [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]:
            with suppress(errors.NotFound):
                await self.cluster.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=0)

    async def _make(self, played: TrainingKind, job: Obj, wanted: list[WantedPod], there: set[str]) -> None:
        for each in wanted:
            pod = _pod(played, job, each)
            if pod["metadata"]["name"] not in there:
                with suppress(errors.AlreadyExists):
                    await self.cluster.create(PODS, pod)

    async def _show(self, played: TrainingKind, job: Obj, status: Obj) -> None:
        shown, meta = job.get("status") or {}, job["metadata"]
        if {key: _plain(shown.get(key)) for key in status} != {key: _plain(part) for key, part in status.items()}:
            await self.cluster.patch_status(played.kind, meta["name"], status, meta["namespace"])


def _pod(played: TrainingKind, job: Obj, wanted: WantedPod) -> Obj:
    meta, template = job["metadata"], wanted.template
    owner = {"apiVersion": played.kind.api, "kind": played.kind.name, "name": meta["name"], "uid": meta["uid"]}
    named = {
        **(template.get("metadata") or {}),
        "name": f"{meta['name']}-{wanted.name}",
        "namespace": meta["namespace"],
        "ownerReferences": [owner | {"controller": True}],
    }
    named["labels"] = {**(named.get("labels") or {}), JOB_NAME: meta["name"]}
    return {"metadata": named, "spec": {**template["spec"], "restartPolicy": "Never"}}


def _owner(pod: Obj) -> str:
    return next((str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences") or ()), "")


def _plain(part: Any) -> Any:
    """Conditions without their times."""
    if isinstance(part, list) and part and "lastTransitionTime" in part[0]:
        return [(row["type"], row["status"]) for row in part]
    return part


async def main(kubeconfig: str) -> None:
    await ToyTrainer(connect(Access(kubeconfig))).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
