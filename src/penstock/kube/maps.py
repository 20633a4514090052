"""A site's `maps`: what things of the home cluster are called at that site. The sites file defines them; `portability`
rewrites Jobs by them, and the engine reads them as `Site.has`.
"""

import re
from typing import Final, Literal, TypeAlias

from penstock.core.values import value

Table: TypeAlias = tuple[tuple[str, str], ...]

CLUSTER: Final = "a Kubernetes cluster"  #: a need of every Job, which only clusters meet
EMPTY_DIR: Final = "emptyDir"  #: replace the claim by an emptyDir; no claim can have this name
AFFINITY: Final = "affinity"  #: stands for required node affinity among the node selectors
LEFT_OUT: Final = ""

Kind: TypeAlias = Literal[
    "namespace", "image", "pull secret", "config map", "secret", "service account", "volume", "node selector",
    "priority class", "runtime class", "architecture", "resource", "toleration", "GPU label", "host access", "service",
    "host names in namespace", "scheduler", "scheduling gate", "token audience",
]  # fmt: skip


@value
class Maps:
    """Name at home -> name at the site. An empty name: leave the reference out and use the site's default."""

    site: str
    namespaces: Table = ()
    images: Table = ()  # prefixes; the longest match wins
    config_maps: Table = ()
    copy_config_maps: bool = False  # copy ConfigMaps that have no mapping
    services: Table = ()  # headless Services, by which pods find each other
    copy_services: bool = False  # copy those that have no mapping
    secrets: Table = ()
    service_accounts: Table = ()
    volumes: Table = ()  # claims
    node_selectors: Table = ()  # `key=value` or `key`
    priority_classes: Table = ()
    runtime_classes: Table = ()
    schedulers: Table = ()
    scheduling_gates: Table = ()
    token_audiences: Table = ()  # of service account tokens
    resources: Table = ()  # extended resources beside GPUs
    gpus: Table = ()  # GPU models: which model of this site stands in for one that it has not
    architectures: tuple[str, ...] = ("amd64",)


#: The key under `maps` for each kind of reference.
KEYS: Final[dict[Kind, str]] = {
    "namespace": "namespaces",
    "image": "images",
    "pull secret": "secrets",
    "config map": "config_maps",
    "service": "services",
    "host names in namespace": "namespaces",
    "secret": "secrets",
    "service account": "service_accounts",
    "volume": "volumes",
    "node selector": "node_selectors",
    "priority class": "priority_classes",
    "runtime class": "runtime_classes",
    "scheduler": "schedulers",
    "scheduling gate": "scheduling_gates",
    "token audience": "token_audiences",
    "resource": "resources",
    "architecture": "architectures",
}
#: Dropped everywhere but at home: the offer's own tolerations and selectors replace them.
OF_THE_OFFER: Final[tuple[Kind, ...]] = ("toleration", "GPU label")
#: References that must not be left out: the container would not find them.
NEEDED: Final[tuple[Kind, ...]] = ("namespace", "config map", "secret", "volume", "image")


def has(maps: Maps) -> tuple[str, ...]:
    """Everything a Job may need and finds at this site, for the engine's rule."""
    named = [need for kind, name, to in _all(maps) if _serves(kind, name, to) for need in _spelled(kind, name)]
    copied = ["config map *"] if maps.copy_config_maps else []
    copied += ["service *"] if maps.copy_services else []
    return (CLUSTER, *named, *copied, *(f"architecture {name}" for name in maps.architectures))


def _all(maps: Maps) -> list[tuple[Kind, str, str]]:
    return [(kind, name, to) for kind in KEYS if kind != "architecture" for name, to in table(maps, kind)]


def _spelled(kind: Kind, name: str) -> list[str]:
    if kind == "image":
        return [f"{kind} {name}*"]
    if kind != "node selector" or "=" in name or name == AFFINITY:
        return [f"{kind} {name}"]
    return [f"{kind} {name}", f"{kind} !{name}", *(f"{kind} {name}{sign}*" for sign in ("=", "!=", ">", "<"))]


def _serves(kind: Kind, name: str, to: str) -> bool:
    if kind == "host names in namespace":
        return to == name  # a whole host name has its namespace in it, and nobody rewrites programs
    return to != LEFT_OUT or kind not in NEEDED


def table(maps: Maps, kind: Kind) -> Table:
    rows: Table = getattr(maps, KEYS[kind])
    return rows


def mapped_name(maps: Maps, kind: Kind, name: str) -> str | None:
    """The name at the site; empty: left out; None: the maps have no entry."""
    if kind == "image":
        return _image(maps, name)
    if kind == "node selector":  # by `key=value`, else by `key`
        selectors = dict(maps.node_selectors)
        return selectors.get(name, selectors.get(re.split("!?=|[<>]", name.removeprefix("!"), maxsplit=1)[0]))
    return dict(table(maps, kind)).get(name)


def _image(maps: Maps, name: str) -> str | None:
    fitting = [(prefix, to) for prefix, to in maps.images if name.startswith(prefix)]
    prefix, to = max(fitting, key=lambda pair: len(pair[0]), default=("", None))
    return None if to is None else to + name[len(prefix) :]
