"""Parses an offer's `rent`: how its nodes are rented one by one. docs/sites.md has the keys, docs/clouds.md the ways.

A new way is a value of `kube/node_selection.py`, its keys in `RentSection`, and a row of `WAYS`.
"""

from collections.abc import Callable
from typing import Final

from penstock.config.document import Document
from penstock.config.sections import ManagementSection, NodeClassSection, RentSection
from penstock.core.model.types import Guarantee
from penstock.core.units import MINUTE, Millis
from penstock.core.values import value
from penstock.kube.access import Access
from penstock.kube.node_selection import ClusterApiWay, KarpenterWay, RentedNodes, RentWay, Taint

COMMON: Final = ("way", "instance_types", "zones", "labels", "taints")  #: keys that every way has


@value
class WayRules:
    """What the sites file may say of one way to rent."""

    make: Callable[[RentSection], RentWay]
    needs: tuple[str, ...]  # keys of its own
    guarantees: tuple[Guarantee, ...]  # who can end a node without us; the first one is the default
    may: tuple[str, ...] = ()  # keys of its own that can be left out
    renewable: bool = False  # whether a node's deadline can be moved
    by_type: bool = True  # whether it must know an instance type
    least_kill_ms: Millis = 0  # a shorter `kill` is not kept


def _karpenter(row: RentSection) -> KarpenterWay:
    by = row.node_class or NodeClassSection("", "", "")  # type: ignore[arg-type]  # missing: it is reported
    return KarpenterWay(str(by.group), str(by.kind), str(by.name))


def _cluster_api(row: RentSection) -> ClusterApiWay:
    return ClusterApiWay(
        deployment=str(row.deployment or ""),
        namespace=str(row.namespace or ""),
        management=None if row.management is None else _access(row.management),
        watchman=str(row.watchman or "penstock"),
    )


def _access(row: ManagementSection) -> Access:
    return Access(
        kubeconfig=str(row.kubeconfig or ""),
        context=str(row.context or ""),
        in_cluster=bool(row.in_cluster),
        allow_exec=tuple(str(program) for program in row.allow_exec),
        secret=str(row.kubeconfig_secret or ""),
    )


WAYS: Final[dict[str, WayRules]] = {
    "karpenter": WayRules(_karpenter, needs=("node_class",), guarantees=("expire_after",)),
    "cluster_api": WayRules(
        _cluster_api,
        needs=("deployment", "namespace"),
        guarantees=("watchman", "none"),
        may=("management", "watchman"),
        renewable=True,
        by_type=False,
        least_kill_ms=MINUTE,  # the watchman looks every 10 s, and core at a drain every 20 s
    ),
}


def rules_of(row: RentSection) -> WayRules:
    return WAYS[row.way]


def check_rent(row: RentSection, page: Document, place: str) -> None:
    """Each key belongs to the way, and none is missing."""
    rules = rules_of(row)
    for key in rules.needs:
        if getattr(row, key) is None:
            page.report(place, f"the key '{key}' is missing; nodes are rented by '{row.way}'")
    for key in row.__struct_fields__:
        if key not in (*COMMON, *rules.needs, *rules.may) and getattr(row, key) is not None:
            page.report(f"{place}.{key}", f"this key is not for 'way: {row.way}'; leave it out")


def rented_nodes(row: RentSection) -> RentedNodes:
    return RentedNodes(
        way=rules_of(row).make(row),
        instance_types=tuple(str(kind) for kind in row.instance_types),
        zones=tuple(str(zone) for zone in row.zones),
        labels=tuple((key, str(text)) for key, text in row.labels.items()),
        taints=tuple(Taint(str(taint.key), str(taint.value or ""), str(taint.effect)) for taint in row.taints),
    )
