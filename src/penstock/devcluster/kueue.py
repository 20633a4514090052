"""Installs Kueue in a dev cluster: CRDs, webhooks, and its controller as a process. `cluster` calls it.

Kueue's release manifests need a certificate manager and Services. Here the controller runs beside the API server, which
reaches its webhooks at its own address, and both use the API server's certificate.
"""

import base64
import json
import shutil
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import program

NAMESPACE: Final = "kueue-system"
HOW: Final = "no Kueue: `make kube KUEUE=1` builds it once, in about ten minutes"
#: Webhooks to install; the others are for kinds that no dev cluster has.
GROUPS: Final = {"kueue.x-k8s.io", "batch"}


def found() -> bool:
    try:
        return program("kueue").exists()
    except BadInput:
        return False


def start(process: Process, cluster: ExternalCluster, host: str, certificate: Path) -> None:
    """Prepares the cluster, and starts the controller at the address that the certificate is for."""
    if not found():
        raise BadInput(f"There is {HOW}.")
    port, folder, definitions = free_port(), process.folder / "kueue", program("kueue-definitions")
    cluster.kubectl("apply", "--server-side", "-f", str(definitions / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(*webhooks(definitions / "webhooks.yaml", f"https://{host}:{port}", certificate))
    (folder / "tls").mkdir(parents=True)
    shutil.copy(certificate, folder / "tls" / "tls.crt")
    shutil.copy(certificate.with_suffix(".key"), folder / "tls" / "tls.key")
    (folder / "config.json").write_text(json.dumps(_configuration(folder / "tls", host, port)))
    command = [str(program("kueue")), f"--config={folder / 'config.json'}", "--feature-gates=VisibilityOnDemand=false"]
    process.start(command, {"KUBECONFIG": str(cluster.kubeconfig), "KUEUE_CERTIFICATES": str(folder / "tls")})


def answers(cluster: ExternalCluster) -> bool:
    """Whether its webhook does: a flavor goes through it, and is not made."""
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a-try"}}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(flavor))
    except Refusal:
        return False
    return True


def webhooks(manifest: Path, address: str, certificate: Path, groups: set[str] = GROUPS) -> list[dict[str, Any]]:
    """Those of the release for kinds of these groups, at the controller's own address."""
    import yaml

    found = list(yaml.safe_load_all(manifest.read_text()))
    trusted = base64.b64encode(certificate.read_bytes()).decode()
    for configuration in found:
        configuration["webhooks"] = [hook for hook in configuration["webhooks"] if _groups(hook) <= groups]
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"{address}{path}", "caBundle": trusted}
    return found


def _groups(hook: dict[str, Any]) -> set[str]:
    return {group for rule in hook["rules"] for group in rule["apiGroups"]}


def _configuration(tls: Path, host: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": host, "port": port, "certDir": str(tls)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }


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
