"""The tables of a document that explains a file: which keys it states, and what each is if it is left out."""

import re
import typing
from collections.abc import Iterator

from penstock.config.convert import Section, keys_of
from tests.conftest import ROOT


def levels(place: str, row: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    """Every level of keys below a row, by its place without numbers: `sites.offers.price`."""
    yield place, row
    for name, key in keys_of(row).items():
        parts = typing.get_args(key.hint)
        for inner in [key.hint, *parts, *(part for outer in parts for part in typing.get_args(outer))]:
            if isinstance(inner, type) and issubclass(inner, Section):
                yield from levels(f"{place}.{name}".lstrip("."), inner)


def stated(document: str, title: str) -> dict[str, str]:
    """By key, what the table under this title says of leaving it out."""
    text = (ROOT / "docs" / document).read_text("utf-8")
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \|.*\| ?(.*?) \|$", section, re.MULTILINE))
