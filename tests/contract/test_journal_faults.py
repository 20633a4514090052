"""Journals in trouble: killed and stopped writers, a full disk, a database that is gone for a while. Real processes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from penstock.core.engine import replay
from penstock.core.fold.invariants import check
from penstock.journal.journal import Fenced, Held, Unwritable
from penstock.journal.open import open_journal, open_reader, read
from penstock.journal.postgres import PostgresDatabase
from penstock.journal.sqlite import SqliteDatabase
from penstock.journal.writer import JournalWriter
from tests.conftest import ROOT
from tests.contract.journals import KINDS, LEASE, append, claimed, epoch_of, everything, new_address, story
from tests.contract.writer import FENCED, HELD, submission
from tests.postgres import Server

PATIENCE = 60


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


# --- two processes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fault_13_a_writer_killed_at_any_instant_leaves_a_whole_journal(where: str) -> None:
    """What it said was written is there, with its answer and its blob; nothing is there by half; it goes on."""
    chance = random.Random(13)
    said = 0
    for _ in range(6):
        with writer(where) as process:
            claim = line(process)
            assert claim.startswith("claimed"), claim
            for _ in range(chance.randrange(1, 60)):
                said = int(line(process))
            time.sleep(chance.random() / 500)  # anywhere within an append; nothing is waited for
            process.kill()
            process.wait(PATIENCE)
            said = max([said, *(int(text) for text in process.stdout or [] if text.endswith("\n"))])
        with closing(open_journal(where)) as journal:
            rows = list(journal.read())
            assert [row.number for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) in (said, said + 1)  # one may be durable before it could be said
            assert (journal.answer(f"key-{len(rows)}"), journal.answer(f"key-{len(rows) + 1}")) == (
                f"answer-{len(rows)}",
                None,
            )
            assert (journal.blob(f"digest-{len(rows)}"), journal.blob(f"digest-{len(rows) + 1}")) == (b"work", None)
            check(replay((row.at, row.inputs, row.outputs) for row in rows).state)
            before = everything(journal)
            journal.rebuild(epoch_of(journal))
            assert everything(journal) == before


@pytest.mark.slow
def test_fault_6_a_process_that_slept_through_its_lease_is_fenced(where: str) -> None:
    with writer(where) as first:
        assert line(first).startswith("claimed")
        with closing(stopped_between_appends(first, where)) as second:
            with pytest.raises(Held, match="is written by writer"):
                second.claim("here", int(time.time() * 1000), LEASE)
            epoch = second.claim("here", int(time.time() * 1000) + LEASE + 1, LEASE)
            rows = list(second.read())
            engine = replay((row.at, row.inputs, row.outputs) for row in rows)
            first.send_signal(signal.SIGCONT)
            assert first.wait(PATIENCE) == FENCED
            append(second, epoch, [engine.handle(*submission(engine.state.at + 1, engine.state.steps))])
            assert [row.number for row in second.read()] == list(range(1, len(rows) + 2))


@pytest.mark.slow
def test_fault_6_a_writer_stopped_within_an_append_does_not_keep_the_next_one_out(postgres: Server) -> None:
    """Of what is sent together PostgreSQL has no timeout: such a writer kept everybody out for as long as it was
    stopped, and one whose machine was gone for two hours."""
    where = postgres.new_database()
    with closing(open_journal(where)) as first, closing(PostgresDatabase(where)) as second:
        assert isinstance(first.db, PostgresDatabase)
        stops_here = first.db.transaction()
        stops_here.__enter__()
        first.db.all("select 1")
        until = time.monotonic() + PATIENCE
        while not _may_write(second):
            assert time.monotonic() < until
        with pytest.raises(Unwritable):
            first.db.all("select 1")
        with suppress(Unwritable, psycopg.Error):
            stops_here.__exit__(None, None, None)


def _may_write(db: PostgresDatabase) -> bool:
    try:
        with db.transaction():
            return bool(db.all("select 1"))
    except Unwritable:  # after five seconds of waiting for the lock
        return False


def stopped_between_appends(process: "subprocess.Popen[str]", where: str) -> JournalWriter:
    """Stopped within one, it has the database's own lock, and the next writer has to wait: not this story."""
    for _ in range(50):
        line(process)
        process.send_signal(signal.SIGSTOP)
        second = open_journal(where) if _is_open(where) else None
        if second is not None:
            return second
        process.send_signal(signal.SIGCONT)
    raise AssertionError("it was within an append every time")


