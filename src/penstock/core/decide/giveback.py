"""Releases idle rented nodes: as soon as nothing is promised to run on them, or as long after that as a policy file
says. `cycle` calls it.

It comes last in a step, so that a job that bursts in the same step may have joined the node.
"""

from penstock.core.decide import ahead
from penstock.core.decide.choices import Choices
from penstock.core.fold.state import Node, State
from penstock.core.model.events import ReleasePromised
from penstock.core.model.reasons import NeverStarted, NoMoreWork
from penstock.core.units import Instant


def idle(choices: Choices, nodes: list[Node]) -> None:
    for node in nodes:
        if node.on or node.phase not in ("asked", "idle") or node.id in choices.state.warm.nodes:
            continue
        if ahead.keeps(choices, node) or node.id in choices.state.idle:
            continue
        _release(choices, node)


def _release(choices: Choices, node: Node) -> None:
    since = node.idle_at if node.idle_at is not None else choices.now
    because = NoMoreWork(choices.now - since) if node.phase == "idle" else NeverStarted()
    choices.record(ReleasePromised(choices.now, node.id, because))


def rested(choices: Choices) -> None:
    """Release nodes that were kept for as long as the policy says, and all of them if it no longer says so."""
    for node in list(choices.state.idle.values()):
        if kept_until(choices.state, node) <= choices.now:
            _release(choices, node)


def kept_until(state: State, node: Node) -> Instant:
    longest_ms = state.policy.governance.idle_nodes_end_after_ms
    return 0 if longest_ms is None or node.idle_at is None else node.idle_at + longest_ms
