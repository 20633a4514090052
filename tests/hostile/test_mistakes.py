"""The hostile tests can fail: each seeded mistake is found by the test that is there for it."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import ROOT
from tests.hostile.mistakes import FOUND_BY, VARIABLE
from tests.sampling import some_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("mistake", "test"), some_of(FOUND_BY.items(), 4), ids=lambda parameter: getattr(parameter, "__name__", "found")
)
def test_a_seeded_mistake_is_found(mistake: Callable[[], None], test: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "tests.hostile.mistakes", test]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {VARIABLE: mistake.__name__, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    assert "AssertionError" in result.stdout or "assert " in result.stdout, result.stdout
