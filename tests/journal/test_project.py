"""The tables say what the engine's state says, after any history and however it was cut into appends."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.lifecycle import ENDED
from penstock.core.units import HOUR, NEVER
from penstock.journal import lines as t
from penstock.journal.project import project
from penstock.journal.tables import Changes, Tables, as_list
from tests.core.histories import History, Life, histories, tense
from tests.stories.kit import (
    asked_to_move,
    ended,
    gone,
    node_refused,
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

    def take(self, changes: Changes) -> None:
        for kind, lines in changes.puts.items():
            table = t.TABLES[kind]
            for key, line in lines.items():
                new = tuple(getattr(line, name) for name in table.columns)
                old = self.lines[kind].get(key)
                if old is not None and table.adds:
                    new = tuple(
                        a + b if name in table.adds else b for name, a, b in zip(table.columns, old, new, strict=True)
                    )
                self.lines[kind][key] = new
        for kind, keys in changes.drops.items():
            for key in keys:
                self.lines[kind].pop(key, None)

    def load(self) -> Tables:
        """What can still change, as `keeper` selects it."""
        return Tables(
            line
            for kind in (t.Job, t.Attempt, t.Node, t.Hold, t.Offer, t.Closed, t.Note)
            for line in self.all(kind)
            if not isinstance(line, t.Job) or line.phase not in ENDED or line.holds
            if not isinstance(line, t.Attempt) or line.phase != "over" or line.holds
        )

    def all(self, kind: type[Any]) -> list[Any]:
        return [kind(*found) for found in self.lines[kind].values()]


def follow(life: Life) -> Stored:
    """Step by step, compared with the engine at every one."""
    stored, tables, engine = Stored(), Tables(), Life(life.history).engine
    for step in life.steps:
        stored.take(project(tables, [step]))
        engine.handle(*step.inputs)
        says_what_the_state_says(stored, engine.state)
    return stored


def says_what_the_state_says(stored: Stored, state: Any) -> None:
    jobs = {job.id: job for job in stored.all(t.Job)}
    live = {job.id: job for job in jobs.values() if job.phase not in ENDED}
    assert [told(job) for job in live.values()] == [told_by_state(job) for job in state.jobs.values()]
    counted: dict[str, int] = {}
    for job in jobs.values():
        if job.phase in ENDED:
            counted[job.phase] = counted.get(job.phase, 0) + 1
    assert counted == state.ended
    by_phase: dict[tuple[str, str], tuple[int, int]] = {}
    for job in jobs.values():
        so_far = by_phase.get((job.phase, job.team), (0, 0))
        by_phase[job.phase, job.team] = (so_far[0] + 1, so_far[1] + job.gpus)
    assert {(one.phase, one.team): (one.jobs, one.gpus) for one in stored.all(t.Count) if one.jobs} == by_phase
    attempts = {a.id: a for a in stored.all(t.Attempt) if a.phase != "over"}
    assert {
        a.id: (a.phase, a.offer, a.site, a.width, a.started_at, a.resume_ms, a.kept_ms, a.stop_then)
        for a in attempts.values()
    } == {
        a.id: (a.phase, a.offer.id, a.offer.site, a.width, a.started_at, a.resume_ms, a.kept_ms, a.then)
        for a in state.attempts.values()
    }
    assert {n.id: (n.phase, n.gpus, as_list(n.on)) for n in stored.all(t.Node)} == {
        n.id: (n.phase, n.gpus, list(n.on)) for n in state.nodes.values()
    }
    assert {c.offer: c.until_at for c in stored.all(t.Closed)} == state.closed
    says_what_the_books_say(stored, state.ledger)


def told(job: t.Job) -> tuple[Any, ...]:
    return (job.id, job.number, job.phase, job.kept_ms, job.moves, job.attempts, job.attempt, job.next,
            job.cancelled, job.short_of, job.until_at)  # fmt: skip


def told_by_state(job: Any) -> tuple[Any, ...]:
    return (job.id, job.seq, job.phase, job.kept_ms, job.moves, job.attempts, job.attempt.id if job.attempt else "",
            job.next.id if job.next else "", int(job.cancelled), job.short_of,
            None if job.until_at == NEVER else job.until_at)  # fmt: skip


def says_what_the_books_say(stored: Stored, ledger: Any) -> None:
    booked = {(s.scope, s.period): (s.held, s.spent) for s in stored.all(t.Spend)}
    assert {key: found for key, found in booked.items() if found != (0, 0)} == {
        key: (account.held, account.spent)
        for key, account in ledger.accounts.items()
        if not key[0].startswith("job:") and (account.held or account.spent)
    }
    caps = {c.scope: (c.per_period, c.per_hour) for c in stored.all(t.Cap)}
    assert caps == {
        scope: (ledger.caps.get(scope), ledger.rate_caps.get(scope))
        for scope in {*ledger.caps, *ledger.rate_caps}
        if not scope.startswith("job:")
    }
    assert {h.id: h.deadline_at for h in stored.all(t.Hold)} == {
        lease.hold.id: lease.deadline_at for lease in ledger.leases.values()
    }
    jobs, attempts = stored.all(t.Job), stored.all(t.Attempt)
    held = sum(lease.held for lease in ledger.leases.values())
    assert sum(job.held for job in jobs) == sum(a.held for a in attempts) == held
    spent = sum(account.spent for (scope, _), account in ledger.accounts.items() if scope == "org")
    assert sum(job.spent for job in jobs) == sum(a.spent for a in attempts) == spent
    assert sum(used.spent for used in stored.all(t.Used)) == spent


@settings(max_examples=80)
@given(histories())
def test_after_any_history_the_tables_say_what_the_state_says(history: History) -> None:
    life = Life(history)
    life.run()
    follow(life)


@settings(max_examples=30)
@given(histories())
def test_also_when_everybody_is_in_each_others_way(history: History) -> None:
    life = Life(tense(history))
    life.run()
    follow(life)


@settings(max_examples=30)
@given(histories(), st.data())
def test_how_steps_were_grouped_and_where_a_process_began_anew_changes_nothing(
    history: History, data: st.DataObject
) -> None:
    life = Life(history)
    life.run()
    whole = Stored()
    whole.take(project(Tables(), life.steps))
    cut, at = Stored(), 0
    while at < len(life.steps):
        size = data.draw(st.integers(1, 20))
        cut.take(project(cut.load(), life.steps[at : at + size]))
        at += size
    assert cut.lines == whole.lines


def test_gpu_time_is_booked_to_its_days_when_the_attempt_is_over() -> None:
    tables, stored = Tables(), Stored()
    penstock = given_story(site("lab"), policy("10m"))
    penstock.hears(submitted("a", gpus=2), at="22:00")
    penstock.hears(started("a.1"), at="22:00")
    stored.take(project(tables, penstock.steps))
    assert stored.all(t.Used) == []
    penstock.hears(ended("a.1"), at="26:30")
    stored.take(project(tables, penstock.steps[-1:]))
    assert [(used.day, used.team, used.gpu_ms) for used in stored.all(t.Used)] == [
        (0, "default", 4 * HOUR),
        (1, "default", 5 * HOUR),
    ]


def test_what_has_ended_is_forgotten_once_nothing_is_held_for_it() -> None:
    tables = Tables()
    penstock = given_story(offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    (node,) = (ask.node for step in penstock.steps for event in step.outputs for ask in getattr(event, "nodes", ()))
    penstock.hears(ready(node), at="09:05")
    penstock.hears(ended("a.1"), at="10:00")
    project(tables, penstock.steps)
    assert (list(tables.jobs), list(tables.attempts), list(tables.nodes)) == (["a"], ["a.1"], [node])
    penstock.hears(gone(node), at="10:01")
    project(tables, penstock.steps[-1:])
    assert (tables.jobs, tables.attempts, tables.nodes, tables.holds, tables.rented) == ({}, {}, {}, {}, {})


def test_those_who_share_a_node_share_what_it_costs_by_gpus_and_time() -> None:
    tables, stored = Tables(), Stored()
    penstock = given_story(offer("cloud", price="1"), policy(share_nodes=True))
    penstock.hears(submitted("a", gpus=1), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(submitted("b", gpus=3), at="10:00")
    penstock.hears(started("a.1"), started("b.1"), at="10:00")
    penstock.hears(ended("a.1"), at="11:00")
    stored.take(project(tables, penstock.steps))
    says_what_the_state_says(stored, penstock.engine.state)
    assert "a" in tables.jobs  # it has ended, and has still to pay
    penstock.hears(ended("b.1"), at="12:00")
    penstock.hears(gone("a.1/n0"), at="12:00")
    stored.take(project(tables, penstock.steps[-2:]))
    # $24, for two GPU-hours of a and six of b; nobody else is there to pay for the GPUs that nobody had.
    assert {job.id: job.spent for job in stored.all(t.Job)} == {"a": usd("6"), "b": usd("18")}
    says_what_the_state_says(stored, penstock.engine.state)
    assert (tables.jobs, tables.attempts, tables.nodes, tables.holds, tables.rented) == ({}, {}, {}, {}, {})


def test_a_job_whose_next_place_is_refused_waits_when_it_has_stopped() -> None:
    """It was told to move, and there is no room after all: what becomes of it when it has stopped is another thing."""
    tables, stored = Tables(), Stored()
    penstock = given_story(site("lab"), offer("cloud", start="5m"), policy("1h"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    stored.take(project(tables, penstock.steps))
    assert [one.stop_then for one in stored.all(t.Attempt) if one.id == "a.1"] == ["move"]
    penstock.hears(node_refused("a.2/n0"), at="10:01")
    stored.take(project(tables, penstock.steps[-1:]))
    assert [one.stop_then for one in stored.all(t.Attempt) if one.id == "a.1"] == ["wait"]
    says_what_the_state_says(stored, penstock.engine.state)


def test_an_end_told_of_what_never_began_changes_nothing() -> None:
    """A driver that answers for an attempt whose node is not ready yet is mistaken; the engine does not listen."""
    tables = Tables()
    penstock = given_story(offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ended("a.1"), at="09:01")
    penstock.hears(stopped("a.1"), at="09:02")
    project(tables, penstock.steps)
    (job,), (attempt,) = tables.jobs.values(), tables.attempts.values()
    state = penstock.engine.state
    assert (job.phase, attempt.phase) == (state.jobs["a"].phase, state.attempts["a.1"].phase) == ("placed", "promised")
