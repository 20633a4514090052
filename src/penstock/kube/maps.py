"""What a site's `maps` say: what things of the home cluster are called there. Written in the sites file, used by
`portability` to rewrite a Job, and by the engine's rule as `Site.has`.
"""

from typing import Final, Literal, TypeAlias

from penstock.core.values import value

Table: TypeAlias = tuple[tuple[str, str], ...]

CLUSTER: Final = "a Kubernetes cluster"  #: what every Job needs, and no other kind of site has
EMPTY_DIR: Final = "emptyDir"  #: a volume of the pod's own instead; no claim can be called so
AFFINITY: Final = "affinity"  #: the node selector's name for required node affinity
LEFT_OUT: Final = ""

Kind: TypeAlias = Literal[
    "namespace", "image", "pull secret", "config map", "secret", "service account", "volume", "node selector",
    "priority class", "runtime class", "architecture", "toleration", "GPU label", "host access",
]  # fmt: skip


@value
class Maps:
    """Name at home -> name there. An empty name there: left out, and what the site has by itself is used."""

    site: str
    namespaces: Table = ()
    images: Table = ()  # prefixes; the longest that fits counts
    config_maps: Table = ()
    copy_config_maps: bool = False  # those without a name of their own there are copied
    secrets: Table = ()
    service_accounts: Table = ()
    volumes: Table = ()  # claims
    node_selectors: Table = ()  # `key=value` or `key`
    priority_classes: Table = ()
    runtime_classes: Table = ()
    architectures: tuple[str, ...] = ("amd64",)


#: Where a kind of thing is mapped: the key under `maps`.
KEYS: Final[dict[Kind, str]] = {
    "namespace": "namespaces",
    "image": "images",
    "pull secret": "secrets",
    "config map": "config_maps",
    "secret": "secrets",
    "service account": "service_accounts",
    "volume": "volumes",
    "node selector": "node_selectors",
    "priority class": "priority_classes",
    "runtime class": "runtime_classes",
    "architecture": "architectures",
}
#: Left out everywhere but at home: the offer's own tolerations and selectors take their place.
OF_THE_OFFER: Final[tuple[Kind, ...]] = ("toleration", "GPU label")
#: What cannot be left out: a program that names one would not find it.
NEEDED: Final[tuple[Kind, ...]] = ("namespace", "config map", "secret", "volume", "image")


def has(maps: Maps) -> tuple[str, ...]:
    """What the engine's rule reads: everything a Job may need and finds at this site."""
    named = [need for kind, name, to in _all(maps) if _serves(kind, to) for need in _spelled(kind, name)]
    copied = ["config map *"] if maps.copy_config_maps else []
    return (CLUSTER, *named, *copied, *(f"architecture {name}" for name in maps.architectures))


def _all(maps: Maps) -> list[tuple[Kind, str, str]]:
    return [(kind, name, to) for kind in KEYS if kind != "architecture" for name, to in table(maps, kind)]


def _spelled(kind: Kind, name: str) -> list[str]:
    if kind == "image":
        return [f"{kind} {name}*"]
    any_value = [f"{kind} {name}=*"] if kind == "node selector" and "=" not in name else []
    return [f"{kind} {name}", *any_value]


def _serves(kind: Kind, to: str) -> bool:
    return to != LEFT_OUT or kind not in NEEDED


def table(maps: Maps, kind: Kind) -> Table:
    found: Table = getattr(maps, KEYS[kind])
    return found


def there(maps: Maps, kind: Kind, name: str) -> str | None:
    """What it is called at the site; empty: left out; None: the maps say nothing of it."""
    if kind == "image":
        return _image(maps, name)
    if kind == "node selector":  # the pair itself, or any value of its key
        found = dict(maps.node_selectors)
        return found.get(name, found.get(name.partition("=")[0]))
    return dict(table(maps, kind)).get(name)


def _image(maps: Maps, name: str) -> str | None:
    fitting = [(prefix, to) for prefix, to in maps.images if name.startswith(prefix)]
    prefix, to = max(fitting, key=lambda pair: len(pair[0]), default=("", None))
    return None if to is None else to + name[len(prefix) :]
