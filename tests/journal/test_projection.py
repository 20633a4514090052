"""The tables say what the engine's state says, after any history and however it was cut into appends."""

import importlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.engine import Engine, Step
from penstock.core.fold.apply import fold_step
from penstock.core.fold.state import State
from penstock.core.model.lifecycle import ENDED
from penstock.core.units import HOUR, NEVER
from penstock.journal import codec
from penstock.journal import schema as t
from penstock.journal.projection import attempt_row, hold_row, job_row, node_row, project
from penstock.journal.rows import AttemptRow, ClosedRow, JobRow, UsedRow
from penstock.live import snapshot
from penstock.policy.rules import PolicyRules
from tests.core.histories import History, Life, histories, packed, tense
from tests.stories.kit import (
    Penstock,
    asked_to_move,
    ended,
    gone,
    node_refused,
    nothing,
    offer,
    policy,
    ready,
    site,
    started,
    stopped,
    submitted,
    usd,
)
from tests.stories.kit import given as given_story


class Stored:
    """The tables as a database would hold them."""

    def __init__(self) -> None:
        self.lines: dict[type[Any], dict[tuple[Any, ...], tuple[Any, ...]]] = {kind: {} for kind in t.TABLES}

    def take(self, changes: t.Changes) -> None:
        for kind, lines in changes.puts.items():
            table = t.TABLES[kind]
            for key, line in lines.items():
                new = table.values(line)
                old = self.lines[kind].get(key)
                if old is not None and table.adds:
                    new = tuple(
                        a + b if name in table.adds else b for name, a, b in zip(table.columns, old, new, strict=True)
                    )
                self.lines[kind][key] = new
        for kind, keys in changes.drops.items():
            for key in keys:
                self.lines[kind].pop(key, None)

    def all(self, kind: type[Any]) -> list[Any]:
        columns = t.TABLES[kind].columns
        width = len(columns) - (kind is JobRow)  # `words` is computed
        return [kind(*line[:width]) for line in self.lines[kind].values()]


def tables_of(steps: Iterable[Step]) -> Stored:
    """Made from what was recorded alone, as a rebuild makes them."""
    stored, state = Stored(), State()
    state.watch()
    for step in steps:
        inputs, outputs = (codec.decode(codec.encode(events)) for events in (step.inputs, step.outputs))
        fold_step(state, step.at, inputs, outputs)
        stored.take(project(state, step))
    return stored


def follow(life: Life) -> Stored:
    """Step by step with an engine that decides, compared with its state at every one."""
    stored, engine = Stored(), Engine(PolicyRules())
    engine.state.watch()
    for step in life.steps:
        assert engine.handle(*step.inputs) == step
        stored.take(project(engine.state, step))
        says_what_the_state_says(stored, engine.state)
    return stored


def says_what_the_state_says(stored: Stored, state: State) -> None:
    jobs: list[JobRow] = stored.all(JobRow)
    live = [job for job in jobs if job.phase not in ENDED]
    assert live == [job_row(job) for job in state.jobs.values()]
    assert [told_by_row(job) for job in live] == [told_by_state(job) for job in state.jobs.values()]
    counted: dict[str, int] = {}
    by_phase: dict[tuple[str, str], tuple[int, int]] = {}
    for job in jobs:
        if job.phase in ENDED:
            counted[job.phase] = counted.get(job.phase, 0) + 1
        so_far = by_phase.get((job.phase, job.team), (0, 0))
        by_phase[job.phase, job.team] = (so_far[0] + 1, so_far[1] + job.gpus)
    assert counted == state.ended
    counts: list[t.CountRow] = stored.all(t.CountRow)
    assert {(count.phase, count.team): (count.jobs, count.gpus) for count in counts if count.jobs} == by_phase
    attempts: list[AttemptRow] = stored.all(AttemptRow)
    assert {a.id: a for a in attempts if a.phase != "over"} == {
        a.id: attempt_row(state, a) for a in state.attempts.values()
    }
    assert all((a.phase == "over") == (a.outcome != "") == (a.ended_at is not None) for a in attempts)
    assert stored.all(t.NodeRow) == [node_row(node) for node in state.nodes.values()]
    assert {n.id: (n.phase, json.loads(n.on)) for n in stored.all(t.NodeRow)} == {
        n.id: (n.phase, list(n.on)) for n in state.nodes.values()
    }
    assert {row.offer: row.until_at for row in stored.all(ClosedRow)} == state.closed
    says_what_the_books_say(stored, state)


def told_by_row(job: JobRow) -> tuple[Any, ...]:
    return (job.id, job.number, job.phase, job.kept_ms, job.moves, job.attempts, job.attempt, job.short_of,
            job.until_at, job.held)  # fmt: skip


def told_by_state(job: Any) -> tuple[Any, ...]:
    return (job.id, job.seq, job.phase, job.kept_ms, job.moves, job.attempts, job.attempt.id if job.attempt else "",
            job.short_of, None if job.until_at == NEVER else job.until_at, job.held)  # fmt: skip


