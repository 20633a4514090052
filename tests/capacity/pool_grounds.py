"""Sites whose nodes are pools of a played cloud, and Nodes of a real API server: ground for the contract's suite, and
for the stories of each cloud.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capacity.pools import NodePools
from penstock.core.units import SECOND
from penstock.devcluster.cluster import DevCluster
from penstock.kube.node_selection import AksWay, EksWay, GkeWay, NodeSelection, OvhWay, PoolWay, RentedNodes
from tests.capacity import played_aks, played_eks, played_gke
from tests.capacity.played_aks import PlayedAks
from tests.capacity.played_cloud import AskApi, PlayedCloud, playing
from tests.capacity.played_eks import PlayedEks
from tests.capacity.played_gke import PlayedGke
from tests.capacity.played_ovh import PlayedOvh
from tests.contract.kit import KubernetesGround, Watch


class PoolGround(KubernetesGround):
    """A namespace of a cluster whose nodes come from a cloud that is played."""

    def __init__(
        self, kind: str, cloud: PlayedCloud, way: PoolWay, cluster: DevCluster, namespace: str, folder: Path
    ) -> None:
        super().__init__(cluster.kubeconfig, namespace, folder)
        self.kind, self.cloud, self.way = kind, cloud, way
        rented = [offer for offer in self.site.offers if offer.sold_by == "node" and offer.term != "owned"]
        self.site = replace(self.site, offers=tuple(replace(offer, kill_ms=10 * SECOND) for offer in rented))
        types = {"lab/slow": "slow-8g"}
        places = [
            (offer.id, NodeSelection(rent=RentedNodes(way, instance_types=(types.get(offer.id, "quick-8g"),))))
            for offer in rented
        ]
        self.settings = replace(self.settings, places=tuple(places))
        self.installation = namespace  # so that each test sees its own nodes alone

    def rename_owner(self, name: str) -> None:
        """Somebody else's marks on a pool."""
        marks = {"eks": "tags", "aks": "tags", "gke": "metadata"}[self.kind]
        said = self.cloud.pools[name].asked
        (said["config"] if self.kind == "gke" else said)[marks]["penstock-installation"] = "another"
        if isinstance(self.cloud, PlayedEks):
            self.cloud.tag(name, {"penstock-installation": "another"})


def eks(nodes: AskApi | None, monkeypatch: pytest.MonkeyPatch) -> tuple[PlayedCloud, Callable[[str], PoolWay]]:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "played")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    region, cluster, role = played_eks.REGION, played_eks.CLUSTER, played_eks.ROLE
    return PlayedEks(nodes), lambda url: EksWay(region, cluster, role, ("subnet-1",), endpoint=url)


def gke(nodes: AskApi | None, _: pytest.MonkeyPatch) -> tuple[PlayedCloud, Callable[[str], PoolWay]]:
    project, location, cluster = played_gke.PROJECT, played_gke.LOCATION, played_gke.CLUSTER
    return PlayedGke(nodes), lambda url: GkeWay(project, location, cluster, "nvidia-tesla-a100", endpoint=url)


def aks(nodes: AskApi | None, _: pytest.MonkeyPatch) -> tuple[PlayedCloud, Callable[[str], PoolWay]]:
    subscription, group, cluster = played_aks.SUBSCRIPTION, played_aks.GROUP, played_aks.CLUSTER
    return PlayedAks(nodes), lambda url: AksWay(subscription, group, cluster, endpoint=url)


def ovh(nodes: AskApi | None, _: pytest.MonkeyPatch) -> tuple[PlayedCloud, Callable[[str], PoolWay]]:
    assert nodes is not None
    return PlayedOvh(nodes), lambda _: OvhWay()


#: Clouds with an API of their own; OVHcloud's is the cluster's.
BY_API = ("eks", "gke", "aks")
CLOUDS: dict[str, Callable[..., tuple[PlayedCloud, Callable[[str], PoolWay]]]] = {
    "eks": eks,
    "gke": gke,
    "aks": aks,
    "ovh": ovh,
}


@contextmanager
def pool_ground(
    kind: str, cluster: DevCluster, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PoolGround]:
    cloud, way = CLOUDS[kind](cluster.api.ask, monkeypatch)
    monkeypatch.setattr(NodePools, "ask_seconds", 0.1)
    monkeypatch.setattr(NodePools, "settle_seconds", 3.0)
    if isinstance(cloud, PlayedOvh):
        cloud.installation = namespace
    with playing(cloud) as url:
        yield PoolGround(kind, cloud, way(url), cluster, namespace, folder)


def pools_of(lab: Watch) -> NodePools:
    assert isinstance(lab.driver.capacity, NodePools)
    return lab.driver.capacity
