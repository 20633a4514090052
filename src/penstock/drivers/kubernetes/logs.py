"""Logs of a cluster's attempts: followed while they run, stored here, and parsed for progress and checkpoints.
`KubernetesDriver` has one; `pod_logs.py` follows a single pod.
"""

import asyncio
from datetime import datetime
from functools import partial
from pathlib import Path

from penstock.data.checkpoints import safe_name
from penstock.drivers import progress
from penstock.drivers.driver import Refused
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pod_logs import Kept, Kubelets, PodLog
from penstock.drivers.kubernetes.pods import began_at, is_active
from penstock.kube.client import Obj


class Logs:
    def __init__(self, here: Connection, folder: Path) -> None:
        self.here, self.folder = here, folder
        self.kubelets = Kubelets()

    def of(self, attempt: str, pods: int = 1, rank: int = 0) -> PodLog:
        """A pod's log. The first pod may fill an attempt's whole limit; the others share as much again."""
        first, most = self._folder(attempt), self.here.settings.log_bytes
        also = partial(_add, self.together(attempt), rank) if pods > 1 else _nowhere
        if rank == 0:
            return PodLog(first, most, self.kubelets, lambda: self._marked(attempt), also)
        return PodLog(_of_rank(first, rank), most // (pods - 1), self.kubelets, lambda: None, also)

    def together(self, attempt: str) -> Kept:
        """The merged log of a gang's pods, in the order it arrived."""
        return Kept(self._folder(attempt) / "together", self.here.settings.log_bytes)

    def _folder(self, attempt: str) -> Path:
        return self.folder / safe_name(attempt)

    def follow(self, execution: Execution) -> None:
        for rank, pod in execution.ranks().items():
            began = began_at(pod)
            if began is not None and not execution.forgotten:
                self._follow(execution, rank, pod, began)

    def _follow(self, execution: Execution, rank: int, pod: Obj, began: datetime) -> None:
        if rank and rank not in execution.others:
            execution.others[rank] = self.of(execution.attempt, max(execution.size, 2), rank)
        log = execution.others[rank] if rank else execution.log
        name, where = str(pod["metadata"]["name"]), {"namespace": execution.namespace, "container": pod["container"]}
        log.follow(
            self.here.cluster, name, where, began, lambda: execution.end is not None or not _runs(execution, name)
        )

    def in_step_again(self, why: str) -> None:
        """Retry kubelets' logs: while the API server was unreachable, they were, too."""
        if not why:
            self.kubelets.failed = 0

    async def read(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        execution = self.here.known(attempt)
        growing = execution is not None and not (execution.concluded or execution.forgotten)
        kept_of = await asyncio.to_thread(self._pods, attempt)
        pods = max(execution.size, kept_of) if execution is not None else kept_of
        if rank is not None and rank >= pods:
            raise Refused(f"{attempt} has no rank {rank}; " + ("there is one pod" if pods == 1 else f"0 to {pods - 1}"))
        kept = self.together(attempt) if rank is None and pods > 1 else self.of(attempt, pods, rank or 0).kept
        text, size = await asyncio.to_thread(kept.read, after, most)
        return text, growing or after + len(text) < size

    def _pods(self, attempt: str) -> int:
        """How many pods have a log here; it is all we know once the Job is deleted."""
        return 1 + len(list(self._folder(attempt).glob("rank-*")))

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        execution = self.here.known(attempt)
        return progress.steps((execution.log if execution is not None else self.of(attempt)).marks)

    def _marked(self, attempt: str) -> None:
        """Report a checkpoint or progress that the log announced."""
        here, execution = self.here, self.here.known(attempt)
        if execution is None or execution.end is not None:
            return
        kept = execution.kept_ms if "checkpoint_ms" in execution.log.marks else 0
        for fact in execution.reported.news(here.clock(), attempt, kept, execution.log.marks):
            here.say(fact)


def _of_rank(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}"


def _add(together: Kept, rank: int, lines: list[bytes]) -> None:
    together.add(b"".join(b"[%d] %s" % (rank, line) for line in lines))


def _nowhere(_: list[bytes]) -> None:
    """A single pod's log needs no merged copy."""


def _runs(execution: Execution, pod: str) -> bool:
    return pod in execution.pods and is_active(execution.pods[pod])