def says_what_the_books_say(stored: Stored, state: State) -> None:
    ledger = state.ledger
    booked = {(s.scope, s.period): (s.held, s.spent) for s in stored.all(t.AccountRow)}
    assert booked == {
        key: (account.held, account.spent) for key, account in ledger.accounts.items() if not key[0].startswith("job:")
    }
    caps = {c.scope: (c.per_period, c.per_hour) for c in stored.all(t.ScopeCapRow)}
    assert caps == {
        scope: (ledger.caps.get(scope), ledger.rate_caps.get(scope))
        for scope in {*ledger.caps, *ledger.rate_caps}
        if not scope.startswith("job:")
    }
    assert stored.all(t.HoldRow) == [hold_row(lease, state.bills[name]) for name, lease in ledger.leases.items()]
    jobs, attempts = stored.all(JobRow), stored.all(AttemptRow)
    held = sum(lease.held for lease in ledger.leases.values())
    assert sum(job.held for job in jobs) == sum(a.held for a in attempts) == held
    spent = sum(account.spent for (scope, _), account in ledger.accounts.items() if scope == "org")
    assert sum(job.spent for job in jobs) == sum(a.spent for a in attempts) == spent
    assert sum(used.spent for used in stored.all(UsedRow)) == spent
    for job in jobs:  # its attempts' together, whoever shared their nodes
        mine = [(a.held, a.spent) for a in attempts if a.job == job.id]
        assert (job.held, job.spent) == (sum(part for part, _ in mine), sum(part for _, part in mine))


@settings(max_examples=80)
@given(histories())
def test_after_any_history_the_tables_say_what_the_state_says_and_a_rebuild_makes_the_same(history: History) -> None:
    life = Life(history)
    life.run()
    assert follow(life).lines == tables_of(life.steps).lines


@settings(max_examples=30)
@given(histories())
def test_also_when_everybody_is_in_each_others_way(history: History) -> None:
    life = Life(tense(history))
    life.run()
    assert follow(life).lines == tables_of(life.steps).lines


@settings(max_examples=30)
@given(histories())
def test_also_when_nodes_are_shared(history: History) -> None:
    life = Life(packed(history))
    life.run()
    assert follow(life).lines == tables_of(life.steps).lines


@settings(max_examples=30)
@given(histories(), st.data())
def test_how_steps_were_grouped_and_where_a_process_began_anew_changes_nothing(
    history: History, data: st.DataObject
) -> None:
    life = Life(history)
    life.run()
    cut, state, at = Stored(), State(), 0
    while at < len(life.steps):
        state = snapshot.unpack(snapshot.pack(state)) if data.draw(st.booleans()) else state
        state.watch()
        group = life.steps[at : at + data.draw(st.integers(1, 20))]
        cut.take(changed_in(state, group))
        at += len(group)
    assert cut.lines == tables_of(life.steps).lines


def changed_in(state: State, group: Sequence[Step]) -> t.Changes:
    changes = t.Changes()
    for step in group:
        fold_step(state, step.at, step.inputs, step.outputs)
        project(state, step, changes)
    return changes


