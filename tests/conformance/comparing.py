"""Compare two observations field by field, and tell allowed differences from the others. Pure.

`allowed.yaml` has every difference that is meant, each with its reason. One that no longer occurs fails a whole run, so
that the list cannot rot.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.observing import Fields

ABSENT: Final = "absent"
TABLE: Final = Path(__file__).with_name("allowed.yaml")


@dataclass(frozen=True)
class Difference:
    manifest: str
    mode: str
    instant: str
    field: str
    plain: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.manifest}, {self.mode}, {self.instant}: {self.field} is {self.ours!r}, plain {self.plain!r}"


@dataclass(frozen=True)
class Allowed:
    """A difference that is meant. `*` stands for any text; what is left out allows any."""

    field: str
    reason: str
    plain: str = "*"
    ours: str = "*"
    manifests: tuple[str, ...] = ("*",)
    modes: tuple[str, ...] = ("*",)
    instants: tuple[str, ...] = ("*",)

    def covers(self, difference: Difference) -> bool:
        return (
            _fits(self.field, difference.field)
            and _fits(self.plain, str(difference.plain))
            and _fits(self.ours, str(difference.ours))
            and any(_fits(manifest, difference.manifest) for manifest in self.manifests)
            and any(_fits(mode, difference.mode) for mode in self.modes)
            and any(_fits(instant, difference.instant) for instant in self.instants)
        )


def differences(plain: Fields, ours: Fields, manifest: str, mode: str, instant: str) -> list[Difference]:
    """Fields whose values differ, by name."""
    fields = sorted(field for field in {*plain, *ours} if plain.get(field, ABSENT) != ours.get(field, ABSENT))
    return [
        Difference(manifest, mode, instant, field, plain.get(field, ABSENT), ours.get(field, ABSENT))
        for field in fields
    ]


def read() -> list[Allowed]:
    rows: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text("utf-8"))
    return [_allowed(row) for row in rows]


def _allowed(row: dict[str, Any]) -> Allowed:
    words: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else str(value) for key, value in row.items()}
    return Allowed(**words)


def unexplained(observed: Iterable[Difference], allowed: Sequence[Allowed]) -> list[Difference]:
    return [difference for difference in observed if not any(entry.covers(difference) for entry in allowed)]


def rotten(observed: Sequence[Difference], allowed: Iterable[Allowed]) -> list[Allowed]:
    """Entries that no difference needs any more."""
    return [entry for entry in allowed if not any(entry.covers(difference) for difference in observed)]


def _fits(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
