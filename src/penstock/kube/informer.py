"""Informer: lists and watches one kind of object, keeps a cache, and reports each change once. Drivers and the front
door have one for each kind and namespace that they follow.

After an error it resumes the watch from the last resourceVersion, or lists again. A new list is compared with the
cache, so changes and deletes during the gap are reported, too. Only a complete list can report a delete; a failed one
changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from penstock.kube.client import Cluster, Kind, Obj
from penstock.kube.errors import Gone, KubeError, Unavailable

FIRST_RETRY_SECONDS: Final = 0.2
LAST_RETRY_SECONDS: Final = 5.0  #: the probe interval of an unreachable site

#: Called with the object before and after; no `before`: added; no `now`: deleted.
Changed: TypeAlias = Callable[[Obj | None, Obj | None], None]


class Informer:
    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        changed: Changed,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        keep: Callable[[Obj], Obj] = lambda obj: obj,
        sync_changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`keep`: trims an object before it is cached; must keep name, namespace, uid and resourceVersion.
        `sync_changed`: called with the reason when the informer falls out of sync, and with "" when it is in sync
        again.
        """
        self.cluster, self.kind, self.changed, self.keep, self.sync_changed = cluster, kind, changed, keep, sync_changed
        self.namespace, self.labels, self.fields = namespace, labels, fields
        self.objects: dict[str, Obj] = {}  #: by `NAMESPACE/NAME`
        self.version = ""  #: the last resourceVersion; empty: list first
        self.in_step = asyncio.Event()
        self.why = "it was not listed yet"  #: why it is out of sync
        self.wait = FIRST_RETRY_SECONDS
        self.lists = 0  #: full lists so far

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self.version:
                    await self._list()
                await self._watch_while_heard()
                continue  # the server closed the watch as planned
            except Gone as error:
                self.version = ""
                self._out_of_step(error)
            except KubeError as error:
                self._out_of_step(error)
            await asyncio.sleep(self.wait)
            self.wait = min(2 * self.wait, LAST_RETRY_SECONDS)

    async def _list(self) -> None:
        listed, version = await self.cluster.list(self.kind, self.namespace, labels=self.labels, fields=self.fields)
        self.lists += 1
        by_key = {key_of(obj): obj for obj in listed}
        for before in [obj for key, obj in self.objects.items() if key not in by_key]:
            self._gone(before)
        for obj in by_key.values():
            self._set(obj, surely=True)
        self.version = version
        self._back_in_step()

    async def _watch_while_heard(self) -> None:
        tasks = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self.cluster.doubt.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise Unavailable("it does not answer")
            await tasks[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        changes = self.cluster.watch(
            self.kind, self.namespace, labels=self.labels, fields=self.fields, since=self.version
        )
        async for event, obj in changes:
            match event:
                case "ADDED" | "MODIFIED":
                    self._set(obj)
                case "DELETED":
                    self._gone(obj)
            self.version = _later(self.version, obj) if obj else self.version
            self._back_in_step()

    def learn(self, obj: Obj) -> None:
        """Cache the API server's answer to our own write. The watch event that follows is no change then."""
        before = self.objects.get(key_of(obj))
        if before is not None and before["metadata"]["uid"] == obj["metadata"]["uid"] and is_newer(obj, before):
            self.objects[key_of(obj)] = self.keep(obj)

    def _set(self, obj: Obj, surely: bool = False) -> None:
        """`surely`: from a list, which is current. A watch event may be older than a version that we learned."""
        key, kept = key_of(obj), self.keep(obj)
        before = self.objects.get(key)
        if before is not None and before["metadata"]["uid"] != kept["metadata"]["uid"]:
            self._gone(before)  # deleted and created again under its name while we did not watch
            before = None
        if before is None or is_newer(kept, before) or (surely and version_of(kept) != version_of(before)):
            self.objects[key] = kept
            self.changed(before, kept)

    def _gone(self, obj: Obj) -> None:
        before = self.objects.pop(key_of(obj), None)
        if before is not None:
            self.changed(before, None)

    def _out_of_step(self, error: KubeError) -> None:
        self.why = str(error)
        self.in_step.clear()
        self.sync_changed(self.why)

    def _back_in_step(self) -> None:
        self.wait = FIRST_RETRY_SECONDS
        if not self.in_step.is_set():
            self.why = ""
            self.in_step.set()
            self.sync_changed("")

    def __iter__(self) -> Iterator[Obj]:
        return iter(self.objects.values())

    def get(self, name: str, namespace: str = "") -> Obj | None:
        return self.objects.get(f"{namespace}/{name}")


def key_of(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _later(version: str, obj: Obj) -> str:
    """The later of the two: a watch that began without a version brings what is there in no order."""
    return version_of(obj) if not version or int(version_of(obj)) > int(version) else version


def is_newer(obj: Obj, than: Obj) -> bool:
    """Compare two versions of one object. resourceVersions are growing numbers: Kubernetes guarantees it since 1.35,
    and every server has always done it.
    """
    return int(version_of(obj)) > int(version_of(than))


def version_of(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])
