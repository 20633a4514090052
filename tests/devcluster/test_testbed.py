"""A bed's life: the first starts it, the last ends it, and nothing stays, whoever is killed on the way."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.errors import BadInput
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, kubelet_nodes, network, programs, refcount
from penstock.devcluster.processes import marked
from penstock.devcluster.testbed import end_abandoned, stop
from tests.conftest import Part

ONE = [ClusterPlan("lab", (NodePlan(gpus=8),))]
#: Another process that starts a bed, says so, and waits to be killed.
STARTS_AND_WAITS = """
import signal, sys
from pathlib import Path
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan
with ClusterGroup(Path(sys.argv[1]), [ClusterPlan("lab", (NodePlan(gpus=1),), real="real" in sys.argv)]):
    print("runs", flush=True)
    signal.pause()
"""

needs_programs = pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES)
needs_root = pytest.mark.skipif(bool(kubelet_nodes.lacks()), reason=Part.REAL_PODS)


def traces_of(folder: Path) -> list[str]:
    """Whatever still tells of a bed that was there."""
    mark = refcount.mark_for(folder)
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{kubelet_nodes.cgroups_of(mark)}*")]
    links = [path.name for path in Path("/sys/class/net").glob(f"{network.HERE}{mark}*")]
    files = [str(path) for path in (folder,) if path.exists()]
    known = [str(path) for path in refcount.known() if path == folder]
    return [*map(str, marked(mark)), *mounts, *groups, *links, *files, *known]


@needs_programs
@pytest.mark.slow
def test_the_first_starts_it_others_join_and_the_last_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "bed"
    with ClusterGroup(folder, ONE) as first:
        pids = [part.pid for part in first.processes()]
        with ClusterGroup(folder, ONE) as second:
            assert [part.pid for part in second.processes()] == pids
        assert [part.pid for part in first.processes()] == pids
    assert traces_of(folder) == []


@needs_programs
@pytest.mark.slow
def test_what_a_killed_user_left_is_ended_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a list of beds of its own: otherwise a test beside it, which starts a bed, may be the next."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    kill_one_that_runs(tmp_path / "bed")
    assert len(traces_of(tmp_path / "bed")) > 5
    assert tmp_path / "bed" in end_abandoned()
    assert traces_of(tmp_path / "bed") == []


@needs_programs
@needs_root
@pytest.mark.slow
def test_a_real_node_too_leaves_nothing_behind(tmp_path: Path) -> None:
    """Not a process, mount, device or cgroup, even if whoever started it was killed."""
    kill_one_that_runs(tmp_path / "bed", "real")
    assert any("penstock" in trace for trace in traces_of(tmp_path / "bed"))
    assert stop(tmp_path / "bed")
    assert traces_of(tmp_path / "bed") == []


def kill_one_that_runs(folder: Path, *more: str) -> None:
    command = [sys.executable, "-c", STARTS_AND_WAITS, str(folder), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "runs\n"
        user.send_signal(signal.SIGKILL)


@needs_programs
@pytest.mark.slow
def test_up_runs_on_until_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    assert main(["dev-cluster", "up", "--home", str(home), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [cluster["name"] for cluster in said["clusters"]] == ["lab", "east", "west"]
    assert home not in end_abandoned()
    assert main(["dev-cluster", "up", "--home", str(home)]) == 0
    assert "kubectl --context lab get nodes" in capsys.readouterr().out
    assert main(["dev-cluster", "up", "--home", str(home), "--real-pods"]) == 2
    assert "penstock dev-cluster down --home" in capsys.readouterr().err
    assert main(["dev-cluster", "status", "--home", str(home)]) == 0
    ClusterGroup.at(home).cluster("west").kill_api()
    assert main(["dev-cluster", "status", "--home", str(home)]) == 1
    assert main(["dev-cluster", "down", "--home", str(home)]) == 0
    assert traces_of(home) == []


def test_down_without_up_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev-cluster", "down", "--home", str(tmp_path / "none")]) == 0
    assert "nothing to stop" in capsys.readouterr().out


def test_status_without_up_says_how_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev-cluster", "status", "--home", str(tmp_path)]) == 2
    assert "penstock dev-cluster up --home" in capsys.readouterr().err


def test_without_the_programs_one_sentence_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PENSTOCK_KUBE_BIN", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["dev-cluster", "up", "--home", str(tmp_path / "home")]) == 2
    assert "make kube" in capsys.readouterr().err
    assert traces_of(tmp_path / "home") == []


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("dear to me")
    with pytest.raises(BadInput, match="holds other files"), ClusterGroup(tmp_path, ONE):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "dear to me"


def test_several_who_leave_at_once_have_one_last(tmp_path: Path) -> None:
    seats = [refcount.Seat(tmp_path) for _ in range(3)]
    seats[0].take()
    seats[0].share()
    for seat in seats[1:]:
        seat.take()
    lasts = []
    for seat in seats:
        lasts.append(seat.be_last())
        seat.leave(forget=lasts[-1])
    assert lasts == [False, False, True]
