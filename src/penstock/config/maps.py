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
}
A_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def maps_of(row: SiteSection, page: Document, place: str) -> Maps:
    """Checks and all: what the rest of the file says of this site does not matter here."""
    if row.maps is not None and row.reached_by not in ("kubernetes", "rehearsal"):
        page.report(f"{place}.maps", "this is for sites with 'driver: kubernetes'")
    said = row.maps or MapsSection()
    for key, may_be_empty in NAMES.items():
        for name, to in _named(getattr(said, key)).items():
            page.attempt(_check, to, may_be_empty, key, page, f"{place}.maps.{key}.{name}")
    for model, stand_in in said.gpus.items():
        page.attempt(_check_gpu, stand_in, row, page, f"{place}.maps.gpus.{model}")
    return Maps(
        site=str(row.name),
        namespaces=_table(said.namespaces),
        images=_table(said.images),
        config_maps=_table(_named(said.config_maps)),
        copy_config_maps=said.config_maps == "copy",
        services=_table(_named(said.services)),
        copy_services=said.services == "copy",
        secrets=_table(said.secrets),
        service_accounts=_table(said.service_accounts),
        volumes=_table(said.volumes),
        node_selectors=_table(said.node_selectors),
        priority_classes=_table(said.priority_classes),
        runtime_classes=_table(said.runtime_classes),
        resources=_table(said.resources),
        gpus=tuple((model, str(to)) for model, to in said.gpus.items()),
        architectures=tuple(str(architecture) for architecture in said.architectures),
    )


def site_has(row: SiteSection, maps: Maps) -> tuple[str, ...]:
    """What the engine's rule reads. A rehearsed site has everything; other kinds of sites run no Jobs."""
    if row.reached_by == "rehearsal":
        return ("*",)
    if row.reached_by == "kueue" and row.kueue is not None:
        return (queue_of(row.kueue).need,)
    return has(maps) if row.reached_by == "kubernetes" else ()


def _named(said: str | dict[str, Word | None]) -> dict[str, Word | None]:
    """Its table; `copy` has none."""
    return {} if isinstance(said, str) else said


def _table(said: dict[str, Word | None]) -> Table:
    return tuple((name, str(to or "")) for name, to in said.items())


def _check(said: Word | None, may_be_empty: bool, key: str, page: Document, place: str) -> None:
    to = str(said or "")
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
