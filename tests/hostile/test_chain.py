"""Somebody who can write the journal's database changes what decides: snapshots, work to run, the past itself. And an
operator deletes the file under the running plane."""

import os
import shutil
import signal
import sqlite3
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from penstock.cli.main import main
from penstock.core.units import MICRO
from penstock.journal.hash_chain import COLUMNS, GENESIS, chain
from penstock.journal.open import open_journal
from penstock.journal.seal import SEAL_BYTES
from penstock.live import snapshot
from tests.contract.journals import epoch_of
from tests.hostile.control_plane import ControlPlane, until

SITES = """
currency: USD
sites:
  - name: here
    front_door: true
    driver: local
    offers: [{name: owned, term: owned, gpu: slot, gpus_per_node: 1, nodes: 1}]
caps: [{scope: org, per_month: 10}]
"""


@contextmanager
def database(plane: ControlPlane) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(plane.home / "journal.db", isolation_level=None, timeout=30)) as db:
        yield db


def alarms(plane: ControlPlane) -> dict[str, str]:
    return {alarm["kind"]: alarm["text"] for alarm in plane.client().get("/v1/status").json()["alarms"]}


def richer(sealed: bytes) -> bytes:
    """A state that holds $2,400 more, which nobody promised."""
    state = snapshot.unpack(sealed[SEAL_BYTES:])
    for account in state.ledger.accounts.values():
        account.held += 2_400 * MICRO
    return sealed[:SEAL_BYTES] + snapshot.pack(state)


def flipped(sealed: bytes) -> bytes:
    return sealed[:-9] + bytes([sealed[-9] ^ 1]) + sealed[-8:]


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "richer": richer,
    "truncated": lambda sealed: sealed[: len(sealed) // 2],
    "flipped": flipped,
    "empty": lambda _: b"",
    "not zlib": lambda sealed: sealed[:SEAL_BYTES] + b"not zlib at all",
    "not a pickle": lambda sealed: sealed[:SEAL_BYTES] + zlib.compress(b"not a pickle"),
    "unsealed": lambda sealed: sealed[SEAL_BYTES:],
}


QUICK = ("richer", "truncated")


@pytest.mark.parametrize("change", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CHANGES])
def test_a_changed_snapshot_is_not_believed(tmp_path: Path, change: str) -> None:
    """It was: $2,400 were held under a cap of $10. A damaged one ended every start with a traceback."""
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        name = plane.submit(sys.executable, "-c", "")
        plane.ended(name)
        before = plane.client().get("/v1/budget").json()
        assert plane.stop() == 0
        with database(plane) as db:
            ((sealed,),) = db.execute("select state from snapshots").fetchall()
            db.execute("update snapshots set state = ?", (CHANGES[change](sealed),))
        plane.start()
        assert plane.client().get("/v1/budget").json() == before
        assert "not what was stored" in alarms(plane)["snapshot"]
        assert plane.job(name)["state"] == "succeeded"
        assert plane.stop() == 0
        plane.start()
        assert "snapshot" not in alarms(plane)  # it was replaced by one to believe
        assert "Traceback" not in plane.words


def test_forged_work_does_not_run_and_all_else_does(tmp_path: Path) -> None:
    """A changed blob ran in the name of whoever had submitted the job."""
    forged = tmp_path / "forged"
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        go = tmp_path / "go"
        first = plane.submit("sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done")
        victim, other = plane.submit("true"), plane.submit("echo", "mine")
        until(lambda: plane.job(first)["state"], lambda state: state == "running")
        with database(plane) as db:
            blobs = [(digest, msgspec.json.decode(content)) for digest, content in db.execute("select * from blobs")]
            (digest, work) = next((digest, work) for digest, work in blobs if work["command"] == ["true"])
            packed = msgspec.json.encode({**work, "command": ["touch", str(forged)]})
            db.execute("update blobs set content = ? where digest = ?", (packed, digest))
        go.touch()
        job = plane.ended(victim)
        assert (job["state"], plane.ended(other)["state"]) == ("failed", "succeeded")
        assert job["command"] == []
        assert "not what was submitted" in alarms(plane)["forged"]
        story = plane.client().get(f"/v1/jobs/{victim}/story").text
        assert "not what was submitted" in story
    assert not forged.exists()
    assert sha256(packed).hexdigest() != digest


