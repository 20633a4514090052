"""Counts the GPUs that a Job or pod requests; no other module counts them. Pure. The front door, the driver's
inventory, shadow mode and the admission policies use it.

A pod holds what the scheduler reserves for it: its containers plus its sidecars, or an init container if that requests
more.
"""

import re
from collections import Counter
from typing import Any, Final, TypeAlias

from penstock.kube import gpu_models
from penstock.kube.references import Json, part, parts

Requests: TypeAlias = Counter[str]  #: GPUs by resource, like `nvidia.com/gpu`

WHOLE: Final = gpu_models.WHOLE
MIG: Final = gpu_models.MIG


class NotWhole(ValueError):
    """A count that is no whole number: `text` was written for `field`."""

    def __init__(self, field: str, text: object) -> None:
        super().__init__(f"{field} is {str(text)[:40]!r} and not a whole number.")
        self.field, self.text = field, str(text)


def of_job(spec: Json) -> dict[str, int]:
    """GPUs over all pods that run at once, by MIG profile; an empty profile means whole GPUs. Whole GPUs of two makers
    count apart. Raises `NotWhole`.
    """
    pods, gpus = pods_at_once(spec), Counter[str]()
    requested = of_pod(part(part(spec, "template"), "spec"))
    mixed = sum(requested[name] > 0 for name in WHOLE) > 1
    for resource, count in requested.items():
        gpus[resource if mixed and resource in WHOLE else profile_of(resource)] += count * pods
    return dict(gpus)


def of_pod(pod: Json) -> Requests:
    """GPUs that one pod holds. `pod`: its spec. Raises `NotWhole`."""
    peak, sidecars = Counter[str](), Counter[str]()
    for init in parts(pod, "initContainers"):
        asked = _of_container(init)
        if init.get("restartPolicy") == "Always":  # a sidecar: it starts before the others and runs beside them
            sidecars += asked
        else:
            peak |= sidecars + asked
    together = sum((_of_container(container) for container in parts(pod, "containers")), sidecars.copy())
    return peak | together


def _of_container(container: Json) -> Requests:
    """Limits, which for GPUs must equal requests; some manifests have only the latter in stored form."""
    resources = part(container, "resources")
    asked = {**part(resources, "requests"), **part(resources, "limits")}
    return Counter({key: whole(quantity, key) for key, quantity in asked.items() if gpu_models.is_gpu(key)})


def profile_of(resource: str) -> str:
    """`1g.10gb` of `nvidia.com/mig-1g.10gb`, `1g.10gb+me` of `nvidia.com/mig-1g.10gb.me`; empty for whole GPUs."""
    if not resource.startswith(MIG):
        return ""
    return re.sub(r"(gb)\.(?=.)", r"\1+", resource.removeprefix(MIG), count=1)


def is_other(resource: str) -> bool:
    """True for GPUs that are neither NVIDIA's whole ones nor slices of them, like `amd.com/gpu`, and for TPUs."""
    return resource != gpu_models.USUAL and not resource.startswith(MIG)


def pods_at_once(spec: Json) -> int:
    """How many of a Job's pods run at the same time: no more than are wanted in all. Raises `NotWhole`."""
    at_once = whole(_or(spec.get("parallelism"), 1), "spec.parallelism")
    return min(at_once, whole(_or(spec.get("completions"), at_once), "spec.completions"))


def whole(value: Any, field: str) -> int:
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", str(value), re.ASCII):
        raise NotWhole(field, value)
    return int(value)


def _or(value: Any, missing: int) -> Any:
    return missing if value is None else value
