"""The Workloads of one Kueue: informers' cache, work queue, and the map from a Workload's origin to our job's id.

`wiring` makes one for each Kueue before it makes drivers and controllers. The controller's workers take keys from the
queue; drivers read the cache, wait for changes, and store the Workloads that they patched.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock.core.values import value
from penstock.front.home_cluster import key_of
from penstock.front.kueue import workload as w
from penstock.front.workqueue import WorkQueue
from penstock.kube.client import Cluster
from penstock.kube.informer import Informer
from penstock.kube.kueue_api import ADMISSION_CHECKS, WORKLOADS
from penstock.kube.references import Json, part

REFERENCE: Final = ("name", "namespace", "uid", "ownerReferences")


@value
class KueueCluster:
    """A Kueue: its name in the sites file, how it is reached, and the name of our AdmissionCheck."""

    name: str
    cluster: Cluster
    check: str = "penstock"
    namespaces: tuple[str, ...] = ()  # empty: all
    own_site: str = ""  # the site that is its own cluster; empty: none is


class KueueWorkloads:
    def __init__(self, door: KueueCluster) -> None:
        self.door, self.name, self.cluster, self.check = door, door.name, door.cluster, door.check
        self.informers = {namespace: self._informer(namespace) for namespace in door.namespaces or ("",)}
        self.checks = Informer(door.cluster, ADMISSION_CHECKS, self._checks_changed, sync_changed=self._sync_changed)
        self.due = WorkQueue()  #: keys (`NAMESPACE/NAME`) of the Workloads to reconcile
        self.ids: dict[str, str] = {}  #: origin uid -> our job's id
        self.keys: dict[str, str] = {}  #: our job's id -> `NAMESPACE/NAME`
        self.origins: dict[str, str] = {}  #: our job's id -> origin uid
        self.references: dict[str, Json] = {}  #: our job's id -> what its Workload's metadata said of its owner
        self.by_attempt: dict[str, str] = {}  #: an attempt that a Workload is marked with -> its key
        self.listeners: list[Callable[[Json], None]] = []  #: drivers; called with each Workload that changed
        self.waiting: dict[str, set[asyncio.Event]] = {}  #: by key, set at its next change
        self.following: list[asyncio.Task[None]] = []  #: the informers
        self.trouble = ""  #: why an informer is out of sync; empty: all are in sync
        self.trouble_changed = asyncio.Event()

    def follow(self) -> None:
        """Run the informers from now on: whoever needs them first starts them."""
        if not self.following:
            self.following = [asyncio.create_task(informer.run()) for informer in self.all_informers]

    async def close(self) -> None:
        for task in self.following:
            task.cancel()
        await asyncio.gather(*self.following, return_exceptions=True)
        self.following = []
        await self.cluster.close()

    def _informer(self, namespace: str) -> Informer:
        return Informer(
            self.door.cluster,
            WORKLOADS,
            self._changed,
            namespace=namespace,
            keep=worth_keeping,
            sync_changed=self._sync_changed,
        )

    def _changed(self, before: Json | None, now: Json | None) -> None:
        key = key_of(now or before or {})
        if before is not None and self.by_attempt.get(w.attempt_of(before)) == key:
            del self.by_attempt[w.attempt_of(before)]
        if now is not None and (attempt := w.attempt_of(now)):
            self.by_attempt[attempt] = key
        self.due.add(key, ahead=before is None)
        for event in self.waiting.pop(key, set()):
            event.set()
        if now is not None:
            for listener in self.listeners:
                listener(now)

    def _checks_changed(self, _before: Json | None, _now: Json | None) -> None:
        """A queue's check, or ours, was made or changed: look at all Workloads again."""
        for informer in self.informers.values():
            for key in informer.objects:
                self.due.add(key)

    def _sync_changed(self, why: str) -> None:
        self.trouble = why or next((informer.why for informer in self.all_informers if informer.why), "")
        self.trouble_changed.set()

    # --- as they were last seen ---------------------------------------------------------------------------------------

    @property
    def all_informers(self) -> list[Informer]:
        return [*self.informers.values(), self.checks]

    def workload_at(self, key: str) -> Json | None:
        informer = self.informers.get("") or self.informers.get(key.partition("/")[0])
        return informer.objects.get(key) if informer else None

    def learn(self, workload: Json) -> None:
        """Store the Workload that the API server returned for our own write."""
        key = key_of(workload)
        informer = self.informers.get("") or self.informers.get(key.partition("/")[0])
        if informer is None:
            return
        informer.learn(workload)
        if (attempt := w.attempt_of(workload)) and informer.objects.get(key) is not None:
            self.by_attempt[attempt] = key

    def marked_with(self, attempt: str) -> Json | None:
        """The Workload that is marked with this attempt."""
        return self.workload_at(self.by_attempt.get(attempt, ""))

    async def change_of(self, key: str, since: Json | None) -> None:
        """Wait until the Workload is another than this one."""
        live = self.workload_at(key)
        if part(live or {}, "metadata").get("resourceVersion") != part(since or {}, "metadata").get("resourceVersion"):
            return
        event = asyncio.Event()
        self.waiting.setdefault(key, set()).add(event)
        try:
            await event.wait()
        finally:
            self.waiting.get(key, set()).discard(event)

    def controllers(self) -> dict[str, str]:
        """Which controller each AdmissionCheck is of."""
        return {
            str(part(row, "metadata").get("name")): str(part(row, "spec").get("controllerName")) for row in self.checks
        }

    async def in_step(self) -> None:
        for informer in self.all_informers:
            await informer.in_step.wait()

    @property
    def is_in_step(self) -> bool:
        return all(informer.in_step.is_set() for informer in self.all_informers)

    @property
    def uids(self) -> set[str]:
        """Origins of all Workloads that are there."""
        return {w.origin_uid(workload) for informer in self.informers.values() for workload in informer}

    def all(self) -> list[Json]:
        return [workload for informer in self.informers.values() for workload in informer]

    # --- which of our jobs they are -----------------------------------------------------------------------------------

    def remember(self, workload: Json, our_id: str) -> None:
        uid, metadata = w.origin_uid(workload), part(workload, "metadata")
        self.ids[uid], self.keys[our_id], self.origins[our_id] = our_id, key_of(workload), uid
        self.references[our_id] = {"metadata": {key: metadata[key] for key in REFERENCE if key in metadata}}

    def forget(self, our_id: str) -> None:
        self.keys.pop(our_id, None)
        self.references.pop(our_id, None)
        self.ids.pop(self.origins.pop(our_id, ""), None)

    def touch(self, our_id: str) -> None:
        """Enqueue the Workload: the journal has a new row about it."""
        if key := self.keys.get(our_id):
            self.due.add(key)


def worth_keeping(workload: Json) -> Json:
    """Without the fields' writers."""
    metadata = {key: content for key, content in part(workload, "metadata").items() if key != "managedFields"}
    return {**workload, "metadata": metadata}


def now_written() -> str:
    """The time, as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
