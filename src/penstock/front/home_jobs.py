"""The labelled Jobs of one home cluster: an informer's view of them, which of our jobs each one is, and the work queue
of those to look at.

`wiring` makes one for each home cluster before anything else of the front door. The binding driver reads it and leaves
word in it of what it writes; the follower of the journal and the informer name Jobs in its queue; the door works that
off. So none of them needs to know the others.
"""

import asyncio

from penstock.front.home_cluster import HomeCluster, place_of, uid_of, worth_keeping
from penstock.front.recorded_users import RecordedUsers
from penstock.front.workqueue import WorkQueue
from penstock.kube import annotations
from penstock.kube.client import JOBS
from penstock.kube.informer import Informer
from penstock.kube.references import Json, part


class HomeJobs:
    def __init__(self, home: HomeCluster, key: bytes = b"") -> None:
        """`key`: by which users' names become opaque ids."""
        self.site, self.cluster, self.namespaces = home.site, home.cluster, home.namespaces
        self.users = RecordedUsers(home.site, home.cluster, key)
        self.informers = {namespace: self._informer(namespace) for namespace in home.namespaces or ("",)}
        self.due = WorkQueue()  #: Jobs to look at, by `NAMESPACE/NAME`
        self.binding: set[str] = set()  #: attempts whose binding is on its way: their Jobs are left alone
        self.ids: dict[str, str] = {}  #: a Job's uid -> our job
        self.places: dict[str, str] = {}  #: our job -> `NAMESPACE/NAME`
        self.at: dict[str, dict[str, str]] = {}  #: the other way: our jobs at a place, each with its Job's uid
        self.fewer = asyncio.Event()  #: a Job is no longer ours
        self.trouble = ""  #: why the cluster cannot be followed; empty: it is
        self.trouble_changed = asyncio.Event()

    def _informer(self, namespace: str) -> Informer:
        return Informer(
            self.cluster,
            JOBS,
            self._changed,
            namespace=namespace,
            labels=annotations.QUEUE,
            keep=worth_keeping,
            told=self._told,
        )

    def _changed(self, before: Json | None, now: Json | None) -> None:
        self.due.add(place_of(now or before or {}), ahead=before is None)
        if now is None:
            self.fewer.set()

    def _told(self, why: str) -> None:
        self.trouble = why
        self.trouble_changed.set()

    # --- as they were last seen ---------------------------------------------------------------------------------------

    def job_at(self, place: str) -> Json | None:
        informer = self._informer_of(place)
        return informer.objects.get(place) if informer else None

    def learn(self, job: Json) -> None:
        """What the cluster answered when we changed it."""
        if informer := self._informer_of(place_of(job)):
            informer.learn(job)

    def bound(self, job: Json) -> None:
        """It is bound now. What it showed while it waited is no longer so."""
        self.learn(job)
        if part(job, "status").get("conditions"):
            self.due.add(place_of(job))

    def _informer_of(self, place: str) -> Informer | None:
        return self.informers.get("") or self.informers.get(place.partition("/")[0])

    async def in_step(self) -> None:
        """Until all of them have been listed."""
        for informer in self.informers.values():
            await informer.in_step.wait()

    @property
    def uids(self) -> set[str]:
        return {uid_of(job) for informer in self.informers.values() for job in informer}

    @property
    def count(self) -> int:
        return sum(len(informer.objects) for informer in self.informers.values())

    # --- which of our jobs they are -----------------------------------------------------------------------------------

    def remember(self, job: Json, our_id: str) -> None:
        uid, place = uid_of(job), place_of(job)
        self.ids[uid], self.places[our_id] = our_id, place
        self.at.setdefault(place, {})[our_id] = uid

    def forget(self, our_id: str) -> None:
        place = self.places.pop(our_id, "")
        self.ids.pop(self.at.get(place, {}).pop(our_id, ""), None)
        if not self.at.get(place):
            self.at.pop(place, None)

    def touch(self, our_id: str) -> None:
        """The journal has news of it."""
        if place := self.places.get(our_id):
            self.due.add(place)
