"""The door: time never falls, a broken engine stays broken, and a replayed one decides on as the live one does."""

import pytest
from hypothesis import given, settings

from penstock.core.engine import Engine, replay
from penstock.core.fold.apply import APPLY, apply
from penstock.core.model import events as e
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import CapBinds, PlacementsPaused, WaitWorth
from penstock.core.model.types import JobSpec, Policy
from penstock.policy.rules import PolicyRules
from tests.core.histories import History, Life, histories


def test_time_never_falls() -> None:
    engine = Engine()
    engine.handle(e.Woke(10))
    engine.handle(e.Woke(10))
    with pytest.raises(Broken, match="time fell from 10 to 9"):
        engine.handle(e.Woke(9))


def test_an_engine_that_raised_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.handle(e.Woke(1))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(APPLY, e.PolicySet, broken)
    with pytest.raises(ZeroDivisionError):
        engine.handle(e.PolicySet(2, 1, Policy("x")))
    monkeypatch.undo()
    with pytest.raises(Broken, match="rebuild it"):
        engine.handle(e.Woke(3))


def test_steps_are_numbered_and_carry_the_policys_revision() -> None:
    engine = Engine()
    first, second = engine.handle(e.PolicySet(0, 7, Policy("x"))), engine.handle(e.Woke(5))
    assert [(step.number, step.at, step.revision) for step in (first, second)] == [(1, 0, 7), (2, 5, 7)]
    assert (second.inputs, second.outputs, second.actions) == ((e.Woke(5),), (), ())


def test_the_reason_of_a_wait_only_explains_it() -> None:
    """What a job waits for, how long it may and what was foretold were read off the reason: words drove the state."""
    engine = Engine()
    engine.handle(e.JobSubmitted(0, 0, "a", JobSpec(1)))
    job = engine.state.jobs["a"]
    apply(engine.state, e.WaitPromised(0, "a", 9, WaitWorth(1, 2, 3, 4, 5, 6, 7, about_ms=8, worst_ms=9)))
    apply(engine.state, e.WaitPromised(0, "a", 9, CapBinds("org", "month 1", 1, 2, 3, 4)))
    assert (job.short_of, job.patience_ms, job.foretold, engine.state.short) == ("", 0, None, {})
    wait = e.WaitPromised(0, "a", 9, PlacementsPaused(), scope="org", patience_ms=3, about_ms=8, worst_ms=9)
    apply(engine.state, wait)
    assert (job.short_of, job.patience_ms, job.foretold, engine.state.short) == (
        "org",
        3,
        (0, 8, 9),
        {"org": {"a": job}},
    )


class Twin(Life):
    """From some step on, everything is told to a replayed engine as well."""

    def __init__(self, history: History, from_step: int) -> None:
        super().__init__(history)
        self.twin: Engine | None = None
        self.from_step, self.compared = from_step, 0

    def step(self, *facts: e.Fact):  # type: ignore[no-untyped-def]  # as in Life
        if len(self.steps) == self.from_step:
            record = ((step.at, step.inputs, step.outputs) for step in self.steps)
            self.twin = replay(record, Engine(PolicyRules()))
            assert self.twin.state.digest() == self.engine.state.digest()
        if self.twin is not None and self.compared < 100:
            again = self.twin.handle(*facts)
            step = super().step(*facts)
            assert again == step
            assert list(self.twin.outstanding()) == list(self.engine.outstanding())
            self.compared += 1
            return step
        return super().step(*facts)


@settings(max_examples=60)
@given(histories())
def test_a_replayed_engine_decides_the_next_hundred_steps_as_the_live_one(history: History) -> None:
    for from_step in (2, 12):
        twin = Twin(history, from_step)
        twin.run()  # compares each step as it is made
        assert twin.compared == min(100, max(0, len(twin.steps) - from_step))


@settings(max_examples=30)
@given(histories())
def test_the_same_history_gives_the_same_steps(history: History) -> None:
    first, second = Life(history), Life(history)
    first.run()
    second.run()
    assert first.steps == second.steps
    assert first.engine.state.digest() == second.engine.state.digest()
