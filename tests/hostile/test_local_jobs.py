"""Jobs against their control plane on this machine: what they read, what they write, what they leave behind.

With users of their own (as root) jobs reach nothing of ours. Where they run as our own user they can, and then one
attempt's rubbish harms that attempt alone, and a site is one team's. Jobs here are shell scripts: root's Python may lie
where nobody else may go.
"""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.drivers.local import isolation
from tests.hostile.control_plane import LIMIT_S, ControlPlane, until

#: Starts a command as root who may not become anybody else, as in some containers; for anybody else it changes nothing.
WITHOUT_RIGHTS = """
import ctypes, os, sys
for right in (6, 7):  # CAP_SETGID, CAP_SETUID
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
ONE_USER = (sys.executable, "-c", WITHOUT_RIGHTS)


def site(**local: Any) -> dict[str, Any]:
    offer = {"name": "gpu", "term": "owned", "gpu": "A100", "gpus_per_node": 4, "nodes": 1}
    return {"currency": "USD", "sites": [{"name": "here", "driver": "local", "local": local, "offers": [offer]}]}


def log_of(plane: ControlPlane, job: str) -> str:
    return plane.client().get(f"/v1/jobs/{job}/log").text


def prints(plane: ControlPlane, job: str, words: str) -> str:
    log: str = until(lambda: log_of(plane, job), lambda text: words in text)
    return log


def cancel(plane: ControlPlane, *jobs: str) -> None:
    for job in jobs:
        plane.client().post(f"/v1/jobs/{job}/cancel").raise_for_status()
    for job in jobs:
        plane.ended(job)


def closed(path: Path) -> bool:
    try:
        return not path.lstat().st_mode & 0o077
    except FileNotFoundError:  # an ended attempt's record goes at any time
        return True


# --- users of their own ----------------------------------------------------------------------------------------------

#: Reads all that it knows of or finds; it is told where the control plane's home is.
PRIES = """
cd / 2>/dev/null
for f in token tokens.json journal.db journal.db-wal users.key sites/here/key; do cat "$1/$f"; done
ls -R "$1" "$2"
find "$1" "$2" -type f -exec cat {} +
for e in /proc/[0-9]*/environ; do cat "$e"; done
cat /proc/$PPID/environ /proc/$PPID/mem /proc/$PPID/cwd/order.json /proc/$PPID/cwd/../../../../token
ls -l /proc/$PPID/fd /proc/$PPID/cwd
echo pried
"""
#: Writes to all that it knows of, and signals everybody whom it may.
BREAKS = """
for f in ended.json marks.json deadline.json stop.json order.json log; do
  echo '{}' > "$1/sites/here/attempts/$PENSTOCK_ATTEMPT/$f"; done