@pytest.mark.parametrize("module", ["test_queueing", "test_nodes", "test_money", "test_moving"])
def test_after_every_step_of_every_story_too(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories have facts that no history has: checkpoints, refusals, offers that close."""
    told_of: list[Penstock] = []
    right = Penstock.__init__

    def noted(self: Penstock) -> None:
        told_of.append(self)
        right(self)

    monkeypatch.setattr(Penstock, "__init__", noted)
    for name, story in vars(importlib.import_module(f"tests.stories.{module}")).items():
        if name.startswith("test_") and not getattr(story, "pytestmark", None):
            story()
    assert told_of
    for penstock in told_of:
        stored, state = Stored(), State()
        state.watch()
        for step in penstock.steps:
            stored.take(changed_in(state, [step]))
            says_what_the_state_says(stored, state)


def test_gpu_time_is_booked_to_its_days_when_the_attempt_is_over() -> None:
    penstock = given_story(site("lab"), policy("10m"))
    penstock.hears(submitted("a", gpus=2), at="22:00")
    penstock.hears(started("a.1"), at="22:00")
    assert tables_of(penstock.steps).all(UsedRow) == []
    penstock.hears(ended("a.1"), at="26:30")
    assert [(used.day, used.team, used.gpu_ms) for used in tables_of(penstock.steps).all(UsedRow)] == [
        (0, "default", 4 * HOUR),
        (1, "default", 5 * HOUR),
    ]


def test_what_has_ended_is_kept_in_mind_until_nothing_is_held_for_it() -> None:
    penstock = given_story(offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    (node,) = (ask.node for step in penstock.steps for event in step.outputs for ask in getattr(event, "nodes", ()))
    penstock.hears(ready(node), at="09:05")
    penstock.hears(ended("a.1"), at="10:00")
    state = penstock.engine.state
    assert (list(state.jobs), list(state.attempts), list(state.bills)) == ([], [], [node])
    assert (money(penstock)["a"].held, money(penstock)["a"].phase) == (state.ledger.leases[node].held, "done")
    penstock.hears(gone(node), at="10:01")
    assert (state.bills, money(penstock)["a"].held) == ({}, 0)


def money(penstock: Penstock) -> dict[str, JobRow]:
    return {job.id: job for job in tables_of(penstock.steps).all(JobRow)}


def test_those_who_share_a_node_share_what_it_costs_by_gpus_and_time() -> None:
    penstock = given_story(offer("cloud", price="1"), policy(share_nodes=True))
    penstock.hears(submitted("a", gpus=1), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(submitted("b", gpus=3), at="10:00")
    penstock.hears(started("a.1"), started("b.1"), at="10:00")
    penstock.hears(ended("a.1"), at="11:00")
    says_what_the_state_says(tables_of(penstock.steps), penstock.engine.state)
    assert "a.1" in penstock.engine.state.bills["a.1/n0"].shares  # it is over, and has still to pay
    penstock.hears(ended("b.1"), at="12:00")
    penstock.hears(gone("a.1/n0"), at="12:00")
    # $24, for two GPU-hours of a and six of b; nobody else is there to pay for the GPUs that nobody had.
    assert {name: job.spent for name, job in money(penstock).items()} == {"a": usd("6"), "b": usd("18")}
    says_what_the_state_says(tables_of(penstock.steps), penstock.engine.state)


def test_what_was_charged_before_others_came_is_not_shared_with_them() -> None:
    penstock = given_story(offer("cloud", price="1"), policy(share_nodes=True))
    penstock.hears(submitted("a", gpus=1, run="9h", lease_max_ms=2 * HOUR), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(nothing, at="10:30")
    assert money(penstock)["a"].spent == usd("12")  # its lease was renewed
    penstock.hears(submitted("b", gpus=3, run="1h", lease_max_ms=2 * HOUR), at="10:30")
    penstock.hears(started("b.1"), at="10:30")
    penstock.hears(ended("a.1"), ended("b.1"), at="11:30")
    penstock.hears(gone("a.1/n0"), at="11:30")
    assert {name: job.spent for name, job in money(penstock).items()} == {"a": usd("14"), "b": usd("6")}


def test_an_id_that_comes_again_has_the_row_of_the_new_job() -> None:
    """The node of the first one is given back, and charged, when the second has long begun."""
    penstock = given_story(site("lab"), offer("cloud", price="1"), policy("0m"))
    penstock.hears(submitted("z", gpus=8), at="08:00")
    penstock.hears(submitted("a", gpus=8, name="first"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(ended("a.1"), at="10:00")
    penstock.hears(ended("z.1"), at="10:00")
    penstock.hears(submitted("a", gpus=8, name="second"), at="10:00")
    before = money(penstock)["a"]
    assert (before.name, before.phase, before.offer, before.spent) == ("second", "placed", "lab", 0)
    penstock.hears(gone("a.1/n0"), at="10:05")
    assert money(penstock)["a"] == before
    counts = {(count.phase, count.jobs) for count in tables_of(penstock.steps).all(t.CountRow) if count.jobs}
    assert counts == {("done", 2), ("placed", 1)}


def test_a_submission_told_again_is_not_told_of_twice() -> None:
    penstock = given_story(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    again = penstock.engine.handle(*(replace(fact, at=fact.at + 1) for fact in penstock.steps[-1].inputs))
    kinds = [row.kind for row in tables_of([*penstock.steps, again]).all(t.HappenedRow) if row.job == "a"]
    assert kinds.count("JobSubmitted") == 1


def test_a_job_whose_next_place_is_refused_waits_when_it_has_stopped() -> None:
    """It was told to move, and there is no room after all: what becomes of it when it has stopped is another thing."""
    penstock = given_story(site("lab"), offer("cloud", start="5m"), policy("1h"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    penstock.hears(node_refused("a.2/n0"), at="10:01")
    penstock.hears(stopped("a.1"), at="10:02")
    stored = tables_of(penstock.steps)
    assert [(a.id, a.outcome) for a in stored.all(AttemptRow)] == [("a.1", "stopped"), ("a.2", "refused"), ("a.3", "")]
    says_what_the_state_says(stored, penstock.engine.state)


def test_an_end_told_of_what_never_began_changes_nothing() -> None:
    """A driver that answers for an attempt whose node is not ready yet is mistaken; the engine does not listen."""
    penstock = given_story(offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ended("a.1"), at="09:01")
    penstock.hears(stopped("a.1"), at="09:02")
    stored = tables_of(penstock.steps)
    (job,), (attempt,) = stored.all(JobRow), stored.all(AttemptRow)
    assert (job.phase, attempt.phase) == ("placed", "promised")
    says_what_the_state_says(stored, penstock.engine.state)
