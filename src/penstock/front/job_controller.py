"""One home cluster: its labelled Jobs are submitted, shown, and cancelled when deleted. The hall has one for each.

Whatever happens to a Job, here or in the journal, makes it due to be looked at; looking compares what it should be with
what it is and writes the difference, guarded by the version that was seen. So every step can be repeated, and after a
restart all Jobs are looked at once. Jobs without the label are not even listed. Events come after all of that, and what
came together in one of them: they are news, and nothing waits for them.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from penstock.core.model.events import CancelRequested
from penstock.core.model.lifecycle import ENDED
from penstock.core.model.types import Origin
from penstock.core.units import SECOND
from penstock.front import job_spec, status
from penstock.front.home_cluster import has_ended, place_of, too_old, uid_of
from penstock.front.home_jobs import HomeJobs
from penstock.front.intake import Intake
from penstock.front.job_follower import JobFollower
from penstock.front.status import JobSnapshot
from penstock.front.status_writer import StatusWriter
from penstock.front.uninstall import restore_jobs
from penstock.front.uninstall.sweep import ClusterSweep
from penstock.front.workqueue import WorkQueue
from penstock.journal.journal import Reader, Unwritable
from penstock.journal.rows import Filter
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound
from penstock.kube.references import Json, part
from penstock.kube.request_priority import LATER
from penstock.live.plane import NotReady, Plane

T = TypeVar("T")
INTAKE_WORKERS: Final = 64  #: Jobs that come, taken in side by side: so many can be in one row of the journal
STATUS_WORKERS: Final = (
    12  #: Jobs shown side by side: fewer than there are lanes, so that what is written is not long known
)
EVENT_WORKERS: Final = 4  #: the same for what is only told: Events, and starts that take long
TOLD_SECONDS: Final = 2.0  #: what is decided within that is told together
#: A Job that shows nothing yet and starts at once shows that it runs; one that takes longer, that it starts.
STARTING_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.3  #: after somebody else was first
LATER_SECONDS: Final = 3.0  #: after a cluster or a journal that could not be asked
TOUCH_SECONDS: Final = 20.0  #: how often a home cluster is asked something, however still it is


class JobController:
    def __init__(self, home: HomeJobs, plane: Plane, reader: Reader, follower: JobFollower) -> None:
        self.home, self.plane, self.reader, self.follower = home, plane, reader, follower
        self.site, self.cluster, self.due = home.site, home.cluster, home.due
        self.writer = StatusWriter(home, plane.clock.now)
        self.intake = Intake(home, plane, self.writer)
        self.untold = WorkQueue()  #: Jobs of which there is news
        self.leaving = asyncio.Event()  #: every Job is given back
        self.parting = ClusterSweep(home.site, home.cluster, home.namespaces, plane.installation)
        self.failing: dict[str, str] = {}  #: `NAMESPACE/NAME` of Jobs that could not be shown, and why
        self.cancelled: set[str] = set()  #: told to the journal in this life
        self.first: set[str] | None = None  #: uids of the Jobs that were there when we came

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.home.informers.values():
                tasks.create_task(informer.run())
            tasks.create_task(self._tell_trouble())
            tasks.create_task(self._cancel_orphans())
            tasks.create_task(self._check_version())
            tasks.create_task(self._leave())
            for _ in range(INTAKE_WORKERS):
                tasks.create_task(self._see_to_each(self.due, self._look_at, ahead=True))
            for _ in range(STATUS_WORKERS):
                tasks.create_task(self._see_to_each(self.due, self._look_at))
            for _ in range(EVENT_WORKERS):
                tasks.create_task(self._see_to_each(self.untold, self._tell_of))

    async def _tell_trouble(self) -> None:
        """An alarm while the cluster cannot be followed."""
        while True:
            why = self.home.trouble
            words = f"The home cluster {self.site} cannot be followed: {why}" if why else ""
            self.plane.alarms.set("front door", f"door:{self.site}", words)
            self.home.trouble_changed.clear()
            await self.home.trouble_changed.wait()

    async def _check_version(self) -> None:
        """Now and then: also because a watch alone says nothing for minutes when the connection is dead."""
        while True:
            with suppress(KubeError):
                self._say_if_too_old(await self.cluster.version())
            await asyncio.sleep(TOUCH_SECONDS)

    def _say_if_too_old(self, version: str) -> None:
        words = f"The home cluster {self.site} is Kubernetes {version}; home Jobs need 1.32 or newer (managedBy)."
        self.plane.alarms.set("front door", f"door:{self.site}:version", words if too_old(version) else "")

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _see_to_each(
        self, due: WorkQueue, look: Callable[[str], Coroutine[Any, Any, None]], ahead: bool = False
    ) -> None:
        while True:
            place = await due.take(ahead)
            try:
                await look(place)
                self._trouble(place, "")
            except (Conflict, NotFound):
                due.again(place, AGAIN_SECONDS)
            except Forbidden as error:
                self._trouble(
                    place, f"our account may not {error.verb} {error.resource}; see 'penstock manifests rbac'"
                )
                due.again(place, LATER_SECONDS * 5)
            except (KubeError, NotReady, Unwritable) as error:
                self._trouble(place, str(error))
                due.again(place, LATER_SECONDS)
            except Exception as error:  # noqa: BLE001 - a bug of ours, and one Job never stops the others
                self._trouble(place, f"{type(error).__name__}: {error}")
                due.again(place, LATER_SECONDS * 20)
            finally:
                due.done(place)

    def _trouble(self, place: str, why: str) -> None:
        """One alarm for all Jobs that cannot be shown, taken back when the last of them can be."""
        self.failing.pop(place, None)
        if why:
            self.failing[place] = why
        first = next(iter(self.failing.items()), None)
        many = f"{len(self.failing)} of the home cluster {self.site}'s Jobs cannot be shown"
        words = f"{many}. {first[0]}: {first[1]}" if first else ""
        self.plane.alarms.set("front door", f"door:{self.site}:write", words)

    async def _look_at(self, place: str) -> None:
        job = self.home.job_at(place)
        if job is None:
            await self._gone(place)
            return
        our_id = await self._our_job(job)
        snapshot = await self.follower.snapshot(our_id) if our_id else None
        job = self.home.job_at(place) or job  # it may have been bound meanwhile
        if our_id and snapshot is None:
            return  # its row is being read, and then it is looked at again
        if self.leaving.is_set():
            await self._give_back(job, snapshot)
        elif snapshot is not None:
            await self._show(job, snapshot)
        elif part(job, "metadata").get("deletionTimestamp"):
            await self.writer.let_go(job)
        elif not has_ended(job):
            await self._submit(job)

    async def _our_job(self, job: Json) -> str:
        """Our job for it, if the journal has one; otherwise empty."""
        our_id = self.home.ids.get(uid_of(job), "") or await asyncio.to_thread(self._look_up, job)
        if our_id:
            self.home.remember(job, our_id)
        return our_id

    def _look_up(self, job: Json) -> str:
        """By what is written on it, which is quicker and is checked; or by its origin, which is the journal's word."""
        origin = job_spec.origin(self.site, job)
        written = part(part(job, "metadata"), "annotations").get(annotations.JOB)
        row = self.reader.job(str(written)) if written else None
        if row is not None and origin == Origin(row.origin_site, row.origin_uid):
            return row.id
        if self.first is not None and uid_of(job) not in self.first:
            return ""  # it came in this life, and whatever is submitted in this life is remembered
        found = self.reader.jobs(Filter(origin=origin), None, 1) if origin is not None else []
        return found[0].id if found else ""

    async def _submit(self, job: Json) -> None:
        if part(job, "spec").get("suspend") is True and (change := kueue.park(part(job, "metadata"))):
            await self.writer.change(job, change)  # before Kueue reserves quota for it; then it is looked at again
            self.due.add(place_of(job), ahead=True)
        elif number := await self.intake.take(job):
            self.home.remember(job, number)
            if number in self.follower.snapshots:  # otherwise it is named when its row has been read
                self.due.add(place_of(job))

    # --- showing what happens to it -----------------------------------------------------------------------------------

    async def _show(self, job: Json, snapshot: JobSnapshot) -> None:
        row, attempts = snapshot.job, snapshot.attempts
        if snapshot.is_older_than(job):
            return  # looked at again with the next one
        deleted, ended = bool(part(job, "metadata").get("deletionTimestamp")), row.phase in ENDED
        if deleted and not ended:
            await self._cancel(row.id)
        if attempts and attempts[-1].id in self.home.binding:
            pass  # what is to be written now is on its way
        elif (ended and (deleted or has_ended(job))) or self._starts(job, snapshot):
            await self.writer.change(job, status.metadata_change(job, snapshot))
        else:
            await self.writer.show(job, snapshot)
        self._tell_soon(job, snapshot)

    def _starts(self, job: Json, snapshot: JobSnapshot) -> bool:
        """A Job that shows nothing yet, and is about to run: most do at once, and then show that."""
        attempts = snapshot.attempts
        return bool(attempts) and attempts[-1].phase == "starting" and not part(job, "status").get("conditions")

    def _tell_soon(self, job: Json, snapshot: JobSnapshot) -> None:
        our_id = snapshot.job.id
        recorder = self.follower.recorders.get(our_id)
        if recorder is not None and recorder.has_news:
            self.untold.again(place_of(job), TOLD_SECONDS)
        elif self._starts(job, snapshot):
            self.untold.again(place_of(job), STARTING_SECONDS)
        elif snapshot.job.phase in ENDED:
            self.follower.drop(our_id)

    async def _tell_of(self, place: str) -> None:
        job = self.home.job_at(place)
        our_id = self.home.ids.get(uid_of(job), "") if job is not None else ""
        recorder = self.follower.recorders.get(our_id)
        if job is None or recorder is None:
            return
        await self.writer.tell(job, recorder)
        if has_ended(job):
            self.follower.drop(our_id)
        elif not part(job, "status").get("conditions"):
            await self._show_start(job, our_id)

    async def _show_start(self, job: Json, our_id: str) -> None:
        """If it still starts, and has for long; if not yet, once it has."""
        snapshot = await self.follower.snapshot(our_id)
        if snapshot is None or not self._starts(job, snapshot):
            return
        left = STARTING_SECONDS - (self.plane.clock.now() - snapshot.attempts[-1].promised_at) / SECOND
        if left > 0:
            self.untold.again(place_of(job), left)
        else:
            await self.writer.show(job, snapshot, rank=LATER)

    # --- taking it back -----------------------------------------------------------------------------------------------

    async def _cancel(self, our_id: str) -> None:
        if our_id not in self.cancelled:
            await self.plane.tell(CancelRequested(0, our_id))
            self.cancelled.add(our_id)

    async def _gone(self, place: str) -> None:
        """Deleted without waiting for us, or its label was taken away. Either way it is no longer ours to run."""
        for our_id in list(self.home.at.get(place, ())):
            snapshot = await self.follower.snapshot(our_id)
            if snapshot is not None and snapshot.job.phase not in ENDED:
                await self._cancel(our_id)
            else:
                await self._clean(place)
                self.follower.drop(our_id)
                self.home.forget(our_id)

    async def _clean(self, place: str) -> None:
        """What is still there without the label shows nothing of us any more."""
        namespace, _, name = place.partition("/")
        with suppress(NotFound):
            job = await self.cluster.get(JOBS, name, namespace)
            if uid_of(job) in self.home.ids:
                await self.writer.let_go(job)

    async def _cancel_orphans(self) -> None:
        """Jobs of the journal whose home Job was deleted while nobody watched. Only a whole list can say so."""
        await self.home.in_step()
        there = self.home.uids
        self.first = there if self.first is None else self.first
        for orphan in [
            snapshot.job for snapshot in self.follower.live(self.site) if snapshot.job.origin_uid not in there
        ]:
            await self._cancel_when_ready(orphan.id)

    async def _cancel_when_ready(self, our_id: str) -> None:
        while True:
            try:
                await self._cancel(our_id)
                return
            except NotReady:
                await asyncio.sleep(LATER_SECONDS)

    # --- giving everything back ---------------------------------------------------------------------------------------

    @property
    def left(self) -> asyncio.Event:
        """Nothing of ours is there any more."""
        return self.parting.left

    @property
    def jobs_here(self) -> int:
        """Jobs that are ours."""
        return self.home.count

    async def _leave(self) -> None:
        """Once told to: give back what there is, wait for what runs, then take away what only we needed."""
        await self.leaving.wait()
        for namespace, informer in self.home.informers.items():
            await informer.in_step.wait()
            await self._steadily(partial(restore_jobs.finish, self.cluster, namespace))
            for place in list(informer.objects):
                self.due.add(place)
        while self.jobs_here:
            self.home.fewer.clear()
            await self.home.fewer.wait()
        await self.parting.part()

    async def _steadily(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """One step; a cluster that cannot be asked is asked again."""
        while True:
            try:
                found = await step()
                self._trouble("leaving", "")
                return found
            except KubeError as error:
                self._trouble("leaving", str(error))
                await asyncio.sleep(LATER_SECONDS)

    async def _give_back(self, job: Json, snapshot: JobSnapshot | None) -> None:
        """What waits at once, as an ordinary Job; what runs once it has ended."""
        phase = snapshot.job.phase if snapshot is not None else ""
        if part(job, "metadata").get("deletionTimestamp") or phase in ("placed", "leaving"):
            await (self._show(job, snapshot) if snapshot is not None else self.writer.let_go(job))
        elif snapshot is not None and phase not in ENDED:
            await self._cancel(snapshot.job.id)
        elif has_ended(job):
            await self.writer.strip(job)
        elif snapshot is not None and phase != "cancelled":
            await self._show(job, snapshot)  # its end first, and then it is looked at again
            self.due.add(place_of(job))
        else:
            await restore_jobs.give_back(self.cluster, job)
