"""Node selectors, tolerations and queue of an offer in a cluster. The sites file defines them; the driver writes them
on pods and counts nodes by them.
"""

import re
from typing import Final, TypeAlias

from penstock.core.model.types import Offer
from penstock.core.values import value
from penstock.kube.access import Access


@value
class Toleration:
    key: str = ""  # empty: any
    operator: str = "Exists"
    text: str = ""
    effect: str = ""

    def as_dict(self) -> dict[str, str]:
        fields = {"key": self.key, "operator": self.operator, "value": self.text, "effect": self.effect}
        return {key: text for key, text in fields.items() if text}


@value
class Taint:
    key: str
    text: str = ""
    effect: str = "NoSchedule"

    def as_dict(self) -> dict[str, str]:
        fields = {"key": self.key, "value": self.text, "effect": self.effect}
        return {key: text for key, text in fields.items() if text}


@value
class KarpenterWay:
    """By Karpenter NodeClaims: the node class."""

    group: str
    kind: str
    name: str


@value
class ClusterApiWay:
    """By MachineDeployments of Cluster API: which prepared one ours are like, and where it is."""

    deployment: str
    namespace: str
    management: Access | None = None  # the management cluster; None: the site's own
    watchman: str = "penstock"  # the namespace with its Lease, in the management cluster


@value
class EksWay:
    """By managed node groups of EKS."""

    region: str
    cluster: str
    node_role: str
    subnets: tuple[str, ...]
    image: str = ""  # EKS' name for a family of images
    disk_gb: int = 0  # 0: the cloud's default
    endpoint: str = ""  # another address of its API
    notices: str = ""  # URL of the SQS queue in which EC2 says which machines it takes away

    def where(self) -> tuple[str, ...]:
        """The cluster at the cloud, whatever an offer's nodes are."""
        return (self.region, self.cluster, self.endpoint)


@value
class AksWay:
    """By agent pools of AKS."""

    subscription: str
    resource_group: str
    cluster: str
    subnets: tuple[str, ...] = ()  # none or one
    image: str = ""
    disk_gb: int = 0
    endpoint: str = ""

    def where(self) -> tuple[str, ...]:
        return (self.subscription, self.resource_group, self.cluster, self.endpoint)


@value
class GkeWay:
    """By node pools of GKE."""

    project: str
    location: str
    cluster: str
    accelerator: str = ""  # Google's name for the GPU; empty for TPUs, which the machine type names
    accelerators: int = 0  # GPUs of a machine that are cut into slices; 0: as many as the offer counts
    topology: str = ""  # of a TPU slice, which is one node to us: 2x4
    service_account: str = ""
    image: str = ""
    disk_gb: int = 0
    endpoint: str = ""

    def where(self) -> tuple[str, ...]:
        return (self.project, self.location, self.cluster, self.endpoint)


def is_zone(location: str) -> bool:
    """Of Google's places: `europe-west4-a` is a zone, `europe-west4` a region."""
    return location[-2:-1] == "-"


#: A TPU machine type ends so: ct5lp-hightpu-4t.
CHIPS: Final = re.compile(r"-(?P<chips>[0-9]+)t$")


def chips_of(machine_type: str) -> int:
    """TPU chips of one host; 0: it is no TPU machine type."""
    ends = CHIPS.search(machine_type)
    return int(ends["chips"]) if ends is not None else 0


@value
class OvhWay:
    """By NodePool objects of OVHcloud, in the cluster itself."""

    monthly: bool = False

    def where(self) -> tuple[str, ...]:
        return ()


#: Ways by the cloud's own pools of nodes.
PoolWay: TypeAlias = EksWay | AksWay | GkeWay | OvhWay
#: How a node is rented: one value for each way. `config/renting.py` reads them, `capacity/ways.py` rents by them.
RentWay: TypeAlias = KarpenterWay | ClusterApiWay | PoolWay


@value
class RentedNodes:
    """How an offer's nodes are rented one by one, and what a node must be, whatever the way."""

    way: RentWay
    instance_types: tuple[str, ...] = ()  # empty: the node type of each size
    zones: tuple[str, ...] = ()  # empty: any
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()

    def types_for(self, offer: Offer, gpus: int) -> tuple[str, ...]:
        """Instance types with so many GPUs; empty: nobody named one."""
        shape = next((shape for shape in offer.shapes if shape.gpus == gpus), None)
        return self.instance_types or ((shape.name,) if shape is not None and shape.name else ())

    def host_chips(self, offer: Offer) -> int:
        """TPU chips of each host of a slice, which is one node to us; 0: its nodes are no slices."""
        types = self.types_for(offer, offer.shapes[0].gpus)
        return chips_of(types[0]) if isinstance(self.way, GkeWay) and self.way.topology and types else 0


@value
class NodeSelection:
    """The nodes of an offer, and what a pod needs to be scheduled there."""

    resource: str = "nvidia.com/gpu"
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    queue: str = ""  # the LocalQueue, if Kueue manages quota
    headroom: tuple[int, ...] = ()  # GPUs kept free for others: one number, or one for each hour of the day
    rent: RentedNodes | None = None  # None: its nodes are there, or an autoscaler adds them
    provisioning_class: str = ""  # of ProvisioningRequests by which an autoscaler is asked first; empty: it is not


@value
class ClusterClassWay:
    """A whole cluster by Cluster API: which ClusterClass it is made from, and where."""

    cluster_class: str
    version: str  # of Kubernetes
    namespace: str
    management: Access
    watchman: str = "penstock"  # the namespace with its Lease
    variables: tuple[tuple[str, str], ...] = ()  # each as JSON
    workers: tuple[tuple[str, int], ...] = ()  # machines of each worker class
    up_within_ms: int = 900_000


@value
class ClusterSite:
    """A site that is a cluster: how to connect, and the namespaces we use."""

    access: Access = Access()
    namespace: str = "penstock"
    namespaces: tuple[str, ...] = ()  # further namespaces: of home Jobs, or mapped to from them
    shared: bool = False  # other installations use this cluster, too, in their own namespaces
    secret: str = ""  # a Secret whose keys become environment variables of every job
    grace_ms: int = 30_000
    room_ms: int = 60_000
    scale_ms: int = 900_000
    places: tuple[tuple[str, NodeSelection], ...] = ()  # by the offer's id
    transient: ClusterClassWay | None = None  # its cluster comes and goes; None: it is there
