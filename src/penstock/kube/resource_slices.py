"""GPUs that drivers of dynamic resource allocation (DRA) publish as devices in ResourceSlices. Pure. Where a
DeviceClass stands for `nvidia.com/gpu`, nodes have no such number in their status: the driver's cache and `penstock
connect` add it here, and take off what claims of others hold.

A pod that asks for the number gets a claim made for it, which is not counted again: the pod is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from penstock.kube.gpu_models import USUAL
from penstock.kube.references import Json, part, parts

VERSIONS: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
SLICE: Final = "ResourceSlice"
CLAIM: Final = "ResourceClaim"
#: Drivers of whole GPUs, and the resource that Jobs ask for them by.
RESOURCES: Final = {"gpu.nvidia.com": USUAL, "gpu.amd.com": "amd.com/gpu"}
WHOLE: Final = "gpu"  #: the attribute `type` of a device that is no part of one
FOR_A_NUMBER: Final = (
    "resource.kubernetes.io/extended-resource-claim"  #: annotation: made for a pod that asks by number
)
KEEPS_OFF: Final = ("NoSchedule", "NoExecute")

Device: TypeAlias = tuple[str, str, str]  #: driver, pool, name


class Supply:
    """The GPUs of each node, by resource, as devices."""

    def __init__(self, slices: Iterable[Json] = ()) -> None:
        self.nodes: dict[Device, str] = {}  #: those that may be used
        self.products: dict[str, str] = {}  #: by node: the model's name, of any of its GPUs
        for resource_slice in _newest(slices):
            self._add(part(resource_slice, "spec"))
        self.counts: dict[str, Counter[str]] = {}
        for (driver, _, _), node in self.nodes.items():
            self.counts.setdefault(node, Counter())[RESOURCES[driver]] += 1

    def _add(self, spec: Json) -> None:
        driver, pool, node = str(spec.get("driver")), str(part(spec, "pool").get("name")), str(spec.get("nodeName", ""))
        for device in parts(spec, "devices") if node and driver in RESOURCES else ():
            basic = part(device, "basic") or device  # v1beta1 has one level more
            attributes = part(basic, "attributes")
            if _text(attributes, "type") in ("", WHOLE) and not _is_tainted(basic):
                self.nodes[driver, pool, str(device.get("name"))] = node
                self.products.setdefault(node, _text(attributes, "productName"))

    def held(self, claims: Iterable[Json]) -> dict[str, Counter[str]]:
        """GPUs that claims hold, by resource and node."""
        taken: dict[str, Counter[str]] = {}
        for claim in claims:
            if FOR_A_NUMBER in part(part(claim, "metadata"), "annotations"):
                continue
            for row in parts(part(part(part(claim, "status"), "allocation"), "devices"), "results"):
                node = self.nodes.get((str(row.get("driver")), str(row.get("pool")), str(row.get("device"))))
                if node is not None:
                    taken.setdefault(RESOURCES[str(row["driver"])], Counter())[node] += 1
        return taken

    def of(self, node: Json) -> Json:
        """The node with the numbers that its status lacks. A number in its status is a device plugin's, and stands."""
        name = str(part(node, "metadata").get("name"))
        status = part(node, "status")
        missing = {
            resource: str(count)
            for resource, count in self.counts.get(name, {}).items()
            if not _count(part(status, "capacity"), resource)
        }
        if not missing:
            return node
        numbers = {key: {**part(status, key), **missing} for key in ("capacity", "allocatable")}
        return {**node, "status": {**status, **numbers}, "product": self.products.get(name, "")}


def _newest(slices: Iterable[Json]) -> list[Json]:
    """Those of each pool's newest generation: a driver writes a new one before it takes the old one away."""
    known = list(slices)
    newest: dict[tuple[Any, Any], int] = {}
    for resource_slice in known:
        key, generation = _pool(resource_slice)
        newest[key] = max(newest.get(key, 0), generation)
    return [resource_slice for resource_slice in known if _pool(resource_slice)[1] == newest[_pool(resource_slice)[0]]]


def _pool(resource_slice: Json) -> tuple[tuple[Any, Any], int]:
    spec = part(resource_slice, "spec")
    pool = part(spec, "pool")
    return (spec.get("driver"), pool.get("name")), int(pool.get("generation") or 0)


def _text(attributes: Json, name: str) -> str:
    return str(part(attributes, name).get("string", ""))


def _is_tainted(device: Json) -> bool:
    return any(taint.get("effect") in KEEPS_OFF for taint in parts(device, "taints"))


def _count(numbers: Mapping[str, Any], resource: str) -> bool:
    return str(numbers.get(resource, "0")) != "0"
