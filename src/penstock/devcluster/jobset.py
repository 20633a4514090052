"""Installs JobSet in a dev cluster: its CRD, its webhooks for JobSets, and its controller as a process. `cluster` calls
it.

As with Kueue, the controller runs beside the API server and uses its certificate. Its webhooks for pods are left out:
they only serve exclusive placement.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster import kueue
from penstock.devcluster.external import LIMIT_S, ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import program

HOW: Final = "no JobSet: `make kube JOBSET=1` builds it once, in about five minutes"
GROUPS: Final = {"jobset.x-k8s.io"}


def found() -> bool:
    try:
        return program("jobset").exists()
    except BadInput:
        return False


def start(process: Process, cluster: ExternalCluster, host: str, certificate: Path) -> None:
    """Prepares the cluster, and starts the controller at the address that the certificate is for."""
    if not found():
        raise BadInput(f"There is {HOW}.")
    port, folder, definitions = free_port(), process.folder / "jobset", program("jobset-definitions")
    cluster.kubectl("apply", "--server-side", "-f", str(definitions / "crds"))
    _wait_until_served(cluster)
    cluster.apply(*kueue.webhooks(definitions / "webhooks.yaml", f"https://{host}:{port}", certificate, GROUPS))
    (folder / "tls").mkdir(parents=True)
    shutil.copy(certificate, folder / "tls" / "tls.crt")
    shutil.copy(certificate.with_suffix(".key"), folder / "tls" / "tls.key")
    (folder / "config.json").write_text(json.dumps(_configuration(folder / "tls", host, port)))
    process.start(
        [str(program("jobset")), f"--config={folder / 'config.json'}"], {"KUBECONFIG": str(cluster.kubeconfig)}
    )


def _wait_until_served(cluster: ExternalCluster) -> None:
    """`kubectl wait` fails on a definition that has no status yet."""
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            cluster.get("jobsets.jobset.x-k8s.io", "--all-namespaces")
        except Refusal:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def answers(cluster: ExternalCluster) -> bool:
    """Whether its webhook does: a JobSet goes through it, and is not made."""
    container = {"name": "a", "image": "a"}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    spec = {"replicatedJobs": [{"name": "a", "template": template}]}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a-try"}, "spec": spec}
    try:
        cluster.kubectl("-n", "default", "create", "--dry-run=server", "-f", "-", stdin=json.dumps(job_set))
    except Refusal:
        return False
    return True


def _configuration(tls: Path, host: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": host, "port": port, "certDir": str(tls)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
