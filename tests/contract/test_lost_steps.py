"""A journal that comes back shorter than it was: nobody writes on before a person says so, in this process or the next.

The database is rewound by hand here; `tests/faults/test_failover.py` does it with a real primary and its standby.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.journal import restore as restores
from penstock.journal.database import hash_of
from penstock.journal.head_memory import MOST, HeadMemory, Remembered
from penstock.journal.journal import Fenced, Held, LostSteps
from penstock.journal.open import open_journal
from penstock.journal.writer import JournalWriter
from tests.contract.journals import KINDS, LEASE, append, epoch_of, everything, new_address, story

LAST = 8


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


def opened(where: str, home: Path) -> JournalWriter:
    home.mkdir(exist_ok=True)
    journal = open_journal(where, memory=HeadMemory(home / "head.json"))
    journal.remember()
    return journal


@pytest.fixture
def journal(where: str, tmp_path: Path) -> Iterator[JournalWriter]:
    """Answered as far as step 8."""
    found = opened(where, tmp_path / "home")
    append(found, found.claim("here", 0, LEASE), story()[:LAST])
    yield found
    found.close()


def rewind(journal: JournalWriter, to: int) -> None:
    """As the standby has it that takes over. Its tables are not asked here."""
    journal.db.run("delete from steps where number > ?", to)
    journal.db.run("update journal set head = ?, hash = ?, projected = ?", to, hash_of(journal.db, to), to)


def writes(journal: JournalWriter, to: int) -> list[Callable[[], object]]:
    epoch = epoch_of(journal)
    return [
        lambda: append(journal, epoch, story()[to : to + 1]),
        lambda: journal.renew(epoch, 1, LEASE),
        lambda: journal.keep_claims(epoch, []),
        lambda: journal.release(epoch),
        lambda: journal.forget_answers(epoch, 1),
    ]


@pytest.mark.parametrize("to", [LAST - 1, 5])
def test_a_writer_that_was_answered_more_writes_nothing_to_a_shorter_journal(journal: JournalWriter, to: int) -> None:
    """It lived on without a word, and its heartbeat told every site the shorter head: the only witness was gone."""
    rewind(journal, to)
    before, lease = everything(journal), journal.db.all("select * from lease")
    for write in writes(journal, to):
        with pytest.raises(LostSteps, match=rf"ends at step {to}, and was answered as far as step 8 of .*missing"):
            write()
    assert (everything(journal), journal.db.all("select * from lease")) == (before, lease)
    assert journal.answered().startswith("8:")


def test_what_is_lost_is_named_and_a_database_that_has_it_is_written_again(journal: JournalWriter) -> None:
    """The address led to the wrong server for a moment: nobody has to restart anything."""
    steps, (head,) = journal.db.all("select * from steps"), journal.db.all("select head, hash, projected from journal")
    rewind(journal, 0)
    with pytest.raises(LostSteps, match=r"8 steps are missing, with 4 accepted jobs \(a to c\)\.") as lost:
        journal.renew(epoch_of(journal), 1, LEASE)
    assert "penstock journal restore" in str(lost.value)
    journal.db.write("insert into steps values (?, ?, ?, ?, ?, ?, ?)", steps)
    journal.db.run("update journal set head = ?, hash = ?, projected = ?", *head)
    append(journal, epoch_of(journal), story()[LAST:])
    assert len(list(journal.read())) == len(story())


def test_the_next_process_of_this_home_refuses_it_too_and_names_what_was_lost(
    journal: JournalWriter, where: str, tmp_path: Path
) -> None:
    """The first one ended with a message, and the next, which systemd starts, was ready at once."""
    rewind(journal, 5)
    with pytest.raises(LostSteps):
        journal.renew(epoch_of(journal), 1, LEASE)
    lease = journal.db.all("select * from lease")
    journal.close()
    with closing(opened(where, tmp_path / "home")) as second:
        with pytest.raises(LostSteps, match="3 steps are missing"):
            second.claim("here", 2, LEASE)
        assert second.db.all("select * from lease") == lease
    with closing(open_journal(where)) as stranger:  # who knows nothing of it is not kept out
        stranger.claim("here", 3, LEASE)


def test_another_past_of_the_same_length_or_longer_is_refused(
    journal: JournalWriter, where: str, tmp_path: Path
) -> None:
    journal.db.run("update steps set hash = ? where number = 8", b"x" * 32)
    journal.db.run("update journal set hash = ?", b"x" * 32)
    with pytest.raises(Fenced, match="step 8 was changed by somebody else"):
        journal.renew(epoch_of(journal), 1, LEASE)
    journal.close()
    with closing(opened(where, tmp_path / "home")) as second:
        with pytest.raises(LostSteps, match="has another step 8 than the one that was answered"):
            second.claim("here", 2, LEASE)
        second.db.run("update journal set head = 9")
        with pytest.raises(LostSteps, match="has another step 8"):
            second.claim("here", 2, LEASE)


def test_a_person_lets_it_go_on_for_every_home_and_a_second_loss_is_refused_again(
    journal: JournalWriter, where: str, tmp_path: Path
) -> None:
    with closing(opened(where, tmp_path / "standby")) as standby, pytest.raises(Held):
        standby.claim("there", 1, LEASE)
    rewind(journal, 5)
    journal.close()
    restores.restore(where)
    with closing(opened(where, tmp_path / "home")) as here:
        epoch = here.claim("here", LEASE, LEASE)
        assert (here.missing().steps, here.claims().restored) == (3, True)
        here.keep_claims(epoch, [], settled=True)
        assert here.claims().restored is False
        append(here, epoch, story()[5:7])
        here.release(epoch)
    with closing(opened(where, tmp_path / "standby")) as standby:
        standby.claim("there", LEASE, LEASE)
        standby.remember()
        rewind(standby, 6)
    for home in ("standby", "home"):
        with closing(opened(where, tmp_path / home)) as again, pytest.raises(LostSteps, match="1 step is missing"):
            again.claim("there", 3 * LEASE, LEASE)


def test_a_standby_follows_the_head_and_takes_over_nothing_shorter(
    journal: JournalWriter, where: str, tmp_path: Path
) -> None:
    """The leader and its machine may be gone together with the primary; then nobody else knows what was answered."""
    with closing(opened(where, tmp_path / "standby")) as standby:
        for _ in range(2):
            with pytest.raises(Held):
                standby.claim("there", 1, LEASE)
        assert standby.answered() == journal.answered()
        rewind(journal, 7)
        with pytest.raises(Held):
            standby.claim("there", 2, LEASE)
        journal.close()
        with pytest.raises(LostSteps, match="1 step is missing"):
            standby.claim("there", LEASE + 1, LEASE)


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_remembered_head_is_lowered_only_on_purpose(tmp_path: Path) -> None:
    """Two processes of one home: the standby is a moment behind its leader."""
    file = tmp_path / "head.json"
    one, other = HeadMemory(file), HeadMemory(file)
    one.note(Remembered("i", "9:aa"))
    other.note(Remembered("i", "7:bb"))
    assert one.read("i") == Remembered("i", "9:aa")
    other.note(Remembered("i", "7:bb", restored=1))
    assert one.read("i") == Remembered("i", "7:bb", restored=1)
    one.note(Remembered("i", "5:cc", restored=1), lower=True)
    assert HeadMemory(file).read("i") == Remembered("i", "5:cc", restored=1)
    assert file.stat().st_mode & 0o777 == 0o600
    for memory in (one, other):
        memory.close()


SOUND = msgspec.json.encode(Remembered("i", "9:aa")).ljust(1_999) + b"\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" * 2_000,
        SOUND[:50],
        SOUND.replace(b"9:aa", b"9:za"),
        SOUND.replace(b"9:aa", b"9:a"),
        SOUND.replace(b"9:aa", b"x:aa"),
        SOUND.replace(b'"at":0', b'"at":' + b"9" * 30),
        b"{",
        b"[]",
        b'{"installation":"i"}',
    ],
)
def test_a_damaged_file_is_said_and_written_anew(tmp_path: Path, text: bytes) -> None:
    """A link that was no hash ended the start with a traceback, and an emptied file was taken for a new one."""
    (tmp_path / "head.json").write_bytes(text)
    memory = HeadMemory(tmp_path / "head.json")
    assert memory.read("i") is None
    assert "is damaged" in memory.trouble
    memory.note(Remembered("i", "9:aa"))
    assert HeadMemory(tmp_path / "head.json").read("i") == Remembered("i", "9:aa")
    assert "is damaged" in memory.trouble  # a person should still know
    memory.close()


def test_a_home_without_the_file_is_new_and_not_damaged(tmp_path: Path) -> None:
    memory = HeadMemory(tmp_path / "head.json")
    assert (memory.read("i"), memory.trouble) == (None, "")


def test_each_installation_has_its_own_head(tmp_path: Path) -> None:
    """A start with another journal wrote over what was remembered of the right one."""
    memory = HeadMemory(tmp_path / "head.json")
    memory.note(Remembered("i", "9:aa", missing="é" * 1_200))
    memory.note(Remembered("another", "1:dd"))
    memory.note(Remembered("i", "10:bb"))
    again = HeadMemory(tmp_path / "head.json")
    assert again.read("i") == Remembered("i", "10:bb")
    assert again.read("another") == Remembered("another", "1:dd")
    assert (again.read("third"), again.trouble) == (None, "")
    for k in range(MOST):
        memory.note(Remembered(f"more {k}", "1:dd"))
    assert f"the heads of {MOST} other installations" in memory.trouble
    memory.note(Remembered("i", "11:cc"))
    assert memory.trouble == ""
    assert again.read("another") == Remembered("another", "1:dd")
    memory.close()


@pytest.mark.parametrize(
    "put", [Path.mkdir, os.mkfifo, lambda file: file.symlink_to("/dev/zero"), lambda file: file.symlink_to("gone")]
)
def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """A start waited for ever for a pipe, without a word."""
    file = tmp_path / "head.json"
    put(file)
    memory = HeadMemory(file)
    assert memory.read("i") is None
    assert "is damaged" in memory.trouble
    memory.note(Remembered("i", "9:aa"))
    assert "cannot be noted" in memory.trouble


def test_a_head_that_could_not_be_noted_is_noted_with_the_next_heartbeat(
    journal: JournalWriter, tmp_path: Path
) -> None:
    """Nobody read that it was not noted; and it was noted only with the next step, which may be days later."""
    file = tmp_path / "home" / "head.json"
    journal.close()
    file.unlink()
    file.mkdir()
    with closing(opened(journal.db.where, file.parent)) as again:
        epoch = again.claim("here", LEASE, LEASE)
        again.renew(epoch, LEASE, LEASE)
        assert "cannot be noted" in again.memory_trouble()
        file.rmdir()
        again.renew(epoch, LEASE, LEASE)
        assert "cannot be noted" not in again.memory_trouble()
        found = HeadMemory(file).read(again.installation)
        assert found is not None
        assert found.head == again.answered()


def test_a_start_that_the_sites_refuse_remembers_nothing(where: str, tmp_path: Path) -> None:
    """Its journal is the wrong one."""
    file = tmp_path / "head.json"
    with closing(open_journal(where, memory=HeadMemory(file))) as journal:
        append(journal, epoch := journal.claim("here", 0, LEASE), story()[:2])
        journal.renew(epoch, 1, LEASE)
        assert not file.exists()
        journal.remember()
        found = HeadMemory(file).read(journal.installation)
        assert found is not None
        assert found.head == journal.answered()


# --- the same backup, twice ------------------------------------------------------------------------------------------


def test_a_backup_that_is_restored_a_second_time_is_followed_by_a_standby(tmp_path: Path) -> None:
    """Restores were counted, and each time the backup had one: the standby refused the healthy journal."""
    where, backup = str(tmp_path / "journal.db"), tmp_path / "backup.db"
    with closing(open_journal(where)) as journal:
        append(journal, journal.claim("here", 0, LEASE), story()[:5])
    shutil.copy(where, backup)
    for last in (LAST, 6):  # the second time it is shorter than the standby knows
        restores.put_in_place(str(backup), where)
        restores.restore(where)
        with closing(opened(where, tmp_path / "home")) as leader:
            append(leader, epoch := leader.claim("here", 0, LEASE), story()[5:last])
            leader.keep_claims(epoch, [], settled=True)
            with closing(opened(where, tmp_path / "standby")) as standby:
                with pytest.raises(Held):
                    standby.claim("there", 1, LEASE)
                assert standby.answered() == leader.answered()
    with closing(opened(where, tmp_path / "standby")) as standby:
        standby.claim("there", LEASE, LEASE)
        assert standby.answered().startswith("6:")


def test_a_copy_with_an_older_restore_than_the_known_one_is_refused(tmp_path: Path) -> None:
    """Its restore is another one, and yet no new word of a person."""
    where, backup, older = (tmp_path / f"{name}.db" for name in ("journal", "backup", "older"))
    with closing(open_journal(str(where))) as journal:
        append(journal, journal.claim("here", 0, LEASE), story()[:5])
    shutil.copy(where, backup)
    for _ in range(2):
        shutil.copy(where, older)
        restores.put_in_place(str(backup), str(where))
        restores.restore(str(where))
        with closing(opened(str(where), tmp_path / "home")) as leader:
            append(leader, epoch := leader.claim("here", 0, LEASE), story()[5:LAST])
            leader.keep_claims(epoch, [], settled=True)
            leader.release(epoch)
    with closing(opened(str(older), tmp_path / "home")) as old:
        assert old.db.all("select count(*) from restored") == [(1,)]
        rewind(old, 6)
        with pytest.raises(LostSteps, match="2 steps are missing"):
            old.claim("here", LEASE, LEASE)


def test_a_head_that_an_older_version_noted_is_read(journal: JournalWriter, tmp_path: Path) -> None:
    """It counts restores: the same count is no person's new word, and one more is."""
    file = tmp_path / "home" / "head.json"
    journal.restore(epoch_of(journal), 1_000)
    journal.keep_claims(epoch_of(journal), [], settled=True)
    head = journal.answered()
    journal.close()
    old = {"installation": journal.installation, "head": head, "restored": 1, "at": 5, "missing": ""}
    file.write_bytes(msgspec.json.encode(old).ljust(1_999) + b"\n")
    where = journal.db.where
    with closing(opened(where, file.parent)) as again:
        rewind(again, 6)
        with pytest.raises(LostSteps, match="2 steps are missing"):
            again.claim("here", LEASE, LEASE)
        again.db.run("insert into restored values (?, ?)", 2_000, 6)
        again.claim("here", LEASE, LEASE)
        assert again.answered().startswith("6:")
