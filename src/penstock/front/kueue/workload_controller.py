"""Controller of one Kueue: reconciles its Workloads with the journal. The `Manager` runs one for each Kueue.

A Workload that has quota and waits for our AdmissionCheck is submitted as a job; while it waits, the check's message is
the sentence of `penstock why`. The check becomes Ready nowhere but in `kueue_driver`, for an attempt that the journal
has promised, with its hold. Every step is idempotent, and after a restart all Workloads are reconciled once.
"""

import asyncio
from contextlib import suppress
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.model.events import CancelRequested, ResumeRequested, SuspendRequested
from penstock.core.model.lifecycle import ENDED
from penstock.core.model.types import Origin
from penstock.front.home_cluster import namespace_of
from penstock.front.job_follower import JobFollower
from penstock.front.job_spec import Unfit
from penstock.front.kueue import workload as w
from penstock.front.kueue import workload_spec
from penstock.front.kueue.admission_check import AdmissionCheckController
from penstock.front.kueue.workload_spec import KueueOrigin
from penstock.front.kueue.workloads import KueueWorkloads, now_written
from penstock.front.reconcile_workers import LATER_SECONDS, ReconcileWorkers
from penstock.front.status import LIVE, JobSnapshot
from penstock.journal.journal import Reader, Unwritable
from penstock.journal.rows import Filter
from penstock.kube.errors import KubeError, NotFound
from penstock.kube.job_needs import known_gpus
from penstock.kube.kueue_api import WORKLOADS, owner_kind
from penstock.kube.references import Json, part
from penstock.live.admission import NotAdmitted
from penstock.live.plane import NotReady, Plane, Quarantined
from penstock.live.sequencer import Forged, unpack_work

WORKERS: Final = 8
#: For so long a Workload may be without quota before its job is suspended: Kueue makes one anew when its bound changes.
STEADY_SECONDS: Final = 3.0
LONGEST: Final = 1000  #: characters of a check's message


