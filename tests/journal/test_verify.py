"""Looking at journals and checking them, as `penstock journal` does, also against what was noted elsewhere."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.errors import BadInput
from penstock.journal.hash_chain import FORMAT
from penstock.journal.open import lines_of, open_journal, open_reader, read
from penstock.journal.sqlite import BulkJournal
from penstock.journal.verify import about, verify
from tests.contract.journals import LEASE, append, claimed, everything, story


@pytest.fixture
def simulated(tmp_path: Path) -> str:
    """Steps only, as a simulation leaves them."""
    path = str(tmp_path / "month.journal")
    with BulkJournal(path, group=4) as journal:
        for step in story():
            journal.append(step)
    return path


def change(path: str, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def test_a_journal_cut_with_its_head_is_still_not_what_was_noted(simulated: str) -> None:
    steps, head = verify(simulated)
    assert (steps, head) == (len(story()), about(simulated).head)
    assert verify(simulated, head) == (steps, head)
    change(
        simulated,
        "delete from steps where number > 6",
        "update journal set head = 6, hash = (select hash from steps where number = 6)",
    )
    assert verify(simulated)[0] == 6  # by itself it cannot know
    with pytest.raises(BadInput, match=rf"step {steps}, noted as {head.split(':')[1][:12]}\.\.\., is gone"):
        verify(simulated, head)


def test_another_past_of_the_same_length_is_not_what_was_noted(simulated: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.journal")
    steps = story()
    with BulkJournal(other) as journal:
        for step in steps[:4]:
            journal.append(step)
    noted = verify(other)[1]
    assert verify(simulated, noted)[0] == len(steps)  # it grew
    with pytest.raises(BadInput, match=r"step 4, noted as 0+\.\.\., is another one now"):
        verify(simulated, "4:" + "0" * 64)


@pytest.mark.parametrize("wrong", ["4", "four:" + "0" * 64, "4:12", ":" + "0" * 64])
def test_what_is_no_head_is_told_so(simulated: str, wrong: str) -> None:
    with pytest.raises(BadInput, match="is no head of a journal; `penstock journal info` prints one as NUMBER:HASH"):
        verify(simulated, wrong)


def test_a_simulations_journal_becomes_one_to_list_and_to_write(simulated: str) -> None:
    with pytest.raises(BadInput, match="run `penstock journal rebuild` on it"):
        open_reader(simulated)
    lines = lines_of(simulated, "b")
    assert main(["journal", "rebuild", simulated]) == 0
    assert lines_of(simulated, "b") == lines != []
    with closing(open_reader(simulated)) as reader:
        assert len(reader.story("b")) < len(story())
    with closing(open_journal(simulated)) as journal:
        before = everything(journal)
        journal.claim("here", 0, LEASE)
        assert everything(journal) == before


def test_a_live_journal_and_a_simulated_one_of_the_same_steps_have_the_same_rows(
    simulated: str, tmp_path: Path
) -> None:
    live, epoch = claimed(str(tmp_path / "live.journal"))
    append(live, epoch, story())
    assert verify(live.db.where) == verify(simulated)
    live.close()


def test_a_journal_of_the_first_format_is_read_and_not_written(simulated: str) -> None:
    change(simulated, "create table old (format integer not null)", "insert into old values (1)", "drop table journal")
    change(simulated, "alter table old rename to journal")
    assert FORMAT == 2
    assert len(list(read(simulated))) == len(story())
    assert lines_of(simulated, "b") != []
    with pytest.raises(BadInput, match="a journal of format 1, which is only read now"):
        open_journal(simulated)
    with pytest.raises(BadInput, match="a journal of format 1"):
        about(simulated)


Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_journal(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*args: str) -> tuple[int, str, str]:
        code = main(["journal", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_commands_say_what_they_found(simulated: str, run_journal: Said) -> None:
    code, out, _ = run_journal("info", simulated, "--json")
    info = json.loads(out)
    assert (code, info["steps"], info["projected"], info["writer"]) == (0, len(story()), 0, "")
    assert f"installation  {info['installation']}" in run_journal("info", simulated)[1]
    assert run_journal("verify", simulated)[1] == f"Whole: {len(story())} steps, the last is {info['head']}.\n"
    assert json.loads(run_journal("verify", simulated, "--expect", info["head"], "--json")[1])["expected"] == "found"
    assert (
        run_journal("rebuild", simulated)[1] == f"The tables of {simulated} are made anew from {len(story())} steps.\n"
    )
    assert json.loads(run_journal("rebuild", simulated, "--json")[1]) == {"steps": len(story())}
    assert json.loads(run_journal("info", simulated, "--json")[1])["projected"] == len(story())


def test_tables_are_not_made_anew_under_a_writer(tmp_path: Path, run_journal: Said) -> None:
    where = str(tmp_path / "live.journal")
    journal, epoch = claimed(where, holder="plane", at=2**60)
    append(journal, epoch, story())
    code, out, err = run_journal("rebuild", where)
    assert (code, out) == (2, "")
    assert "is written by plane, for" in err
    journal.close()


@pytest.mark.parametrize("command", ["info", "verify", "rebuild"])
def test_what_is_no_journal_is_one_sentence(tmp_path: Path, run_journal: Said, command: str) -> None:
    (tmp_path / "text").write_text("not a database, however long it may be\n" * 50)
    change(str(tmp_path / "other"), "create table something (else_ text)")
    for name, sentence in (
        ("none", "There is no journal"),
        ("text", "is not a journal"),
        ("other", "is not a journal"),
    ):
        code, out, err = run_journal(command, str(tmp_path / name))
        assert (code, out) == (2, "")
        assert sentence in err
        assert "Traceback" not in err


def test_a_server_that_is_not_there_is_one_sentence(run_journal: Said) -> None:
    code, _, err = run_journal("verify", "postgresql://somebody@127.0.0.1:1/journal")
    assert code == 2
    assert "postgresql://somebody@127.0.0.1:1/journal cannot be read now" in err
