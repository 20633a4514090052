"""A folder that every user can enter, for jobs with users of their own: a fixture of tests that need root."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.data.plain_files import remove_tree
from penstock.drivers.local import isolation
from tests.conftest import Part


@pytest.fixture
def jobs_folder() -> Iterator[Path]:
    if isolation.missing():
        pytest.skip(Part.ROOT)
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    remove_tree(folder)
