"""Parses an offer's `rent`: how its nodes are rented one by one. docs/sites.md has the keys, docs/clouds.md the ways.

A new way is a value of `kube/node_selection.py`, its keys in `RentSection`, and a row of `WAYS`.
"""

import re
from collections.abc import Callable
from typing import Final

from penstock.config.document import Document
from penstock.config.sections import ManagementSection, NodeClassSection, RentSection
from penstock.core.model.types import Guarantee, Term
from penstock.core.units import GB, MINUTE, Millis
from penstock.core.values import value
from penstock.kube.access import Access
from penstock.kube.node_selection import (
    AksWay,
    ClusterApiWay,
    EksWay,
    GkeWay,
    KarpenterWay,
    OvhWay,
    RentedNodes,
    RentWay,
    Taint,
    is_zone,
)

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
    one_type: bool = False  # whether a node is asked for by one type
    zones: bool = True  # whether zones are chosen by `zones`


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


def _eks(row: RentSection) -> EksWay:
    return EksWay(
        region=_said(row.region),
        cluster=_said(row.cluster),
        node_role=_said(row.node_role),
        subnets=tuple(str(subnet) for subnet in row.subnets or ()),
        image=_said(row.image),
        disk_gb=_disk_gb(row),
        endpoint=_said(row.endpoint),
        notices=_said(row.notices),
    )


def _aks(row: RentSection) -> AksWay:
    return AksWay(
        subscription=_said(row.subscription),
        resource_group=_said(row.resource_group),
        cluster=_said(row.cluster),
        subnets=tuple(str(subnet) for subnet in row.subnets or ()),
        image=_said(row.image),
        disk_gb=_disk_gb(row),
        endpoint=_said(row.endpoint),
    )


def _gke(row: RentSection) -> GkeWay:
    return GkeWay(
        project=_said(row.project),
        location=_said(row.location),
        cluster=_said(row.cluster),
        accelerator=_said(row.accelerator),
        accelerators=int(row.accelerators or 0),
        topology=_said(row.topology),
        service_account=_said(row.service_account),
        image=_said(row.image),
        disk_gb=_disk_gb(row),
        endpoint=_said(row.endpoint),
    )


def _ovh(row: RentSection) -> OvhWay:
    return OvhWay(monthly=bool(row.monthly))


def _said(text: str | None) -> str:
    return str(text or "")


def _disk_gb(row: RentSection) -> int:
    return 0 if row.disk is None else -(-int(row.disk) // GB)


#: Nothing but Penstock ends a node group of EKS or AKS, or a pool of OVH: a cap is soft there.
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
    "eks": WayRules(
        _eks,
        needs=("cluster", "region", "node_role", "subnets"),
        guarantees=("none",),
        may=("image", "disk", "endpoint", "notices"),
        zones=False,
    ),
    "aks": WayRules(
        _aks,
        needs=("cluster", "subscription", "resource_group"),
        guarantees=("none",),
        may=("image", "disk", "subnets", "endpoint"),
        one_type=True,
    ),
    "gke": WayRules(
        _gke,
        needs=("cluster", "project", "location"),
        guarantees=("none", "max_run_time"),
        may=("accelerator", "accelerators", "topology", "service_account", "image", "disk", "endpoint"),
        one_type=True,
    ),
    "ovh": WayRules(_ovh, needs=(), guarantees=("none",), may=("monthly",), one_type=True, zones=False),
}
AKS_SPOT: Final = Taint("kubernetes.azure.com/scalesetpriority", "spot")  #: which AKS gives its spot nodes anyway
#: Plain http only on this machine: whoever can change an answer could end jobs.
A_QUEUE: Final = re.compile(r"(https://[^\s/]+|http://127\.0\.0\.1(:\d+)?)/[0-9]{12}/[A-Za-z0-9_-]{1,80}")
A_TOPOLOGY: Final = re.compile("[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){1,2}")


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
    if rules.one_type and len(row.instance_types) > 1:
        page.report(f"{place}.instance_types", f"a node of '{row.way}' has one type; make an offer of each other")
    if not rules.zones and row.zones:
        page.report(
            f"{place}.zones", f"this key is not for 'way: {row.way}', which has its zones elsewhere; leave it out"
        )
    _check_pool(row, page, place)


def _check_pool(row: RentSection, page: Document, place: str) -> None:
    if row.topology is not None and not A_TOPOLOGY.fullmatch(str(row.topology)):
        page.report(f"{place}.topology", "this is not a TPU slice's topology, like 2x4 or 4x4x4")
    if row.topology is not None and row.accelerator is not None:
        page.report(f"{place}.accelerator", "a TPU slice has no GPUs; leave 'accelerator' or 'topology' out")
    if row.subnets is not None and not row.subnets:
        page.report(f"{place}.subnets", "name at least one subnet")
    if row.way == "gke" and len(row.zones) != 1 and (row.zones or not is_zone(str(row.location or "-a"))):
        page.report(f"{place}.zones", "name one zone: GKE makes a machine in each zone of a pool")
    if row.way == "aks" and len(row.subnets or ()) > 1:
        page.report(f"{place}.subnets", "a pool of AKS has one subnet")
    if row.endpoint is not None and not re.fullmatch(r"https://\S+|http://127\.0\.0\.1(:\d+)?", str(row.endpoint)):
        page.report(f"{place}.endpoint", "this is not an address like https://eks.eu-central-1.amazonaws.com")
    if row.notices is not None and not A_QUEUE.fullmatch(str(row.notices)):
        page.report(
            f"{place}.notices",
            "this is not a queue's URL like https://sqs.eu-central-1.amazonaws.com/123456789012/spot",
        )


def rented_nodes(row: RentSection, term: Term) -> RentedNodes:
    azures = (AKS_SPOT,) if row.way == "aks" and term == "spot" else ()
    return RentedNodes(
        way=rules_of(row).make(row),
        instance_types=tuple(str(kind) for kind in row.instance_types),
        zones=tuple(str(zone) for zone in row.zones),
        labels=tuple((key, str(text)) for key, text in row.labels.items()),
        taints=(
            *azures,
            *(Taint(str(taint.key), str(taint.value or ""), str(taint.effect)) for taint in row.taints),
        ),
    )
