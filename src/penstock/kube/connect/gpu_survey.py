"""What a cluster has, as its nodes and its API tell: GPUs, models, MIG slices, autoscalers, Karpenter, Kueue. The part
that reads nodes is pure; `penstock connect` prints the result and writes a site from it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.core.values import value
from penstock.kube import resource_slices
from penstock.kube.client import CONFIG_MAPS, NODES, POLICIES, PROVISIONING_REQUESTS, Cluster, Kind, Obj
from penstock.kube.errors import Forbidden, Invalid, NotFound
from penstock.kube.gpu_models import MIG, TPU, TPU_TOPOLOGY, USUAL, WHOLE, model_of, naming_label
from penstock.kube.manifests import USERS

PRODUCT: Final = "nvidia.com/gpu.product"  #: written by NVIDIA's GPU feature discovery
INSTANCE: Final = "node.kubernetes.io/instance-type"
NODE_POOL: Final = "karpenter.sh/nodepool"
GPU_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
GPU_COUNT: Final = "karpenter.k8s.aws/instance-gpu-count"
CAPACITY: Final = "karpenter.sh/capacity-type"
#: Labels of nodes that a cloud may reclaim.
SPOT: Final = {
    CAPACITY: "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
#: Taints that say what a node is, not whose it is: pods that ask for GPUs may tolerate these.
OF_GPU_NODES: Final = (*WHOLE, *SPOT)
AUTOSCALER: Final = ("cluster-autoscaler-status", "kube-system")
NODE_POOLS: Final = Kind("NodePool", "nodepools", "karpenter.sh/v1", namespaced=False)
CLUSTER_QUEUES: Final = [
    Kind("ClusterQueue", "clusterqueues", f"kueue.x-k8s.io/{version}", namespaced=False)
    for version in ("v1beta2", "v1beta1")
]


@value
class GpuNodes:
    """Nodes alike, which make one offer."""

    model: str  # empty: no label says it
    gpus_per_node: int
    nodes: int  # 0: none now; an autoscaler makes them
    mig: str = ""
    resource: str = "nvidia.com/gpu"
    spot: bool = False
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()  # keys
    fenced_by: tuple[str, ...] = ()  # other taints, which keep our pods off
    shared: bool = False  # by time slices

    @property
    def offered(self) -> bool:
        """Our pods could run there, and each would have its GPUs for itself."""
        return not self.shared and not self.fenced_by


@value
class Survey:
    version: str
    gpus: tuple[GpuNodes, ...] = ()
    autoscaler: bool = False
    node_pools: tuple[str, ...] = ()  # Karpenter's
    kueue: tuple[str, ...] = ()  # names of its ClusterQueues
    has_kueue: bool = False
    provisioning: bool = False  # ProvisioningRequests are served, and this login may see them
    policies: bool = True  # our admission policies are there, or this login may not look
    architectures: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # what the login may not look at

    @property
    def grows(self) -> bool:
        return self.autoscaler or bool(self.node_pools)


async def survey(cluster: Cluster) -> Survey:
    """Asks with the login that was given; what it may not see is named and left out."""
    unseen: list[str] = []
    nodes = await _with_devices(cluster, await listed(cluster, NODES, unseen) or [], unseen)
    pools = await listed(cluster, NODE_POOLS, unseen)
    queues: list[Obj] | None = None
    for kind in CLUSTER_QUEUES:
        queues = await listed(cluster, kind, unseen) if queues is None else queues
    standing = gpus_of(nodes)
    pooled = [offer for offer in pools_with_gpus(pools or ()) if not _has_nodes(nodes, offer)]
    return Survey(
        version=await cluster.version(),
        gpus=(*standing, *pooled),
        autoscaler=bool(await _exists(cluster, CONFIG_MAPS, *AUTOSCALER, unseen)),
        node_pools=tuple(str(pool["metadata"]["name"]) for pool in pools or ()),
        kueue=tuple(str(queue["metadata"]["name"]) for queue in queues or ()),
        has_kueue=queues is not None,
        provisioning=await listed(cluster, PROVISIONING_REQUESTS, []) is not None,
        policies=await _exists(cluster, POLICIES, USERS, "", unseen) is not False,
        architectures=tuple(sorted({_labels(node).get("kubernetes.io/arch", "") for node in nodes} - {""})),
        unseen=tuple(dict.fromkeys(unseen)),
    )


async def _with_devices(cluster: Cluster, nodes: list[Obj], unseen: list[str]) -> list[Obj]:
    """With the GPUs that drivers publish as devices, and that no number in a node's status says."""
    kind = await cluster.first_kind(resource_slices.VERSIONS, resource_slices.SLICE)
    slices = None if kind is None else await listed(cluster, kind, unseen)
    supply = resource_slices.Supply(slices or ())
    return [supply.of(node) for node in nodes]


async def listed(cluster: Cluster, kind: Kind, unseen: list[str]) -> list[Obj] | None:
    """None: the cluster has no such kind, or does not show it."""
    try:
        return (await cluster.list(kind))[0]
    except (NotFound, Invalid):
        return None
    except Forbidden:
        unseen.append(kind.resource)
        return None


async def _exists(cluster: Cluster, kind: Kind, name: str, namespace: str, unseen: list[str]) -> bool | None:
    """None: this login may not look."""
    try:
        await cluster.get(kind, name, namespace)
    except NotFound:
        return False
    except Forbidden:
        unseen.append(f"{kind.resource}/{name}{f' in {namespace}' if namespace else ''}")
        return None
    return True


# --- nodes, pure ------------------------------------------------------------------------------------------------------


