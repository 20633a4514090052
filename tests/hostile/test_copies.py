"""A journal is copied, and both are started: only one control plane works with a site."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from penstock.devcluster.external import ExternalCluster
from penstock.kube import annotations
from tests.hostile.control_plane import ControlPlane, until
from tests.hostile.mistakes import VARIABLE
from tests.postgres import Server, server

SITES = """
currency: USD
sites:
  - name: here
    front_door: true
    driver: local
    offers: [{name: owned, term: owned, gpu: slot, gpus_per_node: 2, nodes: 1}]
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as database:
        yield database


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path / "home", sites=SITES) as control_plane:
        yield control_plane


def copied(plane: ControlPlane, to: Path) -> Path:
    """As somebody does it: the file with its WAL, while it is written."""
    to.mkdir(exist_ok=True)
    for file in plane.home.glob("journal.db*"):
        shutil.copy2(file, to / file.name)
    with closing(sqlite3.connect(to / "journal.db")) as db:  # started as soon as the copied lease has run out
        db.execute("update lease set until_at = 0")
        db.commit()
    return to / "journal.db"


def incarnation(plane: ControlPlane) -> str:
    return (plane.home / "sites/here/claim.json").read_text()


def renewed(plane: ControlPlane, times: int) -> None:
    """Wait until the site's claim was renewed so often."""
    for _ in range(times):
        before = incarnation(plane)
        until(lambda: incarnation(plane), before.__ne__)


