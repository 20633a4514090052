from collections.abc import Iterator

import pytest

from tests.clusters import clusters, east, lab, namespace, real_bed, shared_bed
from tests.typed import Checkout

__all__ = ["checkout", "clusters", "east", "lab", "namespace", "real_bed", "shared_bed"]


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("typed"))


@pytest.fixture
def checkout(copied: Checkout) -> Iterator[Checkout]:
    """A fresh one but for what an earlier test has installed: `make install` finds that up to date."""
    copied.clear()
    yield copied
    copied.clear()
