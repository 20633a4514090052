"""Installs Cluster API in a dev cluster: its CRDs, its webhooks, and its core manager as a process. `cluster` calls it;
tests make clusters and templates with the functions at the end.

Core is that of the release. The cloud is a toy (`toy_provider`): a machine is a Node that kwok plays, in the same
cluster. A ToyMachineTemplate may say that there are no machines left, that one never joins, or has no GPUs.
"""

import json
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.access import AdminApi
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import is_built, program
from penstock.devcluster.toy_provider import API as TOY_API
from penstock.devcluster.toy_provider import GROUP as TOY_GROUP
from penstock.devcluster.toy_provider import command, definitions
from penstock.devcluster.webhook_controllers import webhooks

HOW: Final = "no Cluster API: `make kube CAPI=1` builds it once, in about four minutes"
API: Final = "cluster.x-k8s.io/v1beta2"
PROVIDER: Final = "toy-provider"  #: the name of its process
GROUPS: Final = {"cluster.x-k8s.io"}
VERSION: Final = "v1.35.0"  #: of toy clusters
KINDS: Final = (
    "machinedeployments.cluster.x-k8s.io",
    "clusterclasses.cluster.x-k8s.io",
    f"toymachines.{TOY_GROUP}",
    f"toycontrolplanes.{TOY_GROUP}",
)


def is_available() -> bool:
    return is_built("cluster-api")


def install(cluster: ExternalCluster) -> None:
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    cluster.kubectl("apply", "--server-side", "-f", str(program("cluster-api-definitions") / "crds"))
    cluster.apply(*definitions())
    cluster.until_served(*KINDS)


def start(process: Process, cluster: ExternalCluster, host: str, certificate: Path) -> None:
    """Starts core, with its webhooks at the address that the certificate is for."""
    port, hooks = free_port(), program("cluster-api-definitions") / "webhooks.yaml"
    configurations = webhooks(hooks, f"https://{host}:{port}", certificate, GROUPS)
    for hook in [hook for configuration in configurations for hook in configuration["webhooks"]]:
        hook["failurePolicy"] = "Ignore"  # a test may kill core while others use the cluster
    cluster.apply(*configurations)
    process.start([
        str(program("cluster-api")), f"--kubeconfig={cluster.kubeconfig}", f"--webhook-port={port}",
        f"--webhook-cert-dir={certificate.parent}", f"--webhook-cert-name={certificate.name}",
        f"--webhook-key-name={certificate.with_suffix('.key').name}", "--diagnostics-address=0", "--health-addr=0",
        "--feature-gates=ClusterTopology=true,ReconcilerRateLimiting=false", "--v=0",
    ])  # fmt: skip


def start_provider(process: Process, cluster: ExternalCluster) -> None:
    process.start(command(cluster.kubeconfig))


def answers(cluster: ExternalCluster) -> bool:
    """Whether its webhook does: a Cluster goes through it, and is not made."""
    toy = {"apiVersion": API, "kind": "Cluster", "metadata": {"name": "a-try"}, "spec": _cluster_spec("a-try")}
    try:
        cluster.kubectl("-n", "default", "create", "--dry-run=server", "-f", "-", stdin=json.dumps(toy))
    except Refusal:
        return False
    return True


# --- objects for tests -----------------------------------------------------------------------------------------------


def toy_cluster(name: str, namespace: str) -> list[dict[str, Any]]:
    """A cluster whose machines are Nodes of the dev cluster itself."""
    endpoint = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 443}}
    return [
        _toy("ToyCluster", name, namespace, endpoint),
        _toy("ToyControlPlane", name, namespace, {"version": VERSION}),
        {
            "apiVersion": API,
            "kind": "Cluster",
            "metadata": {"name": name, "namespace": namespace},
            "spec": _cluster_spec(name),
        },
    ]


def cluster_class(name: str, namespace: str, **control_plane: Any) -> list[dict[str, Any]]:
    """A ClusterClass whose clusters are what `control_plane` says (`toy_provider`), with a variable "size"."""
    endpoint = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 443}}
    size = {"name": "size", "required": False, "schema": {"openAPIV3Schema": {"type": "string", "enum": ["s", "m"]}}}
    return [
        _toy("ToyClusterTemplate", name, namespace, {"template": {"spec": endpoint}}),
        _toy("ToyControlPlaneTemplate", name, namespace, {"template": {"spec": control_plane}}),
        {
            "apiVersion": API,
            "kind": "ClusterClass",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "infrastructure": {"templateRef": _template("ToyClusterTemplate", name)},
                "controlPlane": {"templateRef": _template("ToyControlPlaneTemplate", name)},
                "variables": [size],
            },
        },
    ]


def _template(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": TOY_API, "kind": kind, "name": name}


def _cluster_spec(name: str) -> dict[str, Any]:
    return {"infrastructureRef": _ref("ToyCluster", name), "controlPlaneRef": _ref("ToyControlPlane", name)}


def _ref(kind: str, name: str) -> dict[str, Any]:
    return {"apiGroup": TOY_GROUP, "kind": kind, "name": name}


def _toy(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": TOY_API, "kind": kind, "metadata": metadata, "spec": spec}


def pool(name: str, namespace: str, cluster: str, gpus: int, **machine: Any) -> list[dict[str, Any]]:
    """A MachineDeployment of size 0, as a platform engineer prepares it, and its template. `machine`: see
    `toy_provider`.
    """
    template = _toy("ToyMachineTemplate", name, namespace, {"template": {"spec": {"gpus": gpus, **machine}}})
    labels = {"pool": name}
    spec = {
        "clusterName": cluster,
        "version": VERSION,
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": _ref("ToyMachineTemplate", name),
    }
    deployment = {
        "apiVersion": API,
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterName": cluster,
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    return [template, deployment]


def remove(api: AdminApi, namespace: str) -> None:
    """Deployments and transient clusters of a namespace; does not wait for their machines to go."""
    for cluster in api.ask("GET", f"/apis/{API}/namespaces/{namespace}/clusters").body["items"]:
        if (cluster["spec"].get("topology") or {}).get("classRef"):
            api.ask("DELETE", f"/apis/{API}/namespaces/{namespace}/clusters/{cluster['metadata']['name']}")
    api.ask("DELETE", f"/apis/{API}/namespaces/{namespace}/machinedeployments")


def set_machine(api: AdminApi, name: str, namespace: str, **machine: Any) -> None:
    """What machines of this pool do from now on."""
    path = f"/apis/{TOY_API}/namespaces/{namespace}/toymachinetemplates/{name}"
    api.ask("PATCH", path, {"spec": {"template": {"spec": machine}}})