def refused(home: Path, *options: str) -> str:
    """What a control plane says that does not start; it must end by itself."""
    program = "tests.hostile.mistakes" if VARIABLE in os.environ else "penstock.cli"
    command = [sys.executable, "-m", program, "up", "--json", "--home", str(home), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    started = process.stdout.readline()  # of its address; at its end there is none
    if started:
        process.kill()
    stderr = process.communicate(timeout=60)[1]
    assert not started, f"it started: {started}{stderr}"
    assert process.returncode == 2, stderr
    assert "Traceback" not in stderr
    assert "penstock journal restore" in stderr
    return stderr


def restore(where: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock.cli", "journal", "restore", where, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def sites_of(plane: ControlPlane) -> tuple[str, str]:
    return "--sites", plane.options[plane.options.index("--sites") + 1]


def test_a_fresh_copy_is_refused_while_the_original_lives(plane: ControlPlane, tmp_path: Path) -> None:
    """Both worked with the same sites: each started the other's jobs again, and paid for them."""
    ran = tmp_path / "ran"
    name = plane.submit("sh", "-c", f"echo $$ >> {ran}; sleep 60")
    until(ran.exists)
    until(lambda: plane.job(name)["state"] == "running")  # later steps would make the copy one that has lost them
    copy = copied(plane, tmp_path / "copy")
    assert "This journal is a copy" in refused(plane.home, "--journal", str(copy), *sites_of(plane))
    assert plane.job(name)["state"] == "running"
    assert ran.read_text().count("\n") == 1
    plane.client().post(f"/v1/jobs/{name}/cancel").raise_for_status()


def test_a_copy_is_refused_where_the_site_never_was(plane: ControlPlane, tmp_path: Path) -> None:
    """A new home folder has a new folder for the site, with no claim in it to contradict."""
    copied(plane, tmp_path / "copy")
    assert "it was moved, and site here is not where it was" in refused(tmp_path / "copy", *sites_of(plane))
    other = tmp_path / "renamed.yaml"
    other.write_text(SITES.replace("name: here", "name: there"))
    assert "it was moved" in refused(tmp_path / "copy", "--sites", str(other))


def test_a_copied_home_folder_is_refused_alive_or_dead(plane: ControlPlane, tmp_path: Path) -> None:
    """Its copy of the site's folder has the newest claim; but it is another folder."""
    shutil.copytree(plane.home, tmp_path / "copy", symlinks=True)
    copied(plane, tmp_path / "copy")
    assert "is a copy of a site's folder" in refused(tmp_path / "copy", *sites_of(plane))
    plane.stop(signal.SIGKILL)
    assert "is a copy of a site's folder" in refused(tmp_path / "copy", *sites_of(plane))


@pytest.mark.slow
def test_an_old_copy_is_refused_after_the_original_died(plane: ControlPlane, tmp_path: Path) -> None:
    copy = copied(plane, tmp_path / "copy")
    renewed(plane, 3)
    plane.stop(signal.SIGKILL)
    stderr = refused(plane.home, "--journal", str(copy), *sites_of(plane))
    assert "a copy that is too old" in stderr
    plane.start()  # and the original goes on
    assert plane.ended(plane.submit("true"))["state"] == "succeeded"


@pytest.mark.slow
def test_who_dies_and_comes_back_at_once_is_never_locked_out(plane: ControlPlane) -> None:
    for wait in (0, 0, 1, 0, 2):
        renewed(plane, wait)
        plane.stop(signal.SIGKILL)
        plane.start()
    assert plane.ended(plane.submit("true"))["state"] == "succeeded"


@pytest.mark.slow
def test_a_restored_backup_takes_over_and_ends_whoever_still_lives(plane: ControlPlane, tmp_path: Path) -> None:
    """The old one ends in order, and its jobs run on."""
    ran = tmp_path / "ran"
    name = plane.submit("sh", "-c", f"echo $$ >> {ran}; sleep 60")
    until(ran.exists)
    backup = copied(plane, tmp_path / "backup")
    renewed(plane, 3)
    asked = restore(str(backup))
    assert asked.returncode != 0  # nobody answers the question
    assert asked.stdout == ""
    done = restore(str(backup), "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    old = plane.process
    assert old is not None
    other = ControlPlane(tmp_path / "other-home")
    other.home, other.options = plane.home, [*plane.options, "--journal", str(backup)]
    with other:
        assert old.wait(60) == 2
        assert "obeys another control plane now" in plane.words
        assert other.job(name)["state"] == "running"
        assert ran.read_text().count("\n") == 1
        assert other.ended(other.submit("true"))["state"] == "succeeded"
        other.client().post(f"/v1/jobs/{name}/cancel").raise_for_status()
        other.ended(name)
        assert "Traceback" not in other.words
    plane.stop()
    assert "and was answered as far as step" in refused(
        plane.home, *sites_of(plane)
    )  # this home wrote on in the backup
    (plane.home / "head.json").unlink()
    assert "obeys a newer control plane" in refused(plane.home, *sites_of(plane))


@pytest.mark.slow
def test_a_copied_database_is_refused(postgres: Server, tmp_path: Path) -> None:
    where = postgres.new_database()
    name = where.rpartition("/")[2]
    with ControlPlane(tmp_path / "home", "--journal", where, sites=SITES) as plane:
        plane.ended(plane.submit("true"))
        plane.stop(signal.SIGKILL)  # a template must not be in use
        with psycopg.connect(postgres.address("postgres"), autocommit=True) as db:
            copy, original = sql.Identifier(f"{name}_copy"), sql.Identifier(name)
            until(lambda: not db.execute("select 1 from pg_stat_activity where datname = %s", (name,)).fetchall())
            db.execute(sql.SQL("create database {} template {}").format(copy, original))
        plane.start()
        assert "copy" in refused(plane.home, "--journal", f"{where}_copy", *sites_of(plane))
        assert "it was moved" in refused(tmp_path / "new", "--journal", f"{where}_copy", *sites_of(plane))
        renewed(plane, 2)
        plane.stop(signal.SIGKILL)
        assert "a copy that is too old" in refused(plane.home, "--journal", f"{where}_copy", *sites_of(plane))
        assert restore(f"{where}_copy", "--yes").returncode == 0
        plane.options[plane.options.index("--journal") + 1] = f"{where}_copy"
        plane.start()
        assert plane.ended(plane.submit("true"))["state"] == "succeeded"


@pytest.mark.slow
def test_at_a_cluster_a_copy_is_refused_and_a_restored_one_takes_over(
    lab: ExternalCluster, namespace: str, tmp_path: Path
) -> None:
    """Nobody shares a disk with anybody there: the copy sees that the Lease is renewed, and the old one that it is not
    its own any more."""
    cluster = {"kubeconfig": str(lab.kubeconfig), "namespace": namespace, "shared": True}
    offer = {"name": "a100", "term": "owned", "gpu": "A100", "gpus_per_node": 8}
    site = {"name": "lab", "front_door": True, "driver": "kubernetes", "kubernetes": cluster, "offers": [offer]}
    with ControlPlane(tmp_path / "home", sites={"currency": "USD", "sites": [site]}) as plane:
        copy = copied(plane, tmp_path / "copy")
        assert "This journal is a copy" in refused(tmp_path / "copy", *sites_of(plane))
        assert plane.client().get("/readyz").status_code == 200
        plane.stop(signal.SIGKILL)
        plane.start()  # at once: it is the same journal
        assert restore(str(copy), "--yes").returncode == 0
        old = plane.process
        assert old is not None
        with ControlPlane(tmp_path / "copy", *plane.options) as other:
            assert old.wait(60) == 2
            assert "obeys another control plane now" in plane.words
            claim = lab.get("lease", annotations.LEASE, "-n", namespace)["metadata"]["annotations"][annotations.CLAIM]
            assert json.loads(claim)["head"].partition(":")[0].isdecimal()
            assert other.client().get("/readyz").status_code == 200
        plane.stop()
        assert "obeys a newer control plane" in refused(tmp_path / "home", *sites_of(plane))


def test_a_claim_is_a_plain_file_of_ours(plane: ControlPlane) -> None:
    claim = plane.home / "sites/here/claim.json"
    assert os.stat(claim).st_mode & 0o777 == 0o600
    plane.stop()
    claim.unlink()
    claim.symlink_to("/etc/passwd")
    with pytest.raises(AssertionError, match="penstock up ended with"):
        plane.start()
    assert "Traceback" not in plane.words


@pytest.mark.slow
def test_a_wrong_journal_takes_nothing_from_what_was_remembered_of_the_right_one(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """A start with a new journal was refused, and an old copy was taken after it without a word: `head.json` was of the
    new one by then."""
    older = copied(plane, tmp_path / "older")
    plane.ended(plane.submit("true"))
    plane.stop()
    remembered = (plane.home / "head.json").read_bytes()
    for file in plane.home.glob("journal.db*"):
        file.unlink()
    with pytest.raises(AssertionError, match=r"[Ii]nstallation .* and this is"):
        plane.start()
    plane.stop()
    assert (plane.home / "head.json").read_bytes() == remembered
    for file in plane.home.glob("journal.db*"):
        file.unlink()
    shutil.copy(older, plane.home / "journal.db")
    (plane.home / "sites/here/claim.json").unlink()  # the site does not tell
    assert "and was answered as far as step" in refused(plane.home, *sites_of(plane))


@pytest.mark.slow
def test_a_damaged_memory_of_the_head_is_an_alarm_and_stops_nothing(plane: ControlPlane) -> None:
    """A flipped bit ended the start with a traceback, a pipe held it for ever, and nobody was told that the newest step
    was not noted."""
    file = plane.home / "head.json"

    def alarms() -> str:
        return " ".join(alarm["text"] for alarm in plane.client().get("/v1/status").json()["alarms"])

    def flipped() -> None:
        text = file.read_bytes().replace(b":", b": ").split(b'"head": "')
        file.write_bytes(text[0] + b'"head": "1:z' + text[1])

    def piped() -> None:
        file.unlink()
        os.mkfifo(file)

    for damage, lasts in ((flipped, False), (lambda: os.truncate(file, 50), False), (piped, True)):
        assert "head.json" not in alarms()
        plane.stop()
        damage()
        plane.start()
        assert f"Notice: {file} is damaged" in plane.words
        assert plane.client().get("/readyz").status_code == 200
        assert plane.ended(plane.submit("true"))["state"] == "succeeded"
        assert "head.json is damaged" in alarms()
        if lasts:
            until(lambda: "cannot be noted" in alarms())
        plane.stop()
        plane.start()
    assert "cannot be noted" in alarms()
    file.unlink()
    until(lambda: "cannot be noted" not in alarms())
    assert "Traceback" not in plane.words
