"""`penstock redecide`: feeds recorded facts to this engine and compares its promises with the recorded ones. A test of
determinism, and of what a new version would decide differently.
"""

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
    """Compare step by step. After a difference the state follows the record, so that later steps stay comparable."""
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
    """Only the promises that are not in both."""
    recorded, now = [repr(event) for event in row.outputs], [repr(event) for event in step.outputs]
    return Difference(
        row.number,
        tuple(text for text in recorded if text not in now),
        tuple(text for text in now if text not in recorded),
    )
