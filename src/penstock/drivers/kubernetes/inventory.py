"""Counts the GPUs of each node that an offer may use now. Pure; `capacity` calls it.

Other people's pods hold what they request; the engine counts our own. A node that is cordoned, not ready or avoided
stays in the inventory with 0 GPUs. A node with a taint keeps its own: jobs that tolerate it may use them, and
`suitability` keeps the others off.
"""

from collections.abc import Iterable, Mapping

from penstock.drivers.kubernetes.execution_job import HOSTNAME
from penstock.kube import gpu_requests
from penstock.kube.client import Obj
from penstock.kube.node_selection import NodeSelection, Taint, Toleration


def usable(
    place: NodeSelection,
    nodes: Iterable[Obj],
    taken: Mapping[str, int],
    avoided: Iterable[str] = (),
    most: int = 1_000_000,
    keep_free: int = 0,
) -> tuple[tuple[str, int], ...]:
    """The offer's nodes with the GPUs that we may use. `taken`: GPUs that others hold, by node."""
    avoided = set(avoided)
    gpus = {
        name_of(node): min(most, gpus_of(node, place, taken.get(name_of(node), 0), avoided))
        for node in nodes
        if belongs(node, place)
    }
    return tuple(_without_headroom(sorted(gpus.items()), keep_free))


def sizes(place: NodeSelection, nodes: Iterable[Obj]) -> list[int]:
    """GPUs of each of the offer's nodes, whoever has them and whatever keeps pods off now."""
    return [_count(node["status"].get("allocatable"), place.resource) for node in nodes if belongs(node, place)]


def belongs(node: Obj, place: NodeSelection) -> bool:
    """True if the node has the offer's labels and such GPUs."""
    labels = node["metadata"].get("labels") or {}
    has_some = _count(node.get("status", {}).get("capacity"), place.resource) > 0
    return has_some and all(labels.get(key) == text for key, text in place.selector)


def gpus_of(node: Obj, place: NodeSelection, taken: int, avoided: set[str]) -> int:
    if node.get("spec", {}).get("unschedulable") or not is_ready(node) or name_of(node) in avoided:
        return 0
    return max(0, _count(node["status"].get("allocatable"), place.resource) - taken)


def is_ready(node: Obj) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def requested(pod: Obj, resource: str) -> int:
    """How much of the resource a pod holds."""
    try:
        return gpu_requests.of_pod(pod.get("spec", {}))[resource]
    except gpu_requests.NotWhole:
        return 0


def held(pod: Obj) -> dict[str, int]:
    """The GPUs that a pod holds, by resource."""
    try:
        return dict(gpu_requests.of_pod(pod.get("spec", {})))
    except gpu_requests.NotWhole:
        return {}


def left_beside(free: Iterable[tuple[str, int]], ours: Iterable[Obj], resource: str) -> dict[str, int]:
    """What our own pods leave of these GPUs."""
    left = dict(free)
    for pod in ours:
        if pod["spec"]["nodeName"] in left:
            left[pod["spec"]["nodeName"]] -= int(pod["gpus"].get(resource, 0))
    return left


def has_room(free: dict[str, int], waiting: Iterable[Obj], resource: str) -> bool:
    """True if all waiting pods find free GPUs on these nodes. Other reasons keep them out, then."""
    left = free.copy()
    for wanted in sorted((int(pod["gpus"].get(resource, 0)) for pod in waiting), reverse=True):
        node = min((name for name, gpus in left.items() if gpus >= wanted), key=lambda name: left[name], default="")
        if not node:
            return False
        left[node] -= wanted
    return True


def hostname(node: Obj) -> str:
    return str((node["metadata"].get("labels") or {}).get(HOSTNAME) or name_of(node))


def name_of(node: Obj) -> str:
    return str(node["metadata"]["name"])


def headroom_at(place: NodeSelection, hour: int) -> int:
    return place.headroom[hour % len(place.headroom)] if place.headroom else 0


def _without_headroom(nodes: list[tuple[str, int]], keep_free: int) -> list[tuple[str, int]]:
    """Subtract the headroom from the last nodes: whole nodes where possible, and always the same ones."""
    left: list[tuple[str, int]] = []
    for name, gpus in reversed(nodes):
        kept = min(gpus, keep_free)
        keep_free -= kept
        left.append((name, gpus - kept))
    return left[::-1]


def _count(amounts: Mapping[str, object] | None, resource: str) -> int:
    text = str((amounts or {}).get(resource, 0))
    return int(text) if text.isdigit() else 0


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """By the offer itself, whose pods all have these tolerations."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    same_key = toleration.key in ("", taint.key)
    same_text = toleration.operator == "Exists" or toleration.text == taint.text
    return same_key and same_text and toleration.effect in ("", taint.effect)
