"""Rented nodes as NodePool objects of OVHcloud's managed Kubernetes. Its API is the cluster's own, so that no key of
the cloud is needed. `pools` says what all clouds have in common.

Nobody but us ends such a node: a pool has no time limit, and replaces a machine that ends. So a cap is soft there.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from penstock.capacity.pools import CloudPool, PoolApi, PoolExists, PoolOrder
from penstock.core.model.reasons import Shortage
from penstock.kube import annotations, errors
from penstock.kube.client import Cluster, Kind, Obj
from penstock.kube.gpu_models import mig_config
from penstock.kube.node_selection import OvhWay
from penstock.site_answers import Refused

NODE_POOLS: Final = Kind("NodePool", "nodepools", "kube.cloud.ovh.com/v1alpha1", namespaced=False)
DOMAIN: Final = annotations.DOMAIN
#: In the words of a pool's conditions.
QUOTA: Final = ("quota",)
STOCK: Final = ("no more", "not enough", "insufficient", "out of stock", "unavailable")


class OvhPools(PoolApi):
    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self.cluster = cluster

    async def create(self, order: Callable[[], PoolOrder]) -> None:
        async with self._known():
            try:
                await self.cluster().create_when_sent(NODE_POOLS, lambda: node_pool(order()))
            except errors.AlreadyExists as error:
                raise PoolExists(str(error)) from error

    async def get(self, name: str) -> CloudPool | None:
        """The list of a cluster that has no such objects is an error, the object alone is only not found."""
        return next((pool for pool in await self.list() if pool.name == name), None)

    async def list(self) -> Sequence[CloudPool]:
        async with self._known():
            pools, _ = await self.cluster().list(NODE_POOLS)
        return [pool_of(pool) for pool in pools]

    async def delete(self, name: str) -> None:
        async with self._known():
            with suppress(errors.NotFound):
                await self.cluster().delete(NODE_POOLS, name)

    @asynccontextmanager
    async def _known(self) -> AsyncIterator[None]:
        try:
            yield
        except errors.NotFound as error:
            raise Refused(
                f"this cluster has no NodePools of OVHcloud: is it one of its managed ones? {error}"
            ) from error


def node_pool(order: PoolOrder) -> Obj:
    way = order.rent.way
    assert isinstance(way, OvhWay)
    marks = {f"{DOMAIN}{key}": text for key, text in order.marks}
    return {
        "metadata": {"name": order.name, "annotations": marks},
        "spec": {
            "flavor": order.types[0],
            "desiredNodes": 1,
            "minNodes": 1,
            "maxNodes": 1,
            "autoscale": False,
            "antiAffinity": False,
            "monthlyBilled": way.monthly,
            "template": {
                "metadata": {
                    "labels": {**mig_config(order.mig), **dict(order.labels)},
                    "annotations": {},
                    "finalizers": [],
                },
                "spec": {"unschedulable": False, "taints": [taint.as_dict() for taint in order.taints]},
            },
        },
    }


def pool_of(pool: Obj) -> CloudPool:
    meta, status = pool["metadata"], pool.get("status") or {}
    marks = {key.removeprefix(DOMAIN): text for key, text in (meta.get("annotations") or {}).items()}
    wrong = [c for c in status.get("conditions") or () if c.get("status") == "False" and c.get("message")]
    words = f"{wrong[0].get('type', '')}: {wrong[0]['message']}"[:300] if wrong else ""
    shortage, launched = shortage_of(words), int(status.get("currentNodes") or 0) > 0
    return CloudPool(
        name=str(meta["name"]),
        marks=tuple(marks.items()),
        ending="deletionTimestamp" in meta,
        failed=bool(shortage) and not launched,
        launched=launched,
        status=words,
        shortage=shortage,
    )


def shortage_of(words: str) -> Shortage:
    low = words.lower()
    if any(word in low for word in QUOTA):
        return "quota"
    return "stock_out" if any(word in low for word in STOCK) else ""