def gpus_of(nodes: Iterable[Obj]) -> list[GpuNodes]:
    """Nodes alike, counted; most GPUs first."""
    counted: dict[GpuNodes, int] = {}
    for node in nodes:
        for kind in _of_node(node):
            counted[kind] = counted.get(kind, 0) + 1
    kinds = [replace(kind, nodes=count) for kind, count in counted.items()]
    return sorted(kinds, key=lambda kind: (-kind.nodes * kind.gpus_per_node, kind.model, kind.mig, kind.spot))


def _of_node(node: Obj) -> list[GpuNodes]:
    """A node with MIG slices of several profiles counts once for each."""
    labels, capacity = _labels(node), node.get("status", {}).get("capacity") or {}
    counts = {key: str(quantity) for key, quantity in capacity.items() if key in WHOLE or key.startswith(MIG)}
    product = labels.get(PRODUCT) or str(node.get("product", "")).replace(" ", "-")
    product, shared = product.removesuffix("-SHARED"), product.endswith("-SHARED")
    whole, _, single = product.partition("-MIG-")
    taints = [taint for taint in node.get("spec", {}).get("taints") or () if _keeps_off(taint)]
    return [
        GpuNodes(
            model=_model(whole, labels, resource),
            gpus_per_node=int(count),
            nodes=0,
            mig=resource.removeprefix(MIG).replace(".me", "+me") if resource.startswith(MIG) else single,
            resource=resource,
            spot=is_spot(labels),
            selector=_selector(labels, resource),
            tolerations=tuple(sorted({str(taint["key"]) for taint in taints if taint["key"] in OF_GPU_NODES})),
            fenced_by=tuple(sorted({_shown(taint) for taint in taints if taint["key"] not in OF_GPU_NODES})),
            shared=shared,
        )
        for resource, count in sorted(counts.items())
        if count.isdigit() and int(count) > 0
    ]


def is_spot(labels: Mapping[str, str]) -> bool:
    return any(labels.get(key) == text for key, text in SPOT.items())


def model_of_labels(labels: Mapping[str, str]) -> str:
    """Of a whole GPU; empty: no label says it."""
    return _model(labels.get(PRODUCT, ""), labels)


def _model(product: str, labels: Mapping[str, str], resource: str = USUAL) -> str:
    """As Jobs name it: `A100-SXM4-80GB` of `NVIDIA-A100-SXM4-80GB`; else by the cloud's own labels, all those by which
    Jobs are understood.
    """
    key = naming_label(labels, resource)
    name = product if product and resource != TPU else model_of(key, labels.get(key, ""))
    upper = name.upper() if name.islower() else name
    return re.sub("^(NVIDIA-TESLA|NVIDIA-Tesla|NVIDIA|Tesla)[-_]", "", upper)


def _selector(labels: Mapping[str, str], resource: str) -> tuple[tuple[str, str], ...]:
    """The labels that tell these nodes from others with GPUs, and whether they are spot. Jobs name the hosts of a TPU
    slice by its topology, too.
    """
    key = naming_label(labels, resource) or INSTANCE
    keys = [key, TPU_TOPOLOGY] if resource == TPU else [key]
    of_model = [(key, labels[key]) for key in keys if labels.get(key)]
    return (*of_model, *[(spot, text) for spot, text in SPOT.items() if labels.get(spot) == text][:1])


def _labels(node: Obj) -> dict[str, str]:
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    return labels


def _keeps_off(taint: Obj) -> bool:
    """Not those that the cluster sets on nodes that are ill."""
    return taint.get("effect") in ("NoSchedule", "NoExecute") and not str(taint["key"]).startswith(
        "node.kubernetes.io/"
    )


def _shown(taint: Obj) -> str:
    return f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"


# --- Karpenter, pure --------------------------------------------------------------------------------------------------


def pools_with_gpus(pools: Iterable[Obj]) -> list[GpuNodes]:
    """An offer for each NodePool whose requirements name GPUs: by their model, or by machine types that have some."""
    offers = []
    for pool in pools:
        template = pool.get("spec", {}).get("template", {}).get("spec", {})
        wants = {
            row["key"]: row.get("values") or ()
            for row in template.get("requirements") or ()
            if row.get("operator") == "In"
        }
        models = {name.upper() for name in wants.get(GPU_NAME, ())}
        models |= {model_of(INSTANCE, machine) for machine in wants.get(INSTANCE, ())} - {""}
        if models:
            offers.append(_of_pool(str(pool["metadata"]["name"]), sorted(models), wants, template.get("taints") or ()))
    return offers


def _of_pool(name: str, models: Sequence[str], wants: Mapping[str, Sequence[str]], taints: Iterable[Obj]) -> GpuNodes:
    counts = [int(count) for count in wants.get(GPU_COUNT, ()) if str(count).isdigit()]
    keys = {str(taint["key"]) for taint in taints if _keeps_off(taint)}
    return GpuNodes(
        model=models[0] if len(models) == 1 else "",
        gpus_per_node=max(counts, default=8),
        nodes=0,
        spot=list(wants.get(CAPACITY, ())) == ["spot"],
        selector=((NODE_POOL, name),),
        tolerations=tuple(sorted(keys & set(OF_GPU_NODES))),
        fenced_by=tuple(sorted(f"{key}:NoSchedule" for key in keys - set(OF_GPU_NODES))),
    )


def _has_nodes(nodes: Iterable[Obj], pool: GpuNodes) -> bool:
    """Its nodes were counted already."""
    return any(_labels(node).get(NODE_POOL) == pool.selector[0][1] and _of_node(node) for node in nodes)
