"""Installs JobSet in a dev cluster: its CRD, its webhooks for JobSets, and its controller as a process. `cluster` calls
it.

As with Kueue, the controller runs beside the API server and uses its certificate. Its webhooks for pods are left out:
they only serve exclusive placement.
"""

import json
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import is_built, program
from penstock.devcluster.webhook_controllers import webhooks, write_configuration

API: Final = "config.jobset.x-k8s.io/v1alpha1"
HOW: Final = "no JobSet: `make kube JOBSET=1` builds it once, in about five minutes"
GROUPS: Final = {"jobset.x-k8s.io"}


def is_available() -> bool:
    return is_built("jobset")


def start(process: Process, cluster: ExternalCluster, host: str, certificate: Path) -> None:
    """Prepares the cluster, and starts the controller at the address that the certificate is for."""
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    port, folder, definitions = free_port(), process.folder / "jobset", program("jobset-definitions")
    cluster.define(definitions / "crds", "jobsets.jobset.x-k8s.io")
    cluster.apply(*webhooks(definitions / "webhooks.yaml", f"https://{host}:{port}", certificate, GROUPS))
    configuration = write_configuration(folder, certificate, host, port, apiVersion=API)
    process.start([str(program("jobset")), f"--config={configuration}"], {"KUBECONFIG": str(cluster.kubeconfig)})


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