def _is_open(where: str) -> bool:
    try:
        open_journal(where).close()
    except Unwritable:
        return False
    return True


@pytest.mark.slow
def test_a_second_process_is_refused_and_the_first_goes_on(where: str) -> None:
    with writer(where) as first:
        assert line(first).startswith("claimed")
        with writer(where) as second:
            assert "is written by writer, for" in line(second)
            assert second.wait(PATIENCE) == HELD
        assert int(line(first)) > 0


@contextmanager
def writer(where: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.contract.writer", where, str(LEASE)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def line(process: "subprocess.Popen[str]") -> str:
    """Its next line; a process that says nothing more has ended."""
    out = process.stdout
    assert out is not None
    text = out.readline()
    assert text, f"it ended with {process.wait(PATIENCE)}"
    return text.strip()


def test_a_reader_asks_a_new_connection_when_its_old_one_fails(postgres: Server) -> None:
    """It said so, and asked the same one twice: whatever was wrong with that connection stayed wrong for ever."""
    where = postgres.new_database()
    journal, epoch = claimed(where)
    append(journal, epoch, story()[:3])
    with closing(journal), closing(open_reader(where)) as reader:
        (pooled,) = reader.idle  # type: ignore[attr-defined]  # a `Reader` by its contract
        journal.db.run("create role powerless")
        pooled.run("set role powerless")
        assert reader.head() == 3
        assert pooled not in reader.idle  # type: ignore[attr-defined]  # as above


# --- the database in trouble -----------------------------------------------------------------------------------------


def nothing_was_written(journal: JournalWriter, epoch: int, before: object) -> None:
    with pytest.raises(Unwritable, match="cannot be written now"):
        append(journal, epoch, story()[3:], {"d": b"x" * 4_000_000}, {"k": "one"})
    assert everything(journal) == before


def test_fault_12_a_full_disk(tmp_path: Path) -> None:
    where = str(tmp_path / "live.journal")
    journal, epoch = claimed(where)
    append(journal, epoch, story()[:3])
    before = everything(journal)
    (pages,) = journal.db.all("pragma page_count")[0]
    journal.db.run(f"pragma max_page_count = {pages}")
    nothing_was_written(journal, epoch, before)
    nothing_was_written(journal, epoch, before)
    assert len(list(read(where))) == 3
    journal.db.run("pragma max_page_count = 1000000")
    goes_on(journal, epoch)


def test_fault_12_read_only(where: str) -> None:
    journal, epoch = claimed(where)
    append(journal, epoch, story()[:3])
    before = everything(journal)
    sqlite = isinstance(journal.db, SqliteDatabase)
    switch = "pragma query_only = {}" if sqlite else "set default_transaction_read_only = {}"
    journal.db.run(switch.format("on"))
    nothing_was_written(journal, epoch, before)
    with pytest.raises(Unwritable):
        journal.renew(epoch, 1, LEASE)
    journal.db.run(switch.format("off"))
    goes_on(journal, epoch)


def test_fault_12_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="cannot be written now: unable to open"):
        open_journal(str(tmp_path / "gone" / "live.journal"))


def test_fault_12_a_server_gone_for_a_while(postgres: Server) -> None:
    where = postgres.new_database()
    journal, epoch = claimed(where)
    reader = open_reader(where)
    append(journal, epoch, story()[:3])
    before = everything(journal)
    postgres.stop()
    try:
        for _ in range(2):  # the connection breaks; then there is none to be had
            with pytest.raises(Unwritable, match="cannot be written now"):
                append(journal, epoch, story()[3:])
        with pytest.raises(Unwritable, match="cannot be read now"):
            reader.head()
        with pytest.raises(Unwritable):
            open_journal(where)
    finally:
        postgres.start()
    assert everything(journal) == before
    assert reader.head() == 3
    reader.close()
    goes_on(journal, epoch)


def goes_on(journal: JournalWriter, epoch: int) -> None:
    """The same writer, as soon as the fault is over, and nobody has to repair anything."""
    append(journal, epoch, story()[3:], {"d": b"x"}, {"k": "one"})
    assert [row.number for row in journal.read()] == [step.number for step in story()]
    assert journal.answer("k") == "one"
    with pytest.raises(Fenced):
        append(journal, epoch + 1, story())
    journal.close()
