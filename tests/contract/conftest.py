"""What the suites of this folder share: a PostgreSQL server for a run."""

from collections.abc import Iterator

import pytest

from tests.postgres import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as found:
        yield found
