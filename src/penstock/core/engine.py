"""The engine: facts in, a step out. No clock, no I/O and no randomness. Sequencer, simulator and replay call it.

    step = engine.handle(*events)
    journal.append(step)
    for action in step.actions: dispatch(action)      # each answer comes back as another event

If `handle` raises, this engine is dead: rebuild one from the journal.
"""

from collections.abc import Iterable, Iterator

from penstock.core.decide.choices import Choices
from penstock.core.decide.cycle import decide, next_deadline
from penstock.core.decide.rules import BuiltInRules, Rules
from penstock.core.fold.apply import APPLY, begin_step, fold_step
from penstock.core.fold.state import State
from penstock.core.model.actions import Action
from penstock.core.model.events import Event, Fact, Promise, order
from penstock.core.model.lifecycle import Broken
from penstock.core.units import NEVER, Instant
from penstock.core.values import value

#: The version of events' meaning. A newer journal is refused; `journal.codec` reads older ones.
#: 2: a wait carries its scope, patience and forecast itself, where 1 left them to its reason.
VERSION = 2


@value
class Step:
    number: int
    at: Instant
    inputs: tuple[Fact, ...]
    outputs: tuple[Promise, ...]
    actions: tuple[Action, ...]
    revision: int


class Engine:
    __slots__ = ("choices", "dead", "rules", "state")

    def __init__(self, rules: Rules | None = None) -> None:
        self.state = State()
        self.choices = Choices(self.state, 0)
        self.rules: Rules = rules or BuiltInRules()
        self.dead = False

    def handle(self, *events: Fact) -> Step:
        """Apply the facts of one instant, and promise everything worth doing."""
        state, choices, at = self.state, self.choices, events[0].at
        if self.dead or at < state.at:
            raise Broken("this engine raised before; rebuild it" if self.dead else f"time fell from {state.at} to {at}")
        self.dead = True
        inputs = events if len(events) == 1 else tuple(sorted(events, key=order))
        begin_step(state, at)
        for event in inputs:
            APPLY[type(event)](state, event)
        choices.state, choices.now = state, at
        choices.promises, choices.foreseen = [], None
        decide(choices, self.rules)
        self.dead = False
        outputs, actions = tuple(choices.promises), tuple(state.changes.actions)
        return Step(state.steps, at, inputs, outputs, actions, state.revision)

    def next_deadline(self) -> Instant | None:
        """When to wake up if nothing happens; None: only an event can change anything."""
        at = next_deadline(self.state)
        return None if at == NEVER else at

    def outstanding(self) -> Iterator[Action]:
        return self.state.outstanding()


def replay(steps: Iterable[tuple[Instant, Iterable[Event], Iterable[Event]]], engine: Engine | None = None) -> Engine:
    """Fold recorded steps."""
    engine = engine or Engine()
    for at, inputs, outputs in steps:
        fold_step(engine.state, at, inputs, outputs)
    return engine
