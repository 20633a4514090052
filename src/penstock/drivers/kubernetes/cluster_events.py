"""Reads a cluster's Events about one object, for `trouble` and `scaling`. Each look costs a request, so they are read
only for starts that hang.
"""

from typing import Final

from penstock.core.values import value
from penstock.drivers.kubernetes.connection import Connection
from penstock.kube import errors
from penstock.kube.client import EVENTS, Obj

CLUSTER_WIDE: Final = "default"  #: the namespace of Events about objects that have none


@value
class ClusterEvent:
    reason: str
    message: str
    is_warning: bool


async def events_about(here: Connection, metadata: Obj) -> list[ClusterEvent]:
    """Events about an object, the newest last; none if our account may not read them."""
    return await _events(here, str(metadata["namespace"]), f"involvedObject.uid={metadata['uid']}")


async def events_of_claim(here: Connection, name: str) -> list[ClusterEvent]:
    """The same about a Karpenter NodeClaim, which may be gone."""
    return await _events(here, CLUSTER_WIDE, f"involvedObject.kind=NodeClaim,involvedObject.name={name}")


async def _events(here: Connection, namespace: str, fields: str) -> list[ClusterEvent]:
    try:
        events, _ = await here.cluster.list(EVENTS, namespace, fields=fields)
    except errors.KubeError:
        return []
    events.sort(key=_when)
    return [
        ClusterEvent(str(event.get("reason", "")), str(event.get("message", "")), event.get("type") == "Warning")
        for event in events
    ]


def _when(event: Obj) -> str:
    series = event.get("series") or {}
    seen = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return max((str(at)[:19] for at in seen if at), default="")
