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
from typing import Any, Final, TypeAlias, TypeVar

from penstock.core.events import CancelRequested
from penstock.core.lifecycle import ENDED
from penstock.core.units import SECOND, Millis
from penstock.front import leaving, reading, status
from penstock.front.due import Due
from penstock.front.home import Home, has_ended, live_jobs, place_of, too_old, uid_of, worth_keeping
from penstock.front.intake import Intake
from penstock.front.parting import Parting
from penstock.front.telling import Tale
from penstock.front.writing import Writer
from penstock.journal.journal import AttemptRow, Filter, JobRow, Reader, Unwritable
from penstock.kube import kueue, names
from penstock.kube.client import JOBS
from penstock.kube.closure import Json, part
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound
from penstock.kube.lanes import LATER
from penstock.kube.watch import Mirror
from penstock.live.plane import NotReady, Plane

T = TypeVar("T")
Found: TypeAlias = tuple[JobRow, list[AttemptRow]]  #: our job for a home Job, as the journal has it
DOORMEN: Final = 64  #: Jobs that come, taken in side by side: so many can be in one row of the journal
HANDS: Final = 12  #: Jobs shown side by side: fewer than there are lanes, so that what is written is not long known
TELLERS: Final = 4  #: the same for what is only told: Events, and starts that take long
TOLD_SECONDS: Final = 2.0  #: what is decided within that is told together
#: A Job that shows nothing yet and starts at once shows that it runs; one that takes longer, that it starts.
STARTING_SECONDS: Final = 30.0
HEARD_MS: Final[Millis] = 5 * SECOND  #: by then the hall has read what is in the journal
AGAIN_SECONDS: Final = 0.3  #: after somebody else was first
LATER_SECONDS: Final = 3.0  #: after a cluster or a journal that could not be asked
TOUCH_SECONDS: Final = 20.0  #: how often a home cluster is asked something, however still it is


