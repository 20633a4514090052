"""Releases idle rented nodes as soon as nothing is promised to run on them. `cycle` calls it.

It comes last in a step, so that a job that bursts in the same step may have joined the node.
"""

from penstock.core.decide.placement import Choices
from penstock.core.fold.state import Node
from penstock.core.model.events import ReleasePromised
from penstock.core.model.reasons import NeverStarted, NoMoreWork


def idle(choices: Choices, nodes: list[Node]) -> None:
    for node in nodes:
        if node.on or node.phase not in ("asked", "idle"):
            continue
        since = node.idle_at if node.idle_at is not None else choices.now
        because = NoMoreWork(choices.now - since) if node.phase == "idle" else NeverStarted()
        choices.record(ReleasePromised(choices.now, node.id, because))
