"""The logs of a cluster's attempts: followed while they run, kept here, and told of when they report a checkpoint or
progress. `KubernetesDriver` has one; `podlogs.py` knows how a single log is followed.
"""

import asyncio
from pathlib import Path

from penstock.core import events as e
from penstock.core.units import PERMILLE
from penstock.data.checkpoints import safe_name
from penstock.drivers.connection import Connection
from penstock.drivers.executions import Execution
from penstock.drivers.podlogs import Kubelets, PodLog
from penstock.drivers.pods import began_at, is_active


class Logs:
    def __init__(self, here: Connection, folder: Path) -> None:
        self.here, self.folder = here, folder
        self.kubelets = Kubelets()

    def of(self, attempt: str) -> PodLog:
        folder = self.folder / safe_name(attempt)
        return PodLog(folder, self.here.settings.log_bytes, self.kubelets, lambda: self._marked(attempt))

    def follow(self, one: Execution) -> None:
        pod = one.leader
        began = began_at(pod) if pod is not None else None
        if pod is not None and began is not None and not one.forgotten:
            where = {"namespace": one.namespace, "container": pod["container"]}
            name = str(pod["metadata"]["name"])
            one.log.follow(self.here.cluster, name, where, began, lambda: one.end is not None or not _runs(one, name))

    def in_step_again(self, why: str) -> None:
        """While the cluster itself did not answer, its kubelets could not be asked either."""
        if not why:
            self.kubelets.failed = 0

    async def read(self, attempt: str, after: int, most: int) -> tuple[bytes, bool]:
        one = self.here.known(attempt)
        growing = one is not None and not (one.concluded or one.forgotten)
        kept = one.log if one is not None else self.of(attempt)
        text, size = await asyncio.to_thread(kept.read, after, most)
        return text, growing or after + len(text) < size

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        one = self.here.known(attempt)
        marks = (one.log if one is not None else self.of(attempt)).marks
        return (marks["step"], marks.get("of", 0)) if "step" in marks else None

    def _marked(self, attempt: str) -> None:
        """It printed that it wrote a checkpoint, or how far it is."""
        here, one = self.here, self.here.known(attempt)
        if one is None or one.end is not None:
            return
        if "checkpoint_ms" in one.log.marks and one.kept_ms > one.kept_told:
            one.kept_told = one.kept_ms
            here.say(e.AttemptCheckpointed(here.clock(), attempt, one.kept_ms))
        of, step = one.log.marks.get("of", 0), one.log.marks.get("step", 0)
        permille = min(PERMILLE, PERMILLE * step // of) if of else 0
        if permille // 100 != one.tenths:
            one.tenths = permille // 100
            here.say(e.AttemptProgressed(here.clock(), attempt, permille))


def _runs(one: Execution, pod: str) -> bool:
    return pod in one.pods and is_active(one.pods[pod])
