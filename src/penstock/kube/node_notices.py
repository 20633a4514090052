"""Reads from a Node that it will be taken away soon. Pure; the ways to rent and the Kubernetes driver call it.

Clouds announce the end of a spot node, or of one that is due for maintenance, through their own queues; the handler
that reads the queue puts a taint or a condition on the Node. An autoscaler does the same before it ends a node.
"""

from typing import Final

from penstock.kube.client import Obj

#: The start of a taint's key, and what it says. `DeletionCandidateOfClusterAutoscaler` is none: that node may stay.
TAINTS: Final[dict[str, str]] = {
    "karpenter.sh/disrupted": "Karpenter ends its node",
    "karpenter.sh/disruption": "Karpenter ends its node",  # before its v1
    "aws-node-termination-handler/": "the cloud takes its node back",
    "cloud.google.com/impending-node-termination": "the cloud takes its node back",
    "remediator.kubernetes.azure.com/unschedulable": "the cloud takes its node back",
    "node.cloudprovider.kubernetes.io/shutdown": "its node was shut down",
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler removes its node",
}
#: Azure's scheduled events, as AKS writes them into a condition. A freeze of seconds is none.
SCHEDULED: Final = "VMEventScheduled"
ENDS: Final = ("Preempt", "Terminate", "Redeploy", "Reboot")
SHUTTING_DOWN: Final = "node is shutting down"  #: the kubelet's own words, of a machine that got a notice


def notice_of(node: Obj) -> str:
    """Why it will be gone soon; empty: nothing says so."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        for key, words in TAINTS.items():
            if str(taint.get("key", "")).startswith(key):
                return f"{words} ({taint['key']})"
    for condition in (node.get("status") or {}).get("conditions") or ():
        if words := _announced(condition):
            return words
    return ""


def _announced(condition: Obj) -> str:
    kind, status = condition.get("type"), condition.get("status")
    if kind == SCHEDULED and status == "True" and str(condition.get("reason", "")).startswith(ENDS):
        return f"the cloud takes its node back ({condition['reason']})"
    if kind == "Ready" and status != "True" and SHUTTING_DOWN in str(condition.get("message", "")):
        return "its node is shutting down"
    return ""
