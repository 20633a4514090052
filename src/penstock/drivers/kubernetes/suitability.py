"""Which nodes of an offer do not meet a need of jobs. `CapacityReporter` has one, and reports what changes.

A need is judged once for each node, and again only when that node's labels, taints or amounts change.
"""

from collections.abc import Iterable
from typing import Final

from penstock.core.decide.rules import OF_NODES
from penstock.core.model.types import NODE_WITH, TOLERATES
from penstock.drivers.kubernetes.inventory import belongs, is_tolerated, name_of
from penstock.kube.client import Obj
from penstock.kube.node_needs import meets, taints_of
from penstock.kube.node_selection import NodeSelection

MOST_NEEDS: Final = 1_000  #: distinct ones that are judged; whatever comes later, the scheduler alone judges
JUDGED: Final = (NODE_WITH, TOLERATES, *OF_NODES)


class Suitability:
    def __init__(self, place: NodeSelection) -> None:
        self.place = place
        self.needs: dict[str, None] = {"": None}
        self.nodes: dict[str, Obj] = {}  #: the offer's, as they were judged
        self.lacking: dict[str, set[str]] = {"": set()}  #: by need: nodes that do not meet it

    def learn(self, needs: Iterable[str]) -> list[str]:
        """Judge these, too; returns those that were not known."""
        new = [need for need in dict.fromkeys(needs) if need.startswith(JUDGED) and need not in self.needs]
        new = new[: max(0, MOST_NEEDS - len(self.needs))]
        for need in new:
            self.needs[need] = None
            self.lacking[need] = {name for name, node in self.nodes.items() if not self._meets(node, need)}
        return new

    def look(self, nodes: Iterable[Obj]) -> list[str]:
        """Judge nodes that are new or have changed; returns their names, and those of nodes that are gone."""
        seen = {name_of(node): _judged_by(node) for node in nodes if belongs(node, self.place)}
        changed = [name for name in {**self.nodes, **seen} if self.nodes.get(name) != seen.get(name)]
        self.nodes = seen
        for name in changed:
            for need, lacking in self.lacking.items():
                lacking.discard(name)
                if name in seen and not self._meets(seen[name], need):
                    lacking.add(name)
        return changed

    def told(self, need: str) -> tuple[tuple[str, ...], bool]:
        """The nodes that do not meet it, or, if these are fewer, those that do, with True."""
        lacking = self.lacking[need]
        meeting = self.nodes.keys() - lacking
        only = len(meeting) < len(lacking)
        return tuple(sorted(meeting if only else lacking)), only

    def suited(self, needs: Iterable[str]) -> set[str]:
        """The nodes that meet all of these."""
        needs = list(needs)
        if not any(need.startswith(TOLERATES) for need in needs):
            needs.append("")
        self.learn(needs)
        return self.nodes.keys() - set().union(*(self.lacking.get(need, ()) for need in needs))

    def _meets(self, node: Obj, need: str) -> bool:
        return meets(
            node, need, [taint for taint in taints_of(node) if not is_tolerated(taint, self.place.tolerations)]
        )


def _judged_by(node: Obj) -> Obj:
    """The part of a node that may meet a need or not."""
    return {
        "metadata": {"name": name_of(node), "labels": dict(node["metadata"].get("labels") or {})},
        "spec": {"taints": list(node.get("spec", {}).get("taints") or ())},
        "status": {"allocatable": dict(node.get("status", {}).get("allocatable") or {})},
    }
