"""The tables of lives: complete, drawn, and every edge is really taken."""

import importlib
from collections.abc import Callable
from typing import Any, get_args

import pytest

from penstock.core.fold import attempts, queue, sites, transitions
from penstock.core.fold.state import State
from penstock.core.model.lifecycle import ATTEMPT, ENDED, JOB, NODE, AttemptPhase, Broken, JobPhase, NodePhase, document
from tests.core.histories import live
from tests.core.test_promises import explore

TABLES: list[tuple[str, dict[Any, dict[Any, str]], Any]] = [
    ("job", JOB, JobPhase),
    ("attempt", ATTEMPT, AttemptPhase),
    ("node", NODE, NodePhase),
]
STORIES = ("test_queueing", "test_nodes", "test_money", "test_moving", "test_moment")


@pytest.mark.parametrize(("name", "table", "phases"), TABLES, ids=[name for name, _, _ in TABLES])
def test_a_table_names_every_phase_and_explains_every_edge(name: str, table: Any, phases: Any) -> None:
    assert set(table) == set(get_args(phases)), name
    assert all(to in table for transitions in table.values() for to in transitions)
    assert all(why and why == why.strip() for transitions in table.values() for why in transitions.values())
    first = next(iter(table))
    assert {to for transitions in table.values() for to in transitions} | {first} == set(table)


def test_what_has_ended_stays_ended() -> None:
    assert [phase for phase, transitions in JOB.items() if not transitions] == list(ENDED)


def test_the_page_of_lives_has_every_edge() -> None:
    page = document()
    for _, table, _ in TABLES:
        for a, ends in table.items():
            for b, why in ends.items():
                assert f"    {a} --> {b}\n" in page
                assert f"- **{a} → {b}**: {why}." in page


def test_a_move_that_is_not_in_the_table_is_a_bug() -> None:
    class Thing:
        id, phase = "a", "done"

    with pytest.raises(Broken, match="job a cannot go from done to waiting"):
        transitions.move_job(State(), Thing(), "waiting")  # type: ignore[arg-type]  # only its phase matters


def test_every_edge_is_taken_by_a_story_or_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[tuple[str, str]]] = {name: set() for name, _, _ in TABLES}

    def watched(name: str, right: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
        def move(state: Any, thing: Any, to: str) -> None:
            seen[name].add((thing.phase, to))
            right(state, thing, to)

        return move

    for name in seen:
        spy = watched(name, getattr(transitions, f"move_{name}"))
        for part in (queue, attempts, sites):
            monkeypatch.setattr(part, f"move_{name}", spy, raising=False)
    for module in STORIES:
        for name, story in vars(importlib.import_module(f"tests.stories.{module}")).items():
            if name.startswith("test_") and not getattr(story, "pytestmark", None):
                story()
    explore(0, 60, live)
    for name, table, _ in TABLES:
        drawn = {(a, b) for a, ends in table.items() for b in ends}
        assert drawn - seen[name] == set(), f"edges of a {name} that nothing takes"
