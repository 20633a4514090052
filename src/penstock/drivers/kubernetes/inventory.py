"""Nodes of a cluster as what an offer has: how many GPUs of each node we may use now. Pure; the driver says it.

What other people's pods ask for is theirs, whatever runs in them; what ours ask for is counted by the engine. A node
that is cordoned, not ready, tainted against us or known for its faults has nothing for us, and is still there.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.drivers.kubernetes.execution_job import HOSTNAME
from penstock.kube import gpu_requests
from penstock.kube.client import Obj
from penstock.kube.node_selection import NodeSelection, Toleration

KEEPS_OFF: Final = ("NoSchedule", "NoExecute")
#: Put there by the cluster itself while a node is not well; `is_ready` sees that anyway.
OWN_TAINTS: Final = "node.kubernetes.io/"


def usable(
    place: NodeSelection,
    nodes: Iterable[Obj],
    taken: Mapping[str, int],
    avoided: Iterable[str] = (),
    most: int = 1_000_000,
    keep_free: int = 0,
) -> tuple[tuple[str, int], ...]:
    """The offer's nodes by name, with the GPUs that are ours to use. `taken`: by others, of each node."""
    avoided = set(avoided)
    found = {
        name_of(node): min(most, gpus_of(node, place, taken.get(name_of(node), 0), avoided))
        for node in nodes
        if belongs(node, place)
    }
    return tuple(_without_headroom(sorted(found.items()), keep_free))


def belongs(node: Obj, place: NodeSelection) -> bool:
    """Is it one of the offer's? By its labels, and by having such GPUs at all."""
    labels = node["metadata"].get("labels") or {}
    has_some = _count(node.get("status", {}).get("capacity"), place.resource) > 0
    return has_some and all(labels.get(key) == text for key, text in place.selector)


def gpus_of(node: Obj, place: NodeSelection, taken: int, avoided: set[str]) -> int:
    spec = node.get("spec", {})
    barred = any(not _tolerated(taint, place.tolerations) for taint in spec.get("taints") or ())
    if spec.get("unschedulable") or barred or not is_ready(node) or name_of(node) in avoided:
        return 0
    return max(0, _count(node["status"].get("allocatable"), place.resource) - taken)


def is_ready(node: Obj) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def requested(pod: Obj, resource: str) -> int:
    """What a pod holds of it."""
    try:
        return gpu_requests.of_pod(pod.get("spec", {}))[resource]
    except gpu_requests.NotWhole:
        return 0


def hostname(node: Obj) -> str:
    return str((node["metadata"].get("labels") or {}).get(HOSTNAME) or name_of(node))


def name_of(node: Obj) -> str:
    return str(node["metadata"]["name"])


def headroom_at(place: NodeSelection, hour: int) -> int:
    return place.headroom[hour % len(place.headroom)] if place.headroom else 0


def _without_headroom(nodes: list[tuple[str, int]], keep_free: int) -> list[tuple[str, int]]:
    """Kept free on the last nodes, so that it is whole nodes where it can be, and always the same ones."""
    left: list[tuple[str, int]] = []
    for name, gpus in reversed(nodes):
        kept = min(gpus, keep_free)
        keep_free -= kept
        left.append((name, gpus - kept))
    return left[::-1]


def _count(amounts: Mapping[str, object] | None, resource: str) -> int:
    text = str((amounts or {}).get(resource, 0))
    return int(text) if text.isdigit() else 0


def _tolerated(taint: Obj, tolerations: Iterable[Toleration]) -> bool:
    if taint.get("effect") not in KEEPS_OFF or str(taint["key"]).startswith(OWN_TAINTS):
        return True
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Obj) -> bool:
    same_key = toleration.key in ("", taint["key"])
    same_text = toleration.operator == "Exists" or toleration.text == taint.get("value", "")
    return same_key and same_text and toleration.effect in ("", taint["effect"])