class Door:
    def __init__(
        self,
        home: Home,
        plane: Plane,
        reader: Reader,
        tale: Callable[[str], Tale],
        tales: dict[str, Tale],
        being_bound: Callable[[str], bool],
    ) -> None:
        """`tale`: a job's story so far, as the hall follows it; `tales`: those it keeps, until they are told.
        `being_bound`: is an attempt's binding on its way to its home Job?"""
        self.site, self.cluster, self.plane, self.reader = home.site, home.cluster, plane, reader
        self.tales, self.being_bound = tales, being_bound
        self.writer = Writer(home.cluster, self.learn, tale, plane.clock.now)
        self.intake = Intake(home.site, home.cluster, plane, self.writer)
        self.mirrors = {namespace: self._mirror(namespace) for namespace in home.namespaces or ("",)}
        self.due = Due()
        self.untold = Due()  #: Jobs of which there is news
        self.ids: dict[str, str] = {}  #: a Job's uid -> our job
        self.places: dict[str, str] = {}  #: our job -> `NAMESPACE/NAME`
        self.at: dict[str, dict[str, str]] = {}  #: the other way: our jobs at a place, each with its Job's uid
        self.leaving = asyncio.Event()  #: every Job is given back
        self.parting = Parting(home.site, home.cluster, home.namespaces, plane.installation)
        self.fewer = asyncio.Event()  #: a Job is no longer ours
        self.failing: dict[str, str] = {}  #: `NAMESPACE/NAME` of Jobs that could not be shown, and why
        self.cancelled: set[str] = set()  #: told to the journal in this life
        self.first: set[str] | None = None  #: uids of the Jobs that were there when we came

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self.mirrors.values():
                tasks.create_task(mirror.run())
            tasks.create_task(self._cancel_orphans())
            tasks.create_task(self._check_version())
            tasks.create_task(self._leave())
            for _ in range(DOORMEN):
                tasks.create_task(self._see_to_each(self.due, self._look_at, ahead=True))
            for _ in range(HANDS):
                tasks.create_task(self._see_to_each(self.due, self._look_at))
            for _ in range(TELLERS):
                tasks.create_task(self._see_to_each(self.untold, self._tell_of))

    def _mirror(self, namespace: str) -> Mirror:
        return Mirror(
            self.cluster,
            JOBS,
            self._changed,
            namespace=namespace,
            labels=names.QUEUE,
            keep=worth_keeping,
            told=self._told,
        )

    def touch(self, job: str) -> None:
        """The journal has news of it."""
        if place := self.places.get(job):
            self.due.add(place)

    def _changed(self, before: Json | None, now: Json | None) -> None:
        self.due.add(place_of(now or before or {}), ahead=before is None)
        if now is None:
            self.fewer.set()

    def job_at(self, place: str) -> Json | None:
        """As it was last seen."""
        mirror = self._mirror_of(place)
        return mirror.objects.get(place) if mirror else None

    def learn(self, job: Json) -> None:
        """What the cluster answered when we changed it."""
        if mirror := self._mirror_of(place_of(job)):
            mirror.learn(job)

    def bound(self, job: Json) -> None:
        """It is bound, and that was not our doing. What it showed while it waited is no longer so."""
        self.learn(job)
        if part(job, "status").get("conditions"):
            self.due.add(place_of(job))

    def _mirror_of(self, place: str) -> Mirror | None:
        return self.mirrors.get("") or self.mirrors.get(place.partition("/")[0])

    def _told(self, why: str) -> None:
        words = f"The home cluster {self.site} cannot be followed: {why}" if why else ""
        self.plane.alarms.set("front door", f"door:{self.site}", words)

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
        self, due: Due, look: Callable[[str], Coroutine[Any, Any, None]], ahead: bool = False
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
        job = self.job_at(place)
        if job is None:
            await self._gone(place)
            return
        found = await self._find(job)
        job = self.job_at(place) or job  # it may have been bound meanwhile
        if self.leaving.is_set():
            await self._give_back(job, found)
        elif found is not None:
            await self._show(job, *found)
        elif part(job, "metadata").get("deletionTimestamp"):
            await self.writer.let_go(job)
        elif not has_ended(job):
            await self._submit(job)

    async def _find(self, job: Json) -> Found | None:
        """Our job for it, if the journal has one."""
        found = await asyncio.to_thread(self._find_now, job)
        if found is not None:
            self._remember(job, found[0].id)
        return found

    def _find_now(self, job: Json) -> Found | None:
        row = self._row(job)
        return None if row is None else (row, self.reader.attempts(row.id))

    def _row(self, job: Json) -> JobRow | None:
        """By what we remember, by what is written on it, or by who asked for it. Only the last is the journal's word;
        the others are quicker, and checked."""
        who = reading.origin(self.site, job)
        written = part(part(job, "metadata"), "annotations").get(names.JOB)
        for number in (self.ids.get(uid_of(job)), written):
            row = self.reader.job(str(number)) if number else None
            if row is not None and row.user == who:
                return row
        if self.first is not None and uid_of(job) not in self.first:
            return None  # it came in this life, and whatever is submitted in this life is remembered
        found = self.reader.jobs(Filter(user=who), None, 1)
        return found[0] if found else None

    def _remember(self, job: Json, our_id: str) -> None:
        uid, place = uid_of(job), place_of(job)
        self.ids[uid], self.places[our_id] = our_id, place
        self.at.setdefault(place, {})[our_id] = uid

    async def _submit(self, job: Json) -> None:
        if part(job, "spec").get("suspend") is True and (change := kueue.park(part(job, "metadata"))):
            await self.writer.change(job, change)  # before Kueue reserves quota for it; then it is looked at again
            self.due.add(place_of(job), ahead=True)
        elif number := await self.intake.take(job):
            self._remember(job, number)
            self.due.add(place_of(job))

    # --- showing what happens to it -----------------------------------------------------------------------------------

    async def _show(self, job: Json, row: JobRow, attempts: list[AttemptRow]) -> None:
        if status.is_behind(job, row, attempts):
            raise Conflict("it was bound after the journal was read")  # looked at again
        deleted, ended = bool(part(job, "metadata").get("deletionTimestamp")), row.phase in ENDED
        if deleted and not ended:
            await self._cancel(row.id)
        if ended and not has_ended(job) and self._is_about_to_hear(row):
            self.due.again(place_of(job), AGAIN_SECONDS)
            return
        if attempts and self.being_bound(attempts[-1].id):
            pass  # what is to be written now is on its way
        elif (ended and (deleted or has_ended(job))) or self._starts(job, attempts):
            await self.writer.change(job, status.metadata_change(job, row, attempts))
        else:
            await self.writer.show(job, row, attempts)
        self._tell_soon(job, row, attempts)

    def _is_about_to_hear(self, row: JobRow) -> bool:
        """It has just ended, and its tale does not say yet how: what an ended Job says is never changed again."""
        why = self.writer.tale(row.id).why
        ended_at = row.ended_at or 0
        return (why is None or why.at < ended_at) and self.plane.clock.now() - ended_at < HEARD_MS

    def _starts(self, job: Json, attempts: list[AttemptRow]) -> bool:
        """A Job that shows nothing yet, and is about to run: most do at once, and then show that."""
        return bool(attempts) and attempts[-1].phase == "starting" and not part(job, "status").get("conditions")

    def _tell_soon(self, job: Json, row: JobRow, attempts: list[AttemptRow]) -> None:
        tale = self.tales.get(row.id)
        if tale is not None and tale.has_news:
            self.untold.again(place_of(job), TOLD_SECONDS)
        elif self._starts(job, attempts):
            self.untold.again(place_of(job), STARTING_SECONDS)
        elif row.phase in ENDED:
            self.tales.pop(row.id, None)

    async def _tell_of(self, place: str) -> None:
        job = self.job_at(place)
        our_id = self.ids.get(uid_of(job), "") if job is not None else ""
        if job is None or our_id not in self.tales:
            return
        await self.writer.tell(job, self.tales[our_id])
        if has_ended(job):
            self.tales.pop(our_id, None)
        elif not part(job, "status").get("conditions"):
            await self._show_start(job)

    async def _show_start(self, job: Json) -> None:
        """If it still starts, and has for long; if not yet, once it has."""
        found = await self._find(job)
        if found is None or not self._starts(job, found[1]):
            return
        left = STARTING_SECONDS - (self.plane.clock.now() - found[1][-1].promised_at) / SECOND
        if left > 0:
            self.untold.again(place_of(job), left)
        else:
            await self.writer.show(job, *found, rank=LATER)

    # --- taking it back -----------------------------------------------------------------------------------------------

    async def _cancel(self, our_id: str) -> None:
        if our_id not in self.cancelled:
            await self.plane.tell(CancelRequested(0, our_id))
            self.cancelled.add(our_id)

    async def _gone(self, place: str) -> None:
        """Deleted without waiting for us, or its label was taken away. Either way it is no longer ours to run."""
        for our_id in list(self.at.get(place, ())):
            row = await asyncio.to_thread(self.reader.job, our_id)
            if row is not None and row.phase not in ENDED:
                await self._cancel(our_id)
            else:
                await self._clean(place)
                self._forget(our_id)

    async def _clean(self, place: str) -> None:
        """What is still there without the label shows nothing of us any more."""
        namespace, _, name = place.partition("/")
        with suppress(NotFound):
            job = await self.cluster.get(JOBS, name, namespace)
            if uid_of(job) in self.ids:
                await self.writer.let_go(job)

    def _forget(self, our_id: str) -> None:
        self.tales.pop(our_id, None)
        place = self.places.pop(our_id, "")
        self.ids.pop(self.at.get(place, {}).pop(our_id, ""), None)
        if not self.at.get(place):
            self.at.pop(place, None)

    async def _cancel_orphans(self) -> None:
        """Jobs of the journal whose home Job was deleted while nobody watched. Only a whole list can say so."""
        for mirror in self.mirrors.values():
            await mirror.in_step.wait()
        there = {uid_of(job) for mirror in self.mirrors.values() for job in mirror}
        self.first = there if self.first is None else self.first
        for row in await asyncio.to_thread(live_jobs, self.reader):
            site, _, uid = row.user.partition(":")
            if site == self.site and uid and uid not in there:
                await self._cancel_when_ready(row.id)

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
        return sum(len(mirror.objects) for mirror in self.mirrors.values())

    async def _leave(self) -> None:
        """Once told to: give back what there is, wait for what runs, then take away what only we needed."""
        await self.leaving.wait()
        for namespace, mirror in self.mirrors.items():
            await mirror.in_step.wait()
            await self._steadily(partial(leaving.finish, self.cluster, namespace))
            for place in list(mirror.objects):
                self.due.add(place)
        while self.jobs_here:
            self.fewer.clear()
            await self.fewer.wait()
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

    async def _give_back(self, job: Json, found: Found | None) -> None:
        """What waits at once, as an ordinary Job; what runs once it has ended."""
        phase = found[0].phase if found is not None else ""
        if part(job, "metadata").get("deletionTimestamp") or phase in ("placed", "leaving"):
            await (self._show(job, *found) if found is not None else self.writer.let_go(job))
        elif found is not None and phase not in ENDED:
            await self._cancel(found[0].id)
        elif has_ended(job):
            await self.writer.strip(job)
        elif found is not None and phase != "cancelled":
            await self._show(job, *found)  # its end first, and then it is looked at again
            self.due.add(place_of(job))
        else:
            await leaving.give_back(self.cluster, job)
