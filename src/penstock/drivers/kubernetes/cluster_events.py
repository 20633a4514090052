"""What a cluster's Events say about our pods and Jobs, for `trouble` and `scaling`. One watch of each namespace serves
all starts that hang there: the API server has no index of Events by object, so a list for each start would read all of
them again and again, and slow down the cluster that it asks about.

The watch begins when the first start hangs, and keeps what is about our objects, up to a number.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.core.values import value
from penstock.drivers.kubernetes.tasks import cancel_all
from penstock.kube.client import CLUSTER_WIDE, EVENTS, Cluster, Obj
from penstock.kube.errors import Forbidden
from penstock.kube.informer import Informer, key_of

CLAIMS: Final = "involvedObject.kind=NodeClaim"  #: of Karpenter
#: Events that come with every pod and say nothing of what hinders it; the server leaves them out, and our own.
ROUTINE: Final = ("Created", "Started", "Killing", "Completed", "SuccessfulCreate", "SuccessfulDelete")
OTHERS: Final = ",".join((*(f"reason!={reason}" for reason in ROUTINE), "source!=penstock"))
MOST_EVENTS: Final = 20_000  #: kept of one namespace; the oldest go first
LONGEST: Final = 2_000  #: letters of a message that are kept
NOT_ALLOWED_SECONDS: Final = 60.0  #: how often an account that may not watch Events tries again
WITHOUT: Final = (
    "why a start hangs there is told without them. 'penstock connect' or 'penstock manifests rbac' grants it"
)


@value
class ClusterEvent:
    reason: str
    message: str
    is_warning: bool


class ClusterEvents:
    def __init__(self, cluster: Cluster, ours: str = "") -> None:
        """`ours`: how the names of our Jobs and pods begin; empty: all are kept."""
        self.cluster, self.ours = cluster, ours
        self.watches: dict[str, EventWatch] = {}  #: by namespace
        self.tasks: list[asyncio.Task[None]] = []

    def follow(self, namespace: str, fields: str = OTHERS) -> "EventWatch":
        """Watch the namespace from now on; what is there already comes first."""
        watch = self.watches.get(namespace)
        if watch is None:
            watch = self.watches[namespace] = EventWatch(self.cluster, namespace, fields, self._is_ours)
            self.tasks.append(asyncio.create_task(watch.run(), name=f"events of {namespace}"))
        return watch

    def about(self, metadata: Obj) -> list[ClusterEvent]:
        """Events about an object, the newest last; none if our account may not read them."""
        return self.follow(str(metadata["namespace"])).about(str(metadata["uid"]))

    def of_claim(self, name: str) -> list[ClusterEvent]:
        """The same about a Karpenter NodeClaim, which may be gone."""
        return self.follow(CLUSTER_WIDE, CLAIMS).about(name)

    def warns(self) -> str:
        """What a person should mend, in a sentence."""
        denied = [namespace for namespace, watch in self.watches.items() if watch.is_denied]
        return f"our account may not watch events in namespace {denied[0]}; {WITHOUT}" if denied else ""

    def _is_ours(self, about: Obj) -> bool:
        return about.get("kind") == "NodeClaim" or str(about.get("name", "")).startswith(self.ours)

    async def close(self) -> None:
        await cancel_all(self.tasks)


class EventWatch(Informer):
    """Events of one namespace by what they are about. It lists nothing: a watch from no version begins with what is
    there, an object at a time.
    """

    def __init__(self, cluster: Cluster, namespace: str, fields: str, is_ours: Callable[[Obj], bool]) -> None:
        super().__init__(cluster, EVENTS, self._changed, namespace=namespace, fields=fields, keep=_keep)
        self.is_ours, self.is_denied = is_ours, False
        self.by_object: dict[str, dict[str, Obj]] = {}  #: by uid, of claims by name; then by the Event's key

    def about(self, uid: str) -> list[ClusterEvent]:
        events = sorted(self.by_object.get(uid, {}).values(), key=_when)
        return [event["event"] for event in events]

    async def _list(self) -> None:
        """There is no list; see the class."""

    async def _watch_while_heard(self) -> None:
        try:
            await super()._watch_while_heard()
        except Forbidden:
            self.is_denied = True
            await asyncio.sleep(NOT_ALLOWED_SECONDS)
            raise

    def _back_in_step(self) -> None:
        self.is_denied = False
        super()._back_in_step()

    def _set(self, obj: Obj, surely: bool = False) -> None:
        if not self.is_ours(obj.get("involvedObject") or {}):
            return
        super()._set(obj, surely)
        key = key_of(obj)
        self.objects[key] = self.objects.pop(key)  # now the newest
        while len(self.objects) > MOST_EVENTS:
            self._gone(next(iter(self.objects.values())))

    def _changed(self, before: Obj | None, now: Obj | None) -> None:
        for event in filter(None, (before, now)):
            known = self.by_object.setdefault(event["about"], {})
            if event is now:
                known[key_of(event)] = event
            else:
                known.pop(key_of(event), None)
            if not known:
                del self.by_object[event["about"]]


def _keep(event: Obj) -> Obj:
    about, meta = event.get("involvedObject") or {}, event["metadata"]
    series = event.get("series") or {}
    seen = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    words = ClusterEvent(
        str(event.get("reason", "")), str(event.get("message", ""))[:LONGEST], event.get("type") == "Warning"
    )
    return {
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in meta},
        "about": str(about.get("name" if about.get("kind") == "NodeClaim" else "uid", "")),
        "at": max((str(at)[:19] for at in seen if at), default=""),
        "event": words,
    }


def _when(event: Obj) -> tuple[str, int]:
    """In whole seconds, then in the order that they were written."""
    return event["at"], int(event["metadata"]["resourceVersion"])
