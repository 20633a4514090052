"""Parses a site's `kubernetes`: how to connect to its cluster, and the node selection of its offers. docs/sites.md has
the keys.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.config.document import UNREAD, Document, shown
from penstock.config.renting import check_rent, rented_nodes
from penstock.config.sections import (
    ClusterSection,
    KueueSection,
    ManagementSection,
    NodeSelectionSection,
    OfferSection,
    RentSection,
    SiteSection,
    TolerationSection,
    TransientSection,
)
from penstock.core.model.types import STANDING
from penstock.kube.access import Access
from penstock.kube.gpu_models import TPU
from penstock.kube.maps import Maps
from penstock.kube.node_selection import ClusterApiWay, ClusterClassWay, ClusterSite, NodeSelection, Toleration

A_NAMESPACE: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
A_SECRET: Final = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
A_LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
A_CLASS: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
HOURS: Final = 24


def cluster_of(row: SiteSection, maps: Maps, page: Document, place: str) -> tuple[str, ClusterSite] | None:
    """The site's name and its cluster; None if the site is no cluster."""
    if row.kubernetes is not None and row.reached_by not in ("kubernetes", "rehearsal"):
        page.refuse(f"{place}.kubernetes", "this is for sites with 'driver: kubernetes'")
    if row.reached_by != "kubernetes":
        return None
    section = row.kubernetes or ClusterSection()
    _check(section, page, f"{place}.kubernetes")
    places = [page.attempt(_place, offer, page, f"{place}.offers[{k}]") for k, offer in enumerate(row.offers)]
    mapped = [target for _, target in maps.namespaces]
    return str(row.name), ClusterSite(
        access=access_of(section, page),
        namespace=str(section.namespace),
        namespaces=tuple(dict.fromkeys([*(str(namespace) for namespace in section.namespaces), *mapped])),
        shared=bool(section.shared),
        secret=str(section.secret or ""),
        grace_ms=int(section.grace),
        room_ms=int(section.room),
        scale_ms=int(section.scale),
        places=tuple((f"{row.name}/{offer.name}", spelt) for offer, spelt in zip(row.offers, places, strict=True)),
        transient=_transient(row, page, f"{place}.cluster"),
    )


def _transient(row: SiteSection, page: Document, place: str) -> ClusterClassWay | None:
    if row.cluster is None:
        return None
    if row.cluster.management is not None:
        page.attempt(check_login, row.cluster.management, page, f"{place}.management")
    return _way_of(row.cluster, page)


def _way_of(row: TransientSection, page: Document) -> ClusterClassWay:
    """What Cluster API is asked for."""
    access = Access() if row.management is None else access_of(row.management, page)
    return ClusterClassWay(
        cluster_class=str(row.cluster_class),
        version=str(row.version),
        namespace=str(row.namespace),
        management=access,
        watchman=str(row.watchman),
        variables=tuple((name, _as_json(str(text))) for name, text in row.variables.items()),
        workers=tuple((name, int(count)) for name, count in row.workers.items()),
        up_within_ms=int(row.up_within),
    )


def _as_json(text: str) -> str:
    """A variable has a type: what reads as JSON is that, everything else a text."""
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return json.dumps(text)


def _check(section: ClusterSection, page: Document, place: str) -> None:
    page.attempt(check_login, section, page, place)
    for key, name in [
        ("namespace", section.namespace),
        *(("namespaces", namespace) for namespace in section.namespaces),
    ]:
        if name is not UNREAD and not A_NAMESPACE.fullmatch(name):
            page.report(f"{place}.{key}", f"{shown(name)} is not a namespace: small letters, digits and '-'")


def check_login(section: ClusterSection | ManagementSection | KueueSection, page: Document, place: str) -> None:
    if section.in_cluster and (section.kubeconfig is not None or section.context is not None):
        page.report(f"{place}.in_cluster", "with the pod's own account there is no 'kubeconfig' and no 'context'")
    if (secret := section.kubeconfig_secret) is not None:
        if section.in_cluster or section.kubeconfig is not None:
            page.report(f"{place}.kubeconfig_secret", "with a Secret there is no 'kubeconfig' and no 'in_cluster'")
        if not A_SECRET.fullmatch(secret):
            page.report(f"{place}.kubeconfig_secret", f"{shown(secret)} is not NAME or NAMESPACE/NAME of a Secret")


def _check_management(rent: RentSection, page: Document, place: str) -> None:
    """Of Cluster API: where its objects and the watchman are."""
    if rent.management is not None:
        page.attempt(check_login, rent.management, page, f"{place}.management")
    for key, name in (("namespace", rent.namespace), ("watchman", rent.watchman)):
        if name is not None and name is not UNREAD and not A_NAMESPACE.fullmatch(name):
            page.report(f"{place}.{key}", f"{shown(name)} is not a namespace: small letters, digits and '-'")
    if rent.way == "cluster_api" and len(rent.zones) > 1:
        page.report(f"{place}.zones", "a Machine is in one failure domain; make an offer for each zone")


