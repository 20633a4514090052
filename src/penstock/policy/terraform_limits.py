"""What of a policy a cloud can hold by itself, and how names with `*` match. `terraform` and its clouds share it."""

from collections.abc import Iterable, Iterator

from penstock.core.units import MICRO, Money, ceil_div
from penstock.core.values import value


@value
class CloudLimits:
    name: str  # of the policy file
    currency: str
    per_month: Money | None = None  # None: no budget
    regions: tuple[str, ...] = ()  # names, or ending in `*`; empty: all
    site_regions: tuple[str, ...] = ()  # of the sites file, those that are allowed
    families: tuple[str, ...] = ()  # likewise; empty: all
    machine_types: tuple[str, ...] = ()  # exact, by the sites file; empty: by family
    source: str = ""  # of `allow`: file and line

    @property
    def units(self) -> int:
        """The month's cap in whole units, rounded up: Penstock's own cap binds first."""
        return max(1, ceil_div(self.per_month or 0, MICRO))


def matches(name_there: str, names: Iterable[str]) -> bool:
    """As the engine reads a list: by the name itself, or by one that ends in `*`. An unknown value is on no list."""
    return bool(name_there) and any(
        name_there == name or (name.endswith("*") and name_there.startswith(name[:-1])) for name in names
    )


def variable(kind: str, description: str, **more: object) -> dict[str, object]:
    return {"type": kind, "description": description, **more}


def merged(*parts: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Resources of several parts, by type and name."""
    resources_by_kind: dict[str, dict[str, object]] = {}
    for part in parts:
        for kind, resources in part.items():
            resources_by_kind.setdefault(kind, {}).update(resources)
    return resources_by_kind


def without_empty(sections: dict[str, dict[str, object]]) -> Iterator[tuple[str, dict[str, object]]]:
    """Terraform reads an empty block of resources as a mistake."""
    yield from ((name, section) for name, section in sections.items() if section)
