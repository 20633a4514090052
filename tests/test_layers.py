"""Imports go only to the right (docs/design.md, Layers). Imports for types only, and inside functions, count too."""

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: From left to right; a part may import any part of a later row.
LAYERS: list[list[str]] = [
    ["cli"],
    ["demo"],
    ["wiring", "assess"],
    ["site_drivers"],
    ["web", "front", "live", "sim", "telemetry"],
    ["drivers", "capacity", "journal", "data", "prices", "policy", "forecast", "config", "devcluster"],
    ["kube", "explain"],  # how to speak to clusters, and how to speak to people
    ["formatting", "terminal", "site_answers", "extras"],  # numbers as people write them, and tables; what sites say
    ["options"],  # what `penstock up` is given
    ["core", "sdk"],  # the sdk runs inside jobs and knows nothing of us
]
#: Imports within one row: (who, whom) -> why. `live` and `sim` never import each other, whatever the reason.
SIDEWAYS: dict[tuple[str, str], str] = {
    ("web", "live"): "routes speak to the plane through its door, and show its picture",
    ("web", "front"): "a Job that is only planned is read as its controller would read it; and leaving is a request",
    ("front", "live"): "a home Job is submitted and cancelled through the plane's door, as a request is",
    ("telemetry", "live"): "numbers are read from the same picture",
    ("policy", "config"): "a policy file is read as the other files are, and beside the sites file",
    ("drivers", "capacity"): "a site's driver combines what runs workloads with what rents nodes",
    ("drivers", "data"): "whoever starts an attempt brings its checkpoint along",
    ("devcluster", "data"): "its S3 server is handed out as a store of checkpoints",
}
#: Inside core each file imports only files above it, so the order is also the order to read them in.
CORE = [
    "errors",
    "ids",
    "units",
    "values",
    "model.governance",
    "model.types",
    "model.reasons",
    "model.events",
    "model.actions",
    "model.lifecycle",
    "model.ranks",
    "fold.pool",
    "fold.lease",
    "fold.ledger",
    "fold.runtimes",
    "fold.learned",
    "fold.fair_share",
    "fold.demand",
    "fold.site_clusters",
    "fold.warm_pools",
    "fold.job_approvals",
    "fold.shape_key",
    "fold.state",
    "fold.suited",
    "fold.invariants",
    "fold.transitions",
    "fold.money",
    "fold.queue",
    "fold.governed",
    "fold.retries",
    "fold.clusters",
    "fold.attempts",
    "fold.warm",
    "fold.sites",
    "fold.apply",
    "decide.rules",
    "decide.governance",
    "decide.limits",
    "decide.ranks",
    "decide.shares",
    "decide.ordering",
    "decide.quotes",
    "decide.choices",
    "decide.ahead",
    "decide.clusters",
    "decide.lookahead",
    "decide.colocation",
    "decide.waiting",
    "decide.triggers",
    "decide.approvals",
    "decide.reservations",
    "decide.backfill",
    "decide.guards",
    "decide.placement",
    "decide.retries",
    "decide.preemption",
    "decide.moves",
    "decide.defragment",
    "decide.targets",
    "decide.giveback",
    "decide.leases",
    "decide.cycle",
    "engine",
    "plan",
]
#: Drivers know the protocol and what all of them share, never one another.
DRIVERS = ("local", "kubernetes")
#: Other packages that stay at the edges.
ONLY_IN = {"pydantic": {"web", "config", "policy"}}

ROW = {part: row for row, parts in enumerate(LAYERS) for part in parts}


def test_imports_go_only_to_the_right() -> None:
    lines = faults(source_of_penstock())
    assert not lines, "\n".join(lines)


def faults(sources: Mapping[str, str]) -> list[str]:
    """One line for each import that goes the wrong way, in modules given by name ("penstock.core.units")."""
    lines: list[str] = []
    for module, source in sources.items():
        lines += _misplaced(module)
        for line, target in _imports(module, source, sources):
            lines += [f"{module}:{line} imports {target}: {why}" for why in _objections(module, target)]
    return lines


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
    file = ".".join(inner)
    if part == "core" and inner[-1] != "__init__" and file not in CORE:
        yield f"{module}: add '{file}' to CORE in tests/test_layers.py, below all files it imports"


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
    top, to, *_ = [*target.split("."), "__init__"]
    if part == "core" and top != "penstock" and top not in sys.stdlib_module_names:
        yield "core imports the standard library only"
    if part not in ONLY_IN.get(top, {part}):
        yield f"{top} stays in {', '.join(sorted(ONLY_IN[top]))}"
    if top == "penstock":
        yield from _wrong_way(module, part, to, target.removeprefix(f"penstock.{to}").lstrip("."))


def _wrong_way(module: str, part: str, to: str, inner: str) -> Iterator[str]:
    if part == to == "core":
        if _core_rank(inner) >= _core_rank(module.removeprefix("penstock.core.")):
            yield "inside core a file imports only files above it in CORE"
    elif part == to == "drivers":
        ours, theirs = module.split(".")[2], inner.split(".", maxsplit=1)[0]
        if ours != theirs and theirs in DRIVERS:
            yield "a driver imports nothing of another driver"
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
    """A package comes before all files; a file not listed after them, and is reported as such."""
    is_package = file in ("", "model", "fold", "decide") or file.rsplit(".", maxsplit=1)[-1] == "__init__"
    return -1 if is_package else CORE.index(file) if file in CORE else len(CORE)


def test_no_packages_import_each_other_in_a_circle() -> None:
    lines = circles(source_of_penstock())
    assert not lines, "\n".join(lines)