def access_of(section: ClusterSection | ManagementSection | KueueSection, page: Document) -> Access:
    return Access(
        kubeconfig=path_of(str(section.kubeconfig or ""), page),
        context=str(section.context or ""),
        in_cluster=bool(section.in_cluster),
        allow_exec=tuple(str(program) for program in section.allow_exec),
        secret=str(section.kubeconfig_secret or ""),
    )


def path_of(path: str, page: Document) -> str:
    """Relative to the sites file, so that both can be moved together."""
    if not path or path.startswith(("/", "~")):
        return path
    return str(Path(page.name).parent.absolute() / path)


def _place(offer: OfferSection, page: Document, place: str) -> NodeSelection:
    section = offer.kubernetes or NodeSelectionSection()
    for key in section.selector:
        if not A_LABEL.fullmatch(key):
            page.report(f"{place}.kubernetes.selector", f"{shown(key)} is not a label, like nvidia.com/gpu.product")
    if offer.rent is not None:
        check_rent(offer.rent, page, f"{place}.rent")
        _check_management(offer.rent, page, f"{place}.rent")
        if offer.rent.way == "gke" and offer.mig is not None and offer.rent.accelerators is None:
            page.report(f"{place}.rent", "with 'mig' the key 'accelerators' says how many GPUs a machine has")
        for key in offer.rent.labels:
            if not A_LABEL.fullmatch(key):
                page.report(f"{place}.rent.labels", f"{shown(key)} is not a label, like nvidia.com/gpu.product")
    if section.headroom is not UNREAD and len(section.headroom) not in (0, 1, HOURS):
        page.report(f"{place}.kubernetes.headroom", "one number, or one for each of the 24 hours of a day")
    if section.provisioning_class is not None:
        _check_provisioning(offer, section, page, f"{place}.kubernetes.provisioning_class")
    return _with_paths(place_of(offer), page)


def _check_provisioning(offer: OfferSection, section: NodeSelectionSection, page: Document, place: str) -> None:
    """By a ProvisioningRequest an autoscaler adds the nodes, and nobody else decides when the pods may come."""
    name = str(section.provisioning_class or "")
    if section.provisioning_class is not UNREAD and not A_CLASS.fullmatch(name):
        words = "is no class of ProvisioningRequests, like best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        page.report(place, f"{shown(name)} {words}")
    if offer.rent is not None:
        page.report(place, "with 'rent' Penstock adds the nodes itself; leave one of them out")
    elif section.queue is not None:
        page.report(place, "with 'queue' Kueue asks for the nodes, by a check of its own; leave one of them out")
    elif offer.term in STANDING:
        page.report(place, f"nodes that are {offer.term} are there already; leave it out, or write another 'term'")


def _with_paths(place: NodeSelection, page: Document) -> NodeSelection:
    """With the management cluster's kubeconfig relative to the sites file, like the site's own."""
    rent = place.rent
    if rent is None or not isinstance(rent.way, ClusterApiWay) or rent.way.management is None:
        return place
    access = rent.way.management
    access = replace(access, kubeconfig=path_of(access.kubeconfig, page))
    return replace(place, rent=replace(rent, way=replace(rent.way, management=access)))


def place_of(offer: OfferSection) -> NodeSelection:
    section = offer.kubernetes or NodeSelectionSection()
    return NodeSelection(
        resource=str(section.resource or _resource(offer)),
        selector=tuple((key, str(text)) for key, text in section.selector.items()),
        tolerations=tuple(_toleration(toleration) for toleration in section.tolerations),
        queue=str(section.queue or ""),
        headroom=tuple(int(count) for count in section.headroom),
        provisioning_class=str(section.provisioning_class or ""),
        rent=None if offer.rent is None else rented_nodes(offer.rent, offer.term),
    )


def _resource(offer: OfferSection) -> str:
    """The device plugin's resource name: a MIG profile's plus becomes a dot. GKE counts slices as GPUs."""
    if offer.rent is not None and offer.rent.way == "gke":
        return TPU if offer.rent.topology is not None else "nvidia.com/gpu"
    return f"nvidia.com/mig-{offer.mig.replace('+', '.')}" if offer.mig else "nvidia.com/gpu"


def _toleration(row: TolerationSection) -> Toleration:
    operator = "Exists" if row.value is None else "Equal"
    return Toleration(str(row.key or ""), operator, str(row.value or ""), str(row.effect or ""))
