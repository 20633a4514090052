"""Nothing that needs an approval ever bursts without one: random histories in which every burst needs one."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.engine import Engine, replay
from penstock.core.model import events as e
from penstock.core.model.governance import ApprovalRule, Governance
from penstock.core.units import MINUTE, Instant
from penstock.journal.redecide import redecide
from tests.core.asking import AskingRules
from tests.core.histories import History, Life, histories, tense

RULE = ApprovalRule("all", "always", "role:approver", within_ms=90 * MINUTE, source="policy.yaml:3")
GOVERNANCE = Governance(approvals=(RULE,), version=1)


class Asking(Life):
    """A life in which people answer what `answers` draws, each some minutes after it was asked."""

    def __init__(self, history: History, answers: list[tuple[bool, int]]) -> None:
        super().__init__(history)
        self.engine = Engine(AskingRules())
        self.answers = answers
        self.asked = 0

    def step(self, *facts: e.Fact) -> Any:
        step = super().step(*facts)
        for promise in step.outputs:
            if isinstance(promise, e.ApprovalAsked):
                self._answer(promise, *self.answers[self.asked % len(self.answers)])
                self.asked += 1
        return step

    def _answer(self, asked: e.ApprovalAsked, approved: bool, minutes: int) -> None:
        def answer(at: Instant) -> list[e.Fact]:
            return [e.ApprovalAnswered(at, asked.job, approved, by="ada")]

        self.provider.later(asked.at + minutes * MINUTE, answer)

    def crash(self, now: Instant) -> None:
        super().crash(now)
        self.engine.rules = AskingRules()


def asking(history: History) -> History:
    commands = tuple((at, kind, _governed(kind, about)) for at, kind, about in history.commands)
    return replace(history, policy=replace(history.policy, governance=GOVERNANCE), commands=commands)


def _governed(kind: str, about: Any) -> Any:
    return replace(about, governance=GOVERNANCE) if kind == "policy" else about


def bursts_were_approved(steps: list[Any]) -> int:
    """By the record alone: each rented start comes after an approval of that job that was in time."""
    asked: dict[str, Instant] = {}  # job -> until
    approved: set[str] = set()
    bursts = 0
    for step in steps:
        for event in (*step.inputs, *step.outputs):
            match event:
                case e.ApprovalAsked():
                    asked[event.job] = event.until_at
                case e.ApprovalAnswered(approved=True):
                    if event.at < asked.get(event.job, 0):
                        approved.add(event.job)
                case e.StartPromised() if event.rented:
                    bursts += 1
                    assert event.job in approved, f"{event.job} bursts unapproved at step {step.number}"
    return bursts


@settings(max_examples=250, database=None)
@given(histories(), st.lists(st.tuples(st.booleans(), st.integers(0, 120)), min_size=1, max_size=5), st.booleans())
def test_nothing_bursts_without_an_approval(history: History, answers: list[tuple[bool, int]], tight: bool) -> None:
    life = Asking(asking(tense(history) if tight else history), answers)
    life.run()
    bursts_were_approved(life.steps)
    record = [(step.at, step.inputs, step.outputs) for step in life.steps]
    assert replay(record, Engine(AskingRules())).state.digest() == life.engine.state.digest()
    assert redecide(life.steps, most=3, rules=AskingRules()).first == ()


def test_jobs_do_burst_once_they_are_approved() -> None:
    """Otherwise the property above would say little."""
    counts: list[int] = []

    @settings(max_examples=60, database=None)
    @given(histories())
    def all_approved(history: History) -> None:
        life = Asking(asking(history), [(True, 1)])
        life.run()
        counts.append(bursts_were_approved(life.steps))

    all_approved()
    assert sum(count > 0 for count in counts) > 10
