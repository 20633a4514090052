"""OVHcloud's managed Kubernetes, played: NodePool objects of a real API server, and what makes their Nodes. The fields
follow our reading of OVHcloud's documents; nobody has seen them in an account.
"""

import time
from typing import Any

from tests.capacity.played_cloud import AskApi, PlayedCloud, PlayedPool

GROUP, FINALIZER = "kube.cloud.ovh.com", "played.example.com/machine"
POOLS = f"/apis/{GROUP}/v1alpha1/nodepools"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _fields(**kinds: str | dict[str, Any]) -> dict[str, Any]:
    return {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in kinds.items()}


TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
TEMPLATE = {
    "type": "object",
    "properties": {
        "metadata": {
            "type": "object",
            "properties": _fields(
                labels=TEXTS, annotations=TEXTS, finalizers={"type": "array", "items": {"type": "string"}}
            ),
        },
        "spec": {
            "type": "object",
            "properties": _fields(
                unschedulable="boolean",
                taints={
                    "type": "array",
                    "items": {"type": "object", "properties": _fields(key="string", value="string", effect="string")},
                },
            ),
        },
    },
}
SPEC = {
    "type": "object",
    "required": ["flavor", "desiredNodes"],
    "properties": _fields(
        flavor="string",
        desiredNodes="integer",
        minNodes="integer",
        maxNodes="integer",
        autoscale="boolean",
        antiAffinity="boolean",
        monthlyBilled="boolean",
        template=TEMPLATE,
    ),
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"nodepools.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool", "listKind": "NodePoolList"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


class PlayedOvh(PlayedCloud):
    def __init__(self, nodes: AskApi, gpus: int = 2) -> None:
        super().__init__(nodes)
        self.ask, self.gpus = nodes, gpus
        self.installation = ""  #: whose pools it knows: others play beside it
        nodes("POST", CRDS, CRD)
        until = time.monotonic() + 60
        while nodes("GET", POOLS, None).code != 200:
            assert time.monotonic() < until, "the API server does not serve NodePools"
            time.sleep(0.1)

    def tick(self) -> None:
        for found in self.ask("GET", POOLS, None).body["items"]:
            marks = found["metadata"].get("annotations", {})
            if marks.get("penstock.dev/penstock-installation") == self.installation:
                self._see(found)
        super().tick()

    def _see(self, found: dict[str, Any]) -> None:
        name, spec = found["metadata"]["name"], found["spec"]
        if "deletionTimestamp" in found["metadata"]:
            if name in self.pools:
                self.end(name)
        elif name not in self.pools:
            self.ask("PATCH", f"{POOLS}/{name}", {"metadata": {"finalizers": [FINALIZER]}})
            comes_at, shown_at = self.times(spec["flavor"])
            template, resource = spec["template"], {"nvidia.com/gpu": str(self.gpus)}
            labels, taints = template["metadata"]["labels"], template["spec"]["taints"]
            self.add(PlayedPool(name, spec, labels, taints, resource, comes_at, shown_at, spec["desiredNodes"]))
            if self.faults.issue is not None:
                code, words = self.faults.issue
                condition = {"type": "Ready", "status": "False", "reason": code, "message": f"{code}: {words}"}
                status = {"currentNodes": 0, "conditions": [condition]}
                self.ask("PATCH", f"{POOLS}/{name}/status", {"status": status})

    def forget(self, pool: PlayedPool) -> None:
        super().forget(pool)
        self.ask("PATCH", f"{POOLS}/{pool.name}", {"metadata": {"finalizers": []}})

    def let_go(self) -> None:
        """What a failed test left would keep its object for ever."""
        for name in self.pools:
            self.ask("DELETE", f"{POOLS}/{name}", None)
            self.ask("PATCH", f"{POOLS}/{name}", {"metadata": {"finalizers": []}})
