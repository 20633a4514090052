"""What a pod asks of its node beside labels, and whether a node meets a need: amounts of CPU, memory and other
resources, and tolerated taints. Pure. `job_needs` lists such needs, and the driver asks `meets` of each of its nodes.

Amounts are compared with all that a node has: what is free there changes with every pod, and the scheduler knows it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from penstock.core.decide.rules import ANY_AFFINITY, GPU_LABEL, NODE_SELECTOR, OF_NODES, alternatives
from penstock.core.model.types import NODE_WITH, TOLERATES
from penstock.kube import node_terms
from penstock.kube.gpu_models import is_gpu
from penstock.kube.node_selection import Taint
from penstock.kube.references import Json, part, parts

Node: TypeAlias = dict[str, Any]
KEEPS_OFF: Final = ("NoSchedule", "NoExecute")
#: Taints that the cluster sets on unhealthy nodes; whether a node is ready covers these.
OWN_TAINTS: Final = "node.kubernetes.io/"
EVERYTHING: Final = "everything"  #: a toleration without a key
#: What every node with GPUs has: a need of less is none.
USUAL: Final = {"cpu": 2_000, "memory": 4 << 30, "ephemeral-storage": 10 << 30}
MOST_TOLERATIONS: Final = 16
AND: Final = " and "
QUANTITY: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9})[0-9]*)?(?:(m|k|[KMGTPE]i?)|[eE]([0-9]{1,2}))?")
UNITS: Final = {"k": 10**3, **{letter: 1000**n for n, letter in enumerate("KMGTPE", 1)}} | {
    f"{letter}i": 1024**n for n, letter in enumerate("KMGTPE", 1)
}


# --- what a pod asks for ----------------------------------------------------------------------------------------------


def amounts(pod: Json) -> Iterator[str]:
    """What one node must have for one pod, beside GPUs."""
    for resource, thousandths in sorted(_requests(pod).items()):
        whole = -(-thousandths // 1000)
        least = USUAL.get(resource, 0)
        if (thousandths if resource == "cpu" else whole) > least:
            yield f"{NODE_WITH}{_written(resource, whole)}"


def _requests(pod: Json) -> Counter[str]:
    """In thousandths, as the scheduler counts: containers beside sidecars, or an init container that needs more."""
    peak, sidecars, together = Counter[str](), Counter[str](), Counter[str]()
    for init in parts(pod, "initContainers"):
        if init.get("restartPolicy") == "Always":
            sidecars += _of_container(init)
        else:
            peak |= sidecars + _of_container(init)
    for container in parts(pod, "containers"):
        together += _of_container(container)
    return peak | (together + sidecars)


def _of_container(container: Json) -> Counter[str]:
    resources = part(container, "resources")
    asked = {**part(resources, "limits"), **part(resources, "requests")}
    read = {name: thousandths_of(quantity) for name, quantity in asked.items() if not is_gpu(name)}
    return Counter({name: count for name, count in read.items() if count})


def _written(resource: str, whole: int) -> str:
    """`60 cpu`, `500Gi memory`: in the largest unit that loses nothing."""
    if resource == "cpu" or "/" in resource:
        return f"{whole} {resource}"
    unit = next((unit for unit in ("Ti", "Gi", "Mi", "Ki") if whole and whole % UNITS[unit] == 0), "")
    return f"{whole // UNITS[unit] if unit else whole}{unit} {resource}"


def thousandths_of(quantity: object) -> int:
    """A Kubernetes quantity; 0 if it is none, which the API server refuses."""
    match = QUANTITY.fullmatch(str(quantity))
    if match is None:
        return 0
    whole, fraction, unit, exponent = match.groups()
    thousandths: int = int(whole) * 1000 + int((fraction or "0").ljust(9, "0")) // 10**6
    if unit == "m":
        return -(-thousandths // 1000)
    return thousandths * (UNITS[unit] if unit else int(10 ** int(exponent or 0)))


def tolerations(pod: Json) -> str:
    """All that it tolerates as one need; empty: no taint that keeps pods off."""
    told = {_toleration(row) for row in parts(pod, "tolerations")} - {""}
    return TOLERATES + AND.join(sorted(told)[:MOST_TOLERATIONS]) if told else ""


def _toleration(row: Json) -> str:
    """As kubectl writes taints: `dedicated=vision:NoSchedule`."""
    key, effect = str(row.get("key") or ""), str(row.get("effect") or "")
    if is_gpu(key) or key.startswith(OWN_TAINTS) or effect not in ("", *KEEPS_OFF):
        return ""
    text = f"={row.get('value') or ''}" if key and row.get("operator", "Equal") == "Equal" else ""
    return f"{key or EVERYTHING}{text}{':' if effect else ''}{effect}"


# --- whether a node meets it ------------------------------------------------------------------------------------------


def taints_of(node: Node) -> list[Taint]:
    """Those that keep pods off."""
    rows = node.get("spec", {}).get("taints") or ()
    taints = [Taint(str(row["key"]), str(row.get("value") or ""), str(row.get("effect"))) for row in rows]
    return [taint for taint in taints if taint.effect in KEEPS_OFF and not taint.key.startswith(OWN_TAINTS)]


def meets(node: Node, need: str, taints: Iterable[Taint]) -> bool:
    """Whether the node meets a need of jobs at home; true of what says nothing of nodes. `taints`: those that the offer
    itself does not tolerate.
    """
    if not need or need.startswith(TOLERATES):
        told = need.removeprefix(TOLERATES).split(AND)
        return all(any(_tolerates(toleration, taint) for toleration in told) for taint in taints)
    if need.startswith(NODE_WITH):
        return _has(node, need.removeprefix(NODE_WITH))
    if need.startswith(OF_NODES):
        judged = [wanted for wanted in alternatives(need) if wanted != ANY_AFFINITY]
        return not judged or any(_matches(node, wanted) for wanted in judged)
    return True


def _tolerates(toleration: str, taint: Taint) -> bool:
    name, _, effect = toleration.partition(":")
    key, equal, text = name.partition("=")
    same = key == EVERYTHING or (key == taint.key and (not equal or text == taint.text))
    return same and effect in ("", taint.effect)


def _has(node: Node, amount: str) -> bool:
    quantity, _, resource = amount.partition(" ")
    allocatable = node.get("status", {}).get("allocatable") or {}
    return thousandths_of(allocatable.get(resource, 0)) >= thousandths_of(quantity)


def _matches(node: Node, wanted: str) -> bool:
    """One alternative, as `node_terms` writes it: `node selector zone=b`, `GPU label ...`, `architecture arm64`."""
    labels = {**(node["metadata"].get("labels") or {}), node_terms.NODE_NAME: node["metadata"]["name"]}
    if not wanted.startswith((NODE_SELECTOR, GPU_LABEL)):
        return labels.get(node_terms.ARCHITECTURE[0], "") in ("", wanted.removeprefix("architecture "))
    demand = wanted.removeprefix(NODE_SELECTOR).removeprefix(GPU_LABEL)
    key, sign, text = re.split("(!=|=|<|>|$)", demand, maxsplit=1)
    match sign:
        case "=":
            return labels.get(key) == text
        case "!=":
            return labels.get(key) != text
        case "<" | ">":
            return _compared(str(labels.get(key, "")), sign, text)
        case _:
            return key.removeprefix("!") not in labels if key.startswith("!") else key in labels


def _compared(have: str, sign: str, wanted: str) -> bool:
    if not (re.fullmatch("-?[0-9]{1,18}", have) and re.fullmatch("-?[0-9]{1,18}", wanted)):
        return False
    return int(have) > int(wanted) if sign == ">" else int(have) < int(wanted)
