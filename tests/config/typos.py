"""Every single mistake in a file: each key misspelt or left out, each value of another kind."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import yaml

Place = tuple[str | int, ...]
#: What people write by mistake where something else belongs; None is an empty value.
FEW: Final[tuple[Any, ...]] = ("x y", None, ["x"], {"x" * 900: "y"})
MANY: Final[tuple[Any, ...]] = (
    *FEW, "", "-1", "0", "NaN", "1e999", "9" * 400, "1h", "10%", "ü/..", "a" * 5_000, "2026-13-45", "true",
    [], {}, [[["x"]]], "0.0000001",
)  # fmt: skip


def tree_of(text: str) -> Any:
    """The file with all its words as they are written."""
    return yaml.load(text, Loader=yaml.BaseLoader)


def mistakes(tree: Any, values: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """What is wrong, and the whole file with that one mistake."""
    for place in _places(tree):
        for value in values:
            yield (
                f"{place}: {value!r:.40}",
                _changed(tree, place, lambda around, key, value=value: _put(around, key, value)),
            )
        yield f"{place} is left out", _changed(tree, place, lambda around, key: around.pop(key))
        if isinstance(place[-1], str):
            yield f"{place} is misspelt", _changed(tree, place, _misspell)


def _places(node: Any, at: Place = ()) -> Iterator[Place]:
    rows = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in rows:
        yield (*at, key)
        yield from _places(inner, (*at, key))


def _changed(tree: Any, place: Place, change: Any) -> Any:
    changed = copy.deepcopy(tree)
    around = changed
    for key in place[:-1]:
        around = around[key]
    change(around, place[-1])
    return changed


def _put(around: Any, key: str | int, value: Any) -> None:
    around[key] = value


def _misspell(around: dict[str, Any], key: str) -> None:
    """In its place, not at the end."""
    rows = [(f"{name[:-1]}q" if name == key else name, inner) for name, inner in around.items()]
    around.clear()
    around.update(rows)


def written(tree: Any) -> bytes:
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode()
