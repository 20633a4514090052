"""Two clusters of this worker's own, which a test may break, and a PostgreSQL: what two control planes share."""

import os
from collections.abc import Iterator

import pytest

from bench import pair
from penstock.devcluster import ClusterGroup, programs
from tests.conftest import Part
from tests.postgres import Server, server


@pytest.fixture(scope="session")
def database() -> Iterator[Server]:
    with server() as postgres:
        yield postgres


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """`lab` and `east` as `bench.pair` wants them."""
    if "PENSTOCK_TEST_KUBECONFIGS" in os.environ:
        pytest.skip(Part.OUR_CLUSTERS)
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    with ClusterGroup(tmp_path_factory.mktemp("pair") / "bed", pair.PLANS) as made:
        yield made
