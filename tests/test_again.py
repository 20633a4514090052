"""A failure of a whole run is tried again alone: broken tests stay failures, unsteady ones are named."""

import subprocess
import sys
from pathlib import Path

from tests.again import MOST
from tests.conftest import ROOT

STEADY = "def test_steady(): pass\n"
BROKEN = "def test_broken(): assert False\n"
#: Fails as long as there is no file beside it.
UNSTEADY = """
from pathlib import Path
def test_unsteady():
    mark = Path(__file__).with_name("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
MANY = "\n".join(f"def test_{k}(): assert False" for k in range(MOST + 1))


def whole_run(folder: Path, *texts: str) -> subprocess.CompletedProcess[str]:
    """Of these tests, and then of what failed."""
    for k, text in enumerate(texts):
        (folder / f"test_{k}.py").write_text(text)
    python(folder, "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder))
    return python(folder, "tests.again")


def python(folder: Path, *module: str) -> subprocess.CompletedProcess[str]:
    # No plugin is needed, and loading ours takes longer than these tests.
    env = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_an_unsteady_test_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = whole_run(tmp_path, STEADY, UNSTEADY)
    assert (done.returncode, done.stderr) == (0, "unsteady: passed 3 times alone: test_1.py::test_unsteady\n")


def test_a_broken_test_stays_a_failure_beside_an_unsteady_one(tmp_path: Path) -> None:
    done = whole_run(tmp_path, BROKEN, UNSTEADY)
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [
            "broken: failed again, alone: test_0.py::test_broken",
            "unsteady: passed 3 times alone: test_1.py::test_unsteady",
        ],
    )


def test_a_file_that_cannot_be_imported_is_broken(tmp_path: Path) -> None:
    done = whole_run(tmp_path, "import nothing_of_that_name\n")
    assert (done.returncode, done.stderr) == (1, "broken: failed again, alone: test_0.py\n")


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    done = whole_run(tmp_path, MANY)
    assert (done.returncode, done.stderr) == (1, f"{MOST + 1} tests failed; at most {MOST} are tried again.\n")


def test_a_run_that_failed_without_a_failing_test_stays_failed(tmp_path: Path) -> None:
    done = whole_run(tmp_path, STEADY)
    assert (done.returncode, done.stderr) == (1, f"0 tests failed; at most {MOST} are tried again.\n")
