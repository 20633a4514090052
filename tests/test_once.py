"""What passed in the bare copy is not run again, unless a fuller machine could make a difference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

FILE = """
import shutil, subprocess, sys
from hypothesis import given, settings, strategies as st
import pytest
from penstock.live.home_folder import make_home

def test_plain(tmp_path): assert shutil.which("sh")
def test_also_plain(): pass
def test_starts_our_python(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_starts_a_program(): subprocess.run(["true"], check=True)
def test_looks_for_a_program(): assert shutil.which("no-such-program") is None
def test_asks_who_it_is(tmp_path): make_home(tmp_path / "home")

def test_draws_examples():
    @given(st.integers())
    def is_number(n): assert n == int(n)
    is_number()

@pytest.fixture(scope="module")
def server(): subprocess.run(["true"], check=True)
@pytest.mark.parametrize("number", [1, 2])
def test_uses_a_program(number, server): pass

def test_draws_as_many_as_it_says():
    @settings(max_examples=7)
    @given(st.integers())
    def is_number(n): assert n == int(n)
    is_number()

def test_fails(): assert False
def test_skips(): pytest.skip("not here")
@pytest.mark.xfail
def test_is_known(): assert False
@pytest.fixture
def broken(): yield; assert False
def test_fails_at_its_end(broken): pass
"""

WHOLE = """
def test_plain(): pass
def test_also_plain(): pass
"""


def run(folder: Path, *options: str, whole: str = WHOLE) -> str:
    (folder / "test_it.py").write_text(FILE)
    (folder / "test_whole.py").write_text(whole)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-rA", "-q"]
    command += ["-p", "tests.once", "-p", "xdist.plugin", "-n", "1", *options]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_what_would_do_the_same_elsewhere_runs_once(tmp_path: Path) -> None:
    once = ["test_also_plain", "test_draws_as_many_as_it_says", "test_plain", "test_starts_our_python"]
    whole = ["test_whole.py", "test_whole.py::test_also_plain", "test_whole.py::test_plain"]
    run(tmp_path, "--passed=passed.txt")
    assert (tmp_path / "passed.txt").read_text().splitlines() == [*(f"test_it.py::{name}" for name in once), *whole]
    again = run(tmp_path, "--not-again=passed.txt")
    assert "6 tests passed in the bare copy and are not run again" in again
    assert "test_it.py::test_looks_for_a_program" in again
    assert not any(name in again for name in once)


@pytest.mark.slow
def test_a_file_of_which_all_passed_is_not_read_again(tmp_path: Path) -> None:
    run(tmp_path, "--passed=passed.txt", "-k", "plain")
    assert "test_whole.py" in (tmp_path / "passed.txt").read_text().splitlines()
    assert "test_it.py" not in (tmp_path / "passed.txt").read_text().splitlines()
    assert "is read again" not in run(tmp_path, "--not-again=passed.txt", whole="raise RuntimeError('is read again')")
    assert "is read again" in run(tmp_path, whole="raise RuntimeError('is read again')")
