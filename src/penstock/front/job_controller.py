"""Controller of one home cluster: reconciles its labelled Jobs with the journal. The `Manager` runs one for each home.

Every change of a Job, in the cluster or in the journal, puts its key into the work queue. Reconciling submits a new
Job, cancels a deleted one, and otherwise writes the difference between the status it has and the status it should have,
guarded by the resourceVersion that was read. Every step is idempotent, and after a restart all Jobs are reconciled
once. The informers list only Jobs with our label. Events have a queue and workers of their own, so that no status waits
for an Event.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from penstock.core.model.events import CancelRequested, ResumeRequested, SuspendRequested
from penstock.core.model.lifecycle import ENDED
from penstock.core.model.types import Origin
from penstock.core.units import SECOND
from penstock.front import job_spec, status
from penstock.front.event_recorder import STUCK
from penstock.front.home_cluster import has_ended, key_of, namespace_of, too_old, uid_of
from penstock.front.home_jobs import HomeJobs
from penstock.front.intake import Intake
from penstock.front.job_follower import JobFollower
from penstock.front.namespace_claims import NamespaceClaims
from penstock.front.reconcile_workers import LATER_SECONDS, ReconcileWorkers
from penstock.front.status import JobSnapshot
from penstock.front.status_writer import StatusWriter
from penstock.front.uninstall import restore_jobs
from penstock.front.uninstall.sweep import ClusterSweep
from penstock.front.workqueue import WorkQueue
from penstock.journal.journal import Reader
from penstock.journal.rows import Filter
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS
from penstock.kube.errors import KubeError, NotFound
from penstock.kube.references import Json, part
from penstock.kube.request_priority import LATER
from penstock.live.plane import NotReady, Plane

T = TypeVar("T")
INTAKE_WORKERS: Final = 64  #: for new Jobs: as many submissions may share one journal row
#: Fewer than the client's concurrent requests: a status that waits for its request would be stale when it is written.
STATUS_WORKERS: Final = 12
EVENT_WORKERS: Final = 4  #: for Events, and for the status of Jobs that start slowly
TOLD_SECONDS: Final = 2.0  #: decisions within this time go into one Event
RUNS_SECONDS: Final = 0.3  #: the same for a start: its Event names the command for the log
#: A Job without conditions that starts faster than this goes straight to Running: one status write instead of two.
STARTING_SECONDS: Final = 30.0
KUEUE_SECONDS: Final = 60.0  #: how often we look if there is a Kueue, while Jobs with its label come
TOUCH_SECONDS: Final = 20.0  #: how often we ask for the version, which also notices a dead connection


class JobController:
    def __init__(self, home: HomeJobs, plane: Plane, reader: Reader, follower: JobFollower) -> None:
        self.home, self.plane, self.reader, self.follower = home, plane, reader, follower
        self.site, self.cluster, self.due = home.site, home.cluster, home.due
        self.writer = StatusWriter(home, plane.clock.now)
        self.intake = Intake(home, plane, self.writer)
        self.claims = NamespaceClaims(home, plane, self._touch_all)
        self.untold = WorkQueue()  #: keys of Jobs with Events to post
        self.leaving = asyncio.Event()  #: set by `penstock leave`: give every Job back
        self.sweep = ClusterSweep(home.site, home.cluster, home.namespaces, plane.installation)
        cannot = f"of the home cluster {self.site}'s Jobs cannot be shown"
        rights = "penstock manifests rbac"
        self.workers = ReconcileWorkers(plane.alarms, f"door:{self.site}:write", cannot, rights)
        self.cancelled: set[str] = set()  #: ids that this process has cancelled already
        self.suspended: dict[str, bool] = {}  #: ids that this process has suspended or resumed, and which of the two
        self.resized: dict[str, int] = {}  #: ids whose Job has another size now, with the generation that was answered
        self.kueue = (False, 0.0)  #: whether the cluster has one, and until when we believe it
        self.first: set[str] | None = None  #: uids of the first complete list; None before it

    async def run(self) -> None:
        """Run informers and workers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.home.informers.values():
                tasks.create_task(informer.run())
            tasks.create_task(self._alarm_unreachable())
            tasks.create_task(self._cancel_orphans())
            tasks.create_task(self._check_version())
            tasks.create_task(self.claims.keep())
            tasks.create_task(self._leave())
            for _ in range(INTAKE_WORKERS):
                tasks.create_task(self.workers.run(self.due, self._reconcile, ahead=True))
            for _ in range(STATUS_WORKERS):
                tasks.create_task(self.workers.run(self.due, self._reconcile))
            for _ in range(EVENT_WORKERS):
                tasks.create_task(self.workers.run(self.untold, self._post_events))

    async def _alarm_unreachable(self) -> None:
        """Keep an alarm while an informer is out of sync."""
        while True:
            why = self.home.trouble
            words = f"The home cluster {self.site} cannot be followed: {why}" if why else ""
            self.plane.alarms.set("front door", f"door:{self.site}", words)
            self.home.trouble_changed.clear()
            await self.home.trouble_changed.wait()

    async def _check_version(self) -> None:
        """Ask for the version every `TOUCH_SECONDS`. A request notices a dead connection sooner than a silent watch."""
        while True:
            with suppress(KubeError):
                self._say_if_too_old(await self.cluster.version())
            await asyncio.sleep(TOUCH_SECONDS)

    def _say_if_too_old(self, version: str) -> None:
        words = f"The home cluster {self.site} is Kubernetes {version}; home Jobs need 1.32 or newer (managedBy)."
        self.plane.alarms.set("front door", f"door:{self.site}:version", words if too_old(version) else "")

    # --- reconciling --------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        job = self.home.job_at(key)
        if job is None:
            await self._gone(key)
            return
        our_id = await self._our_job(job)
        if not our_id and not await self.claims.is_ours(namespace_of(job)):
            return  # another installation's Job; `claims` enqueues it if that one leaves
        snapshot = await self.follower.snapshot(our_id) if our_id else None
        job = self.home.job_at(key) or job  # the binding driver may have patched it meanwhile
        if our_id and snapshot is None:
            return  # the follower is about to publish its snapshot, and enqueues it then
        if self.leaving.is_set():
            await self._give_back(job, snapshot)
        elif snapshot is not None:
            await self._show(job, snapshot)
        elif part(job, "metadata").get("deletionTimestamp"):
            await self.writer.let_go(job)
        elif not has_ended(job):
            await self._submit(job)

    async def _our_job(self, job: Json) -> str:
        """The id of our job for this Job; empty if the journal has none."""
        our_id = self.home.ids.get(uid_of(job), "") or await asyncio.to_thread(self._look_up, job)
        if our_id:
            self.home.remember(job, our_id)
        return our_id

    def _look_up(self, job: Json) -> str:
        """By the annotation, checked against the journal; else by origin, which costs a query."""
        origin = job_spec.origin(self.site, job)
        written = part(part(job, "metadata"), "annotations").get(annotations.JOB)
        row = self.reader.job(str(written)) if written else None
        if row is not None and origin == Origin(row.origin_site, row.origin_uid):
            return row.id
        if self.first is not None and uid_of(job) not in self.first:
            return ""  # created since we started: `ids` would have it if it had been submitted
        rows = self.reader.jobs(Filter(origin=origin), None, 1) if origin is not None else []
        return rows[0].id if rows else ""

    async def _submit(self, job: Json) -> None:
        if change := await self._kueue_change(job):
            await self.writer.change(job, change)  # before Kueue reserves quota; then reconcile again
            self.due.add(key_of(job), ahead=True)
        elif number := await self.intake.take(job):
            self.home.remember(job, number)
            if number in self.follower.snapshots:  # otherwise the follower enqueues it with its first snapshot
                self.due.add(key_of(job))

    async def _kueue_change(self, job: Json) -> Json:
        """A patch of its queue label: Kueue reserves nothing for it, and where there is no Kueue, `suspend` is its
        user's.
        """
        metadata = part(job, "metadata")
        if not kueue.is_kueues(metadata):
            return {}
        if not await self._has_kueue():
            return kueue.unpark(metadata)
        return kueue.park(metadata) if part(job, "spec").get("suspend") is True else {}

    async def _has_kueue(self) -> bool:
        has_it, until = self.kueue
        now = asyncio.get_running_loop().time()
        if now >= until:
            has_it = await self.cluster.first_kind(kueue.VERSIONS, kueue.LOCAL_QUEUE) is not None
            self.kueue = has_it, now + KUEUE_SECONDS
        return has_it

    # --- status and Events --------------------------------------------------------------------------------------------

    async def _show(self, job: Json, snapshot: JobSnapshot) -> None:
        snapshot = snapshot.with_pods(self.home.running_pods)
        row, attempts = snapshot.job, snapshot.attempts
        if snapshot.is_older_than(job):
            return  # the next snapshot enqueues it again
        deleted, ended = bool(part(job, "metadata").get("deletionTimestamp")), row.phase in ENDED
        if deleted and not ended:
            await self._cancel(row.id)
        elif not ended:
            await self._suspend_or_resume(job, snapshot)
            await self._answer_resize(job, snapshot)
        if attempts and attempts[-1].id in self.home.binding:
            pass  # the binding driver is writing on it now
        elif (ended and (deleted or has_ended(job))) or self._starts(job, snapshot):
            await self.writer.change(job, status.metadata_change(job, snapshot))
        else:
            await self.writer.show(job, snapshot)
        self._post_soon(job, snapshot)

    def _starts(self, job: Json, snapshot: JobSnapshot) -> bool:
        """True for a Job without conditions whose attempt is starting and not stuck: most run at once, and one write is
        enough.
        """
        attempts, stuck = snapshot.attempts, snapshot.why is not None and snapshot.why.reason == STUCK
        begins = bool(attempts) and attempts[-1].phase == "starting" and not stuck
        return begins and not part(job, "status").get("conditions")

    def _post_soon(self, job: Json, snapshot: JobSnapshot) -> None:
        our_id = snapshot.job.id
        recorder = self.follower.recorders.get(our_id)
        if recorder is not None and recorder.has_news:
            self.untold.again(key_of(job), RUNS_SECONDS if recorder.tells_of_a_start else TOLD_SECONDS)
        elif self._starts(job, snapshot):
            self.untold.again(key_of(job), STARTING_SECONDS)
        elif snapshot.job.phase in ENDED:
            self.follower.drop(our_id)

    async def _post_events(self, key: str) -> None:
        job = self.home.job_at(key)
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
        """Show "starting" once the start has taken `STARTING_SECONDS`; until then look again later."""
        snapshot = await self.follower.snapshot(our_id)
        if snapshot is None or not self._starts(job, snapshot):
            return
        left = STARTING_SECONDS - (self.plane.clock.now() - snapshot.attempts[-1].promised_at) / SECOND
        if left > 0:
            self.untold.again(key_of(job), left)
        else:
            await self.writer.show(job, snapshot.with_pods(self.home.running_pods), rank=LATER)

    # --- what its user changes ----------------------------------------------------------------------------------------

    async def _suspend_or_resume(self, job: Json, snapshot: JobSnapshot) -> None:
        """Tell the engine what the user wants, once: the journal's snapshot may still be behind."""
        our_id, wanted = snapshot.job.id, status.is_suspended_by_user(job)
        if wanted != self.suspended.get(our_id, snapshot.suspended):
            ask = SuspendRequested if wanted else ResumeRequested
            await self.plane.tell(ask(0, our_id, by=f"kubernetes/{self.site}"))
            self.suspended[our_id] = wanted

    async def _answer_resize(self, job: Json, snapshot: JobSnapshot) -> None:
        """Say that a change of parallelism has no effect: a job keeps the GPUs that it was submitted with."""
        generation = int(part(job, "metadata").get("generation") or 0)
        if self.resized.get(snapshot.job.id) == generation or not job_spec.has_other_size(job, snapshot.job.gpus):
            return
        self.resized[snapshot.job.id] = generation
        await self.writer.post(
            *(job, f"{snapshot.job.id}-size-{generation}", "SizeNotChanged"),
            f"Penstock does not change the size of a Job: it runs with the {snapshot.job.gpus} GPUs that it asked for "
            "when it was created. Set its parallelism back, or delete it and create it with another one.",
            bad=True,
        )

    # --- deletion and orphans -----------------------------------------------------------------------------------------

    async def _cancel(self, our_id: str) -> None:
        if our_id not in self.cancelled:
            await self.plane.tell(CancelRequested(0, our_id, by=f"kubernetes/{self.site}"))
            self.cancelled.add(our_id)

    async def _gone(self, key: str) -> None:
        """The Job was deleted, or lost its label: cancel our job, and forget it once it has ended."""
        for our_id in list(self.home.at.get(key, ())):
            snapshot = await self.follower.snapshot(our_id)
            if snapshot is not None and snapshot.job.phase not in ENDED:
                await self._cancel(our_id)
            else:
                await self._clean(key)
                self._forget(our_id)

    def _forget(self, our_id: str) -> None:
        self.follower.drop(our_id)
        self.home.forget(our_id)
        self.cancelled.discard(our_id)
        self.suspended.pop(our_id, None)
        self.resized.pop(our_id, None)

    async def _clean(self, key: str) -> None:
        """Remove our marks from a Job that still exists without the label."""
        namespace, _, name = key.partition("/")
        with suppress(NotFound):
            job = await self.cluster.get(JOBS, name, namespace)
            if uid_of(job) in self.home.ids:
                await self.writer.let_go(job)

    async def _cancel_orphans(self) -> None:
        """Cancel jobs whose home Job was deleted while we were down. Only a complete list proves that."""
        await self.home.in_step()
        uids = self.home.uids
        self.first = uids if self.first is None else self.first
        for orphan in [
            snapshot.job for snapshot in self.follower.live(self.site) if snapshot.job.origin_uid not in uids
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
        """Set when nothing of ours remains in this cluster."""
        return self.sweep.left

    @property
    def jobs_here(self) -> int:
        """Labelled Jobs that still exist here, without those of another installation's namespaces."""
        jobs = [job for informer in self.home.informers.values() for job in informer]
        return sum(uid_of(job) in self.home.ids or not self.claims.is_others(namespace_of(job)) for job in jobs)

    async def _leave(self) -> None:
        """After `penstock leave`: give queued Jobs back, wait for running ones to end, then sweep the cluster."""
        await self.leaving.wait()
        await self.claims.leave()
        for namespace, informer in self.home.informers.items():
            await informer.in_step.wait()
            if not namespace or await self._steadily(partial(self.claims.is_ours, namespace)):
                await self._steadily(partial(restore_jobs.finish, self.cluster, namespace))
            self._touch_all(namespace)
        while self.jobs_here:
            self.home.fewer.clear()
            await self.home.fewer.wait()
        await self.sweep.part()

    def _touch_all(self, namespace: str) -> None:
        """Enqueue all Jobs of a namespace; empty: of all namespaces."""
        for informer in self.home.informers.values():
            for key in [key for key in informer.objects if not namespace or key.startswith(f"{namespace}/")]:
                self.due.add(key)

    async def _steadily(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat a step until the cluster answers."""
        while True:
            try:
                result = await step()
                self.workers.set_trouble("leaving", "")
                return result
            except KubeError as error:
                self.workers.set_trouble("leaving", str(error))
                await asyncio.sleep(LATER_SECONDS)

    async def _give_back(self, job: Json, snapshot: JobSnapshot | None) -> None:
        """Restore a queued Job at once as an ordinary one, and a running Job after it has ended."""
        phase = snapshot.job.phase if snapshot is not None else ""
        if part(job, "metadata").get("deletionTimestamp") or phase in ("placed", "leaving"):
            await (self._show(job, snapshot) if snapshot is not None else self.writer.let_go(job))
        elif snapshot is not None and phase not in ENDED:
            await self._cancel(snapshot.job.id)
        elif has_ended(job):
            await self.writer.strip(job)
        elif snapshot is not None and phase != "cancelled":
            await self._show(job, snapshot)  # show its end first, then reconcile again
            self.due.add(key_of(job))
        else:
            await restore_jobs.give_back(self.cluster, job)
