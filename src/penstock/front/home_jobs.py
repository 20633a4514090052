"""The labelled Jobs of one home cluster: informer cache, work queue, and the map from a Job's uid to our job's id.

`wiring` makes one for each home cluster before it makes drivers and controllers. The informer and the journal's
follower enqueue keys, the controller's workers take them, and the binding driver reads the cache and stores the Jobs
that it patched. None of these needs to know the others.
"""

import asyncio
from typing import Final

from penstock.drivers.running_pods import CountsPods, RunningPods
from penstock.front.home_cluster import HomeCluster, key_of, uid_of, worth_keeping
from penstock.front.recorded_users import RecordedUsers
from penstock.front.workqueue import WorkQueue
from penstock.kube import annotations
from penstock.kube.client import JOBS
from penstock.kube.informer import Informer
from penstock.kube.references import Json, part

COUNTS_SECONDS: Final = 1.0  #: how often a Job shows new counts of its pods at most


class HomeJobs:
    def __init__(self, home: HomeCluster, key: bytes = b"") -> None:
        """`key`: the secret that turns users' names into opaque ids."""
        self.site, self.cluster, self.namespaces = home.site, home.cluster, home.namespaces
        self.users = RecordedUsers(home.site, home.cluster, key)
        self.informers = {namespace: self._informer(namespace) for namespace in home.namespaces or ("",)}
        self.due = WorkQueue()  #: keys (`NAMESPACE/NAME`) of the Jobs to reconcile
        self.binding: set[str] = set()  #: attempts whose binding is being written: nobody else writes on their Jobs
        self.ids: dict[str, str] = {}  #: a Job's uid -> our job's id
        self.keys: dict[str, str] = {}  #: our job's id -> `NAMESPACE/NAME`
        self.at: dict[
            str, dict[str, str]
        ] = {}  #: the reverse: `NAMESPACE/NAME` -> our jobs' ids, each with its Job's uid
        self.counting: set[CountsPods] = set()  #: drivers that count an attempt's pods while it runs
        self.fewer = asyncio.Event()  #: set when a Job was deleted or lost its label
        self.trouble = ""  #: why the informer is out of sync; empty: it is in sync
        self.trouble_changed = asyncio.Event()

    def _informer(self, namespace: str) -> Informer:
        return Informer(
            self.cluster,
            JOBS,
            self._changed,
            namespace=namespace,
            labels=annotations.QUEUE,
            keep=worth_keeping,
            sync_changed=self._sync_changed,
        )

    def _changed(self, before: Json | None, now: Json | None) -> None:
        self.due.add(key_of(now or before or {}), ahead=before is None)
        if now is None:
            self.fewer.set()

    def _sync_changed(self, why: str) -> None:
        self.trouble = why
        self.trouble_changed.set()

    # --- as they were last seen ---------------------------------------------------------------------------------------

    def job_at(self, key: str) -> Json | None:
        informer = self._informer_of(key)
        return informer.objects.get(key) if informer else None

    def learn(self, job: Json) -> None:
        """Store the Job that the API server returned for our own write."""
        if informer := self._informer_of(key_of(job)):
            informer.learn(job)

    def bound(self, job: Json) -> None:
        """Store the Job that the binding driver patched; reconcile it if its conditions still say that it is queued."""
        self.learn(job)
        if part(job, "status").get("conditions"):
            self.due.add(key_of(job))

    def _informer_of(self, key: str) -> Informer | None:
        return self.informers.get("") or self.informers.get(key.partition("/")[0])

    async def in_step(self) -> None:
        """Wait until every informer has listed its Jobs."""
        for informer in self.informers.values():
            await informer.in_step.wait()

    @property
    def is_in_step(self) -> bool:
        return all(informer.in_step.is_set() for informer in self.informers.values())

    @property
    def uids(self) -> set[str]:
        return {uid_of(job) for informer in self.informers.values() for job in informer}

    # --- which of our jobs they are -----------------------------------------------------------------------------------

    def remember(self, job: Json, our_id: str) -> None:
        uid, key = uid_of(job), key_of(job)
        self.ids[uid], self.keys[our_id] = our_id, key
        self.at.setdefault(key, {})[our_id] = uid

    def forget(self, our_id: str) -> None:
        key = self.keys.pop(our_id, "")
        self.ids.pop(self.at.get(key, {}).pop(our_id, ""), None)
        if not self.at.get(key):
            self.at.pop(key, None)

    def running_pods(self, attempt: str) -> RunningPods | None:
        counts = (driver.running_pods(attempt) for driver in self.counting)
        return next((pods for pods in counts if pods is not None), None)

    def touch_soon(self, our_id: str) -> None:
        """Enqueue the Job in a moment: its pods' counts changed, and more changes follow."""
        if key := self.keys.get(our_id):
            self.due.again(key, COUNTS_SECONDS)

    def touch(self, our_id: str) -> None:
        """Enqueue the Job: the journal has a new row about it."""
        if key := self.keys.get(our_id):
            self.due.add(key)
