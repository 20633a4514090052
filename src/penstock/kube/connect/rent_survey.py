"""What can be rented in a cluster: by its Karpenter, as NodePools and node classes tell, or by Cluster API
(`machine_survey`). `connect --rent` prints what is missing, and writes an offer with `rent` for each NodePool whose
machine types have GPUs, and for each MachineDeployment of size 0 that says which it has.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.core.values import value
from penstock.kube import annotations
from penstock.kube.client import NODE_CLAIMS, NODES, Cluster, Kind, Obj
from penstock.kube.connect.gpu_survey import CAPACITY, GPU_COUNT, INSTANCE, NODE_POOL, NODE_POOLS, GpuNodes, listed
from penstock.kube.connect.machine_survey import MachineSurvey, missing_for_machines, survey_machines
from penstock.kube.gpu_models import model_of

ZONE: Final = "topology.kubernetes.io/zone"
DAEMON_SETS: Final = Kind("DaemonSet", "daemonsets", "apps/v1")
PLUGIN: Final = "device-plugin"  #: in the name of every DaemonSet that registers GPUs
WATCHMAN_NAMESPACE: Final = "penstock"  #: unless the offer says another one
CLOUDS: Final = {"aws://": "eks", "azure://": "aks", "gce://": "gke"}  #: by how a node's providerID begins
USUAL_GPUS: Final = 8  #: of a machine whose NodePool does not count them
#: Of Karpenter's providers, by what their node classes are.
NODE_CLASSES: Final = tuple(
    Kind(kind, f"{kind.lower()}es", version, namespaced=False)
    for kind, version in (
        ("EC2NodeClass", "karpenter.k8s.aws/v1"),
        ("AKSNodeClass", "karpenter.azure.com/v1beta1"),
        ("GCENodeClass", "karpenter.k8s.gcp/v1alpha1"),
        ("OCINodeClass", "oci.oraclecloud.com/v1beta1"),
        ("KWOKNodeClass", "karpenter.kwok.sh/v1alpha1"),
    )
)


@value
class RentablePool:
    """A NodePool whose kind of machine we may rent as well, by claims of our own."""

    name: str
    node_class: tuple[str, str, str]  # group, kind, name
    instance_types: tuple[str, ...]
    model: str  # empty: its types have different GPUs
    gpus_per_node: int = USUAL_GPUS
    counted: bool = False  # the NodePool says how many GPUs
    zones: tuple[str, ...] = ()
    spot: bool = False  # only as spot
    labels: tuple[tuple[str, str], ...] = ()


@value
class RentSurvey:
    karpenter: bool = False  # NodeClaims are served
    pools: tuple[RentablePool, ...] = ()
    classes: tuple[str, ...] = ()  # node classes, as `EC2NodeClass gpu`
    unready: tuple[str, ...] = ()  # those that Karpenter says are not ready, with its words
    plugins: tuple[str, ...] = ()  # DaemonSets of device plugins
    fenced: tuple[str, ...] = ()  # those that do not tolerate the taint of rented nodes
    unseen: tuple[str, ...] = ()  # what the login may not look at
    cluster_api: MachineSurvey = MachineSurvey()
    cloud: str = ""  # whose machines the nodes are: eks, aks, gke


@value
class RentableNodes:
    """What `connect` offers: nodes of a kind, and the offer's `rent`."""

    kind: GpuNodes
    rent: dict[str, Any]
    selector: tuple[str, str] | None = None  # what nodes of the same kind have that are offered by the Job alone


async def survey_rent(cluster: Cluster, namespace: str) -> RentSurvey:
    """Asks with the login that was given. `namespace`: where a watchman has its Lease."""
    unseen: list[str] = []
    claims = await listed(cluster, NODE_CLAIMS, unseen)
    classes = [(kind, node_class) for kind in NODE_CLASSES for node_class in await listed(cluster, kind, unseen) or ()]
    pools = rentable(await listed(cluster, NODE_POOLS, unseen) or ())
    plugins = [
        daemon_set
        for daemon_set in await listed(cluster, DAEMON_SETS, unseen) or ()
        if PLUGIN in daemon_set["metadata"]["name"]
    ]
    return RentSurvey(
        karpenter=claims is not None or NODE_CLAIMS.resource in unseen,
        pools=tuple(pools),
        classes=tuple(f"{kind.name} {node_class['metadata']['name']}" for kind, node_class in classes),
        unready=tuple(why for kind, node_class in classes if (why := _unready(kind, node_class))),
        plugins=tuple(_named(plugin) for plugin in plugins),
        fenced=tuple(_named(plugin) for plugin in plugins if not tolerates_rented(plugin)),
        cluster_api=await survey_machines(cluster, namespace, unseen),
        cloud=cloud_of(await listed(cluster, NODES, unseen) or ()),
        unseen=tuple(dict.fromkeys(unseen)),
    )


