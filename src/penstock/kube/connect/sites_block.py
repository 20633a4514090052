"""Writes a cluster as a site of the sites file: the block as text, and the same added to a file without touching the
rest of it. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.values import value
from penstock.kube.connect.gpu_survey import GpuNodes, Survey
from penstock.kube.connect.rent_survey import RentableNodes
from penstock.kube.gpu_models import MIG, TPU_MODEL, USUAL
from penstock.kube.manifests import Role

WIDTH: Final = 120
START: Final = "4m"  #: of a rented node, until somebody has measured it
KILL: Final = "10m"
STEP: Final = "1s"  #: what most clouds bill by, once a node is there
Json = dict[str, Any]


@value
class SiteBlock:
    """What a person says about a site, beside what the cluster shows."""

    name: str
    role: Role
    kubeconfig: str
    namespace: str
    namespaces: tuple[str, ...] = ()
    price: str = ""  # of a GPU and an hour; empty: the GPUs are owned
    allow_exec: tuple[str, ...] = ()
    owned: bool = False  # its nodes, though others are rented there for this price


def site(block: SiteBlock, survey: Survey, rented: Sequence[RentableNodes] = ()) -> Json:
    """The site as the sites file has it. Without GPUs there is nothing to offer, and None is not written."""
    cluster: Json = {"kubeconfig": block.kubeconfig, "namespace": block.namespace}
    if block.namespaces and block.role == "home":
        cluster["namespaces"] = list(block.namespaces)
    made: Json = {"name": block.name, "driver": "kubernetes"}
    if block.role == "home":
        made["front_door"] = True
    made["kubernetes"] = cluster
    if block.role != "home":
        maps: Json = {"namespaces": {name: name for name in block.namespaces}} if block.namespaces else {}
        if survey.architectures and survey.architectures != ("amd64",):
            maps["architectures"] = list(survey.architectures)
        if maps:
            made["maps"] = maps
    made["offers"] = offers(block, survey, rented)
    return made


def manager_name(block: SiteBlock) -> str:
    """Of its Kueue: a name that no site has."""
    return f"{block.name}-kueue"


def manager(block: SiteBlock) -> str:
    """Its Kueue as the sites file has it, under `kueue`, as text."""
    made: Json = {"name": manager_name(block), "kubeconfig": block.kubeconfig}
    return as_text(made | ({"namespaces": list(block.namespaces)} if block.namespaces else {}))


def offers(block: SiteBlock, survey: Survey, rented: Sequence[RentableNodes] = ()) -> list[Json]:
    """What is there, and what can be rented. A NodePool that we rent like is not offered by the Job alone, too."""
    taken: set[str] = set()
    selectors = {nodes.selector for nodes in rented}
    standing = replace(block, price="") if block.owned else block
    seen = survey.gpus if standing.price else together(survey.gpus)
    others = [kind for kind in seen if kind.offered and not selectors & set(kind.selector)]
    return [
        *(_offer(standing, kind, taken) | _rented_by_job(standing, kind, grows=survey.grows) for kind in others),
        *(_rented_offer(block, nodes, taken) for nodes in rented),
    ]


def together(kinds: Sequence[GpuNodes]) -> list[GpuNodes]:
    """Owned nodes that the same labels select are one offer, whatever their sizes and taints: the driver counts each
    node's GPUs, and only Jobs that tolerate a taint use the nodes that have it.
    """
    made: dict[tuple[object, ...], GpuNodes] = {}
    for kind in kinds:
        if kind.shared:
            continue
        key = (kind.model, kind.mig, kind.resource, kind.spot, kind.selector)
        other = made.get(key)
        made[key] = replace(
            kind,
            gpus_per_node=max(kind.gpus_per_node, other.gpus_per_node if other else 0),
            nodes=kind.nodes + (other.nodes if other else 0),
            tolerations=tuple(sorted({*kind.tolerations, *(other.tolerations if other else ())})),
            fenced_by=(),
        )
    return list(made.values())


def _rented_by_job(block: SiteBlock, kind: GpuNodes, *, grows: bool) -> Json:
    """Of nodes that somebody else pays for: the deadline of each Job ends its bill, and without an autoscaler there are
    no more nodes than those seen. A gang that is wider must not be sent there.
    """
    if not block.price:
        return {}
    size: Json = {} if grows or not kind.nodes else {"nodes": kind.nodes}
    return {**size, "billing_step": STEP, "guarantee": "job"}


def _rented_offer(block: SiteBlock, nodes: RentableNodes, taken: set[str]) -> Json:
    return {**_offer(block, nodes.kind, taken), "start": START, "kill": KILL, "rent": nodes.rent}


def _offer(block: SiteBlock, kind: GpuNodes, taken: set[str]) -> Json:
    model = kind.model or "GPU"
    offer: Json = {"name": _name(kind, model, taken), "term": _term(block, kind), "gpu": model}
    if kind.mig:
        offer["mig"] = kind.mig
    offer["gpus_per_node"] = kind.gpus_per_node
    if block.price:
        price: Json = {"per": "gpu_hour", "list": _Amount(block.price)}
        offer["price"] = {**price, "most": _Amount(block.price)} if kind.spot else price
    where: Json = {"selector": dict(kind.selector)} if kind.selector else {}
    if kind.tolerations:
        where["tolerations"] = [{"key": key} for key in kind.tolerations]
    if kind.resource != (f"{MIG}{kind.mig.replace('+', '.')}" if kind.mig else USUAL):
        where["resource"] = kind.resource
    if where:
        offer["kubernetes"] = where
    return offer


def _term(block: SiteBlock, kind: GpuNodes) -> str:
    if not block.price:
        return "owned"
    return "spot" if kind.spot else "on_demand"


def _name(kind: GpuNodes, model: str, taken: set[str]) -> str:
    """`a100`, with what is needed to tell it from the others."""
    family = (model if model.startswith(TPU_MODEL) else model.partition("-")[0]).lower()
    parts = [family, *([kind.mig] if kind.mig else []), *(["spot"] if kind.spot else [])]
    base = re.sub("[^a-z0-9.-]", "-", "-".join(parts))
    name = next(name for name in (base, *(f"{base}-{number}" for number in range(2, 1_000))) if name not in taken)
    taken.add(name)
    return name


class _Amount(str):
    """Money as it was typed: YAML would make a float of it."""

    __slots__ = ()


# --- as text ----------------------------------------------------------------------------------------------------------


def as_text(made: Json) -> str:
    """One item of `sites`, from column 0 on."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (yaml's signature)
            return True

    def as_typed(dumper: yaml.SafeDumper, amount: _Amount) -> yaml.ScalarNode:
        return dumper.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in amount else 'int'}", str(amount))

    Dumper.add_representer(_Amount, as_typed)
    text: str = yaml.dump(
        [made], Dumper=Dumper, sort_keys=False, allow_unicode=True, width=WIDTH, default_flow_style=None
    )
    return text


