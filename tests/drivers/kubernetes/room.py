"""Nodes of a test's own in a cluster that others use at the same time."""

from typing import Any

from penstock.devcluster import NodePlan
from penstock.devcluster.external import ExternalCluster
from penstock.devcluster.plan import node_object
from penstock.kube.node_selection import NodeSelection


class Room:
    """Two nodes of our own in a cluster that others use: only what asks for them runs there."""

    def __init__(self, lab: ExternalCluster, mark: str) -> None:
        self.lab, self.names = lab, (f"{mark}-1", f"{mark}-2")
        self.place = NodeSelection(selector=(("room", mark),))
        plan = NodePlan(1, gpus=8, labels={"room": mark})
        lab.apply(*(node_object(name, plan, real=False) for name in self.names))
        lab.kubectl("wait", "--for=condition=Ready", "--timeout=50s", *(f"node/{name}" for name in self.names))

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"places": (("lab/owned", self.place),), **more}

    def close(self) -> None:
        self.lab.kubectl("delete", "node", "--ignore-not-found", "--wait=false", *self.names)
