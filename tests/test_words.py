"""One thing, one name, and the field's own where it has one (docs/design.md, Words).

Names of events and reasons are left alone: journals carry them.
"""

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from penstock.core.model import events, reasons
from tests.test_layers import source_of_penstock

#: Words that once named modules or classes here, and what the field calls the thing.
RETIRED = {
    "hall": "manager",
    "gate": "binding driver, or guard",
    "due": "work queue",
    "tale": "story, event recorder",
    "telling": "event recorder",
    "leaving": "uninstall",
    "parting": "sweep",
    "bringing": "bring home",
    "mirror": "informer",
    "wire": "transport",
    "closure": "references",
    "shell": "exec",
    "marks": "annotations",
    "keeper": "supervisor of a process, writer of a journal",
    "beside": "exec",
    "disk": "store",
    "minding": "reconcile",
    "minder": "reconciler",
    "chores": "tasks",
    "scribe": "sequencer",
    "copyist": "background snapshot",
    "months": "periods",
    "tidy": "defragment",
    "books": "money",
    "fresh": "step changes",
    "seldom": "rare changes",
    "desk": "deps",
    "talk": "exec session, channel",
    "saying": "explain",
    "lean": "fast route",
    "wish": "request",
    "wishes": "options",
    "voice": "console",
    "bed": "cluster group, testbed",
    "given": "external",
    "shelf": "checkpoints",
    "place": "node selection, slot, position: a place is too many things",
    "places": "sites",
}
#: A front door is a thing of its own; a door without a front is the API, a controller or a route.
DOOR = re.compile(r"(?<!front )\bdoors?\b")


def test_no_two_public_classes_have_one_name() -> None:
    lines = twins(source_of_penstock())
    assert not lines, "\n".join(lines)


def test_no_module_or_class_has_a_retired_name() -> None:
    lines = list(retired(source_of_penstock()))
    assert not lines, "\n".join(lines)


def twins(sources: Mapping[str, str]) -> list[str]:
    """Names of public classes that stand in several modules. The API's schemas may be named as the noun they show."""
    where: dict[str, list[str]] = {}
    for module, name in classes(sources):
        if not name.startswith("_") and not module.endswith(".schemas"):
            where.setdefault(name, []).append(module)
    return [f"{name}: {', '.join(modules)}" for name, modules in sorted(where.items()) if len(modules) > 1]


def retired(sources: Mapping[str, str]) -> Iterator[str]:
    for module in sources:
        yield from (f"{module}: {why}" for why in _why_retired(module.rpartition(".")[2]))
    recorded = {kind.__name__ for kind in (*events.FACTS, *events.PROMISES)} | set(reasons.REASONS)
    for module, name in classes(sources):
        if name not in recorded:
            yield from (f"{module}.{name}: {why}" for why in _why_retired(name))


def classes(sources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for module, source in sources.items():
        yield from ((module, node.name) for node in ast.parse(source).body if isinstance(node, ast.ClassDef))


def _why_retired(name: str) -> Iterator[str]:
    words = re.sub(r"_|(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    yield from (f"say {RETIRED[word]}, not '{word}'" for word in words.split() if word in RETIRED)
    if DOOR.search(words):
        yield "say front door, controller or route, not 'door'"


@pytest.mark.parametrize("name", ["hall", "Gate", "JobKeeper", "node_places", "_Tale", "Door", "open_doors"])
def test_retired_words_are_found_wherever_they_stand(name: str) -> None:
    assert list(_why_retired(name))


@pytest.mark.parametrize("name", ["shallow", "Placement", "FrontDoor", "front_doors", "aggregate", "Freshness"])
def test_other_words_are_not(name: str) -> None:
    assert not list(_why_retired(name))


def test_twins_are_found_but_schemas_may_share_a_noun() -> None:
    job = "class Job: ...\nclass _Row: ..."
    assert twins({"penstock.a": job, "penstock.b": job, "penstock.web.schemas": job}) == ["Job: penstock.a, penstock.b"]
    assert twins({"penstock.a": job, "penstock.web.schemas": job}) == []
