"""Runs the controllers of all home clusters and the one follower of the journal. `wiring` starts it after the plane."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from penstock.core.model.events import LeaveRequested
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

LATER_SECONDS: Final = 2.0
Blobs: TypeAlias = Mapping[str, bytes]
Sweeps: TypeAlias = list[tuple[ClusterSweep, "asyncio.Task[None]"]]


class Manager:
    def __init__(
        self,
        homes: Iterable[HomeJobs],
        plane: Plane,
        reader: Reader,
        others: Iterable[ExecutionCluster] = (),
        kueues: Iterable[KueueWorkloads] = (),
    ) -> None:
        """`others`: execution clusters that are no home. `kueues`: whose Workloads are governed."""
        self.plane, self.reader = plane, reader
        self.homes = {home.site: home for home in homes}
        governed = {kueue.name: kueue for kueue in kueues}
        followed: dict[str, FollowedHome] = {**self.homes, **governed}
        self.follower = JobFollower(followed, plane, reader)
        self.kueues = [WorkloadController(kueue, plane, reader, self.follower) for kueue in governed.values()]
        self.controllers = {
            site: JobController(home, plane, reader, self.follower) for site, home in self.homes.items()
        }
        self.elsewhere: dict[str, ClusterSweep] = {}
        self.sweeping: dict[str, list[asyncio.Task[None]]] = {}  #: by site, while we leave
        self.taking: dict[str, Sweeps] = {}  #: by home: from which clusters its execution Jobs are taken
        for other in others:
            self.add(other)
        self.bringing: dict[str, asyncio.Event] = {site: asyncio.Event() for site in self.controllers}
        #: Set when no cluster that answers has anything of this home's Jobs.
        self.parted = {site: asyncio.Event() for site in self.controllers}
        for site, bring_home in self._recorded().items():
            self._begin_to_leave(site, bring_home)

    def add(self, other: ExecutionCluster) -> None:
        """Another execution cluster that is no home."""
        self.elsewhere[other.site] = ClusterSweep(other.site, other.cluster, other.namespaces, self.plane.installation)

    def forget(self, site: str) -> None:
        """An execution cluster that was removed: nobody waits for it any more."""
        self.elsewhere.pop(site, None)
        self._end_sweeps(site)

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
            tasks.create_task(self._end_with_us())

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def leave(
        self, site: str, bring_home: bool = False, *, by: str = "", details: str = "", blobs: Blobs | None = None
    ) -> None:
        """Give every Job of this cluster back. The journal has the request before anything happens, so that whoever
        leads next continues it.
        """
        await self.plane.tell(LeaveRequested(0, site, by, details, bring_home), blobs=blobs)
        self._begin_to_leave(site, bring_home)

    def _begin_to_leave(self, site: str, bring_home: bool) -> None:
        self.controllers[site].leaving.set()
        if bring_home:
            self.bringing[site].set()

    def has_left(self, site: str) -> bool:
        """True if no cluster has anything of this home's Jobs."""
        return self.parted[site].is_set() and all(task.done() for _, task in self.taking.get(site, []))

    def unreached(self, site: str) -> str:
        """What keeps this home from being left, if it does not answer; empty if all do."""
        waits = [(self.controllers[site].sweep, None), *self.taking.get(site, [])]
        why = [
            f"{sweep.site}: {sweep.unreached}"
            for sweep, task in waits
            if sweep.unreached and (task is None or not task.done())
        ]
        return "; ".join([*filter(None, [self.homes[site].trouble]), *why])

    def _recorded(self) -> Mapping[str, bool]:
        """Home clusters that are being left, as the journal has it."""
        return {site: home for site, home in self.plane.view.leaving if site in self.controllers}

    async def _bring_home(self, controller: JobController) -> None:
        await self.bringing[controller.site].wait()
        await HomeBringer(self.plane, self.reader, self.follower).bring(controller.site, controller.left)

    async def _leave_elsewhere(self, controller: JobController) -> None:
        """Once this home's Jobs are given back: delete their execution Jobs in all other clusters."""
        await controller.left.wait()
        others = [other.sweep for other in self.controllers.values() if other is not controller]
        mine = self._made_for(controller.site)
        taking = self._begin_all([*others, *self.elsewhere.values()], lambda sweep: sweep.take(mine))
        self.taking[controller.site] = taking
        await self._settled(taking)
        self.parted[controller.site].set()

    def _begin_all(
        self, sweeps: Iterable[ClusterSweep], how: Callable[[ClusterSweep], Coroutine[Any, Any, None]]
    ) -> Sweeps:
        tasks = [(sweep, asyncio.create_task(how(sweep))) for sweep in sweeps]
        for sweep, task in tasks:
            self.sweeping.setdefault(sweep.site, []).append(task)
        return tasks

    async def _settled(self, sweeps: Sweeps) -> None:
        """Returns when each has ended; one whose cluster is out of reach goes on by itself."""
        await asyncio.gather(*(sweep.settled(task) for sweep, task in sweeps))
        for _, task in sweeps:
            if task.done() and not task.cancelled():
                task.result()

    def _end_sweeps(self, site: str) -> None:
        for task in self.sweeping.pop(site, []):
            task.cancel()

    async def _end_with_us(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for site in list(self.sweeping):
                self._end_sweeps(site)

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
        for site in self.elsewhere:
            self._end_sweeps(site)  # what follows takes all of it
        await self._settled(self._begin_all(self.elsewhere.values(), ClusterSweep.part))


def _words(error: Exception) -> str:
    inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return f"{type(inner).__name__}: {inner}"
