"""The rules of the test run itself, tried on a small project of their own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # each test starts a pytest of its own

SKIPS = """
import pytest
from tests.conftest import Part, shared_data

def test_skips():
    pytest.skip(Part.KUBERNETES)

@pytest.mark.skip(reason=Part.KUBERNETES)
def test_marked():
    pass

@pytest.fixture
def server():
    pytest.skip(Part.POSTGRES)

def test_by_fixture(server):
    pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False

def test_on_traces():
    shared_data()

def test_on_more_traces():
    shared_data()
"""
SKIPS_FOR_A_REASON_OF_ITS_OWN = """
import pytest

def test_skips():
    pytest.skip("not today")

@pytest.mark.skip(reason="by mark")
def test_marked():
    pass
"""
SKIPS_WHOLE_FILE = "import pytest\npytest.importorskip('no_such_module')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tests = tmp_path / "project" / "tests"
    tests.mkdir(parents=True)
    for name in ("conftest.py", "kueue_cluster.py", "once.py", "parts.py", "together.py", "turns.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    (tests / "test_skips.py").write_text(SKIPS)
    return tests.parent


def run(project: Path, *options: str, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:randomly", "--rootdir=.", *options]
    done = subprocess.run(
        command,
        cwd=project,
        env=clean | env | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def left_out(output: str) -> list[str]:
    """The lines of the summary about what is missing."""
    _, _, summary = output.partition("left out, for what this machine does not have")
    return [line for line in summary.splitlines()[1:] if re.match(r" +\d+ tests? ", line)]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_missing_is_one_line_with_the_number_of_tests_and_how_to_get_it(project: Path, workers: str) -> None:
    output = run(project, "-n", workers)
    assert "5 skipped, 1 xfailed" in output
    assert sorted(left_out(output)) == [
        "    1 test   PostgreSQL server: apt-get install postgresql",
        "    2 tests  Kubernetes programs: `make kube` builds them once, in about ten minutes",
        "    2 tests  recorded traces: PENSTOCK_SHARED names their folder; generated load is tested",
    ]


def test_where_nothing_is_missing_nothing_is_said(project: Path) -> None:
    (project / "tests" / "test_skips.py").write_text("def test_runs():\n    pass\n")
    assert "left out" not in run(project)


def test_a_skip_for_no_optional_part_fails(project: Path) -> None:
    (project / "tests" / "test_skips.py").write_text(SKIPS_FOR_A_REASON_OF_ITS_OWN)
    (project / "tests" / "test_whole.py").write_text(SKIPS_WHOLE_FILE)
    output = run(project, "--continue-on-collection-errors")
    assert "1 failed, 2 errors" in output  # a mark skips before the test starts: an error
    assert "only for a Part of tests/parts.py: Skipped: not today" in output
    assert "only for a Part of tests/parts.py: Skipped: by mark" in output
    assert "only for a Part of tests/parts.py: Skipped: could not import 'no_such_module'" in output


def test_required_parts_may_not_be_missing_but_traces_may(project: Path) -> None:
    output = run(project, PENSTOCK_REQUIRE_ALL="1")
    assert "1 failed, 2 skipped, 1 xfailed, 2 errors" in output
    assert output.count("allows no skips: Skipped: Kubernetes programs") >= 2
    assert "allows no skips: Skipped: PostgreSQL server" in output
    assert left_out(output) == [
        "    2 tests  recorded traces: PENSTOCK_SHARED names their folder; generated load is tested"
    ]


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
