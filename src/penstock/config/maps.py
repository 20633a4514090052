"""Parses a site's `maps`: what things of the home clusters are called there. docs/kubernetes.md explains every key."""

import re
from typing import Final

from penstock.config.document import Document, shown
from penstock.config.kueue import queue_of
from penstock.config.scalars import Text, Word
from penstock.config.sections import MapsSection, SiteSection
from penstock.kube.maps import EMPTY_DIR, Maps, Table, has

#: Tables whose names are those of Kubernetes objects; an empty one, where it is allowed, leaves the thing out.
NAMES: Final = {
    "namespaces": False,
    "secrets": True,
    "services": True,
    "service_accounts": True,
    "volumes": False,
    "priority_classes": True,
    "runtime_classes": True,
    "schedulers": True,
}
A_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def maps_of(row: SiteSection, page: Document, place: str) -> Maps:
    """Checks and all: what the rest of the file says of this site does not matter here."""
    if row.maps is not None and row.reached_by not in ("kubernetes", "rehearsal"):
        page.report(f"{place}.maps", "this is for sites with 'driver: kubernetes'")
    section = row.maps or MapsSection()
    for key, may_be_empty in NAMES.items():
        for name, to in _named(getattr(section, key)).items():
            page.attempt(_check, to, may_be_empty, key, page, f"{place}.maps.{key}.{name}")
    for model, stand_in in section.gpus.items():
        page.attempt(_check_gpu, stand_in, row, page, f"{place}.maps.gpus.{model}")
    return Maps(
        site=str(row.name),
        namespaces=_table(section.namespaces),
        images=_table(section.images),
        config_maps=_table(_named(section.config_maps)),
        copy_config_maps=section.config_maps == "copy",
        services=_table(_named(section.services)),
        copy_services=section.services == "copy",
        secrets=_table(section.secrets),
        service_accounts=_table(section.service_accounts),
        volumes=_table(section.volumes),
        node_selectors=_table(section.node_selectors),
        priority_classes=_table(section.priority_classes),
        runtime_classes=_table(section.runtime_classes),
        schedulers=_table(section.schedulers),
        scheduling_gates=_table(section.scheduling_gates),
        token_audiences=_table(section.token_audiences),
        resources=_table(section.resources),
        gpus=tuple((model, str(to)) for model, to in section.gpus.items()),
        architectures=tuple(str(architecture) for architecture in section.architectures),
    )


def site_has(row: SiteSection, maps: Maps) -> tuple[str, ...]:
    """What the engine's rule reads. A rehearsed site has everything; other kinds of sites run no Jobs."""
    if row.reached_by == "rehearsal":
        return ("*",)
    if row.reached_by == "kueue" and row.kueue is not None:
        return (queue_of(row.kueue).need,)
    return has(maps) if row.reached_by == "kubernetes" else ()


def _named(names: str | dict[str, Word | None]) -> dict[str, Word | None]:
    """Its table; `copy` has none."""
    return {} if isinstance(names, str) else names


def _table(names: dict[str, Word | None]) -> Table:
    return tuple((name, str(to or "")) for name, to in names.items())


def _check(name: Word | None, may_be_empty: bool, key: str, page: Document, place: str) -> None:
    to = str(name or "")
    if to == "" and may_be_empty:
        return
    if to == EMPTY_DIR and key == "volumes":
        return
    if not A_NAME.fullmatch(to):
        instead = f", or {EMPTY_DIR} for a volume of the pod's own" if key == "volumes" else ""
        page.report(place, f"{shown(to)} is not a name in Kubernetes: small letters, digits, '-' and '.'{instead}")


def _check_gpu(to: Text, row: SiteSection, page: Document, place: str) -> None:
    models = [str(offer.gpu) for offer in row.offers]
    if to not in models:
        page.report(place, f"{shown(to)} is not a GPU of this site; it has {', '.join(dict.fromkeys(models))}")