cd .. && for f in report work tmp; do mv "$f" other; ln -s /etc/passwd "$f"; done; mkfifo fifo; cd work
kill -9 $PPID
kill -9 "$2"
ln -s /etc/passwd ../../other; touch ../../../checkpoints/other
echo broke
kill -9 -1
"""


def test_a_job_reads_nothing_of_the_control_plane_or_of_another_team(tmp_path: Path, jobs_folder: Path) -> None:
    """It read `../../../../../token`, its supervisor's environment, and other teams' variables in `journal.db-wal`."""
    env = {"PGPASSWORD": "geheim-1"}
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False, env=env) as plane:
        secret = Path(plane.token_file).read_text().strip()
        vision, speech = (plane.client(plane.token("member", team)) for team in ("vision", "speech"))
        keeps = "echo geheim-3 > kept; echo geheim-4 > ${PENSTOCK_CHECKPOINT_URL#file://}/kept; echo kept; sleep 600"
        victim = plane.submit("sh", "-c", keeps, client=vision, team="vision", env={"PASSWORD": "geheim-2"})
        prints(plane, victim, "kept")
        words = ("sh", "-c", PRIES, "sh", str(plane.home), str(jobs_folder))
        text = prints(plane, plane.submit(*words, client=speech, team="speech"), "pried")
        assert plane.job(victim)["state"] == "running"
        cancel(plane, victim)
        assert "Each job at here has a user of its own" in plane.words
    assert [word for word in ("geheim", secret) if word in text] == []
    assert text.count("Permission denied") > 10


def test_a_job_changes_nothing_of_the_control_plane_or_of_another_job(tmp_path: Path, jobs_folder: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        other = plane.submit("sh", "-c", "echo runs; sleep 600")
        prints(plane, other, "runs")
        assert plane.process is not None
        breaks = plane.submit("sh", "-c", BREAKS, "sh", str(plane.home), str(plane.process.pid))
        assert plane.ended(breaks)["state"] == "succeeded"
        assert "broke" in log_of(plane, breaks)
        assert plane.job(other)["state"] == "running"
        assert plane.process.poll() is None
        assert sorted(path.name for path in jobs_folder.glob("*/here/jobs/*/*")) == sorted(
            ["report", "tmp", "work"] * 2
        )
        cancel(plane, other)
        assert plane.client().get("/v1/status").json()["alarms"] == []


def test_a_job_has_no_groups_no_rights_and_no_way_to_new_ones(tmp_path: Path, jobs_folder: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        job = plane.submit("cat", "/proc/self/status")
        assert plane.ended(job)["state"] == "succeeded"
        status = dict(line.split(":", 1) for line in log_of(plane, job).splitlines())
    uids = {int(uid) for name in ("Uid", "Gid") for uid in status[name].split()}
    assert len(uids) == 1
    assert isolation.FIRST_UID <= uids.pop() < isolation.FIRST_UID + isolation.UIDS
    assert status["Groups"].split() == []
    assert status["NoNewPrivs"].strip() == "1"
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}


@pytest.mark.parametrize("killed", ["supervisor", "supervisor and guardian", "nobody"])
def test_what_a_job_left_in_other_sessions_without_a_name_is_ended(
    tmp_path: Path, jobs_folder: Path, killed: str
) -> None:
    hides = "env -i setsid sh -c 'sleep 600 & sleep 600' & sleep 600 & echo hidden $$; sleep 600"
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        job = plane.submit("sh", "-c", hides)
        main = int(prints(plane, job, "hidden").split()[-1])
        uid = Path(f"/proc/{main}").stat().st_uid
        until(lambda: len(list(isolation.processes_of(uid))) >= 5)
        supervisor = _parent(main)
        if "guardian" in killed:
            os.kill(_parent(supervisor), signal.SIGKILL)
        if killed == "nobody":
            cancel(plane, job)
        else:
            os.kill(supervisor, signal.SIGKILL)
            until(lambda: plane.job(job)["losses"] == 1)
            until(lambda: main not in list(isolation.processes_of(uid)))
            cancel(plane, job)
        assert list(isolation.processes_of(uid)) == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_who_submits_what_the_jobs_user_may_not_enter_is_told_what_to_do(tmp_path: Path, jobs_folder: Path) -> None:
    """`tmp_path` is root's alone, as root's home is."""
    (tmp_path / "program").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "program").chmod(0o755)
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        for job in (plane.submit("pwd", folder=str(tmp_path)), plane.submit(str(tmp_path / "program"))):
            assert plane.ended(job)["state"] == "failed"
            log = log_of(plane, job)
            assert str(tmp_path) in log
            assert "--trust-teams" in log
        open_to_all = jobs_folder / "open"
        open_to_all.mkdir(mode=0o755)
        open_to_all.chmod(0o755)
        job = plane.submit("pwd", folder=str(open_to_all))
        assert plane.ended(job)["state"] == "succeeded"
        assert str(open_to_all) in log_of(plane, job)


def test_exec_is_the_jobs_user_and_its_variables_do_nothing_as_root(tmp_path: Path, jobs_folder: Path) -> None:
    """What enters the job's user begins as root: the job's LD_PRELOAD must not be loaded by then."""
    evil = {"LD_PRELOAD": "/nowhere/evil.so", "PYTHONSTARTUP": "/nowhere", "COLOUR": "blue"}
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        job = plane.submit("sh", "-c", "echo runs; sleep 600", env=evil)
        prints(plane, job, "runs")
        command = [
            sys.executable,
            "-m",
            "penstock.cli",
            "exec",
            job,
            "--",
            "sh",
            "-c",
            "id -u; id -G; echo $COLOUR; pwd",
        ]
        here = os.environ | {"PENSTOCK_HOME": str(plane.home)}
        result = subprocess.run(command, env=here, capture_output=True, text=True, check=True, timeout=LIMIT_S)
        cancel(plane, job)
    uid, groups, colour, folder = result.stdout.splitlines()
    assert result.stderr.count("evil.so") == 3  # by the shell and its programs, and not by ours before them
    assert uid == groups
    assert int(uid) >= isolation.FIRST_UID
    assert (colour, Path(folder).name) == ("blue", "work")


# --- our own user ----------------------------------------------------------------------------------------------------


def test_one_attempts_rubbish_stops_neither_the_site_nor_the_control_plane(tmp_path: Path) -> None:
    """A FIFO as `log` froze the event loop, `{}` as an end ended the watch, 30 digits in `marks.json` the plane."""
    rubbish = """
    cd "$1/sites/here/attempts/$PENSTOCK_ATTEMPT"
    rm -f log; mkfifo log
    echo '{}' > ended.json
    echo '{"checkpoint_ms": 999999999999999999999999999999, "step": 1}' > marks.json
    echo '{"at": 1, "boot_ms": null}' > deadline.json
    sleep 600
    """
    with ControlPlane(tmp_path / "home", sites=site()) as plane:
        bad = plane.submit("sh", "-c", rubbish, "sh", str(plane.home))
        ended = plane.home / "sites" / "here" / "attempts" / f"{bad}.1" / "deadline.json"
        until(lambda: ended.exists() and "null" in ended.read_text())
        client = plane.client()
        # The job may be quicker than the record of its start, and until then its log is just empty.
        until(lambda: client.get(f"/v1/jobs/{bad}/log").status_code, lambda code: code == 409)
        for _ in range(2):
            good = plane.submit("sh", "-c", "echo fine")
            assert plane.ended(good)["state"] == "succeeded"
            assert "fine" in log_of(plane, good)
        alarms = until(lambda: plane.client().get("/v1/status").json()["alarms"])
        assert [alarm["text"] for alarm in alarms if f"/{bad}.1/" in alarm["text"]]  # the file's name has it
        plane.stop(signal.SIGKILL)
        plane.start()
        cancel(plane, bad)
        assert plane.ended(plane.submit("true"))["state"] == "succeeded"
        assert "Traceback" not in plane.words


@pytest.mark.slow
def test_where_jobs_are_one_user_a_second_team_is_refused_at_the_door(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=site(), trust_teams=False, by=ONE_USER) as plane:
        assert "--trust-teams" in plane.words
        vision, speech = (plane.client(plane.token("member", team)) for team in ("vision", "speech"))
        assert plane.ended(plane.submit("true", client=vision, team="vision"))["state"] == "succeeded"
        for _ in range(2):  # and after a restart
            answer = speech.post("/v1/jobs", json={"gpus": 1, "command": ["true"], "team": "speech"})
            assert answer.status_code == 422
            assert "--trust-teams" in answer.json()["detail"]
            assert "vision" not in answer.json()["detail"]
            assert plane.ended(plane.submit("true", team="vision"))["state"] == "succeeded"
            plane.stop()
            plane.start()
            speech = plane.client(plane.token("member", "speech"))
        plane.stop()
        plane.options.append("--trust-teams")
        plane.start()
        assert plane.ended(plane.submit("true", team="speech"))["state"] == "succeeded"
        assert "can read its tokens" in plane.words


def test_two_teams_that_come_at_once_do_not_both_get_in(tmp_path: Path) -> None:
    """Neither team's job had run when the other's was submitted: then the site refuses the later one."""
    with ControlPlane(tmp_path / "home", sites=site(), trust_teams=False, by=ONE_USER) as plane:
        admin = plane.client()
        answers = [
            admin.post("/v1/jobs", json={"gpus": 1, "command": ["true"], "team": team}) for team in ("a", "b", "c")
        ]
        jobs = [answer.json()["job"] for answer in answers if answer.status_code == 201]
        states = [plane.ended(job)["state"] for job in jobs]
    assert states.count("succeeded") == 1


# --- files -----------------------------------------------------------------------------------------------------------


def test_home_journal_and_tokens_are_ours_alone_whoever_made_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    with ControlPlane(home, "--journal", str(tmp_path / "elsewhere.db"), sites=site(), umask=0) as plane:
        job = plane.submit("sh", "-c", "umask; echo made > made; pwd")
        assert plane.ended(job)["state"] == "succeeded"
        mask, folder = log_of(plane, job).splitlines()
        assert int(mask, 8) == 0  # of the job, its own
        assert stat.S_IMODE((Path(folder) / "made").stat().st_mode) == 0o666
        of_jobs = {home / "sites" / "here" / "jobs"}
        ours = [home, *(path for path in home.rglob("*") if not of_jobs & {path, *path.parents})]
        ours += tmp_path.glob("elsewhere.db*")
        assert [str(path) for path in ours if not closed(path)] == []
        assert len(ours) > 10


def test_an_old_home_that_others_can_read_is_closed(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=site()) as plane:
        plane.stop()
        for path in (plane.home, *plane.home.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        plane.start()
        assert [path for path in (plane.home, *plane.home.iterdir()) if path.is_file() and not closed(path)] == []
        assert closed(plane.home)


def test_a_folder_with_other_things_is_not_closed_to_its_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").touch()
    home.chmod(0o755)
    plane = ControlPlane(home, sites=site())
    with pytest.raises(AssertionError, match="--home"):
        plane.start()
    assert plane.stop() == 2
    assert stat.S_IMODE(home.stat().st_mode) == 0o755
