"""What was said and not yet answered, counted from the outside: from actions and facts alone, never from the state.

`Engine.outstanding` must say the same, since that is what is repeated after a crash. Deadlines inside an asking are
left out of the comparison: a lease may move while the provider has not answered yet.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.core import actions as a
from penstock.core import events as e
from penstock.core.engine import Step

NODE_ANSWERS = (e.NodeReady, e.NodeRefused, e.NodeLost, e.NodeGone)
NODE_ENDS = (e.NodeRefused, e.NodeLost, e.NodeGone)
ATTEMPT_ENDS = (e.AttemptEnded, e.AttemptStopped, e.AttemptLost, e.AttemptRefused)


class Owed:
    def __init__(self) -> None:
        self.open: dict[tuple[str, str], a.Action] = {}

    def hear(self, step: Step) -> None:
        """Answers close; what is said opens. What one step both says and makes void was never owed."""
        for fact in step.inputs:
            self._answered(fact)
        for action in step.actions:
            self._said(action)
        for promise in step.outputs:
            if isinstance(promise, e.Settled):
                self.open.pop(("deadline", promise.hold), None)

    def _answered(self, fact: Any) -> None:
        if isinstance(fact, NODE_ANSWERS):
            self.open.pop(("launch", fact.node), None)
        if isinstance(fact, NODE_ENDS):
            self.open.pop(("release", fact.node), None)
        if isinstance(fact, (e.AttemptStarted, *ATTEMPT_ENDS)):
            self.open.pop(("start", fact.attempt), None)
        if isinstance(fact, ATTEMPT_ENDS):
            self.open.pop(("stop", fact.attempt), None)
        if isinstance(fact, e.ReplicaLanded):
            self.open.pop(("copy", f"{fact.data_set} to {fact.site}"), None)
        if isinstance(fact, e.DeadlineSet):
            said = self.open.get(("deadline", fact.thing))
            if said == a.SetDeadline(fact.thing, fact.deadline_at):
                del self.open["deadline", fact.thing]

    def _said(self, action: a.Action) -> None:
        match action:
            case a.LaunchNode(node=node):
                self.open["launch", node] = action
            case a.ReleaseNode(node=node):
                self.open.pop(("launch", node), None)
                self.open["release", node] = action
            case a.StartAttempt(attempt=attempt):
                self.open["start", attempt] = action
            case a.StopAttempt(attempt=attempt):
                self.open.pop(("start", attempt), None)
                self.open["stop", attempt] = action
            case a.SetDeadline(thing=thing):
                self.open["deadline", thing] = action  # a later one replaces an earlier one
            case a.CopyData(data_set, site):
                self.open["copy", f"{data_set} to {site}"] = action

    def is_what(self, outstanding: Iterable[a.Action]) -> bool:
        return counted(self.open.values()) == counted(list(outstanding))

    def differs(self, outstanding: Sequence[a.Action]) -> str:
        mine, theirs = counted(self.open.values()), counted(outstanding)
        return f"only said: {dict(mine - theirs)}; only outstanding: {dict(theirs - mine)}"


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
