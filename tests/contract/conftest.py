"""What the suites of this folder share: a PostgreSQL server for a run, and clusters."""

from collections.abc import Iterator

import pytest

from tests.clusters import (
    cloud,
    cloud_namespace,
    clusters,
    lab,
    managed_namespace,
    managing,
    namespace,
    shared_bed,
)
from tests.postgres import Server, server

__all__ = [
    "cloud",
    "cloud_namespace",
    "clusters",
    "lab",
    "managed_namespace",
    "managing",
    "namespace",
    "postgres",
    "shared_bed",
]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as found:
        yield found
