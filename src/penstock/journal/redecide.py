"""Decide again what was decided: a test of determinism, and how one learns what a new version would do differently."""

from collections.abc import Iterable
from typing import Any

from penstock.core.decide.rules import Rules
from penstock.core.engine import Engine, replay
from penstock.core.values import value


@value
class Difference:
    number: int
    recorded: tuple[str, ...]
    now: tuple[str, ...]


@value
class RedecideReport:
    steps: int
    promises: int
    different: int
    first: tuple[Difference, ...]


def redecide(rows: Iterable[Any], most: int, rules: Rules | None = None) -> RedecideReport:
    """Feed the recorded facts, compare the promises. A differing step is put right from the record before the next."""
    engine = Engine(rules)
    steps = promises = different = 0
    first: list[Difference] = []
    past: list[Any] = []
    for row in rows:
        step = engine.handle(*row.inputs)
        steps += 1
        promises += len(row.outputs)
        past.append((row.at, row.inputs, row.outputs))
        if step.outputs != row.outputs:
            different += 1
            if len(first) < most:
                first.append(_difference(row, step))
            engine = replay(past, Engine(rules))
    return RedecideReport(steps, promises, different, tuple(first))


def _difference(row: Any, step: Any) -> Difference:
    """Only what is not in both."""
    recorded, now = [repr(event) for event in row.outputs], [repr(event) for event in step.outputs]
    return Difference(
        row.number,
        tuple(text for text in recorded if text not in now),
        tuple(text for text in now if text not in recorded),
    )
