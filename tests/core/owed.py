"""What was said and not yet answered, counted from the outside: from actions and facts alone, never from the state.
Which facts answer which action is declared in `core/model/actions`; a new action needs nothing here.

`Engine.outstanding` must say the same, since that is what is repeated after a crash. Deadlines inside an asking are
left out of the comparison: a lease may move while the provider has not answered yet.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields

from penstock.core.engine import Step
from penstock.core.model import actions as a
from penstock.core.model import events as e


class Owed:
    def __init__(self) -> None:
        self.open: dict[tuple[str, str], a.Action] = {}

    def hear(self, step: Step) -> None:
        """Answers close; what is said opens, in the place of what was said of the same subject before."""
        for fact in step.inputs:
            for subject in [subject for subject, action in self.open.items() if answers(fact, action)]:
                del self.open[subject]
        for action in step.actions:
            self.open[a.subject_of(action)] = action
        for promise in step.outputs:
            if isinstance(promise, e.Settled):
                self.open.pop((a.SetDeadline.__name__, promise.hold), None)

    def is_what(self, outstanding: Iterable[a.Action]) -> bool:
        return counted(self.open.values()) == counted(list(outstanding))

    def differs(self, outstanding: Sequence[a.Action]) -> str:
        mine, theirs = counted(self.open.values()), counted(outstanding)
        return f"only said: {dict(mine - theirs)}; only outstanding: {dict(theirs - mine)}"


def answers(fact: e.Fact, action: a.Action) -> bool:
    """It says that this very thing is done or over: they agree in every field that both have."""
    if type(fact) in a.OVER:
        return a.thing_of_fact(fact) == a.thing_of(action)
    shared = [field.name for field in fields(fact) if hasattr(action, field.name)]
    return type(fact) in a.ANSWERS[type(action)] and all(getattr(fact, n) == getattr(action, n) for n in shared)


def counted(actions: Iterable[a.Action]) -> Counter[str]:
    return Counter(_without_deadline(action) for action in actions)


def _without_deadline(action: a.Action) -> str:
    match action:
        case a.LaunchNode(node, offer, gpus, attempt, _):
            return f"launch {node} {offer} {gpus} {attempt}"
        case a.StartAttempt(attempt, job, offer, width, speed, resume, slots, nodes, _):
            return f"start {attempt} {job} {offer} {width} {speed} {resume} {slots} {nodes}"
        case _:
            return repr(action)