@pytest.mark.parametrize("how", ["deleted", "replaced", "wal"])
def test_a_journal_that_nobody_will_find_takes_no_more_submissions(tmp_path: Path, how: str) -> None:
    """Submissions were answered 201 and written to a file that had no name any more; a restart knew none of them."""
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        plane.ended(plane.submit("true"))
        client, journal = plane.client(), plane.home / "journal.db"
        if how == "replaced":
            shutil.copy(journal, tmp_path / "copy")
            os.replace(tmp_path / "copy", journal)
        else:
            (plane.home / ("journal.db-wal" if how == "wal" else "journal.db")).unlink()
        answer = client.post("/v1/jobs", json={"gpus": 1, "command": ["true"]})
        assert answer.status_code == 503
        assert "under its writer" in answer.text
        assert plane.process is not None
        assert plane.process.wait(60) == 2  # noticed by the heartbeat, too, if nobody had asked
        assert "under its writer" in plane.words
        assert "Traceback" not in plane.words


def test_an_idle_plane_notices_that_its_journal_is_gone(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        until(lambda: plane.client().get("/readyz").status_code == 200)
        (plane.home / "journal.db").unlink()
        assert plane.process is not None
        assert plane.process.wait(60) == 2
        assert "was deleted under its writer" in plane.words
        assert plane.stop(signal.SIGKILL) == 2


def rewritten(journal: Path) -> None:
    """Whoever can write the whole database changes the past, and all hashes after it. The chain is whole again."""
    with closing(open_journal(str(journal))) as written:
        rows, last = written.db.all(f"select {COLUMNS} from steps order by number"), GENESIS
        for number, at, inputs, outputs, version, revision, _ in rows:
            inputs = bytes(inputs).replace(b'"per_period":10000000', b'"per_period":99000000')
            last = chain(last, number, at, inputs, bytes(outputs), version, revision)
            written.db.run("update steps set inputs = ?, hash = ? where number = ?", inputs, last, number)
        written.db.run("update journal set hash = ?", last)
        written.db.run("delete from snapshots")
        written.rebuild(epoch_of(written))


def test_a_whole_rewrite_with_fresh_hashes_is_found_by_what_was_anchored(tmp_path: Path) -> None:
    anchors, elsewhere = tmp_path / "anchors", tmp_path / "claim-of-the-site"
    with ControlPlane(tmp_path / "home", "--anchor", str(anchors), "--anchor", "-", sites=SITES) as plane:
        plane.ended(plane.submit("true"))
        plane.stop()
        assert "anchor {" in plane.words
        journal, claim = str(plane.home / "journal.db"), plane.home / "sites/here/claim.json"
        shutil.copy(claim, elsewhere)
        for file in (anchors, claim):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert main(["journal", "verify", journal, "--anchor", str(anchors), "--anchor", str(claim)]) == 0
        rewritten(Path(journal))
        assert main(["journal", "verify", journal]) == 0  # by itself it cannot know
        for file in (anchors, elsewhere):
            assert main(["journal", "verify", journal, "--anchor", str(file)]) == 2
        with pytest.raises(AssertionError, match="is gone or another one now"):
            plane.start()
        plane.stop()
        plane.options = plane.options[plane.options.index("--sites") :]
        with pytest.raises(AssertionError, match="has another step 5 than the one that was answered"):
            plane.start()
        plane.stop()
        (plane.home / "head.json").unlink()
        with pytest.raises(AssertionError, match="Site here knows this journal with another past"):
            plane.start()
        assert "Traceback" not in plane.words
