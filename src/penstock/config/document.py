"""The file as a page: YAML text to plain lists and keys, where each stands, and all that is wrong with it.

Scalars stay text until their field says what they are. So `location: NO` is Norway and not false, and 0.1 is a tenth.

A file is checked whole. `Document.report` records an error and goes on; `Document.refuse` records one and ends the part
of the file that cannot be checked further, up to the next `Document.attempt`. What could not be read is `UNREAD`:
code that uses it ends its part, too, without a further error, because the first one is reported.
"""

import difflib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import yaml

from penstock.core.errors import BadFile, FileError

MAX_BYTES: Final = 1_000_000  #: of a file; a larger one is the wrong file
MOST_NODES: Final = 100_000  #: words, lists and groups of keys in a file
MOST_DEPTH: Final = 50  #: lists and groups of keys inside each other
MOST_DIRECTIVES: Final = 100  #: lines that begin with %; libyaml compares each with all before it
MOST_ERRORS: Final = 1_000  #: of one file; beyond it they are only counted
MOST_HINTS: Final = 20  #: guesses of what was meant, in one file: each costs as much as hundreds of checks
LONGEST_HINT: Final = 63  #: characters of a word that may be a mistyped one
LONGEST_LIST: Final = 400  #: characters of all the known words that a message names
#: libyaml's parser where it is installed: it needs a tenth of the time.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

P = ParamSpec("P")
T = TypeVar("T")


class Unchecked(Exception):
    """This part of the file cannot be checked further. Its error is reported."""


def _use(*_: object) -> NoReturn:
    raise Unchecked


#: A placeholder for an unreadable value. It may be passed on; any use of it ends that part of the check.
UNREAD: Final[Any] = type(
    "Unread",
    (),
    dict.fromkeys(
        [
            *("__bool__", "__int__", "__index__", "__len__", "__iter__", "__hash__", "__str__", "__format__"),
            *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__getitem__", "__getattr__"),
            *("__add__", "__radd__", "__mul__", "__rmul__", "__mod__", "__floordiv__", "__truediv__", "__rtruediv__"),
        ],
        _use,
    ),
)()


