"""The claim of a cluster: an annotation on the Lease that names the installation. `KubernetesDriver` makes one.

Each write names the resourceVersion that was read, so of two control planes only one succeeds. Whether somebody renews
the claim is seen by waiting, and not by comparing clocks of two machines.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from penstock.drivers.claim import Claim, SeenClaim, Superseded, packed, unpacked
from penstock.drivers.driver import Refused
from penstock.drivers.kubernetes import ownership
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import annotation_of
from penstock.kube import annotations, errors
from penstock.kube.client import LEASES, Obj

WATCHED_SECONDS: Final = 15.0  #: three renewals: a claim that is the same after this is nobody's now
LOOK_SECONDS: Final = 1.0


class LeaseClaim:
    by_path = False

    def __init__(self, here: Connection, connect: Callable[[], None]) -> None:
        self.here, self.connect = here, connect

    async def read(self) -> SeenClaim:
        self.connect()
        async with self.here.asking():
            try:
                lease = await self.here.cluster.get(LEASES, annotations.LEASE, self.here.settings.namespace)
            except errors.NotFound:
                return SeenClaim(None)
        ownership.check_owner(self.here, lease)
        return self._seen(lease)

    def _seen(self, lease: Obj) -> SeenClaim:
        version, text = str(lease["metadata"]["resourceVersion"]), annotation_of(lease, annotations.CLAIM)
        if not text:
            return SeenClaim(Claim(self.here.installation), version)
        claim = unpacked(text)
        doubt = "" if claim else f"the annotation {annotations.CLAIM} of its Lease {annotations.LEASE} is damaged"
        return SeenClaim(claim, version, doubt)

    async def write(self, claim: Claim, over: SeenClaim) -> SeenClaim:
        self.connect()
        cluster, namespace = self.here.cluster, self.here.settings.namespace
        async with self.here.asking():
            try:
                if over.version:
                    change = {"metadata": {"annotations": {annotations.CLAIM: packed(claim)}}, "spec": _renewed()}
                    lease = await cluster.patch(LEASES, annotations.LEASE, change, namespace, seen=over.version)
                else:
                    lease = await cluster.create(LEASES, ownership.lease_of(self.here, packed(claim)), namespace)
            except (errors.Conflict, errors.AlreadyExists):
                raise Superseded from None
            except errors.NotFound:
                if over.version:  # the Lease was deleted: `penstock leave` does that
                    raise Superseded from None
                raise Refused(f"cluster {cluster.context} has no namespace {namespace}; create it") from None
        return self._seen(lease)

    async def is_renewed(self, seen: SeenClaim) -> bool:
        for _ in range(int(WATCHED_SECONDS / LOOK_SECONDS)):
            await asyncio.sleep(LOOK_SECONDS)
            if (await self.read()).claim != seen.claim:
                return True
        return False


def _renewed() -> dict[str, Any]:
    """For people who look at the Lease; we never compare it with our clock."""
    return {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
