"""The watchman: ends rented objects that are past their deadline, while Penstock may be dead. `penstock watchman` runs
it as a small pod in the management cluster; `watchman_proof` reads its Lease.

It obeys what is written on each object (`penstock.dev/ends-at`, by the cluster's own clock), and knows nothing else: no
journal, no sites file. Its Lease is renewed only after a whole round: everything was listed, it may delete each kind,
and what was due is told to go. So a fresh Lease proves more than a process that runs. Several watchmen do no harm.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from penstock.core.values import value
from penstock.kube import annotations, errors
from penstock.kube.client import CLUSTERS, LEASES, MACHINE_DEPLOYMENTS, Cluster, Kind, Obj

#: What it ends; a kind that the cluster does not serve is left out. A new kind is a row, and a rule of `manifests`.
KINDS: Final = (MACHINE_DEPLOYMENTS, CLUSTERS)
ROUND_SECONDS: Final = 10.0
LEASE_SECONDS: Final = 30  #: older than this, its Lease proves nothing
STUCK_AFTER: Final = timedelta(minutes=15)  #: what was deleted so long ago will not go by itself
MOST_NAMED: Final = 5

log = logging.getLogger(__name__)


class Watchman:
    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        """`namespace`: of its Lease; `name`: who it is, for people."""
        self.cluster, self.namespace, self.name = cluster, namespace, name

    async def run(self) -> None:
        """Until cancelled. A round that fails is tried again; its Lease becomes stale meanwhile."""
        while True:
            try:
                await self.round()
            except errors.KubeError as error:
                log.warning("this round failed: %s", error)
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """End what is due, then renew the Lease."""
        watches: list[Kind] = []
        stuck: list[str] = []
        for kind in KINDS:
            try:
                objects, _ = await self.cluster.list(kind, labels=annotations.INSTALLATION)
            except (errors.NotFound, errors.Forbidden):
                continue  # not served here, or its rights are older than this kind: of the others it is still the end
            if await self.cluster.may("delete", kind):
                watches.append(kind)
            verdict = judge(objects, self.cluster.time_there)
            for obj in verdict.due:
                await self._end(kind, obj)
            stuck += [f"{kind.name} {_name(obj)}" for obj in verdict.stuck]
        await self._renew(watches, stuck)

    async def _end(self, kind: Kind, obj: Obj) -> None:
        meta = obj["metadata"]
        log.info("%s %s is past its deadline %s: deleted", kind.name, _name(obj), _ends_at(obj))
        with suppress(errors.NotFound, errors.Conflict):  # it is gone, or another one has its name
            await self.cluster.delete(kind, meta["name"], meta.get("namespace", ""), uid=str(meta["uid"]))

    async def _renew(self, watches: Iterable[Kind], stuck: list[str]) -> None:
        now = self.cluster.time_there.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        notes = {
            annotations.WATCHES: " ".join(kind.resource for kind in watches),
            annotations.STUCK: ", ".join(stuck[:MOST_NAMED]),
        }
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        change = {"metadata": {"annotations": notes}, "spec": spec}
        try:
            await self.cluster.patch(LEASES, annotations.WATCHMAN, change, self.namespace)
        except errors.NotFound:
            lease = {"metadata": {"name": annotations.WATCHMAN, "annotations": notes}, "spec": spec}
            await self.cluster.create(LEASES, lease, self.namespace)


@value
class WatchRound:
    due: tuple[Obj, ...]  # past their deadline, and nobody has told them to go
    stuck: tuple[Obj, ...]  # told to go long ago, and still there


def judge(objects: Iterable[Obj], now: datetime) -> WatchRound:
    """`now`: by the cluster's clock. An object without a deadline, or with one that nobody can read, is not ours to
    end."""
    due, stuck = [], []
    for obj in objects:
        deleted_at = instant_of(str(obj["metadata"].get("deletionTimestamp", "")))
        ends_at = instant_of(_ends_at(obj))
        if deleted_at is not None:
            stuck += [obj] if now - deleted_at > STUCK_AFTER else []
        elif ends_at is not None and ends_at <= now:
            due.append(obj)
    return WatchRound(tuple(due), tuple(stuck))


def _ends_at(obj: Obj) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(annotations.ENDS_AT, ""))


def _name(obj: Obj) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def instant_of(text: str) -> datetime | None:
    """RFC 3339 with a zone; None: it is not."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
