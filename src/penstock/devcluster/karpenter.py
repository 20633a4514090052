"""Installs Karpenter in a dev cluster: its CRDs, and its controller with the kwok provider as a process. `cluster`
calls it; tests make node classes and pools with the functions at the end.

The controllers are those of the release. The cloud is a toy: a machine is a Node that kwok plays, of a type in
`instance_types`, and a KWOKNodeClass may say that there are none left (`programs.STOCK_OUT`).
"""

import http.client
import json
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.access import AdminApi
from penstock.devcluster.external import ExternalCluster
from penstock.devcluster.plan import GPU
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import STOCK_OUT, is_built, program

HOW: Final = "no Karpenter: `make kube KARPENTER=1` builds it once, in about five minutes"
GROUP: Final = "karpenter.kwok.sh"  #: of the kwok provider's node class
CLASSES: Final = f"/apis/{GROUP}/v1alpha1/kwoknodeclasses"
POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
ZONES: Final = ("zone-a", "zone-b")
#: By name: processors, GiB of memory, other resources, and micro-dollars an hour on demand.
TYPES: Final[dict[str, tuple[int, int, dict[str, str], int]]] = {
    "cpu-8": (8, 32, {}, 380_000),
    "l4-1x": (8, 32, {GPU: "1"}, 810_000),
    "a100-1x": (12, 85, {GPU: "1"}, 3_670_000),
    "a100-8x": (96, 1_360, {GPU: "8"}, 29_390_000),
    "h100-8x": (192, 2_000, {GPU: "8"}, 88_000_000),
    "a100-mig": (12, 85, {"nvidia.com/mig-1g.10gb": "7"}, 3_670_000),
    "a100-blind": (96, 1_360, {GPU: "0"}, 29_390_000),  #: its GPUs never register
}
SPOT: Final = 0.4  #: of the price on demand


def is_available() -> bool:
    return is_built("karpenter")


def install(cluster: ExternalCluster) -> None:
    if not is_available():
        raise BadInput(f"There is {HOW}.")
    kinds = ("nodeclaims.karpenter.sh", "nodepools.karpenter.sh", f"kwoknodeclasses.{GROUP}")
    cluster.define(program("karpenter-definitions") / "crds", *kinds)


def start(process: Process, cluster: ExternalCluster) -> None:
    folder, ports = process.folder / "karpenter", (free_port(), free_port())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "instance_types.json").write_text(json.dumps(instance_types()))
    (folder / "port").write_text(str(ports[1]))
    process.start([str(program("karpenter"))], {
        "KUBECONFIG": str(cluster.kubeconfig), "DISABLE_LEADER_ELECTION": "true", "METRICS_PORT": str(ports[0]),
        "HEALTH_PROBE_PORT": str(ports[1]), "FEATURE_GATES": "StaticCapacity=true,CapacityBuffer=true",
        "INSTANCE_TYPES_FILE_PATH": str(folder / "instance_types.json"), "BATCH_IDLE_DURATION": "200ms",
        "DISABLE_CLUSTER_STATE_OBSERVABILITY": "true",
    })  # fmt: skip


def answers(process: Process) -> bool:
    """Whether it says that it is ready; raises OSError while it does not listen."""
    probe = http.client.HTTPConnection("127.0.0.1", int((process.folder / "karpenter" / "port").read_text()), timeout=5)
    try:
        probe.request("GET", "/readyz")
        return probe.getresponse().status == 200
    finally:
        probe.close()


# --- what its cloud has ----------------------------------------------------------------------------------------------


def instance_types() -> list[dict[str, Any]]:
    """In the format of Karpenter's kwok/cloudprovider. It cannot read that of its kwok/examples."""
    return [
        {
            "name": name,
            "offerings": [
                _offering(kind, zone, price) for zone in ZONES for kind, price in _prices(hourly_micros).items()
            ],
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(cpu), "memory": f"{memory}Gi", "ephemeral-storage": "1Ti", "pods": "110", **more},
        }
        for name, (cpu, memory, more, hourly_micros) in TYPES.items()
    ]


def _prices(hourly_micros: int) -> dict[str, float]:
    return {"on-demand": hourly_micros / 1e6, "spot": SPOT * hourly_micros / 1e6}


def _offering(kind: str, zone: str, price: float) -> dict[str, Any]:
    is_one = {"karpenter.sh/capacity-type": kind, "topology.kubernetes.io/zone": zone}
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in is_one.items()]
    return {"Price": price, "Available": True, "Requirements": wanted}


# --- objects for tests -----------------------------------------------------------------------------------------------


def node_class(name: str, *, stock_out: str = "", joins_after: str = "") -> dict[str, Any]:
    """`stock_out`: the cloud's words for why it has no machine; `joins_after`: how long a machine boots, as `10s`."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name, "annotations": {STOCK_OUT: stock_out}},
        "spec": {"nodeRegistrationDelay": joins_after} if joins_after else {},
    }


def node_pool(
    name: str,
    *,
    types: tuple[str, ...],
    kinds: tuple[str, ...] = ("on-demand",),
    labels: dict[str, str] | None = None,
    taint: str = "",
    most_gpus: int | None = None,
    empty_for: str = "1s",
) -> dict[str, Any]:
    """Nodes of these types from zero, for pods that tolerate its taint, gone when they have been empty for so long. Its
    node class has its name.
    """
    asked = {"node.kubernetes.io/instance-type": types, "karpenter.sh/capacity-type": kinds}
    spec = {
        "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": name},
        "requirements": [{"key": key, "operator": "In", "values": list(values)} for key, values in asked.items()],
        "taints": [{"key": taint, "effect": "NoSchedule"}] if taint else [],
        "expireAfter": "Never",
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": labels or {}}, "spec": spec},
            **({} if most_gpus is None else {"limits": {GPU: str(most_gpus)}}),
            # The default budget of 10 % ends one node at a time.
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": empty_for,
                "budgets": [{"nodes": "100%"}],
            },
        },
    }


def remove(api: AdminApi, name: str) -> None:
    """Pools, claims and classes whose names begin with this one; does not wait for their nodes to go."""
    for path in (POOLS, CLAIMS, CLASSES):
        for item in api.ask("GET", path).body["items"]:
            if item["metadata"]["name"].startswith(name):
                api.ask("DELETE", f"{path}/{item['metadata']['name']}")
