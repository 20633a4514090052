"""Installs Kueue in a dev cluster: CRDs, webhooks, and its controller as a process. `cluster` calls it.

Kueue's release manifests need a certificate manager and Services. Here the controller runs beside the API server, which
reaches its webhooks at its own address, and both use the API server's certificate.
"""

import json
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import is_built, program
from penstock.devcluster.webhook_controllers import webhooks, write_configuration

API: Final = "config.kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "kueue-system"
HOW: Final = "no Kueue: `make kube KUEUE=1` builds it once, in about ten minutes"
#: Webhooks to install; the others are for kinds that no dev cluster has.
GROUPS: Final = {"kueue.x-k8s.io", "batch"}


def found() -> bool:
    return is_built("kueue")


#: Of its definitions, those that it and we use; all are applied at once.
KINDS: Final = tuple(
    f"{kind}.kueue.x-k8s.io"
    for kind in ("admissionchecks", "clusterqueues", "localqueues", "resourceflavors", "workloads")
)


def start(process: Process, cluster: ExternalCluster, host: str, certificate: Path) -> None:
    """Prepares the cluster, and starts the controller at the address that the certificate is for."""
    if not found():
        raise BadInput(f"There is {HOW}.")
    port, folder, definitions = free_port(), process.folder / "kueue", program("kueue-definitions")
    cluster.define(definitions / "crds", *KINDS)
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(*webhooks(definitions / "webhooks.yaml", f"https://{host}:{port}", certificate, GROUPS))
    own = {"apiVersion": API, "namespace": NAMESPACE, "integrations": {"frameworks": ["batch/job"]}}
    configuration = write_configuration(folder, certificate, host, port, **own)
    command = [str(program("kueue")), f"--config={configuration}", "--feature-gates=VisibilityOnDemand=false"]
    process.start(command, {"KUBECONFIG": str(cluster.kubeconfig), "KUEUE_CERTIFICATES": str(folder / "tls")})


def answers(cluster: ExternalCluster) -> bool:
    """Whether its webhook does: a flavor goes through it, and is not made."""
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a-try"}}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(flavor))
    except Refusal:
        return False
    return True


def queue(name: str, namespace: str, gpus: int) -> list[dict[str, Any]]:
    """A ClusterQueue with so many GPUs, and the LocalQueue `default`, which takes every Job of the namespace."""
    quota = {"cpu": "1k", "memory": "1Ti", "nvidia.com/gpu": str(gpus)}
    counted = [{"name": what, "nominalQuota": amount} for what, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": name, "resources": counted}]}
    version = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]