class Document:
    """The file's positions and its errors so far. A place is like `sites[0].offers[1].term`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[str, int] = {}
        self.texts: dict[str, str] = {}  #: the scalars, by place
        self.errors: list[FileError] = []
        self.known: set[FileError] = set()  #: the same, to find those that are reported twice
        self.hints = 0  #: guesses made so far
        self.more = 0  #: errors that were only counted
        self.notices: list[str] = []  #: deprecation notices, a sentence each

    def report(self, place: str, problem: str, *, key: str = "") -> None:
        """Record an error and go on. With a key, the line is that key's."""
        line = self.line(f"{place}.{key}".strip(".") if key else place)
        shown_place = _bare(place) + self._called(place) if place else ""
        self._keep(FileError(self.name, line, shown_place, problem if problem.endswith("?") else f"{problem}."))

    def refuse(self, place: str, problem: str) -> NoReturn:
        """Record an error that ends this part of the file."""
        self.report(place, problem)
        raise Unchecked

    def fail(self, line: int | None, problem: str) -> NoReturn:
        """Record an error of the text itself, after which nothing more can be read."""
        self._keep(FileError(self.name, line, "", f"{problem}."))
        raise Unchecked

    def attempt(self, make: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """The result of `make`, or `UNREAD` if part of it is unreadable; other parts are still checked."""
        try:
            return make(*args, **more)
        except Unchecked:
            return UNREAD  # type: ignore[no-any-return]  # it stands for a T, and is never returned from a page

    def whole(self, make: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """The result of `make`; raises all errors at once."""
        made = self.attempt(make, *args, **more)
        if self.errors:
            raise BadFile(self.errors, self.more) from None
        assert made is not UNREAD, "nothing is unread without an error"
        return made

    def hint(self, word: str, known: Iterable[str]) -> str:
        """The known word that was probably meant; empty if none is close, or after many guesses."""
        self.hints += 1
        return nearest(word, known) if self.hints <= MOST_HINTS else ""

    def line(self, place: str) -> int | None:
        """The line of the place, or of the nearest enclosing one."""
        while place and place not in self.lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return self.lines[place] if place else None

    def source(self, place: str) -> str:
        """The file's own name and the line, as reasons show them."""
        return f"{os.path.basename(self.name)}:{self.line(place) or 1}"

    def span(self, key: str) -> tuple[int, int]:
        """The first and the last line of a key with all that is in it."""
        inside = [line for place, line in self.lines.items() if re.match(rf"{re.escape(key)}($|[.\[])", place)]
        return min(inside), max(inside)

    def _keep(self, error: FileError) -> None:
        if error in self.known:  # for example of a price that several node sizes share
            return
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(error)
            self.known.add(error)
        else:
            self.more += 1

    def _called(self, place: str) -> str:
        """Names of the enclosing things, like ` (lab/spot)`."""
        parts = [place[: bracket.end()] for bracket in re.finditer(r"\]", place)]
        names = [self.texts[f"{part}.name"] for part in parts if f"{part}.name" in self.texts]
        return f" ({_bare('/'.join(names))})" if names else ""


def read_bytes(path: str) -> bytes:
    """A file that a command is given, which may be a pipe of the shell's."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte in it
        _cannot(path, f"cannot be read ({getattr(error, 'strerror', None) or error})")
    return raw


def read_regular(path: str, most: int = MAX_BYTES) -> bytes:
    """A plain file as it is. A pipe would be waited for, and a device has no end: both are refused."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as content:
            file_stat = os.fstat(file)
            if not stat.S_ISREG(file_stat.st_mode):
                _cannot(path, "is no plain file, which alone can be followed; give the file itself")
            raw = content.read(most + 1) if file_stat.st_size <= most else b""
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte in it
        if isinstance(error, BadFile):
            raise
        _cannot(path, f"cannot be read ({getattr(error, 'strerror', None) or error})")
    if file_stat.st_size > most or len(raw) > most:
        _cannot(path, f"has more than {most:,} bytes")
    return raw


def _cannot(path: str, why: str) -> NoReturn:
    raise BadFile([FileError(path, None, "", f"{why}.")]) from None


SITES_NEED: Final = "'currency' and 'sites' (examples/sites.yaml shows how)"


def plain(
    raw: bytes, page: Document, kind: str = "sites file", needs: str = SITES_NEED, most: int = MOST_NODES
) -> object:
    """The file's lists, keys and words: of bounded number, depth and size."""
    if len(raw) > MAX_BYTES:
        page.fail(None, f"more than {MAX_BYTES:,} bytes; this cannot be a {kind}")
    try:
        text = raw.decode("utf-8-sig")
        with _yaml_errors(text, page):
            _check_bounds(text, page, kind, most)
            node: yaml.Node | None = yaml.compose(text, Loader=LOADER)
        if node is None:
            page.fail(None, f"the file is empty; it needs at least {needs}")
        return _plain_node(node, page, "", set())
    except UnicodeDecodeError as error:
        page.fail(raw.count(b"\n", 0, error.start) + 1, "not UTF-8 text; save the file as UTF-8")
    except RecursionError:
        page.fail(None, f"nested too deeply for a {kind}")


def _check_bounds(text: str, page: Document, kind: str, most: int) -> None:
    """Count what a file holds before anything is built from it, so that a hostile one costs little."""
    if beyond := excess(text, kind, most):
        page.fail(None, beyond)


def excess(text: str, kind: str, most: int = MOST_NODES) -> str:
    """What is too much in a YAML text, as the end of a sentence; empty if nothing is. Call it before anything is built:
    libyaml's own recursion has no limit.
    """
    if text.count("\n%") > MOST_DIRECTIVES:
        return f"more than {MOST_DIRECTIVES} YAML directives (%...); leave them out"
    nodes = depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            return f"nested too deeply for a {kind}"
        if nodes > most:
            return f"more than {most:,} words, lists and keys; this cannot be a {kind}"
    return ""


@contextmanager
def _yaml_errors(text: str, page: Document) -> Iterator[None]:
    """Report what YAML itself says about the text."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        page.fail(mark.line + 1 if mark else None, f"not YAML ({error.problem or error.context})")
    except yaml.reader.ReaderError as error:
        page.fail(text.count("\n", 0, error.position) + 1, "not YAML (a control character)")
    except (ValueError, OverflowError):  # "\UFFFFFFFF", or a %YAML version of thousands of digits
        page.fail(None, "not YAML (an escape or number that is out of range)")


def _plain_node(node: yaml.Node, page: Document, place: str, seen: set[int]) -> object:
    page.lines.setdefault(place, node.start_mark.line + 1)
    if id(node) in seen:  # an alias; refusing these also stops a billion-laughs file
        page.report(place, "YAML aliases (*name) are not understood; write it out")
        return UNREAD
    seen.add(id(node))
    if not node.tag.startswith("tag:yaml.org,2002:"):
        page.report(place, f"the YAML tag {shown(node.tag)} means nothing here; leave it out")
        return UNREAD
    if isinstance(node, yaml.MappingNode):
        return _plain_keys(node, page, place, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_plain_node(item, page, f"{place}[{k}]", seen) for k, item in enumerate(node.value)]
    if node.tag.endswith(":null"):
        return None
    page.texts[place] = str(node.value)
    return str(node.value)


def _plain_keys(node: yaml.MappingNode, page: Document, place: str, seen: set[int]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, content in node.value:
        if not isinstance(key, yaml.ScalarNode):
            page.report(place, "a key must be a word")
            continue
        inner = f"{place}.{key.value}" if place else str(key.value)
        line = key.start_mark.line + 1
        if key.value in table:
            page.report(inner, f"this key is here twice; the second is in line {line}")
            continue
        page.lines[inner] = line
        table[key.value] = _plain_node(content, page, inner, seen)
    return table


def unknown(problem: str, word: str, known: Iterable[str], near: str | None = None) -> str:
    known = list(known)
    near = nearest(word, known) if near is None else near
    hint = f"did you mean '{near}'?" if near else f"known here: {listed(known) or 'none'}"
    return f"{problem} {shown(word)}; {hint}"


def listed(names: Iterable[str], most: int = LONGEST_LIST) -> str:
    """As many names as a sentence can bear, each of bounded length: they are the file's own words."""
    names, told = [shown(name, 50)[1:-1] for name in names if name], list[str]()
    while names[len(told) :] and sum(map(len, told)) + 2 * len(told) < most:
        told.append(names[len(told)])
    left = len(names) - len(told)
    return ", ".join(told) + (f" and {left} more" if left else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; empty if none is close."""
    if len(word) > LONGEST_HINT:
        return ""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def shown(text: str, longest: int = 60) -> str:
    """Quoted, escaped and shortened."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


def _bare(text: str) -> str:
    """As `shown`, without the quotes: places and names are the file's words too."""
    return shown(text, 130)[1:-1]
