"""The specification of a test bed: clusters, their nodes, and how a node looks to Kubernetes. Pure."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from penstock.core.errors import BadInput

GPU: Final = "nvidia.com/gpu"
PRODUCT: Final = "nvidia.com/gpu.product"  #: the label that the GPU operator writes


@dataclass(frozen=True)
class NodePlan:
    """So many nodes alike. Labels and taints are written as kubectl takes them; MIG profiles as `{"1g.10gb": 7}`."""

    count: int = 1
    gpus: int = 0
    model: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    mig: dict[str, int] = field(default_factory=dict)
    name: str = ""  #: of the first; the cluster numbers the others. Empty: `CLUSTER-gpu-0` and so on


@dataclass(frozen=True)
class ClusterPlan:
    name: str
    nodes: tuple[NodePlan, ...] = ()
    real: bool = False  #: kubelets and containers, which needs root; kwok's nodes otherwise
    kueue: bool = False
    multikueue: bool = False  #: Kueue with our dispatcher, and training kinds that a toy operator plays
    jobset: bool = False
    karpenter: bool = False  #: rents kwok's nodes
    cluster_api: bool = False  #: the same, by MachineDeployments
    dns: bool = False  #: CoreDNS, for real pods
    autoscaler: bool = False  #: cluster-autoscaler, which adds kwok's nodes

    def __post_init__(self) -> None:
        if not self.name.isalnum() or not self.name.islower() or len(self.name) > 12:
            raise BadInput(
                f"A cluster of the test bed is named by up to 12 small letters and digits, not {self.name!r}."
            )

    def numbered(self) -> list[tuple[str, NodePlan]]:
        """Every node by its name, each with its plan."""
        alike = [plan for plan in self.nodes for _ in range(plan.count)]
        return [
            (plan.name or f"{self.name}-{'gpu' if plan.gpus or plan.mig else 'cpu'}-{number}", replace(plan, count=1))
            for number, plan in enumerate(alike)
        ]


def as_plain(plan: ClusterPlan) -> dict[str, Any]:
    return asdict(plan)


def from_plain(plain: dict[str, Any]) -> ClusterPlan:
    nodes = tuple(NodePlan(**{**node, "taints": tuple(node["taints"])}) for node in plain["nodes"])
    return ClusterPlan(**{**plain, "nodes": nodes})


def node_object(name: str, plan: NodePlan, *, real: bool) -> dict[str, Any]:
    """A Node before its kubelet, or kwok, takes it up and says that it is ready.

    A kubelet measures its machine itself, and leaves GPUs alone that it has not heard of from a device plugin.
    """
    machine = {} if real else {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    has = machine | gpus_of(plan)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels_of(name, plan)},
        "spec": {"taints": taints_of(plan)},
        "status": {"allocatable": has, "capacity": has},
    }


def gpus_of(plan: NodePlan) -> dict[str, str]:
    whole = {GPU: str(plan.gpus)} if plan.gpus else {}
    return whole | {f"nvidia.com/mig-{profile}": str(count) for profile, count in plan.mig.items()}


def labels_of(name: str, plan: NodePlan) -> dict[str, str]:
    kubelet = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    operator = {PRODUCT: plan.model} if plan.model else {}
    return kubelet | operator | plan.labels


def taints_of(plan: NodePlan) -> list[dict[str, str]]:
    """`key=value:NoSchedule`, or `key:NoSchedule`."""
    taints = []
    for text in plan.taints:
        both, _, effect = text.rpartition(":")
        key, _, value = both.partition("=")
        taints.append({"key": key, "value": value, "effect": effect})
    return taints
