"""Runs the controllers of all home clusters and the one follower of the journal. `wiring` starts it after the plane."""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from penstock.front.home_cluster import ExecutionCluster
from penstock.front.home_jobs import HomeJobs
from penstock.front.job_controller import JobController
from penstock.front.job_follower import FollowedHome, JobFollower
from penstock.front.kueue.workload_controller import WorkloadController
from penstock.front.kueue.workloads import KueueWorkloads
from penstock.front.uninstall.bring_home import HomeBringer
from penstock.front.uninstall.sweep import ClusterSweep
from penstock.journal.journal import Reader
from penstock.live.plane import Plane

BRING_HOME: Final = "bring-home"  #: the word for it in the file of clusters that we are leaving
LATER_SECONDS: Final = 2.0


class Manager:
    def __init__(
        self,
        homes: Iterable[HomeJobs],
        plane: Plane,
        reader: Reader,
        kept: Path | None = None,
        others: Iterable[ExecutionCluster] = (),
        kueues: Iterable[KueueWorkloads] = (),
    ) -> None:
        """`kept`: the file that lists the clusters we are leaving, so that a restart does not accept their Jobs again.
        `others`: execution clusters that are no home. `kueues`: whose Workloads are governed.
        """
        self.plane, self.reader, self.kept = plane, reader, kept
        self.homes = {home.site: home for home in homes}
        governed = {kueue.name: kueue for kueue in kueues}
        followed: dict[str, FollowedHome] = {**self.homes, **governed}
        self.follower = JobFollower(followed, plane, reader)
        self.kueues = [WorkloadController(kueue, plane, reader, self.follower) for kueue in governed.values()]
        self.controllers = {
            site: JobController(home, plane, reader, self.follower) for site, home in self.homes.items()
        }
        self.elsewhere: dict[str, ClusterSweep] = {}
        for other in others:
            self.add(other)
        self.bringing: dict[str, asyncio.Event] = {site: asyncio.Event() for site in self.controllers}
        self.parted = {
            site: asyncio.Event() for site in self.controllers
        }  #: set when no cluster has anything of this home's Jobs
        for site, how in self._leaving().items():
            self._begin_to_leave(site, how)

    def add(self, other: ExecutionCluster) -> None:
        """Another execution cluster that is no home."""
        self.elsewhere[other.site] = ClusterSweep(other.site, other.cluster, other.namespaces, self.plane.installation)

    async def keep_open(self) -> None:
        """Run until cancelled, and restart after a bug. An error in here never reaches the plane or running jobs."""
        while True:
            try:
                await self.run()
            except Exception as error:  # noqa: BLE001 - a bug of ours: told, and tried again
                self.plane.alarms.set("front door", "manager", f"Home Jobs are not looked at: {_words(error)}")
                await asyncio.sleep(LATER_SECONDS)

    async def run(self) -> None:
        await self.follower.begin()
        self.plane.alarms.set("", "manager", "")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follower.follow())
            for kueue in self.kueues:
                tasks.create_task(kueue.run())
            for controller in self.controllers.values():
                tasks.create_task(controller.run())
                tasks.create_task(self._bring_home(controller))
                tasks.create_task(self._leave_elsewhere(controller))
            tasks.create_task(self._leave_all())

    # --- leaving ------------------------------------------------------------------------------------------------------

    def leave(self, site: str, bring_home: bool = False) -> None:
        """Give every Job of this cluster back. The request is on disk before anything happens, so a restart continues
        it.
        """
        how = BRING_HOME if bring_home else ""
        if self.kept is not None:
            lines = [f"{left} {how_left}".strip() for left, how_left in {**self._leaving(), site: how}.items()]
            self.kept.write_text("\n".join(lines) + "\n", "utf-8")
        self._begin_to_leave(site, how)

    def _begin_to_leave(self, site: str, how: str) -> None:
        self.controllers[site].leaving.set()
        if how == BRING_HOME:
            self.bringing[site].set()

    def _leaving(self) -> dict[str, str]:
        if self.kept is None or not self.kept.exists():
            return {}
        entries = [line.partition(" ") for line in self.kept.read_text("utf-8").splitlines()]
        return {site: how for site, _, how in entries if site in self.controllers}

    async def _bring_home(self, controller: JobController) -> None:
        await self.bringing[controller.site].wait()
        await HomeBringer(self.plane, self.reader, self.follower).bring(controller.site, controller.left)

    async def _leave_elsewhere(self, controller: JobController) -> None:
        """Once this home's Jobs are given back: delete their execution Jobs in all other clusters."""
        await controller.left.wait()
        others = [other.sweep for other in self.controllers.values() if other is not controller]
        await asyncio.gather(
            *(sweep.take(self._made_for(controller.site)) for sweep in (*others, *self.elsewhere.values()))
        )
        self.parted[controller.site].set()

    def _made_for(self, site: str) -> Callable[[str], bool]:
        @lru_cache(10_000)
        def mine(job: str) -> bool:
            row = self.reader.job(job)
            return row is not None and row.origin_site == site

        return mine

    async def _leave_all(self) -> None:
        """Once every home is left: sweep the execution clusters, too."""
        for parted in self.parted.values():
            await parted.wait()
        await asyncio.gather(*(sweep.part() for sweep in self.elsewhere.values()))


def _words(error: Exception) -> str:
    inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return f"{type(inner).__name__}: {inner}"
