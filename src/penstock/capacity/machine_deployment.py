"""A MachineDeployment of Cluster API for one rented node, and what it and its Machine say. Pure; for `cluster_api`.

A platform engineer prepares a MachineDeployment of size 0. Ours is like it, with one replica, our marks, and bounds on
how long its machine may take to go: without them a pod that may not be evicted keeps a machine for ever.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.capacity.contract import object_name
from penstock.capacity.nodeclaim import QUOTA
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import SECOND, Instant
from penstock.kube import annotations
from penstock.kube.client import Obj
from penstock.kube.node_selection import NodeSelection

#: The clouds' words for "none left", as providers of Cluster API pass them on.
STOCK_OUT: Final = re.compile(
    "insufficient.{0,20}capacity|capacity.{0,20}(insufficient|exhausted|unavailable)|out of stock|no valid host"
    "|AllocationFailed|SkuNotAvailable|STOCKOUT|RESOURCE_POOL_EXHAUSTED|none left|resource_unavailable",
    re.IGNORECASE,
)
UNINITIALIZED: Final = "node.cluster.x-k8s.io/uninitialized"  #: taint of a Node that core has not seen to yet
MOST_WORDS: Final = 300


def deadline_marks(deadline_at: Instant, now: Instant, there: datetime) -> dict[str, str]:
    """The deadline by our clock, for us, and by the cluster's, for the watchman. `there`: now, by the cluster's."""
    left = timedelta(milliseconds=min(max(0, deadline_at - now), annotations.LONGEST_MS))
    ends_at = (there + left).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {annotations.NODE_DEADLINE: str(deadline_at), annotations.ENDS_AT: ends_at}


def machine_deployment(
    like: Obj,
    ask: LaunchNode,
    offer: Offer,
    place: NodeSelection,
    installation: str,
    now: Instant,
    deadline: dict[str, str],
) -> Obj:
    """One like the prepared one. Everything that must survive us is on it: whose it is, for which node, until when."""
    rent = place.rent
    assert rent is not None
    name = annotations.node_name(object_name(installation, ask.node))
    marks = {annotations.INSTALLATION: annotations.label_value(installation), annotations.NODE: name}
    notes = {annotations.NODE_ID: ask.node, annotations.OFFER: ask.offer, annotations.ASKED_AT: str(now)}
    template = like["spec"]["template"]
    machine = {**template["spec"], "deletion": _bounds(template["spec"], offer)}
    if rent.zones:
        machine["failureDomain"] = rent.zones[0]
    theirs = (template.get("metadata") or {}).get("annotations") or {}
    return {
        "metadata": {"name": name, "labels": marks, "annotations": {**notes, **deadline}},
        "spec": {
            "clusterName": like["spec"]["clusterName"],
            "replicas": 1,
            # Never a second machine beside the first: a changed template replaces nothing that runs.
            "rollout": {"strategy": {"type": "OnDelete"}},
            "selector": {"matchLabels": {annotations.NODE: name}},
            "template": {
                "metadata": {"labels": {**dict(rent.labels), **marks}, "annotations": {**theirs, **notes}},
                "spec": machine,
            },
        },
    }


def _bounds(spec: Obj, offer: Offer) -> dict[str, Any]:
    """Half of `kill` to drain it, whatever its pods say; the other half is the cloud's."""
    most = max(1, offer.kill_ms // 2 // SECOND)
    return {
        **(spec.get("deletion") or {}),
        "nodeDrainTimeoutSeconds": most,
        "nodeVolumeDetachTimeoutSeconds": most,
        "nodeDeletionTimeoutSeconds": most,
    }


# --- what they say ----------------------------------------------------------------------------------------------------


def node_name_of(machine: Obj) -> str:
    """The Node that its machine has become; empty: none yet."""
    return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name", ""))


def is_provisioned(machine: Obj) -> bool:
    """The cloud has made it, and bills it."""
    return bool(((machine.get("status") or {}).get("initialization") or {}).get("infrastructureProvisioned"))


def describe(machine: Obj) -> tuple[str, str]:
    """Why it is not there yet, in its provider's words, and since when; empty: nothing says it."""
    conditions = (machine.get("status") or {}).get("conditions") or ()
    for kind in ("InfrastructureReady", "BootstrapConfigReady", "NodeReady"):
        for condition in conditions:
            if condition.get("type") == kind and condition.get("status") != "True" and condition.get("message"):
                words = f"{kind}: {condition.get('reason', '')}: {condition['message']}"
                return words[:MOST_WORDS], str(condition.get("lastTransitionTime", ""))
    return "", ""


def shortage_of(words: str) -> Shortage:
    if QUOTA.search(words):
        return "quota"
    return "stock_out" if STOCK_OUT.search(words) else ""


def marked(node: Obj, marks: dict[str, str], notes: dict[str, str], taints: Sequence[dict[str, str]]) -> Obj | None:
    """The change that makes this Node ours; None: it is so, or core has not seen to it yet."""
    present = (node.get("spec") or {}).get("taints") or []
    if any(taint.get("key") == UNINITIALIZED for taint in present):
        return None
    labels = node["metadata"].get("labels") or {}
    if all(labels.get(key) == text for key, text in marks.items()):
        return None
    kept = [taint for taint in present if taint.get("key") not in [ours["key"] for ours in taints]]
    return {"metadata": {"labels": marks, "annotations": notes}, "spec": {"taints": [*kept, *taints]}}
