"""A test bed: a group of clusters that start and end together, in one folder. `penstock dev-cluster` and tests use it.

The first user of a folder starts the group, others join, and the last one ends it and removes the folder. `keep` leaves
it running (`penstock dev-cluster up`) until `stop`. Starting a group also ends those whose users have all died.
"""

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.errors import BadInput
from penstock.devcluster import kubelet_nodes, refcount
from penstock.devcluster.access import write_kubeconfig
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.plan import ClusterPlan, as_plain, from_plain
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process, end_all, marked
from penstock.devcluster.programs import program

NOTE: Final = "bed.json"


class ClusterGroup:
    def __init__(self, folder: Path, clusters: Sequence[ClusterPlan]) -> None:
        self.folder, self.plans = folder.resolve(), tuple(clusters)
        self.mark = refcount.mark_for(folder)
        self.kubeconfig = self.folder / "kubeconfig"  #: a context for each cluster
        self.seat = refcount.Seat(folder)

    @classmethod
    def at(cls, folder: Path) -> "ClusterGroup":
        """One that was started there, perhaps by another process."""
        note = _note(folder)
        if note is None:
            raise BadInput(f"There is no test bed in {folder}; start one: penstock dev-cluster up --home {folder}")
        return cls(folder, [from_plain(plan) for plan in note["clusters"]])

    def cluster(self, name: str) -> DevCluster:
        return next(cluster for cluster in self.clusters() if cluster.name == name)

    def clusters(self) -> list[DevCluster]:
        return [DevCluster(self.folder / plan.name, plan, self.mark) for plan in self.plans]

    def what_runs(self) -> tuple[ClusterPlan, ...]:
        """The group that runs in this folder, started by any process."""
        return ClusterGroup.at(self.folder).plans if any(True for _ in marked(self.mark)) else ()

    def processes(self) -> list[Process]:
        return [self._etcd(), *(process for cluster in self.clusters() for process in cluster.processes())]

    # --- its life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        end_abandoned()
        self.seat.take()
        try:
            self._begin_or_join()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def mend(self) -> Self:
        """After a test that broke it."""
        for cluster in self.clusters():
            cluster.mend()
        return self

    def keep(self) -> None:
        """It runs on when we leave."""
        self._write_note(kept=True)

    def end(self) -> None:
        """End it although others may use it. No process and no file remains."""
        end_all(self.mark)
        kubelet_nodes.end(self.mark)
        if _note(self.folder) is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin_or_join(self) -> None:
        if not self.seat.alone:
            self.plans = ClusterGroup.at(self.folder).plans
            return
        if not self._runs_on():
            self.end()
            self._start()
        self.seat.share()

    def _runs_on(self) -> bool:
        """Kept by somebody, and just as we would have it."""
        note = _note(self.folder)
        return (
            note is not None
            and note["kept"]
            and note["clusters"] == json.loads(json.dumps([as_plain(plan) for plan in self.plans]))
            and all(process.pid for process in self.processes())
        )

    def _leave(self) -> None:
        if not self.seat.be_last():
            self.seat.leave(forget=False)
            return
        note = _note(self.folder)
        kept = note is not None and note["kept"]
        if not kept:
            self.end()
        self.seat.leave(forget=not kept)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if any(plan.real for plan in self.plans) and (missing := kubelet_nodes.lacks()):
            raise BadInput(f"Here {missing}.")
        if self.folder.exists() and any(self.folder.iterdir()):
            raise BadInput(f"{self.folder} holds other files; name an empty folder, or one that does not exist.")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_note(kept=False)
        try:
            self._start_all()
        except BadInput as error:
            raise BadInput(f"The test bed did not start. {error}") from None

    def _start_all(self) -> None:
        etcd = f"http://127.0.0.1:{free_port()}"
        self._start_etcd(etcd)
        clusters = self.clusters()
        for number, cluster in enumerate(clusters):
            cluster.begin(etcd, number)
        for cluster in clusters:
            cluster.complete()
        for cluster in clusters:
            cluster.wait()
        write_kubeconfig(self.kubeconfig, [cluster.api.access for cluster in clusters])

    def _start_etcd(self, url: str) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        self._etcd().start([
            str(program("etcd")), f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync", "--log-level=warn",
        ])  # fmt: skip

    def _etcd(self) -> Process:
        return Process(self.folder, "etcd", self.mark)

    def _write_note(self, *, kept: bool) -> None:
        note = {"clusters": [as_plain(plan) for plan in self.plans], "kept": kept}
        (self.folder / NOTE).write_text(json.dumps(note))


def end_abandoned() -> list[Path]:
    """End test beds without users that were not kept. Returns their folders."""
    ended = []
    for folder in refcount.known():
        seat = refcount.Seat(folder)
        if not seat.try_alone():
            continue
        note = _note(folder)
        wanted = note is not None and note["kept"] and any(True for _ in marked(refcount.mark_for(folder)))
        if not wanted:
            ClusterGroup(folder, ()).end()
            ended.append(folder)
        seat.leave(forget=not wanted)
    return ended


def _note(folder: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        note: dict[str, Any] = json.loads((folder / NOTE).read_text())
        return note
    return None


def stop(folder: Path) -> bool:
    """End the test bed in this folder, used or kept or half gone. True if there was one."""
    bed, seat = ClusterGroup(folder, ()), refcount.Seat(folder)
    there = _note(bed.folder) is not None or any(True for _ in marked(bed.mark))
    bed.end()
    if seat.try_alone():
        seat.leave(forget=True)
    return there
