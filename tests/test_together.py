"""Tests that share something dear are handed out together, and the list of them is whole."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.together import TOGETHER

#: Fixtures that a worker starts for itself.
DEAR = re.compile(r'scope="module"|\bown_bed\b|\btwo_clusters\b|\breal_bed\b|\bwith_quota\b')
#: Those whose fixture costs little, or that have one test with it.
CHEAP = {
    "tests/faults/test_kill_kube.py",
    "tests/test_once.py",
    "tests/test_together.py",
    "tests/web/test_description.py",
}
FILE = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(12))
def test_it(number): pathlib.Path(f"{__name__}-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_the_list_is_whole() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert {name for name, text in files.items() if DEAR.search(text)} - CHEAP - TOGETHER.keys() == set()
    assert TOGETHER.keys() - files.keys() == set()


def test_they_are_handed_out_together(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "cli"
    folder.mkdir(parents=True)
    (folder / "test_live.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-q", "-n", "2", "tests/cli"]
    env = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "xdist.plugin", "-p", "tests.together"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    workers = [path.read_text() for path in tmp_path.glob("*-*")]
    assert (len(workers), len(set(workers))) == (12, 1)
