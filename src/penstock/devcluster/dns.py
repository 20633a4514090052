"""CoreDNS for a dev cluster with real nodes, as a process beside the API server: pods find Services and each other by
name. `cluster` calls it.
"""

from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput
from penstock.devcluster.network import Network
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import program

DOMAIN: Final = "cluster.local"
HOW: Final = "no CoreDNS: `make kube DNS=1` builds it once, in about two minutes"
COREFILE: Final = """{domain}:53 {{
    bind {address}
    errors
    kubernetes {domain} {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
"""


def is_available() -> bool:
    try:
        return program("coredns").exists()
    except BadInput:
        return False


def start(process: Process, network: Network, kubeconfig: Path) -> None:
    """It answers at the network's `host`, where every pod reaches it."""
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    corefile = process.folder / "Corefile"
    corefile.write_text(COREFILE.format(domain=DOMAIN, address=network.host, kubeconfig=kubeconfig))
    process.start([str(program("coredns")), "-conf", str(corefile)])
