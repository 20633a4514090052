"""Follows the GPUs that drivers publish as devices in ResourceSlices, and the claims that hold them. The cache asks it
for nodes whose status names no GPU. In a cluster without such an API it follows nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property

from penstock.drivers.kubernetes.tasks import cancel_all
from penstock.kube.client import Cluster, Obj
from penstock.kube.informer import Informer
from penstock.kube.resource_slices import CLAIM, FOR_A_NUMBER, SLICE, VERSIONS, Supply


class Devices:
    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        self.cluster, self.room_changed = cluster, changed
        self.informers: list[Informer] = []  #: of slices, then of claims
        self.tasks: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Begin, unless the cluster has no such API or our account may not watch it. May be called again."""
        if self.informers:
            return
        kinds = [await self.cluster.first_kind(VERSIONS, name) for name in (SLICE, CLAIM)]
        served = [kind for kind in kinds if kind is not None and await self.cluster.may("watch", kind)]
        if len(served) < len(kinds):
            return
        self.informers = [Informer(self.cluster, kind, self._changed, keep=_keep) for kind in served]
        self.tasks = [asyncio.create_task(informer.run(), name=informer.kind.plural) for informer in self.informers]

    async def close(self) -> None:
        await cancel_all(self.tasks)

    def _changed(self, _before: Obj | None, _now: Obj | None) -> None:
        for known in ("supply", "held"):
            self.__dict__.pop(known, None)
        self.room_changed()

    @property
    def are_known(self) -> bool:
        return all(informer.in_step.is_set() for informer in self.informers)

    @cached_property
    def supply(self) -> Supply:
        return Supply(self.informers[0] if self.informers else ())

    @cached_property
    def held(self) -> dict[str, Counter[str]]:
        return self.supply.held(self.informers[1]) if self.informers else {}

    def taken(self, resource: str, by_pods: Mapping[str, int]) -> Mapping[str, int]:
        """GPUs that others hold, by node: their pods by number, and claims."""
        return Counter(by_pods) + self.held[resource] if resource in self.held else by_pods


def _keep(obj: Obj) -> Obj:
    """A slice's devices, and which of them a claim has: there may be thousands of claims."""
    meta, allocation = obj["metadata"], (obj.get("status") or {}).get("allocation")
    kept = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in meta}
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key == FOR_A_NUMBER}
    spec = obj["spec"] if "driver" in obj["spec"] else {}
    return {"metadata": {**kept, "annotations": notes}, "spec": spec, "status": {"allocation": allocation or {}}}
