"""Tests that take turns: each has its turn within a few seeds, and whoever names one gets it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.turns import GROUPS

FAMILY = """
import pytest
@pytest.mark.turns(3)
@pytest.mark.parametrize("part", range(7))
def test_long(part): pass
def test_short(): pass
"""


GROUP = """
import pytest
@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_slow(part): pass
def test_quick(): pass
"""


def pytest_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-rA", "-q", "-p"]
    command += ["tests.turns", "-p", "pytest_randomly", *options]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def ran(folder: Path, *options: str) -> set[str]:
    (folder / "test_it.py").write_text(FAMILY)
    done = pytest_in(folder, *options)
    left = 8 - done.stdout.count("PASSED")
    assert (f"{left} tests were left to runs with other seeds" in done.stdout) == (left > 0 and "::" not in options[-1])
    return {line.split("::")[1] for line in done.stdout.splitlines() if line.startswith("PASSED")}


def test_every_file_that_takes_turns_is_there_and_has_slow_tests() -> None:
    assert [name for name in GROUPS if "mark.slow" not in (ROOT / name).read_text("utf-8")] == []


def test_slow_tests_of_a_group_take_turns_and_quick_ones_always_run(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "hostile"
    folder.mkdir(parents=True)
    for name in ("test_copies.py", "test_tokens.py"):
        (folder / name).write_text(GROUP)
    both = [of_group(tmp_path, seed) for seed in (4, 5)]
    quick = {f"test_{file}.py::test_quick" for file in ("copies", "tokens")}
    assert both[0] & both[1] == quick
    assert len(both[0] | both[1]) == 8
    assert [len(run - quick) for run in both] == [3, 3]


def of_group(folder: Path, seed: int) -> set[str]:
    done = pytest_in(folder, f"--randomly-seed={seed}")
    return {line.rpartition("/")[2] for line in done.stdout.splitlines() if line.startswith("PASSED")}


def test_each_has_its_turn(tmp_path: Path) -> None:
    runs = [ran(tmp_path, f"--randomly-seed={seed}") - {"test_short"} for seed in (7, 8, 9)]
    assert sorted(map(len, runs)) == [2, 2, 3]
    assert set.union(*runs) == {f"test_long[{part}]" for part in range(7)}


@pytest.mark.parametrize(
    ("option", "count"),
    [("--every", 8), ("test_it.py", 8), ("test_it.py::test_long", 7), ("test_it.py::test_long[4]", 1)],
)
def test_whoever_asks_gets_it(tmp_path: Path, option: str, count: int) -> None:
    assert len(ran(tmp_path, "--randomly-seed=7", option)) == count