def circles(sources: Mapping[str, str]) -> list[str]:
    """Circles among the children of each package, be they packages or modules: one line each."""
    lines = []
    for package, edges in sorted(_between_siblings(sources).items()):
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as circle:
            lines.append(f"{package}: {' -> '.join(reversed(circle.args[1]))}")
    return lines


def _between_siblings(sources: Mapping[str, str]) -> dict[str, dict[str, set[str]]]:
    """package -> child -> the children it imports. An import counts where the two ways part."""
    graph: dict[str, dict[str, set[str]]] = {}
    for module, source in sources.items():
        for _, target in _imports(module, source, sources):
            ours, theirs = module.removesuffix(".__init__").split("."), target.split(".")
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
            if shared and shared < min(len(ours), len(theirs)):
                edges = graph.setdefault(".".join(ours[:shared]), {})
                edges.setdefault(ours[shared], set()).add(theirs[shared])
    return graph


def drawing() -> str:
    """Who imports whom, as a Mermaid graph, for docs/design.md. An arrow that a longer way implies is left out."""
    edges = _between_siblings(source_of_penstock())["penstock"]
    lines = ["```mermaid", "graph LR"]
    for part in sorted(edges, key=lambda part: (ROW[part], part)):
        direct = edges[part] - set().union(*(_reached(edges, other) for other in edges[part]))
        lines += [f"    {part} --> {other}" for other in sorted(direct)]
    return "\n".join([*lines, "```", ""])


def _reached(edges: Mapping[str, set[str]], part: str) -> set[str]:
    """All that `part` imports, by whatever way."""
    return set().union(*({other} | _reached(edges, other) for other in edges.get(part, ())))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("penstock.cli.why", "import rich\nfrom penstock.cli import output\nfrom penstock.sim import world"),
        ("penstock.cli.main", "from penstock import __version__"),
        (
            "penstock.sim.engine.world",
            "from penstock.sim.traces.trace import Trace\nfrom penstock.core.engine import Engine",
        ),
        ("penstock.journal.sqlite", "import msgspec, sqlite3\nfrom penstock.core.model import events"),
        (
            "penstock.core.fold.state",
            "from __future__ import annotations\nimport math\nfrom penstock.core import units",
        ),
        ("penstock.policy.schema", "import pydantic"),
    ],
)
def test_imports_to_the_right_are_fine(module: str, source: str) -> None:
    assert faults(MADE_UP | {module: source}) == []


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("penstock.core.units", "from penstock.core.model.events import JobSubmitted", "only files above it in CORE"),
        ("penstock.core.units", "from penstock.core.model import events", "only files above it in CORE"),
        ("penstock.core.units", "from .model import events", "only files above it in CORE"),
        ("penstock.core.units", "from .model.events import JobSubmitted", "only files above it in CORE"),
        ("penstock.core.units", "import penstock.core.model.events", "only files above it in CORE"),
        ("penstock.core.__init__", "from penstock.core.units import Money", "only files above it in CORE"),
        (
            "penstock.core.units",
            "if TYPE_CHECKING:\n    import penstock.core.model.events",
            "only files above it in CORE",
        ),
        ("penstock.core.units", "def f():\n    import msgspec", "the standard library only"),
        ("penstock.core.units", "from penstock import __version__", "nothing else of penstock"),
        ("penstock.core.units", "from penstock.sim import world", "nothing else of penstock"),
        ("penstock.core.clock", "", "add 'clock' to CORE"),
        ("penstock.core.rent.price", "", "add 'rent.price' to CORE"),
        ("penstock.helpers", "", "add 'helpers' to LAYERS"),
        ("penstock.sim.engine.world", "from penstock.cli.output import table", "sim is not to the left of cli"),
        ("penstock.sim.engine.world", "from penstock.live import loop", "never import each other"),
        ("penstock.live.loop", "import penstock.sim", "never import each other"),
        ("penstock.sim.engine.world", "from penstock import live", "never import each other"),
        ("penstock.sim.engine.world", "from penstock.assess import history", "sim is not to the left of assess"),
        ("penstock.journal.sqlite", "from ..sim.world import World", "journal is not to the left of sim"),
        ("penstock.sim.__init__", "from ..cli import output", "sim is not to the left of cli"),
        ("penstock.sim.engine.world", "from pydantic.main import BaseModel", "pydantic stays in config, policy, web"),
        ("penstock.__init__", "from penstock.core import units", "importing penstock imports nothing"),
        ("penstock.drivers.local.driver", "from penstock.drivers.kubernetes import pods", "nothing of another driver"),
        ("penstock.core.model.events", "from penstock.core.fold.state import State", "only files above it in CORE"),
    ],
)
def test_other_imports_are_found(module: str, source: str, why: str) -> None:
    (fault,) = faults(MADE_UP | {module: source})
    assert why in fault


def test_a_circle_is_found_and_named() -> None:
    lap = {"penstock.web.a": "from penstock.web.b import c", "penstock.web.b.c": "from penstock.web import a"}
    assert circles(dict.fromkeys(("penstock.web.__init__", "penstock.web.b.__init__"), "") | lap) in (
        ["penstock.web: a -> b -> a"],
        ["penstock.web: b -> a -> b"],
    )


MADE_UP = dict.fromkeys(
    [
        *("penstock.__init__", "penstock.core.__init__", "penstock.core.units", "penstock.core.model.events"),
        *("penstock.cli.terminal", "penstock.live.__init__", "penstock.live.loop", "penstock.sim.engine.world"),
    ],
    "",
)