def _named(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _unready(kind: Kind, node_class: Obj) -> str:
    """What Karpenter says of a node class that it does not use."""
    for condition in (node_class.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            return f"{kind.name} {node_class['metadata']['name']} is not ready: {condition.get('message', '')}"[:300]
    return ""


# --- pure -------------------------------------------------------------------------------------------------------------


def rentable(pools: Iterable[Obj]) -> list[RentablePool]:
    """NodePools that name machine types with GPUs. Those that name GPUs otherwise leave the type to Karpenter; a claim
    of ours has to name it.
    """
    made = [_pool(pool) for pool in pools]
    return [pool for pool in made if pool.instance_types and pool.node_class[2]]


def _pool(pool: Obj) -> RentablePool:
    template = pool.get("spec", {}).get("template", {})
    spec, by = template.get("spec", {}), template.get("spec", {}).get("nodeClassRef", {})
    wants = {row["key"]: row.get("values") or () for row in spec.get("requirements") or () if row["operator"] == "In"}
    types = [str(kind) for kind in wants.get(INSTANCE, ()) if model_of(INSTANCE, str(kind))]
    models = {model_of(INSTANCE, kind) for kind in types}
    counts = [int(count) for count in wants.get(GPU_COUNT, ()) if str(count).isdigit()]
    return RentablePool(
        name=str(pool["metadata"]["name"]),
        node_class=(str(by.get("group", "")), str(by.get("kind", "")), str(by.get("name", ""))),
        instance_types=tuple(types),
        model=next(iter(models)) if len(models) == 1 else "",
        gpus_per_node=max(counts, default=USUAL_GPUS),
        counted=bool(counts),
        zones=tuple(str(zone) for zone in wants.get(ZONE, ())),
        spot=list(wants.get(CAPACITY, ())) == ["spot"],
        labels=tuple((key, str(text)) for key, text in (template.get("metadata", {}).get("labels") or {}).items()),
    )


def tolerates_rented(daemon_set: Obj) -> bool:
    """Its pods come to rented nodes: without that no GPU ever registers there."""
    pod = daemon_set.get("spec", {}).get("template", {}).get("spec", {})
    taint = annotations.rented_taint("")
    return any(
        row.get("key") in (None, "", taint["key"])
        and row.get("operator", "Equal") == "Exists"
        and row.get("effect") in (None, "", taint["effect"])
        for row in pod.get("tolerations") or ()
    )


def missing_for_rent(survey: RentSurvey) -> list[str]:
    """A sentence each."""
    if not survey.karpenter and not survey.cluster_api.served:
        return [_nobody_rents(survey.cloud)]
    missing = [f"This login may not look at {unseen}, so nothing is known of it." for unseen in survey.unseen]
    if survey.karpenter:
        missing += _of_karpenter(survey)
    missing += missing_for_machines(survey.cluster_api)
    if not survey.plugins:
        missing.append("No DaemonSet of a device plugin is there: rented nodes would never show their GPUs.")
    for plugin in survey.fenced:
        key = annotations.rented_taint("")["key"]
        words = f"give it a toleration with `operator: Exists` for {key}, or rented nodes never show their GPUs"
        missing.append(f"DaemonSet {plugin} does not tolerate the taint of rented nodes: {words}.")
    return missing


def _nobody_rents(cloud: str) -> str:
    words = "Neither Karpenter v1 nor Cluster API is there: install one before Penstock can rent its nodes."
    if not cloud:
        return words
    return f"{words} Or rent node pools of {cloud.upper()}, whose caps are soft: see examples/{cloud}.yaml."


def _of_karpenter(survey: RentSurvey) -> list[str]:
    missing = [f"{why.rstrip('.')}. Mend it: nothing can be rented by it." for why in survey.unready]
    if not survey.pools and not survey.cluster_api.machines:
        missing.append(_no_pool(survey.classes))
    return missing + [line for pool in survey.pools for line in _of_pool(pool)]


def _no_pool(classes: Sequence[str]) -> str:
    by = f"its node classes are {', '.join(classes)}" if classes else "there is no node class, either: make one"
    return f"No NodePool names machine types with GPUs; write an offer with `rent` (docs/clouds.md); {by}."


def _of_pool(pool: RentablePool) -> list[str]:
    about = []
    if not pool.counted:
        about.append(f"NodePool {pool.name} does not say how many GPUs a node has; the offer says {USUAL_GPUS}.")
    if not pool.model:
        types = ", ".join(pool.instance_types)
        about.append(f"The types of NodePool {pool.name} ({types}) have different GPUs: make an offer of each.")
    return about


def rentable_nodes(survey: RentSurvey | None) -> list[RentableNodes]:
    """All that can be offered."""
    if survey is None:
        return []
    return [*map(_by_karpenter, survey.pools), *_by_cluster_api(survey.cluster_api)]


def _by_karpenter(pool: RentablePool) -> RentableNodes:
    kind = GpuNodes(model=pool.model, gpus_per_node=pool.gpus_per_node, nodes=0, spot=pool.spot)
    return RentableNodes(kind, rent_of(pool), (NODE_POOL, pool.name))


def _by_cluster_api(survey: MachineSurvey) -> list[RentableNodes]:
    usual = {} if survey.namespace == WATCHMAN_NAMESPACE else {"watchman": survey.namespace}
    return [
        RentableNodes(
            machines.kind,
            {"way": "cluster_api", "deployment": machines.name, "namespace": machines.namespace, **usual},
        )
        for machines in survey.machines
    ]


def cloud_of(nodes: Iterable[Obj]) -> str:
    """Whose managed Kubernetes it is, by its nodes; empty: none that can be rented at."""
    ids = [str(node.get("spec", {}).get("providerID", "")) for node in nodes]
    return next(
        (cloud for scheme, cloud in CLOUDS.items() for provider_id in ids if provider_id.startswith(scheme)), ""
    )


def rent_of(pool: RentablePool) -> dict[str, Any]:
    """The offer's `rent`, as the sites file has it."""
    group, kind, name = pool.node_class
    rent: dict[str, Any] = {"way": "karpenter", "node_class": {"group": group, "kind": kind, "name": name}}
    rent["instance_types"] = list(pool.instance_types)
    if pool.zones:
        rent["zones"] = list(pool.zones)
    if pool.labels:
        rent["labels"] = dict(pool.labels)
    return rent
