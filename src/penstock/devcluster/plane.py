"""Command lines of one control plane's programs. Pure; `cluster` starts them in this order."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.devcluster.network import Network

STAGES: Final = Path(__file__).with_name("stages.yaml")
#: What a cluster for Jobs needs; the others cost memory, and nobody here asks for them.
CONTROLLERS: Final = (
    "job", "cronjob", "garbage-collector", "namespace", "node-lifecycle", "taint-eviction", "ttl-after-finished",
    "pod-garbage-collector", "serviceaccount", "disruption", "root-ca-certificate-publisher", "clusterrole-aggregation",
    "deployment", "replicaset", "persistentvolume-binder", "persistentvolumeclaim-protection", "endpointslice",
)  # fmt: skip
#: Where nobody forwards services, which addresses they have does not matter.
SERVICES: Final = "10.96.0.0/16"
CLIENT_CA: Final = "client-ca.crt"  #: where this file is, those whom it certifies may log in; a test writes it

Flags = dict[str, Any]


def programs(*, real: bool) -> tuple[str, ...]:
    return ("kube-apiserver", "kube-controller-manager", "kube-scheduler", *(() if real else ("kwok",)))


def flags_of(name: str, folder: Path, note: Flags) -> Flags:
    """`folder` is the cluster's; `note` what it wrote down about itself: url, etcd, network."""
    match name:
        case "kube-apiserver":
            return _server(folder, note)
        case "kube-controller-manager":
            return _speaks_to_it(folder) | {
                "controllers": ",".join(f"{controller}-controller" for controller in CONTROLLERS),
                "root-ca-file": certificate(folder),
            }
        case "kube-scheduler":
            return _speaks_to_it(folder)
        case "kwok":
            return _kwok(folder)
    raise KeyError(name)


def certificate(folder: Path) -> Path:
    """The API server writes it for itself at its first start, with the authority that signed it."""
    return folder / "certificates" / "apiserver.crt"


def _server(folder: Path, note: Flags) -> Flags:
    where, own = urlsplit(note["url"]), certificate(folder)
    key = own.with_suffix(".key")  # also signs service accounts' tokens: one key less to make
    network = Network(*note["network"]) if note["network"] else None
    return {
        "etcd-servers": note["etcd"],
        "etcd-prefix": f"/{folder.name}",
        "bind-address": where.hostname,
        "advertise-address": where.hostname,
        "secure-port": where.port,
        "cert-dir": own.parent,
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-account-issuer": "https://kubernetes.default.svc",
        "token-auth-file": folder / "tokens.csv",
        **({"client-ca-file": folder / CLIENT_CA} if (folder / CLIENT_CA).exists() else {}),
        "authorization-mode": "RBAC",
        "allow-privileged": "true",  # as installers set it; our policy refuses such pods where it applies
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": network.services if network else SERVICES,
        # It gives every pod a token of its account; kwok's pods cannot read.
        "disable-admission-plugins": "" if network else "ServiceAccount",
        "kubelet-preferred-address-types": "InternalIP",
        # On from 1.36; served here, so that our policy for it meets a real API server.
        "feature-gates": "MutatingAdmissionPolicy=true",
        "runtime-config": "admissionregistration.k8s.io/v1beta1=true",
    }


def _speaks_to_it(folder: Path) -> Flags:
    """Of those that have nobody to elect and nothing to serve. By default they ask so seldom that a cluster starts
    three Jobs a second at most, however idle it is."""
    pace = {"kube-api-qps": 1000, "kube-api-burst": 2000}
    return {"kubeconfig": folder / "kubeconfig", "leader-elect": "false", "secure-port": 0, **pace}


def _kwok(folder: Path) -> Flags:
    return {
        "kubeconfig": folder / "kubeconfig",
        "manage-all-nodes": "true",
        "node-lease-duration-seconds": 40,
        "server-address": "",
        "config": STAGES,
    }