class WorkloadController:
    def __init__(self, home: KueueWorkloads, plane: Plane, reader: Reader, follower: JobFollower) -> None:
        self.home, self.plane, self.reader, self.follower = home, plane, reader, follower
        self.cluster, self.due = home.cluster, home.due
        self.check_controller = AdmissionCheckController(home, plane)
        cannot = f"of the Workloads of Kueue {home.name} cannot be governed now"
        rights = "penstock manifests rbac --kueue"
        self.workers = ReconcileWorkers(plane.alarms, f"kueue:{home.name}:write", cannot, rights)
        self.cancelled: set[str] = set()  #: ids that this process has cancelled already
        self.suspended: dict[str, bool] = {}  #: ids that this process has suspended or resumed, and which of the two
        self.without_quota: dict[str, float] = {}  #: since when, by the loop's clock

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.home.follow()
            tasks.create_task(self._alarm_unreachable())
            tasks.create_task(self._cancel_orphans())
            tasks.create_task(self.check_controller.keep())
            for worker in range(WORKERS):
                tasks.create_task(self.workers.run(self.due, self._reconcile, ahead=worker % 2 == 0))

    async def _alarm_unreachable(self) -> None:
        while True:
            why = self.home.trouble
            words = f"The Workloads of Kueue {self.home.name} cannot be followed: {why}" if why else ""
            self.plane.alarms.set("front door", f"kueue:{self.home.name}", words)
            self.home.trouble_changed.clear()
            await self.home.trouble_changed.wait()

    # --- reconciling --------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: str) -> None:
        workload = self.home.workload_at(key)
        if workload is None:
            await self._gone(key)
            return
        our_id = await self._our_job(workload)
        snapshot = await self.follower.snapshot(our_id) if our_id else None
        if our_id and snapshot is None:
            return  # the follower is about to publish its snapshot, and enqueues it then
        if snapshot is not None:
            await self._show(workload, snapshot)
        elif self._asks(workload):
            await self._submit(workload)

    def _asks(self, workload: Json) -> bool:
        """It has quota, and waits for our check."""
        waits = w.check_state(workload, self.home.check) == w.PENDING
        deleted = "deletionTimestamp" in part(workload, "metadata")
        return waits and w.has_quota(workload) and not w.is_finished(workload) and not deleted

    async def _our_job(self, workload: Json) -> str:
        our_id = self.home.ids.get(w.origin_uid(workload), "") or await asyncio.to_thread(self._look_up, workload)
        if our_id:
            self.home.remember(workload, our_id)
        return our_id

    def _look_up(self, workload: Json) -> str:
        rows = self.reader.jobs(Filter(origin=Origin(self.home.name, w.origin_uid(workload))), None, 1)
        return rows[0].id if rows else ""

    # --- a new one ----------------------------------------------------------------------------------------------------

    async def _submit(self, workload: Json) -> None:
        namespace, admission = namespace_of(workload), self.plane.admission
        door = KueueOrigin(self.home.name, self.home.door.own_site, w.dispatched_by(workload, self.home.controllers()))
        try:
            workload_spec.refuse_unbounded(workload)
            owner = await self._owner(workload)
            team = admission.team_of(self.home.name, namespace)
            wish = workload_spec.read(workload, owner, door, team, self.plane.clock.now(), self._known())
            admission.book(self.home.name, namespace, wish.spec.team, by_name=True)
            uid = w.origin_uid(workload)
            with await admission.admitted(wish.spec, len(wish.work.manifest)):
                submitted = await self.plane.submit(wish.spec, wish.work, key=f"kueue:{self.home.name}:{uid}", body=uid)
        except NotAdmitted as error:  # its team asks for too much at the moment, or a person must change something
            await self._say(workload, w.PENDING, str(error))
            self.due.again(_key(workload), error.retry_s or LATER_SECONDS * 20)
        except (Unfit, Quarantined, BadInput) as error:
            await self._say(workload, w.REJECTED, str(error))
        else:
            self.home.remember(workload, submitted.answer)
            if submitted.answer in self.follower.snapshots:  # else the follower enqueues it with its first snapshot
                self.due.add(_key(workload))

    async def _owner(self, workload: Json) -> Json:
        """The object that it was made for. Raises `NotFound` if that is gone: then Kueue deletes the Workload, too."""
        reference = w.owner_of(workload)
        kind = owner_kind(str(reference.get("apiVersion", "")), str(reference.get("kind", "")))
        if kind is None:
            raise NotFound("its owner is of no governed kind")
        owner = await self.cluster.get(kind, str(reference.get("name", "")), namespace_of(workload))
        if part(owner, "metadata").get("uid") != reference.get("uid"):
            raise NotFound("another object has its owner's name now")
        return owner

    def _known(self) -> list[str]:
        return known_gpus(view.offer for site in self.plane.view.sites for view in site.offers)

    # --- one that we have ---------------------------------------------------------------------------------------------

    async def _show(self, workload: Json, snapshot: JobSnapshot) -> None:
        row, live = snapshot.job, [attempt for attempt in snapshot.attempts if attempt.phase in LIVE]
        words = snapshot.why.says if snapshot.why is not None else ""
        if row.phase in ENDED:
            await self._show_end(workload, snapshot.job.phase, words)
        elif w.is_finished(workload):
            if not live or w.owner_is_gone(workload):  # otherwise its driver says how it ended
                await self._cancel(row.id)
        else:
            await self._suspend_or_resume(workload, snapshot, starting=any(a.started_at is None for a in live))
            state = w.check_state(workload, self.home.check)
            if state in (w.PENDING, w.READY):  # the others are Kueue's to answer
                await self._say(workload, state, words)

    async def _show_end(self, workload: Json, phase: str, words: str) -> None:
        """A job that was cancelled or refused by us never runs: Kueue is told, and deactivates it."""
        open_yet = w.is_active(workload) and not w.is_finished(workload)
        if phase != "done" and open_yet and w.check_state(workload, self.home.check) in (w.PENDING, w.READY):
            await self._say(workload, w.REJECTED, words)
        elif w.is_finished(workload) or not w.is_active(workload):
            self.follower.drop(self.home.ids.get(w.origin_uid(workload), ""))

    async def _suspend_or_resume(self, workload: Json, snapshot: JobSnapshot, starting: bool) -> None:
        """While Kueue has no quota for it, or somebody deactivated it, the job waits for that and for nothing else.
        What is being started waits by itself; what Kueue ended at its bound is started again by its next attempt.
        """
        our_id, lacks = snapshot.job.id, not w.has_quota(workload) and not w.lease_is_up(workload)
        if not lacks:
            self.without_quota.pop(our_id, None)
        wanted = lacks and not starting and self._is_steady(workload, our_id)
        if wanted == self.suspended.get(our_id, snapshot.suspended) or (lacks and not wanted):
            return
        ask = SuspendRequested if wanted else ResumeRequested
        await self.plane.tell(ask(0, our_id, by=f"kueue/{self.home.name}"))
        self.suspended[our_id] = wanted

    def _is_steady(self, workload: Json, our_id: str) -> bool:
        now = asyncio.get_running_loop().time()
        left = self.without_quota.setdefault(our_id, now) + STEADY_SECONDS - now
        if left > 0:
            self.due.again(_key(workload), left)
        return left <= 0

    async def _say(self, workload: Json, state: str, words: str) -> None:
        """Write the check's state and message, if they differ. Never Ready, unless it is so already."""
        check, words = self.home.check, words[:LONGEST]
        if not w.check_state(workload, check) or w.is_finished(workload):
            return
        if (w.check_state(workload, check), w.check_message(workload, check)) == (state, words):
            return
        metadata = part(workload, "metadata")
        checks = w.checks_with(workload, check, state, words, now_written())
        patched = await self.cluster.patch_status(
            *(WORKLOADS, metadata["name"], {"admissionChecks": checks}, metadata["namespace"]),
            seen=metadata["resourceVersion"],
        )
        self.home.learn(patched)

    # --- deletion and orphans -----------------------------------------------------------------------------------------

    async def _cancel(self, our_id: str) -> None:
        if our_id not in self.cancelled:
            await self.plane.tell(CancelRequested(0, our_id, by=f"kueue/{self.home.name}"))
            self.cancelled.add(our_id)

    async def _gone(self, key: str) -> None:
        """The Workload was deleted. If its owner is still there, Kueue makes it anew, and the job goes on."""
        for our_id in [our_id for our_id, at in self.home.keys.items() if at == key]:
            snapshot = await self.follower.snapshot(our_id)
            if snapshot is None or snapshot.job.phase in ENDED:
                self._forget(our_id)
            elif await self._owner_is_gone(our_id):
                await self._cancel(our_id)
            else:
                self.due.again(key, LATER_SECONDS)

    def _forget(self, our_id: str) -> None:
        self.follower.drop(our_id)
        self.home.forget(our_id)
        self.cancelled.discard(our_id)
        self.suspended.pop(our_id, None)
        self.without_quota.pop(our_id, None)

    async def _owner_is_gone(self, our_id: str) -> bool:
        known = self.home.references.get(our_id)
        reference = known if known is not None else await asyncio.to_thread(self._submitted_for, our_id)
        with suppress(NotFound):
            owner = await self._owner(reference)
            return "deletionTimestamp" in part(owner, "metadata")
        return True

    def _live(self) -> list[JobSnapshot]:
        return self.follower.live(self.home.name)

    def _submitted_for(self, our_id: str) -> Json:
        """As a Workload's metadata says whose it is; empty if the journal does not know any more."""
        spec = self.reader.spec(our_id)
        packed = self.reader.blob(spec.work) if spec is not None and spec.work else None
        return {} if spec is None or packed is None else workload_spec.reference_in(unpack_work(spec.work, packed))

    async def _cancel_orphans(self) -> None:
        """Cancel jobs whose Workload and owner were deleted while we were down. Without the Workload alone, Kueue may
        be making it anew with another bound.
        """
        await self.home.in_step()
        while missing := [row.job for row in self._live() if row.job.origin_uid not in self.home.uids]:
            for job in missing:
                with suppress(NotReady, KubeError, Unwritable, Forged):
                    if await self._owner_is_gone(job.id):
                        await self._cancel(job.id)
            await asyncio.sleep(LATER_SECONDS)
            await self.home.in_step()


def _key(workload: Json) -> str:
    metadata = part(workload, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
