"""Which front door has a namespace: a Lease there names the installation that accepts its home Jobs. `JobController`
asks before it touches a Job that its journal does not have.

Two front doors on one namespace would each run its Jobs. Whoever comes first has it. The other one leaves the Jobs
alone, says so by an alarm, and takes over once that Lease is gone.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.front.home_jobs import HomeJobs
from penstock.kube import annotations
from penstock.kube.client import LEASES
from penstock.kube.errors import AlreadyExists, KubeError, NotFound
from penstock.kube.references import Json, part
from penstock.live.plane import Plane

AGAIN_SECONDS: Final = 20.0  #: how often each Lease is read again


class NamespaceClaims:
    def __init__(self, home: HomeJobs, plane: Plane, gained: Callable[[str], None]) -> None:
        """`gained` is called with a namespace that another installation had, and that is ours now."""
        self.site, self.cluster, self.namespaces = home.site, home.cluster, home.namespaces
        self.plane, self.gained = plane, gained
        self.holders: dict[str, str] = {}  #: namespace -> the other installation that has it; empty: it is ours
        self.asking = asyncio.Lock()
        self.leaving = False  #: from then on no Lease is created

    async def keep(self) -> None:
        """Claim all namespaces, and again what somebody deleted or gave back. Runs until cancelled."""
        while True:
            for namespace in list(dict.fromkeys((*self.namespaces, *self.holders))):
                with suppress(KubeError):  # the informers tell of a cluster that does not answer
                    await self._ask(namespace)
            await asyncio.sleep(AGAIN_SECONDS)

    async def is_ours(self, namespace: str) -> bool:
        """True unless another installation has the namespace. Raises the cluster's error if nobody can say. While we
        leave, another one may take it at any time.
        """
        if self.leaving or namespace not in self.holders:
            await self._ask(namespace)
        return not self.holders[namespace]

    def is_others(self, namespace: str) -> bool:
        """True if it is known that another installation has the namespace."""
        return bool(self.holders.get(namespace))

    async def leave(self) -> None:
        """Returns when no Lease will be created any more."""
        self.leaving = True
        async with self.asking:
            return

    async def _ask(self, namespace: str) -> None:
        async with self.asking:
            lease = await self._lease(namespace)
        holder = holder_of(lease) if lease is not None else ""
        other = "" if holder in ("", self.plane.installation) else holder
        before, self.holders[namespace] = self.holders.get(namespace, ""), other
        self.plane.alarms.set("front door", f"door:{self.site}:{namespace}", self._words(namespace, lease or {}, other))
        if before and not other:
            self.gained(namespace)

    async def _lease(self, namespace: str) -> Json | None:
        """The Lease as it is, or as we made it; None if there is none, and we leave."""
        try:
            return await self.cluster.get(LEASES, annotations.FRONT_DOOR, namespace)
        except NotFound:
            if self.leaving:
                return None
        try:
            return await self.cluster.create(LEASES, self._ours(), namespace)
        except AlreadyExists:
            return await self.cluster.get(LEASES, annotations.FRONT_DOOR, namespace)

    def _ours(self) -> Json:
        metadata = {
            "name": annotations.FRONT_DOOR,
            "labels": {"app.kubernetes.io/name": "penstock"},
            "annotations": {annotations.HOLDER: self.plane.setup.holder},
        }
        return {"metadata": metadata, "spec": {"holderIdentity": self.plane.installation}}

    def _words(self, namespace: str, lease: Json, other: str) -> str:
        if not other:
            return ""
        where = part(part(lease, "metadata"), "annotations").get(annotations.HOLDER)
        who = f"installation {other} ({where})" if where else f"installation {other}"
        return (
            f"Jobs in namespace {namespace} of the home cluster {self.site} are not accepted: it belongs to the front"
            f" door of {who}, by the Lease {namespace}/{annotations.FRONT_DOOR}. Let that installation leave first, or"
            " delete the Lease if it is no more."
        )


def holder_of(lease: Json) -> str:
    return str(part(lease, "spec").get("holderIdentity") or "")
