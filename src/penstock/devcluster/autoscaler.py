"""Installs cluster-autoscaler in a dev cluster: its CRD of ProvisioningRequests, and its release with the kwok provider
as a process. `cluster` calls it; tests send Jobs to the node groups in `GROUPS`, by the label `GROUP`.

The autoscaler is that of the release, only hastier. The cloud is a toy: a machine is a Node that kwok plays.
"""

import http.client
import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster
from penstock.devcluster.plan import GPU, PRODUCT
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import AUTOSCALING, is_built, program

HOW: Final = "no cluster-autoscaler: `make kube AUTOSCALER=1` builds it once, in about five minutes"
NAMESPACE: Final = "autoscaler"  #: of its settings and of what it says of the cluster
GROUP: Final = "penstock.dev/node-group"  #: label of a Node: its group
SIZE: Final = "cluster-autoscaler.kwok.nodegroup"  #: its provider reads a group's sizes from annotations
MODEL: Final = "NVIDIA-A100-SXM4-80GB"
MOST_NODES: Final = 5  #: of all groups together
BACKOFF_S: Final = 3  #: how long it leaves a group alone that the cloud refused


@dataclass(frozen=True)
class NodeGroup:
    """Nodes with GPUs, from zero. `sold_out`: the cloud refuses every one."""

    most: int
    gpus: int = 8
    sold_out: bool = False


GROUPS: Final = {
    "a100": NodeGroup(3),
    "few": NodeGroup(1),
    "many": NodeGroup(MOST_NODES + 3),
    "out": NodeGroup(3, sold_out=True),
}
#: Seconds instead of minutes; nothing else differs from what the release does by itself.
HASTE: Final = {
    "scan-interval": "250ms",
    "kube-client-qps": "100",
    "kube-client-burst": "200",
    "scale-down-delay-after-add": "1s",
    "scale-down-unneeded-time": "1s",
    "unremovable-node-recheck-timeout": "1s",
    "node-delete-delay-after-taint": "0s",
    "initial-node-group-backoff-duration": f"{BACKOFF_S}s",
    "max-node-group-backoff-duration": f"{BACKOFF_S}s",
    "provisioning-request-initial-backoff-time": "1s",
    "provisioning-request-max-backoff-time": "2s",
}


def is_available() -> bool:
    return is_built("cluster-autoscaler")


def install(cluster: ExternalCluster) -> None:
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    cluster.define(program("cluster-autoscaler-definitions") / "crds", f"provisioningrequests.{AUTOSCALING}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(namespace, *_settings(), _one_that_waits())


def start(process: Process, cluster: ExternalCluster) -> None:
    port = free_port()
    (process.folder / "autoscaler.port").write_text(str(port))
    flags = {
        "cloud-provider": "kwok", "kubeconfig": str(cluster.kubeconfig), "namespace": NAMESPACE,
        "leader-elect": "false", "address": f"127.0.0.1:{port}", "max-nodes-total": str(MOST_NODES),
        # Its own way to write, protobuf, has no words for a ProvisioningRequest: it would never take one up.
        "enable-provisioning-requests": "true", "kube-api-content-type": "application/json", **HASTE,
    }  # fmt: skip
    # Its provider reads the kubeconfig for itself.
    env = {"KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": NAMESPACE}
    process.start([str(program("cluster-autoscaler")), *(f"--{flag}={text}" for flag, text in flags.items())], env)


def answers(process: Process) -> bool:
    """Whether it says that it works; raises OSError while it does not listen."""
    port = int((process.folder / "autoscaler.port").read_text())
    probe = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        probe.request("GET", "/health-check")
        return probe.getresponse().status == 200
    finally:
        probe.close()


# --- what its cloud has ----------------------------------------------------------------------------------------------


def _settings() -> list[dict[str, Any]]:
    """Of its kwok provider, which reads them once."""
    wanted = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": GROUP},
        "nodes": {"skipTaint": True, "gpuConfig": {"gpuLabelKey": PRODUCT, "availableGPUTypes": {MODEL: {}}}},
        "configmap": {"name": "kwok-provider-templates"},
    }
    nodes = [template(name, group) for name, group in GROUPS.items()]
    texts = {
        "kwok-provider-config": {"config": json.dumps(wanted)},
        "kwok-provider-templates": {"templates": json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})},
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
        for name, data in texts.items()
    ]


def _one_that_waits() -> dict[str, Any]:
    """A pod that no group has a node for. The autoscaler lets pods with GPUs wait for 30 s, in case their nodes come by
    themselves, unless one has waited longer: from then on it sees to others at once.
    """
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits", "namespace": NAMESPACE},
        "spec": {"nodeSelector": {GROUP: "none"}, "containers": [container]},
    }


def template(name: str, group: NodeGroup) -> dict[str, Any]:
    """The Node that each of the group is like."""
    has = {"cpu": "96", "memory": "1360Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU: str(group.gpus)}
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", PRODUCT: MODEL, GROUP: name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {f"{SIZE}/max-count": str(group.most)}},
        # The API server refuses such a Node, as a cloud refuses a machine.
        "spec": {"podCIDR": "sold out", "podCIDRs": ["sold out"]} if group.sold_out else {},
        "status": {"allocatable": has, "capacity": has},
    }
