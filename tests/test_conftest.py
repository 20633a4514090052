"""The rules of the test run itself, tried on a small project of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # each test starts a pytest of its own

SKIPS = """
import pytest
from tests.conftest import shared_data

def test_skips():
    pytest.skip("no cluster here")

@pytest.mark.skip(reason="by mark")
def test_marked():
    pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False

def test_on_traces():
    shared_data()

def test_on_more_traces():
    shared_data()
"""
SKIPS_WHOLE_FILE = "import pytest\npytest.importorskip('no_such_module')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tests = tmp_path / "project" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    (tests / "test_skips.py").write_text(SKIPS)
    return tests.parent


def run(project: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-ra", "--import-mode=importlib", "-p", "no:randomly", "--rootdir=."]
    done = subprocess.run(
        command, cwd=project, env=clean | env, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr


def test_skips_are_skips_by_default(project: Path) -> None:
    assert "4 skipped, 1 xfailed" in run(project)


def test_required_skips_fail_but_missing_traces_are_one_line(project: Path) -> None:
    output = run(project, PENSTOCK_REQUIRE_ALL="1")
    assert "1 failed, 2 skipped, 1 xfailed, 1 error" in output  # a mark skips before the test starts: an error
    assert "allows no skips: Skipped: no cluster here" in output
    assert "allows no skips: Skipped: by mark" in output
    assert output.count("only generated load is tested") == 1


def test_a_required_file_may_not_skip_itself(project: Path) -> None:
    (project / "tests" / "test_whole.py").write_text(SKIPS_WHOLE_FILE)
    output = run(project, PENSTOCK_REQUIRE_ALL="1")
    assert "1 error" in output
    assert "could not import 'no_such_module'" in output


def test_traces_are_found_beside_the_project_or_where_a_variable_says(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "traces"
    elsewhere.mkdir()
    assert "2 passed" in run(project, PENSTOCK_SHARED=str(elsewhere))
    (project.parent / "shared").mkdir()
    assert "2 passed" in run(project)
