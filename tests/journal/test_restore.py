"""A backup goes on: after a question, never over a journal that somebody writes, and nothing is lost on the way."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.journal.open import open_journal, read
from penstock.journal.verify import about
from tests.contract.journals import append, claimed, story

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def restore(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*args: str) -> tuple[int, str, str]:
        code = main(["journal", "restore", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def backup(tmp_path: Path) -> str:
    """With the lease of whoever wrote the original, for a very long time."""
    path = str(tmp_path / "backup.db")
    journal, epoch = claimed(path, at=2**60)
    append(journal, epoch, story()[:6])
    journal.close()
    return path


def test_nobody_answers_so_nothing_happens(backup: str, restore: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = restore(backup)
    assert code != 0
    assert out == ""
    assert "ends with step 6" in err
    assert "Does this journal go on?" in err
    journal = open_journal(backup)
    assert not journal.claims().restored
    journal.close()


def test_a_backup_in_place_goes_on(backup: str, restore: Said) -> None:
    assert restore(backup, "--yes")[:2] == (0, f"{backup} goes on from step 6: start it with `penstock up`.\n")
    journal = open_journal(backup)
    assert journal.claims().restored
    assert journal.claim("anybody", 0, 1) > 1  # nobody waits for the lease that was in the backup
    journal.close()


def test_what_was_there_is_kept_aside(backup: str, tmp_path: Path, restore: Said) -> None:
    where = str(tmp_path / "journal.db")
    journal, epoch = claimed(where)
    append(journal, epoch, story())
    journal.release(epoch)
    journal.close()
    assert restore(where, "--from", backup, "--yes")[0] == 0
    assert about(where).steps == 6
    (aside,) = [path for path in tmp_path.glob("journal.db.2*") if not path.name.endswith(("-wal", "-shm", "-lock"))]
    assert len(list(read(str(aside)))) == len(story())


def test_a_journal_that_is_written_is_not_replaced(backup: str, tmp_path: Path, restore: Said) -> None:
    where = str(tmp_path / "journal.db")
    journal, epoch = claimed(where, at=2**60)
    append(journal, epoch, story())
    for options in ((where, "--from", backup), (where,)):
        code, _, err = restore(*options, "--yes")
        assert code == 2
        assert "is written by here" in err
    assert about(where).steps == len(story())
    journal.close()


def test_a_damaged_backup_is_refused(backup: str, restore: Said) -> None:
    journal = open_journal(backup)
    journal.db.run("update steps set at = at + 1 where number = 3")
    journal.close()
    code, _, err = restore(backup, "--yes")
    assert code == 2
    assert "step 3 is not what was written" in err


def test_what_cannot_be_is_a_sentence(tmp_path: Path, backup: str, restore: Said) -> None:
    assert "There is no journal" in restore(str(tmp_path / "none"), "--yes")[2]
    assert "copies SQLite files" in restore("postgresql://nowhere/x", "--from", backup, "--yes")[2]
    code, _, err = restore(str(tmp_path / "no" / "such" / "folder.db"), "--from", backup, "--yes")
    assert (code, "Cannot copy" in err, "Traceback" in err) == (2, True, False)
