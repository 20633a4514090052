"""The file as a page: YAML text to plain lists and keys, and where each stands, so that errors can point at it.

Scalars stay text until their field says what they are. So `location: NO` is Norway and not false, and 0.1 is a tenth.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Final, NoReturn

import yaml

from penstock.core.errors import BadInput

MAX_BYTES: Final = 1_000_000  #: of a file that people write; more is another file by mistake


class Page:
    """Where things stand in the file, so that an error can point at them. Places are like `sites[0].offers[1].term`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}
        self.texts: dict[str, str] = {}  #: the scalars, by place

    def refuse(self, place: str, what: str, *, key: str = "") -> NoReturn:
        """With a key, the line is that of the key at this place."""
        line = self._line(f"{place}.{key}".strip(".") if key else place)
        where = [self.name, *line, *([_bare(place) + self._called(place)] if place else [])]
        raise BadInput(f"{', '.join(where)}: {what}{'' if what.endswith('?') else '.'}") from None

    def _line(self, place: str) -> list[str]:
        """The line of the place, or of the nearest thing around it."""
        while place and place not in self.lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return [f"line {self.lines[place]}"] if place else []

    def _called(self, place: str) -> str:
        """The names that people gave to the things on the way there, as ` (lab/spot)`."""
        parts = [place[: found.end()] for found in re.finditer(r"\]", place)]
        names = [self.texts[f"{part}.name"] for part in parts if f"{part}.name" in self.texts]
        return f" ({_bare('/'.join(names))})" if names else ""


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte in it
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    return raw


SITES_NEED: Final = "'currency' and 'sites' (examples/sites.yaml shows how)"


def plain(raw: bytes, page: Page, kind: str = "sites file", needs: str = SITES_NEED) -> object:
    if len(raw) > MAX_BYTES:
        page.refuse("", f"more than {MAX_BYTES:,} bytes; this cannot be a {kind}")
    try:
        node = _compose(raw.decode("utf-8-sig"), page)
        if node is None:
            page.refuse("", f"the file is empty; it needs at least {needs}")
        return _plain_node(node, page, "", set())
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{page.name}, line {line}: not UTF-8 text; save the file as UTF-8.") from None
    except RecursionError:
        page.refuse("", f"nested too deeply for a {kind}")


def _compose(text: str, page: Page) -> yaml.Node | None:
    """Nodes only: nothing is constructed, so nothing in the file can make Python do anything."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise BadInput(f"{page.name}{line}: not YAML ({error.problem or error.context}).") from None
    except yaml.reader.ReaderError as error:
        line = f", line {text.count(chr(10), 0, error.position) + 1}"
        raise BadInput(f"{page.name}{line}: not YAML (a control character).") from None
    except (ValueError, OverflowError):  # "\UFFFFFFFF", or a %YAML version of thousands of digits
        raise BadInput(f"{page.name}: not YAML (an escape or number that is out of range).") from None
    return node


def _plain_node(node: yaml.Node, page: Page, place: str, seen: set[int]) -> object:
    if id(node) in seen:  # also what keeps nine lines of aliases from becoming a billion rows
        page.refuse(place, "YAML aliases (*name) are not understood; write it out")
    seen.add(id(node))
    page.lines.setdefault(place, node.start_mark.line + 1)
    if not node.tag.startswith("tag:yaml.org,2002:"):
        page.refuse(place, f"the YAML tag {shown(node.tag)} means nothing here; leave it out")
    if isinstance(node, yaml.MappingNode):
        return _plain_keys(node, page, place, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_plain_node(item, page, f"{place}[{k}]", seen) for k, item in enumerate(node.value)]
    if node.tag.endswith(":null"):
        return None
    page.texts[place] = str(node.value)
    return str(node.value)


def _plain_keys(node: yaml.MappingNode, page: Page, place: str, seen: set[int]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, content in node.value:
        if not isinstance(key, yaml.ScalarNode):
            page.refuse(place, "a key must be a word")
        inner = f"{place}.{key.value}" if place else str(key.value)
        line = key.start_mark.line + 1
        if key.value in found:
            page.refuse(inner, f"this key is here twice; the second is in line {line}")
        page.lines[inner] = line
        found[key.value] = _plain_node(content, page, inner, seen)
    return found


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known) or 'none'}"
    return f"{what} {shown(word)}; {hint}"


def shown(text: str, longest: int = 60) -> str:
    """Quoted, with anything odd escaped, and not longer than a sentence can bear."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


def _bare(text: str) -> str:
    """As `shown`, without the quotes: places and names are the file's words too."""
    return shown(text, 130)[1:-1]
