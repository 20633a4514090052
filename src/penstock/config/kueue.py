"""Parses what a sites file says of Kueue: the managers whose Workloads are governed, and a site's `kueue`.
docs/kueue.md explains both.
"""

import re
from typing import Final

from penstock.config.clusters import A_NAMESPACE, access_of, check_login
from penstock.config.document import UNREAD, Document, shown, unknown
from penstock.config.sections import FileSection, KueueSection, QueueSection, SiteSection
from penstock.kube.kueue_manager import KueueManager, KueueSite

AN_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
BY: Final = "multikueue"  #: the check's name in Kueue's own guide


def managers_of(file: FileSection, page: Document) -> tuple[KueueManager, ...]:
    return tuple(page.attempt(_manager, row, file, page, f"kueue[{k}]") for k, row in enumerate(file.kueue))


def _manager(row: KueueSection, file: FileSection, page: Document, place: str) -> KueueManager:
    page.attempt(check_login, row, page, place)
    if row.name in [site.name for site in file.sites]:
        page.report(f"{place}.name", f"{shown(row.name)} is a site already; give the Kueue a name of its own")
    if [other.name for other in file.kueue].count(row.name) > 1:
        page.report(f"{place}.name", f"{shown(row.name)} is here twice")
    for namespace in row.namespaces:
        if namespace is not UNREAD and not A_NAMESPACE.fullmatch(namespace):
            page.report(f"{place}.namespaces", f"{shown(namespace)} is not a namespace: small letters, digits and '-'")
    _check_name(row.check, page, f"{place}.check")
    return KueueManager(
        name=str(row.name),
        access=access_of(row, page),
        namespaces=tuple(dict.fromkeys(str(namespace) for namespace in row.namespaces)),
        check=str(row.check),
    )


def queues_of(file: FileSection, page: Document) -> tuple[tuple[str, KueueSite], ...]:
    """Sites that a Kueue starts Workloads at, by name."""
    made = [page.attempt(_queue, row, file, page, f"sites[{k}]") for k, row in enumerate(file.sites)]
    queues = tuple(queue for queue in made if queue is not None and queue is not UNREAD)
    first: dict[KueueSite, str] = {}
    for name, queue in queues:
        if first.setdefault(queue, name) != name:
            page.report(
                "sites", f"{shown(name)} and {shown(first[queue])} are the same cluster of Kueue {queue.manager}"
            )
    return queues


def _queue(row: SiteSection, file: FileSection, page: Document, place: str) -> tuple[str, KueueSite] | None:
    if row.kueue is not None and row.reached_by not in ("kueue", "rehearsal"):
        page.refuse(f"{place}.kueue", "this is for sites with 'driver: kueue'")
    if row.reached_by != "kueue":
        return None
    if row.kueue is None:
        page.refuse(place, "the key 'kueue' is missing: which Kueue starts jobs here, like {manager: lab}")
    _check_queue(row.kueue, file, page, f"{place}.kueue")
    if row.front_door:
        page.report(f"{place}.front_door", "Workloads come in by 'kueue', at the top of the file")
    return str(row.name), queue_of(row.kueue)


def _check_queue(row: QueueSection, file: FileSection, page: Document, place: str) -> None:
    managers = [str(manager.name) for manager in file.kueue]
    if row.manager not in managers:
        page.report(
            f"{place}.manager", unknown("there is no 'kueue' at the top of the file named", row.manager, managers)
        )
    if row.check is not None and row.cluster is None:
        page.report(f"{place}.check", "MultiKueue's check is for a 'cluster'; without one the manager runs it itself")
    for key, name in (("cluster", row.cluster), ("check", row.check)):
        if name is not None:
            _check_name(name, page, f"{place}.{key}")


def queue_of(row: QueueSection) -> KueueSite:
    cluster = str(row.cluster or "")
    by = str(row.check or BY) if cluster else ""
    return KueueSite(str(row.manager), cluster, by, int(row.wait))


def _check_name(name: str, page: Document, place: str) -> None:
    if name is not UNREAD and not AN_OBJECT.fullmatch(name):
        page.report(place, f"{shown(name)} is not a name in Kubernetes: small letters, digits, '-' and '.'")