def added(text: str, block: str, name: str) -> str | None:
    """The sites file with the block after its last site; None if it has a site of this name. Every other line stays."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise BadInput(f"The sites file is not YAML ({' '.join(str(error).split())[:200]}).") from None
    if root is None:
        return f"{text}{_ended(text)}sites:\n{_indented(block, 2)}"
    if not isinstance(root, yaml.MappingNode):
        raise BadInput("The sites file is no table of keys; docs/sites.md shows one.")
    sites = next((node for key, node in root.value if key.value == "sites"), None)
    if sites is None:
        return f"{text}{_ended(text)}sites:\n{_indented(block, 2)}"
    if not isinstance(sites, yaml.SequenceNode) or sites.flow_style or not sites.value:
        raise BadInput("The sites file has its sites in brackets; write each on a line of its own with '-', and again.")
    if name in [_name_of(node) for node in sites.value]:
        return None
    lines = text.splitlines(keepends=True)
    end = sites.value[-1].end_mark
    at = end.line + (1 if end.line < len(lines) and lines[end.line][: end.column].strip() else 0)
    while at and _is_between(lines[at - 1], sites.start_mark.column):
        at -= 1
    before = "".join(lines[:at])
    return before + _ended(before) + _indented(block, sites.start_mark.column) + "".join(lines[at:])


def _is_between(line: str, column: int) -> bool:
    """A blank line, or a comment that stands further left than a site: it belongs to the key that follows."""
    words = line.lstrip()
    return not words or (words.startswith("#") and len(line) - len(words) < max(column, 1))


def _name_of(node: Any) -> str:
    pairs = node.value if isinstance(node.value, list) else []
    return next((str(text.value) for key, text in pairs if key.value == "name"), "")


def _ended(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"


def _indented(block: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" for line in block.splitlines(keepends=True))
