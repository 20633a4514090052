"""Kubernetes clusters for tests: "lab" and "east", with kwok's nodes; "cloud", where Karpenter rents them, shared by
all workers of a run, too; and real ones.

    from tests.clusters import clusters, lab, namespace, shared_bed      # in the folder's conftest.py
    def test_x(lab: GivenCluster, namespace: str) -> None: ...

PENSTOCK_TEST_KUBECONFIGS=FILE:FILE names clusters of one's own instead; tests that break an API server on purpose are
then skipped. Without the programs (`make kube`) all of them are, with one line.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, cluster_api, karpenter, kubelet_nodes, programs
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.external import ExternalCluster, random_name
from tests.conftest import Part

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
PLANS = (
    ClusterPlan("lab", (NodePlan(2, gpus=8, model=A100),)),
    ClusterPlan(
        "east", (NodePlan(2, gpus=8, model=A100), NodePlan(2, gpus=8, model=H100, taints=("spot:NoSchedule",)))
    ),
)
REAL_PLANS = (
    ClusterPlan("lab", (NodePlan(1, gpus=4, model=A100),), real=True),
    ClusterPlan("east", (NodePlan(2, gpus=4, model=A100),), real=True),
)
#: Its nodes come from Karpenter alone; tests choose theirs by pools, labels and taints of their own.
RENTING_PLAN = ClusterPlan("cloud", karpenter=True)
#: A management cluster of Cluster API that is its own workload cluster.
MANAGING_PLAN = ClusterPlan("managing", cluster_api=True)
BREAKABLE = pytest.StashKey[ClusterGroup]()


@pytest.fixture(scope="session")
def shared_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """One for all workers: the first to ask starts it, the last to leave ends it."""
    if "PENSTOCK_TEST_KUBECONFIGS" in os.environ:
        pytest.skip(Part.OUR_CLUSTERS)
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    with ClusterGroup(_of_this_run(tmp_path_factory) / "clusters", PLANS) as made:
        yield made


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> dict[str, ExternalCluster]:
    """By name: `lab` and `east`, ours or given."""
    if given := os.environ.get("PENSTOCK_TEST_KUBECONFIGS"):
        files = [Path(path).resolve() for path in given.split(":")]
        return {name: ExternalCluster(name, file) for name, file in zip(("lab", "east"), files, strict=True)}
    made: ClusterGroup = request.getfixturevalue("shared_bed")
    return {cluster.name: cluster for cluster in made.clusters()}


@pytest.fixture
def lab(clusters: dict[str, ExternalCluster]) -> ExternalCluster:
    return clusters["lab"]


@pytest.fixture
def east(clusters: dict[str, ExternalCluster]) -> ExternalCluster:
    return clusters["east"]


@pytest.fixture
def namespace(clusters: dict[str, ExternalCluster]) -> Iterator[str]:
    """A fresh one of the same name in both."""
    name = clusters["lab"].new_namespace()
    clusters["east"].new_namespace(name)
    yield name
    for cluster in clusters.values():
        cluster.drop_namespace(name)
        cluster.let_go(name)


@contextmanager
def emptied_namespace(*clusters: DevCluster) -> Iterator[str]:
    """A fresh one of the same name in each. Afterwards whatever it used is free for the next test."""
    name = random_name()
    for cluster in clusters:
        cluster.new_namespace(name)
    try:
        yield name
    finally:  # also if the test failed: the next one needs the GPUs
        for cluster in clusters:
            cluster.empty_namespace(name)
            cluster.drop_namespace(name)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster without nodes, with Karpenter, for all workers. Node classes, pools and claims are the cluster's: name
    them after the test's namespace (`cloud_namespace`).
    """
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if not karpenter.is_available():
        pytest.skip(Part.KARPENTER)
    with ClusterGroup(_of_this_run(tmp_path_factory) / "cloud", [RENTING_PLAN]) as made:
        yield made.cluster("cloud")


@pytest.fixture
def cloud_namespace(cloud: DevCluster) -> Iterator[str]:
    """A fresh one in `cloud`; afterwards its Jobs are gone, and so are pools, claims and classes named after it."""
    name = cloud.new_namespace()
    yield name
    cloud.empty_namespace(name)
    karpenter.remove(cloud.api, name)
    cloud.drop_namespace(name)


@pytest.fixture(scope="session")
def managing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster without nodes, with Cluster API and a toy provider, for all workers."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if not cluster_api.is_available():
        pytest.skip(Part.CLUSTER_API)
    with ClusterGroup(_of_this_run(tmp_path_factory) / "managing", [MANAGING_PLAN]) as made:
        yield made.cluster("managing")


@pytest.fixture
def managed_namespace(managing: DevCluster) -> Iterator[str]:
    """A fresh one in `managing`, with a cluster "own" and a pool "a100" of size 0; afterwards its machines go."""
    name = managing.new_namespace()
    managing.apply(*cluster_api.toy_cluster("own", name), *cluster_api.pool("a100", name, "own", gpus=8))
    yield name
    managing.empty_namespace(name)
    cluster_api.remove(managing.api, name)
    managing.drop_namespace(name)


@pytest.fixture
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ClusterGroup:
    """One cluster "lab" of this worker's own, to be broken. It is whole again for the next test; what was made in it is
    still there, so use namespaces."""
    if "PENSTOCK_TEST_KUBECONFIGS" in os.environ:
        pytest.skip(Part.OUR_CLUSTERS)
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    kept = request.session.stash
    if BREAKABLE not in kept:
        until_the_end = ExitStack()
        request.session.addfinalizer(until_the_end.close)
        kept[BREAKABLE] = until_the_end.enter_context(
            ClusterGroup(tmp_path_factory.getbasetemp() / "breakable", PLANS[:1])
        )
    return kept[BREAKABLE].mend()


@pytest.fixture(scope="session")
def real_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """Two clusters with real pods: "lab" with one node, "east" with two, of four GPUs each. For slow tests."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if kubelet_nodes.lacks():
        pytest.skip(Part.REAL_PODS)
    with ClusterGroup(_of_this_run(tmp_path_factory) / "real-clusters", REAL_PLANS) as made:
        yield made


def _of_this_run(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
