"""One home cluster: its labelled Jobs are submitted, shown, and cancelled when deleted. The hall has one for each.

Whatever happens to a Job, here or in the journal, makes it due to be looked at; looking compares what it should be with
what it is and writes the difference, guarded by the version that was seen. So every step can be repeated, and after a
restart all Jobs are looked at once. Jobs without the label are not even listed.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from penstock.core.events import CancelRequested
from penstock.core.lifecycle import ENDED
from penstock.core.values import value
from penstock.front import leaving, reading, status
from penstock.front.due import Due
from penstock.front.parting import Parting
from penstock.front.reading import Unfit
from penstock.front.telling import Tale
from penstock.front.writing import Writer
from penstock.journal.journal import Filter, JobRow, Reader, Unwritable
from penstock.kube import kueue, names
from penstock.kube.client import CONFIG_MAPS, JOBS, Cluster
from penstock.kube.closure import Json, part, parts
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound
from penstock.kube.portability import config_maps
from penstock.kube.watch import Mirror
from penstock.live.plane import NotReady, Plane, Quarantined

T = TypeVar("T")
HANDS: Final = 16  #: Jobs looked at side by side
AGAIN_SECONDS: Final = 0.3  #: after somebody else was first
LATER_SECONDS: Final = 3.0  #: after a cluster or a journal that could not be asked
TOUCH_SECONDS: Final = 20.0  #: how often a home cluster is asked something, however still it is
OLDEST: Final = (1, 32)  #: since then `managedBy` is on by default
#: A Job this young that runs by itself has just been created so; an older one was labelled later, and runs on.
JUST_CREATED: Final = timedelta(seconds=60)


@value
class Home:
    """A home cluster, and the namespaces in which labelled Jobs are taken; none: in all."""

    site: str
    cluster: Cluster
    namespaces: tuple[str, ...] = ()


class Door:
    def __init__(
        self,
        home: Home,
        plane: Plane,
        reader: Reader,
        tale: Callable[[str], Tale],
        forget: Callable[[str], None],
    ) -> None:
        """`tale`: a job's story so far, as the hall follows it; `forget`: it is told."""
        self.site, self.cluster, self.plane, self.reader = home.site, home.cluster, plane, reader
        self.forget = forget
        self.writer = Writer(home.cluster, tale, plane.clock.now)
        self.mirrors = {namespace: self._mirror(namespace) for namespace in home.namespaces or ("",)}
        self.due = Due()
        self.ids: dict[str, str] = {}  #: a Job's uid -> our job
        self.places: dict[str, str] = {}  #: our job -> `NAMESPACE/NAME`
        self.leaving = asyncio.Event()  #: every Job is given back
        self.parting = Parting(home.site, home.cluster, home.namespaces, plane.installation)
        self.fewer = asyncio.Event()  #: a Job is no longer ours
        self.failing: dict[str, str] = {}  #: `NAMESPACE/NAME` of Jobs that could not be shown, and why
        self.cancelled: set[str] = set()  #: told to the journal in this life
        self.explained: set[tuple[str, str]] = set()  #: uid and reason of Jobs that cannot be taken

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self.mirrors.values():
                tasks.create_task(mirror.run())
            tasks.create_task(self._cancel_orphans())
            tasks.create_task(self._check_version())
            tasks.create_task(self._leave())
            for _ in range(HANDS):
                tasks.create_task(self._look_at_each())

    def _mirror(self, namespace: str) -> Mirror:
        return Mirror(
            self.cluster,
            JOBS,
            self._changed,
            namespace=namespace,
            labels=names.QUEUE,
            keep=_worth_keeping,
            told=self._told,
        )

    def touch(self, job: str) -> None:
        """The journal has news of it."""
        if place := self.places.get(job):
            self.due.add(place)

    def _changed(self, before: Json | None, now: Json | None) -> None:
        self.due.add(_key(now or before or {}))
        if now is None:
            self.fewer.set()

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

    async def _look_at_each(self) -> None:
        while True:
            place = await self.due.take()
            try:
                await self._look_at(place)
                self._trouble(place, "")
            except (Conflict, NotFound):
                self.due.again(place, AGAIN_SECONDS)
            except Forbidden as error:
                self._trouble(
                    place, f"our account may not {error.verb} {error.resource}; see 'penstock manifests rbac'"
                )
                self.due.again(place, LATER_SECONDS * 5)
            except (KubeError, NotReady, Unwritable) as error:
                self._trouble(place, str(error))
                self.due.again(place, LATER_SECONDS)
            except Exception as error:  # noqa: BLE001 - a bug of ours, and one Job never stops the others
                self._trouble(place, f"{type(error).__name__}: {error}")
                self.due.again(place, LATER_SECONDS * 20)
            finally:
                self.due.done(place)

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
        job = self._job(place)
        if job is None:
            await self._gone(place)
            return
        found = await self._find(job)
        if self.leaving.is_set():
            await self._give_back(job, found)
        elif found is not None:
            await self._show(job, found)
        elif part(job, "metadata").get("deletionTimestamp"):
            await self.writer.let_go(job)
        elif not _has_ended(job):
            await self._submit(job)

    def _job(self, place: str) -> Json | None:
        mirror = self.mirrors.get("") or self.mirrors.get(place.partition("/")[0])
        return mirror.objects.get(place) if mirror else None

    async def _find(self, job: Json) -> JobRow | None:
        """Our job for it, if the journal has one."""
        row = await asyncio.to_thread(self._find_now, job)
        if row is not None:
            self._remember(job, row.id)
        return row

    def _find_now(self, job: Json) -> JobRow | None:
        """By what we remember, by what is written on it, or by who asked for it. Only the last is the journal's word;
        the others are quicker, and checked."""
        who = reading.origin(self.site, job)
        written = part(part(job, "metadata"), "annotations").get(names.JOB)
        for number in (self.ids.get(_uid(job)), written):
            row = self.reader.job(str(number)) if number else None
            if row is not None and row.user == who:
                return row
        found = self.reader.jobs(Filter(user=who), None, 1)
        return found[0] if found else None

    def _remember(self, job: Json, our_id: str) -> None:
        self.ids[_uid(job)], self.places[our_id] = our_id, _key(job)

    # --- taking a Job in ----------------------------------------------------------------------------------------------

    async def _submit(self, job: Json) -> None:
        if part(job, "spec").get("suspend") is True and (change := kueue.park(part(job, "metadata"))):
            await self.writer.change(job, change)  # before Kueue reserves quota for it; then it is looked at again
            return
        try:
            carried, unread = await self._carried(job)
            wish = reading.read(job, self.site, self.plane.clock.now(), self._models(), carried, unread)
            who = reading.origin(self.site, job)
            told = await self.plane.submit(wish.spec, wish.work, key=f"home:{who}", body=_uid(job))
        except Unfit as unfit:
            await self._explain(job, unfit.reason, str(unfit))
            return
        except Quarantined as error:
            await self._explain(job, "SetAside", str(error))
            return
        self._remember(job, told.answer)
        self.due.add(_key(job))

    async def _carried(self, job: Json) -> tuple[list[Json], tuple[str, ...]]:
        """ConfigMaps that may travel with it, as they are now, and those that cannot."""
        namespace = str(part(job, "metadata").get("namespace", ""))
        found, unread = [], []
        for name in config_maps(job):
            try:
                found.append(await self.cluster.get(CONFIG_MAPS, name, namespace))
            except (NotFound, Forbidden):
                unread.append(name)
        return found, tuple(unread)

    def _models(self) -> list[str]:
        offers = [one.offer for site in self.plane.view.sites for one in site.offers]
        return list(dict.fromkeys(offer.gpu_model for offer in offers if offer.gpu_model))

    async def _explain(self, job: Json, reason: str, words: str) -> None:
        """It cannot be taken, and runs nowhere. Told once."""
        if (_uid(job), reason) in self.explained:
            return
        if reason == "NotManaged" and self._began_just_now(job):
            await self.writer.change(job, {"spec": {"suspend": True}})
        await self.writer.post(job, reason.lower(), reason, words, bad=True)
        self.explained.add((_uid(job), reason))

    def _began_just_now(self, job: Json) -> bool:
        created = datetime.fromisoformat(str(part(job, "metadata").get("creationTimestamp")))
        runs = part(job, "spec").get("suspend") is not True
        return runs and self.cluster.said_at - created < JUST_CREATED

    # --- showing what happens to it -----------------------------------------------------------------------------------

    async def _show(self, job: Json, row: JobRow) -> None:
        deleted = bool(part(job, "metadata").get("deletionTimestamp"))
        if deleted and row.phase not in ENDED:
            await self._cancel(row.id)
        attempts = await asyncio.to_thread(self.reader.attempts, row.id)
        ended = row.phase in ENDED
        if ended and not deleted and not _has_ended(job):
            await self.writer.tell(job, row)  # first: once the Job shows its end, nothing more is told
        job = await self.writer.change(job, status.metadata_change(job, row, attempts))
        if ended and (deleted or _has_ended(job)):
            self.forget(row.id)
            return
        await self.writer.show(job, row, attempts)
        await self.writer.tell(job, row)

    # --- taking it back -----------------------------------------------------------------------------------------------

    async def _cancel(self, our_id: str) -> None:
        if our_id not in self.cancelled:
            await self.plane.tell(CancelRequested(0, our_id))
            self.cancelled.add(our_id)

    async def _gone(self, place: str) -> None:
        """Deleted without waiting for us, or its label was taken away. Either way it is no longer ours to run."""
        for our_id in [one for one, where in self.places.items() if where == place]:
            row = await asyncio.to_thread(self.reader.job, our_id)
            if row is not None and row.phase not in ENDED:
                await self._cancel(our_id)
            elif await self._is_clean(place):
                self._forget(our_id)

    async def _is_clean(self, place: str) -> bool:
        """What is still there without the label shows nothing of us any more."""
        namespace, _, name = place.partition("/")
        try:
            job = await self.cluster.get(JOBS, name, namespace)
        except NotFound:
            return True
        if _uid(job) in self.ids:
            await self.writer.let_go(job)
        return True

    def _forget(self, our_id: str) -> None:
        self.places.pop(our_id, None)
        self.ids = {uid: one for uid, one in self.ids.items() if one != our_id}

    async def _cancel_orphans(self) -> None:
        """Jobs of the journal whose home Job was deleted while nobody watched. Only a whole list can say so."""
        for mirror in self.mirrors.values():
            await mirror.in_step.wait()
        there = {_uid(job) for mirror in self.mirrors.values() for job in mirror}
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

    async def _give_back(self, job: Json, row: JobRow | None) -> None:
        """What waits at once, as an ordinary Job; what runs once it has ended."""
        if part(job, "metadata").get("deletionTimestamp") or (row is not None and row.phase in ("placed", "leaving")):
            await (self._show(job, row) if row is not None else self.writer.let_go(job))
        elif row is not None and row.phase not in ENDED:
            await self._cancel(row.id)
        elif _has_ended(job):
            await self.writer.strip(job)
        elif row is not None and row.phase != "cancelled":
            await self._show(job, row)  # its end first; that is a change, and it is looked at again
        else:
            await leaving.give_back(self.cluster, job)


def too_old(version: str) -> bool:
    """`v1.31.4-eks-1` is; what does not look like a version is not judged."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST


def live_jobs(reader: Reader) -> list[JobRow]:
    """All that have not ended."""
    found: list[JobRow] = []
    phases = Filter(phases=("waiting", "placed", "leaving", "paused"))
    after: int | None = None
    while page := reader.jobs(phases, after, 500):
        found += page
        after = page[-1].number
    return found


def _worth_keeping(job: Json) -> Json:
    metadata = {key: found for key, found in job["metadata"].items() if key != "managedFields"}
    return {**job, "metadata": metadata}


def _has_ended(job: Json) -> bool:
    ends = [one for one in parts(part(job, "status"), "conditions") if one.get("type") in ("Complete", "Failed")]
    return any(one.get("status") == "True" for one in ends)


def _uid(job: Json) -> str:
    return str(part(job, "metadata").get("uid", ""))


def _key(job: Json) -> str:
    metadata = part(job, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
