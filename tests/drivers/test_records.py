"""Small files that somebody else may have replaced: read at once or refused, never followed, never waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.data.plain_files import DamagedFile, read_plain
from penstock.drivers.local.control_files import grace_ms, opened, read_end, read_marks, read_node, read_order, sealed
from penstock.drivers.records import checked, printable, read, write
from tests.drivers.local.hostile_files import KINDS, put

READABLE = ("negative", "of the future", "wrong types", "half a letter")  #: records, of which the reader must judge
NOW_MS = 10_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_record_is_damaged_and_read_as_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "marks.json"
    put(kind, path)
    if kind not in READABLE:
        with pytest.raises(DamagedFile, match=r"marks\.json"):
            checked(str(path))
        assert read(str(path)) == {}
    with pytest.raises(DamagedFile, match=r"marks\.json"):
        read_marks(str(tmp_path), NOW_MS)


READERS: dict[str, Callable[[str], object]] = {
    "ended": lambda folder: read_end(folder, NOW_MS),
    "order": read_order,
    "node": read_node,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_no_rubbish_is_an_end_an_order_or_a_node(tmp_path: Path, kind: str, name: str) -> None:
    put(kind, tmp_path / f"{name}.json")
    with pytest.raises(DamagedFile):
        READERS[name](str(tmp_path))


def test_what_is_not_there_says_nothing_and_is_not_damaged(tmp_path: Path) -> None:
    there = str(tmp_path)
    assert read_end(there, NOW_MS) == read_marks(there, NOW_MS) == read_order(there) == read_node(there) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_without_a_plain_grace_has_none(tmp_path: Path, kind: str) -> None:
    put(kind, tmp_path / "stop.json")
    assert grace_ms(str(tmp_path)) == 0


def test_marks_are_those_that_a_job_can_make_by_now(tmp_path: Path) -> None:
    marks = {"step": 10**15, "of": 1, "checkpoint_ms": NOW_MS, "checkpoint_step": 3}
    write(f"{tmp_path}/marks.json", marks)
    assert read_marks(str(tmp_path), NOW_MS) == marks
    with pytest.raises(DamagedFile, match="future"):
        read_marks(str(tmp_path), NOW_MS - 1)
    for bad in ({"step": 10**15 + 1}, {"steps": 1}, {"step": True}, {"step": 1.0}, {"of": None}):
        write(f"{tmp_path}/marks.json", bad)
        with pytest.raises(DamagedFile, match="no job can make"):
            read_marks(str(tmp_path), NOW_MS)


def test_words_of_an_end_can_be_stored_and_shown(tmp_path: Path) -> None:
    write(f"{tmp_path}/ended.json", {"phase": "failed", "detail": "\ud800\x1b[2J" + "x" * 5_000, "marks": {}})
    detail = read_end(str(tmp_path), NOW_MS)["detail"]
    assert detail.encode("utf-8")
    assert len(detail) <= 1_000
    assert "\x1b" not in detail
    assert printable("plain words, ünd more") == "plain words, ünd more"


def test_a_deadline_is_believed_only_with_our_seal_of_its_own_name() -> None:
    key, other = b"k" * 32, b"o" * 32
    record = sealed(key, "job.1", 5, 7)
    assert opened(key, "job.1", record)["boot_ms"] == 7
    forged = [
        {**record, "boot_ms": 8}, {**record, "at": 6}, {**record, "boot_ms": None}, {**record, "boot_ms": 7.0}, {},
        {**record, "seal": None}, {**record, "seal": "ü"}, sealed(other, "job.1", 5, 7), sealed(key, "job.2", 5, 7),
    ]  # fmt: skip
    for forgery in forged:
        with pytest.raises(DamagedFile):
            opened(key, "job.1", forgery)


def test_a_record_replaces_whatever_is_in_its_way_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "a.json").symlink_to("precious")
    (tmp_path / "b.json" / "in it").mkdir(parents=True)
    for name in ("a.json", "b.json"):
        write(f"{tmp_path}/{name}", {"step": 1}, durable=True)
        assert checked(f"{tmp_path}/{name}") == {"step": 1}
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "precious").read_text() == "untouched"


def test_a_file_that_grows_while_it_is_read_is_read_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 100)
    assert read_plain(str(path), 100) == b"x" * 100
    with pytest.raises(DamagedFile, match="more than 99"):
        read_plain(str(path), 99)
    os.chmod(path, 0)
    if os.geteuid() != 0:
        with pytest.raises(DamagedFile):
            read_plain(str(path), 100)
