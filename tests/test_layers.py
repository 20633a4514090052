"""Imports go only to the right (docs/design.md, Layers). Imports for types only, and inside functions, count too."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: From left to right; a part may import any part of a later row.
LAYERS: list[list[str]] = [
    ["cli"],
    ["demo"],
    ["wiring"],
    ["api", "front", "live", "sim", "assess", "telemetry", "dashboard"],
    ["drivers", "capacity", "journal", "data", "prices", "policy", "forecast", "config", "devcluster"],
    ["kube"],  # how to speak to clusters: configuration, drivers and front door all do
    ["channels"],  # how one speaks with a command that runs elsewhere: sites, API and `penstock exec` all do
    ["core", "sdk"],  # the sdk runs inside jobs and knows nothing of us
]
#: Imports within one row: (who, whom) -> why. `live` and `sim` never import each other, whatever the reason.
SIDEWAYS: dict[tuple[str, str], str] = {
    ("api", "live"): "routes speak to the plane through its door, and show its picture",
    ("api", "dashboard"): "a page is an answer, too, made from a template",
    ("dashboard", "api"): "it shows the API's own shapes, so that no page shows what the API would not answer",
    ("api", "front"): "a Job that is only planned is read as the door would read it; and doors are left by a request",
    ("front", "live"): "a home Job is submitted and cancelled through the plane's door, as a request is",
    ("telemetry", "live"): "numbers are read from the same picture",
    ("devcluster", "data"): "the S3 server that the demo's checkpoints pass through is built beside Kubernetes",
    ("drivers", "data"): "whoever starts an attempt brings its checkpoint along",
}
#: Inside core each file imports only files above it, so the order is also the order to read them in.
CORE = [
    "errors",
    "ids",
    "units",
    "values",
    "model",
    "reasons",
    "events",
    "actions",
    "lifecycle",
    "rules",
    "free",
    "ledger",
    "runtimes",
    "learned",
    "shares",
    "state",
    "edges",
    "books",
    "queue",
    "attempts",
    "places",
    "fold",
    "ordering",
    "quotes",
    "ends",
    "sharing",
    "waiting",
    "placement",
    "moves",
    "tidy",
    "targets",
    "giveback",
    "leases",
    "decide",
    "engine",
    "plan",
]
#: Other packages that stay at the edges.
ONLY_IN = {"pydantic": {"api", "config", "policy"}}

ROW = {part: row for row, parts in enumerate(LAYERS) for part in parts}


def test_imports_go_only_to_the_right() -> None:
    found = faults(source_of_penstock())
    assert not found, "\n".join(found)


def faults(sources: Mapping[str, str]) -> list[str]:
    """One line for each import that goes the wrong way, in modules given by name ("penstock.core.units")."""
    found: list[str] = []
    for module, source in sources.items():
        found += _misplaced(module)
        for line, target in _imports(module, source, sources):
            found += [f"{module}:{line} imports {target}: {why}" for why in _objections(module, target)]
    return found


def source_of_penstock() -> dict[str, str]:
    src = ROOT / "src"
    return {_module_name(path.relative_to(src)): path.read_text("utf-8") for path in sorted(src.rglob("*.py"))}


def _module_name(path: Path) -> str:
    """A package keeps its `__init__`, so that relative imports start in the right place."""
    return ".".join(path.with_suffix("").parts)


def _misplaced(module: str) -> Iterator[str]:
    _, part, *inner = module.split(".")
    if part not in ROW and part not in ("__init__", "__main__"):
        yield f"{module}: add '{part}' to LAYERS in tests/test_layers.py, and to the layers in docs/design.md"
    if part == "core" and inner[0] not in (*CORE, "__init__"):
        yield f"{module}: add '{inner[0]}' to CORE in tests/test_layers.py, below all files it imports"


def _imports(module: str, source: str, known: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source, module)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            yield from ((node.lineno, _module_or_member(base, alias.name, known)) for alias in node.names)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    start = module.split(".")[: -node.level] if node.level else []
    return ".".join([*start, *([node.module] if node.module else [])])


def _module_or_member(base: str, name: str, known: Mapping[str, str]) -> str:
    """`from penstock.core import units` imports a module, `from penstock.core.units import Money` a member of one."""
    full = f"{base}.{name}"
    return full if full in known or f"{full}.__init__" in known else base


def _objections(module: str, target: str) -> Iterator[str]:
    part = module.split(".")[1]
    top, to, *inner = [*target.split("."), "__init__"]
    if part == "core" and top != "penstock" and top not in sys.stdlib_module_names:
        yield "core imports the standard library only"
    if part not in ONLY_IN.get(top, {part}):
        yield f"{top} stays in {', '.join(sorted(ONLY_IN[top]))}"
    if top == "penstock":
        yield from _wrong_way(module, part, to, inner[0] if inner else "__init__")


def _wrong_way(module: str, part: str, to: str, inner: str) -> Iterator[str]:
    if part == to == "core":
        if _core_rank(inner) >= _core_rank(module.split(".")[2]):
            yield "inside core a file imports only files above it in CORE"
    elif part == "core":
        yield "core imports nothing else of penstock"
    elif {part, to} == {"live", "sim"}:
        yield "live and sim never import each other"
    elif part == to or (part, to) in SIDEWAYS:
        return
    elif part in ROW and to in ROW and ROW[part] >= ROW[to]:
        yield f"{part} is not to the left of {to}"
    elif part == "__init__":
        yield "importing penstock imports nothing"


def _core_rank(file: str) -> int:
    """`__init__` comes before all others; a file not listed after them, and is reported as such."""
    return -1 if file == "__init__" else CORE.index(file) if file in CORE else len(CORE)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("penstock.cli.why", "import rich\nfrom penstock.cli import show\nfrom penstock.sim import world"),
        ("penstock.cli.main", "from penstock import __version__"),
        ("penstock.sim.world", "from penstock.sim.traces import Trace\nfrom penstock.core.engine import Engine"),
        ("penstock.journal.sqlite", "import msgspec, sqlite3\nfrom penstock.core import events"),
        ("penstock.core.state", "from __future__ import annotations\nimport math\nfrom penstock.core import units"),
        ("penstock.policy.schema", "import pydantic"),
    ],
)
def test_imports_to_the_right_are_fine(module: str, source: str) -> None:
    assert faults(MADE_UP | {module: source}) == []


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("penstock.core.units", "from penstock.core.events import JobSubmitted", "only files above it in CORE"),
        ("penstock.core.units", "from penstock.core import events", "only files above it in CORE"),
        ("penstock.core.units", "from . import events", "only files above it in CORE"),
        ("penstock.core.units", "from .events import JobSubmitted", "only files above it in CORE"),
        ("penstock.core.units", "import penstock.core.events", "only files above it in CORE"),
        ("penstock.core.__init__", "from penstock.core.units import Money", "only files above it in CORE"),
        ("penstock.core.units", "if TYPE_CHECKING:\n    import penstock.core.events", "only files above it in CORE"),
        ("penstock.core.units", "def f():\n    import msgspec", "the standard library only"),
        ("penstock.core.units", "from penstock import __version__", "nothing else of penstock"),
        ("penstock.core.units", "from penstock.sim import world", "nothing else of penstock"),
        ("penstock.core.clock", "", "add 'clock' to CORE"),
        ("penstock.core.rent.price", "", "add 'rent' to CORE"),
        ("penstock.helpers", "", "add 'helpers' to LAYERS"),
        ("penstock.sim.world", "from penstock.cli.show import table", "sim is not to the left of cli"),
        ("penstock.sim.world", "from penstock.live import loop", "never import each other"),
        ("penstock.live.loop", "import penstock.sim", "never import each other"),
        ("penstock.sim.world", "from penstock import live", "never import each other"),
        ("penstock.assess.case", "from penstock.sim import world", "assess is not to the left of sim"),
        ("penstock.journal.sqlite", "from ..sim.world import World", "journal is not to the left of sim"),
        ("penstock.sim.__init__", "from ..cli import show", "sim is not to the left of cli"),
        ("penstock.sim.world", "from pydantic.main import BaseModel", "pydantic stays in api, config, policy"),
        ("penstock.__init__", "from penstock.core import units", "importing penstock imports nothing"),
    ],
)
def test_other_imports_are_found(module: str, source: str, why: str) -> None:
    (fault,) = faults(MADE_UP | {module: source})
    assert why in fault


MADE_UP = dict.fromkeys(
    [
        *("penstock.__init__", "penstock.core.__init__", "penstock.core.units", "penstock.core.events"),
        *("penstock.cli.show", "penstock.live.__init__", "penstock.live.loop", "penstock.sim.world"),
    ],
    "",
)
