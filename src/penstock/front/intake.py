"""Submit a new home Job to the plane, or record on the Job why it cannot be accepted. `JobController` calls it."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from penstock.core.errors import BadInput
from penstock.front import job_spec
from penstock.front.home_cluster import namespace_of, uid_of
from penstock.front.home_jobs import HomeJobs
from penstock.front.job_spec import Unfit
from penstock.front.status_writer import StatusWriter
from penstock.kube.client import CONFIG_MAPS, SERVICES
from penstock.kube.errors import Forbidden, NotFound
from penstock.kube.job_needs import known_gpus
from penstock.kube.portability import Carried, travelling
from penstock.kube.references import Json, part
from penstock.live.admission import NotAdmitted
from penstock.live.plane import Plane, Quarantined

#: A younger Job without `managedBy` is suspended. An older one was labelled while it ran, and keeps running.
JUST_CREATED: Final = timedelta(seconds=60)
#: What a younger Job refers to may follow it in the same file.
SAME_FILE: Final = timedelta(seconds=5)


class Intake:
    def __init__(self, home: HomeJobs, plane: Plane, writer: StatusWriter) -> None:
        self.site, self.cluster, self.users = home.site, home.cluster, home.users
        self.plane, self.writer = plane, writer
        self.explained: set[tuple[str, str]] = set()  #: (uid, reason) of the refusals that were posted as Events

    async def take(self, job: Json) -> str:
        """Submit the Job and return our job's id; empty if the Job cannot be accepted. Idempotent: the Job's uid is the
        idempotency key. Raises `NotAdmitted` if it may be accepted later.
        """
        try:
            job_spec.refuse_large(job)  # before each thing that it names is fetched
            carried, unread = await self._carried(job)
            user, now = await self.users.of(job), self.plane.clock.now()
            wish = job_spec.read(job, self.site, now, self._known(), carried, unread, user)
            key, admission = f"home:{self.site}:{uid_of(job)}", self.plane.admission
            admission.book(self.site, namespace_of(job), wish.spec.team)
            with await admission.admitted(wish.spec, len(wish.work.manifest)):
                submitted = await self.plane.submit(wish.spec, wish.work, key=key, body=uid_of(job))
        except NotAdmitted as error:
            await self._explain(job, error.reason, str(error))
            if error.retry_s is not None:
                raise
            return ""
        except Unfit as unfit:
            await self._explain(job, unfit.reason, str(unfit))
            return ""
        except Quarantined as error:
            await self._explain(job, "SetAside", str(error))
            return ""
        except BadInput as error:
            await self._explain(job, "Refused", str(error))
            return ""
        return submitted.answer

    async def _carried(self, job: Json) -> tuple[list[Json], tuple[str, ...]]:
        """What travels with the Job, as it is now, and the names of what it needs and we could not read."""
        namespace, wanted = str(part(job, "metadata").get("namespace", "")), travelling(job)
        carried, unread = await self._read(wanted, namespace)
        if unread and self._age(job) < SAME_FILE:
            await asyncio.sleep(1)
            late, unread = await self._read(unread, namespace)
            carried += late
        return carried, tuple(f"{kind} {name}" for kind, name in unread if wanted[kind, name])

    async def _read(self, wanted: Iterable[Carried], namespace: str) -> tuple[list[Json], list[Carried]]:
        carried, unread = [], []
        for kind, name in wanted:
            try:
                carried.append(await self.cluster.get(SERVICES if kind == "service" else CONFIG_MAPS, name, namespace))
            except (NotFound, Forbidden):
                unread.append((kind, name))
        return carried, unread

    def _known(self) -> list[str]:
        return known_gpus(view.offer for site in self.plane.view.sites for view in site.offers)

    async def _explain(self, job: Json, reason: str, words: str) -> None:
        """Post one Event per reason that says why the Job is not accepted."""
        if (uid_of(job), reason) in self.explained:
            return
        if reason == "NotManaged" and self._began_just_now(job):
            await self.writer.change(job, {"spec": {"suspend": True}})
        await self.writer.post(job, reason.lower(), reason, words, bad=True)
        self.explained.add((uid_of(job), reason))

    def _began_just_now(self, job: Json) -> bool:
        return part(job, "spec").get("suspend") is not True and self._age(job) < JUST_CREATED

    def _age(self, job: Json) -> timedelta:
        return self.cluster.time_there - datetime.fromisoformat(str(part(job, "metadata").get("creationTimestamp")))
