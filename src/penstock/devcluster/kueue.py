"""Installs Kueue in a dev cluster: CRDs, webhooks, and its controller as a process. `cluster` calls it.

Kueue's release manifests need a certificate manager and Services. Here the controller runs beside the API server, which
reaches its webhooks at its own address, and both use the API server's certificate.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import is_built, program
from penstock.devcluster.webhook_controllers import webhooks, write_configuration
from penstock.kube.kueue_api import DISPATCHER

API: Final = "config.kueue.x-k8s.io/v1beta2"
NAMESPACE: Final = "kueue-system"
HOW: Final = "no Kueue: `make kube KUEUE=1` builds it once, in about ten minutes"
#: Webhooks to install; the others are for kinds that no dev cluster has.
GROUPS: Final = {"kueue.x-k8s.io", "batch"}
#: Besides these, where MultiKueue is tried, and what Kueue calls its integrations for them.
TRAINING: Final = {"kubeflow.org", "trainer.kubeflow.org", "ray.io"}
FRAMEWORKS: Final = ("kubeflow.org/pytorchjob", "trainer.kubeflow.org/trainjob", "ray.io/rayjob", "ray.io/raycluster")
#: Of its definitions, those that it and we use; all are applied at once.
KINDS: Final = tuple(
    f"{kind}.kueue.x-k8s.io"
    for kind in (
        "admissionchecks",
        "clusterqueues",
        "localqueues",
        "multikueueclusters",
        "multikueueconfigs",
        "resourceflavors",
        "workloads",
    )
)


def is_available() -> bool:
    return is_built("kueue")


def start(
    process: Process, cluster: ExternalCluster, host: str, certificate: Path, *, multikueue: bool = False
) -> None:
    """Prepares the cluster, and starts the controller at the address that the certificate is for. `multikueue`: with
    our dispatcher, and for the kinds that `toy_trainer` has installed, too.
    """
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    port, folder, definitions = free_port(), process.folder / "kueue", program("kueue-definitions")
    cluster.define(definitions / "crds", *KINDS)
    cluster.kubectl("create", "namespace", NAMESPACE)
    groups = GROUPS | (TRAINING if multikueue else set())
    hooks = webhooks(definitions / "webhooks.yaml", f"https://{host}:{port}", certificate, groups)
    # To validate them kubectl would fetch the schemas of everything that was just defined, while they are being made.
    cluster.kubectl("apply", "--validate=false", "-f", "-", stdin="\n---\n".join(map(json.dumps, hooks)))
    frameworks = ["batch/job", *(FRAMEWORKS if multikueue else ())]
    own: dict[str, Any] = {"apiVersion": API, "namespace": NAMESPACE, "integrations": {"frameworks": frameworks}}
    if multikueue:
        own["multiKueue"] = {"dispatcherName": DISPATCHER}
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


def queue(
    name: str, namespace: str, gpus: int, checks: Sequence[str] = (), local: str = "default"
) -> list[dict[str, Any]]:
    """A ClusterQueue with so many GPUs and these AdmissionChecks, and a LocalQueue; the one called `default` takes
    every Job of the namespace.
    """
    quota = {"cpu": "1k", "memory": "1Ti", "nvidia.com/gpu": str(gpus)}
    counted = [{"name": what, "nominalQuota": amount} for what, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": name, "resources": counted}]}
    version = "kueue.x-k8s.io/v1beta2"
    strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": check} for check in checks]}} if checks else {}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group], **strategy},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": local, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]


def workers(check: str, clusters: Mapping[str, Path]) -> list[dict[str, Any]]:
    """MultiKueue's check for these workers, by name, each with its kubeconfig in a Secret."""
    version = "kueue.x-k8s.io/v1beta2"
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": check}
    objects: list[dict[str, Any]] = []
    for name, kubeconfig in clusters.items():
        source = {"kubeConfig": {"locationType": "Secret", "location": name}}
        objects += [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "stringData": {"kubeconfig": kubeconfig.read_text()},
            },
            {
                "apiVersion": version,
                "kind": "MultiKueueCluster",
                "metadata": {"name": name},
                "spec": {"clusterSource": source},
            },
        ]
    return [
        *objects,
        {
            "apiVersion": version,
            "kind": "MultiKueueConfig",
            "metadata": {"name": check},
            "spec": {"clusters": list(clusters)},
        },
        {
            "apiVersion": version,
            "kind": "AdmissionCheck",
            "metadata": {"name": check},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters},
        },
    ]
