import os
from collections.abc import Iterator

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, programs
from tests.clusters import A100, bed, clusters, east, lab, namespace, shared_bed
from tests.conftest import Part

__all__ = ["bed", "clusters", "east", "lab", "namespace", "own_bed", "shared_bed"]


@pytest.fixture(scope="session")
def own_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """Two clusters of this worker's own, a node of eight GPUs each: how many are free must be ours to say."""
    if "PENSTOCK_TEST_KUBECONFIGS" in os.environ:
        pytest.skip(Part.OUR_CLUSTERS)
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    plans = [ClusterPlan(name, (NodePlan(1, gpus=8, model=A100),)) for name in ("lab", "east")]
    with ClusterGroup(tmp_path_factory.mktemp("beds") / "bed", plans) as made:
        yield made
