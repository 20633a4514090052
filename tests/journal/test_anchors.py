"""Heads that are kept elsewhere, and what they say about a journal."""

import os
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.errors import BadInput
from penstock.journal.anchors import Anchor, compare, write_anchor
from penstock.journal.sqlite import BulkJournal
from penstock.journal.verify import about, verify
from tests.contract.journals import append, claimed, story


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "anchors")


def anchored(file: str, *heads: str, **more: bool) -> None:
    for number, head in enumerate(heads):
        write_anchor(file, Anchor(head, "home", 1_790_000_000_000 + number, **more))


def test_each_anchor_must_be_in_the_journal(file: str) -> None:
    anchored(file, "1:aa", "2:bb", "7:cc")
    assert compare(file, "home", lambda head: head in ("1:aa", "2:bb", "7:cc")) == 3
    with pytest.raises(BadInput, match=r"Step 2, anchored as bb\.\.\. at 2026-.* is gone or another one now"):
        compare(file, "home", lambda head: head != "2:bb")
    with pytest.raises(BadInput, match="has anchors of installation home, and this is another"):
        compare(file, "another", lambda _: True)


def test_a_restore_that_a_person_noted_forgives_only_what_came_after_its_step(file: str) -> None:
    anchored(file, "1:aa", "5:bb", "9:cc")
    anchored(file, "4:dd", restored=True)
    anchored(file, "6:ee")
    there = {"1:aa", "4:dd", "6:ee"}
    assert compare(file, "home", there.__contains__) == 5
    with pytest.raises(BadInput, match="Step 1,"):  # from before the backup
        compare(file, "home", (there - {"1:aa"}).__contains__)
    with pytest.raises(BadInput, match="Step 5,"):  # a backup that is not in this journal explains nothing
        compare(file, "home", (there - {"4:dd"}).__contains__)
    with pytest.raises(BadInput, match="Step 6,"):
        compare(file, "home", (there - {"6:ee"}).__contains__)


def test_a_line_that_a_crash_cut_short_hides_nothing(file: str) -> None:
    anchored(file, "1:aa")
    with open(file, "ab") as cut:
        cut.write(b'{"head": "2:b')
    anchored(file, "3:cc")
    assert compare(file, "home", lambda _: True) == 2


def test_a_start_compares_the_newest_ones_of_a_long_file(file: str) -> None:
    anchored(file, *(f"{number}:aa" for number in range(1, 500)))
    assert 0 < compare(file, "home", lambda head: int(head.partition(":")[0]) > 400, tail=5_000) < 100


@pytest.mark.parametrize(
    "line", [b"[]}", b"{}", b'{"head": "x", "installation": "i"}', b"\xff\xfe}", b"{" * 99_999 + b"}"]
)
def test_what_is_no_anchor_is_named(file: str, line: bytes) -> None:
    Path(file).write_bytes(line + b"\n")
    if len(line) < 60_000:
        with pytest.raises(BadInput, match="line 1 is no anchor of a journal"):
            compare(file, "home", lambda _: True)


def test_only_a_plain_file_is_written(file: str, tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    os.symlink(tmp_path / "target", file)
    with pytest.raises(OSError, match="symbolic link"):
        anchored(file, "1:aa")
    os.unlink(file)
    os.mkfifo(file)
    with pytest.raises(OSError, match="no plain file"):
        anchored(file, "1:aa")
    assert (tmp_path / "target").read_bytes() == b""


def test_the_command_compares_and_a_restore_is_noted(tmp_path: Path, file: str) -> None:
    where = str(tmp_path / "live.journal")
    journal, epoch = claimed(where)
    append(journal, epoch, story())
    journal.close()
    info = about(where)
    write_anchor(file, Anchor(info.head, info.installation, 0))
    assert main(["journal", "verify", where, "--anchor", file]) == 0
    write_anchor(file, Anchor(f"{info.steps + 1}:{'0' * 64}", info.installation, 0))
    assert main(["journal", "verify", where, "--anchor", file]) == 2
    assert main(["journal", "restore", where, "--yes", "--anchor", file]) == 0
    assert main(["journal", "verify", where, "--anchor", file]) == 0
    assert main(["journal", "verify", where, "--anchor", str(tmp_path / "none")]) == 2


def test_a_simulations_journal_can_be_anchored_too(tmp_path: Path, file: str) -> None:
    where = str(tmp_path / "month.journal")
    with BulkJournal(where) as journal:
        for step in story():
            journal.append(step)
    write_anchor(file, Anchor(verify(where)[1], about(where).installation))
    assert main(["journal", "verify", where, "--anchor", file]) == 0
