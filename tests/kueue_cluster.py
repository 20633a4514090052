"""One cluster with Kueue for all tests that want no more of it than a queue: Kueue takes longer to start than each."""

from collections.abc import Callable, Iterator

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, NodePlan, kueue


@pytest.fixture(scope="session")
def kueue_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Two nodes of eight GPUs."""
    plan = ClusterPlan("lab", (NodePlan(2, gpus=8),), kueue=True)
    with ClusterGroup(tmp_path_factory.mktemp("kueue") / "bed", [plan]) as bed:
        yield bed.cluster("lab")


@pytest.fixture
def with_quota(kueue_cluster: DevCluster) -> Iterator[Callable[[int], str]]:
    """Makes a namespace whose Jobs all go through a queue with so many GPUs; its ClusterQueue has the same name."""
    made: list[str] = []

    def make(gpus: int) -> str:
        namespace = kueue_cluster.new_namespace()
        made.append(namespace)
        kueue_cluster.apply(*kueue.queue(namespace, namespace, gpus=gpus))
        # Until Kueue knows the queue, its webhook lets Jobs pass by it.
        kueue_cluster.kubectl("-n", namespace, "wait", "localqueue/default", "--for=condition=Active", "--timeout=55s")
        return namespace

    yield make
    for namespace in made:
        kueue_cluster.empty_namespace(namespace)
        kueue_cluster.drop_namespace(namespace)
