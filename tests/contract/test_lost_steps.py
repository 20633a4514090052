"""A journal that comes back shorter than it was: nobody writes on before a person says so, in this process or the next.

The database is rewound by hand here; `tests/faults/test_failover.py` does it with a real primary and its standby.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.journal import restore as restores
from penstock.journal.database import hash_of
from penstock.journal.head_memory import HeadMemory, Remembered
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
    return open_journal(where, memory=HeadMemory(home / "head.json"))


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
    assert one.read() == Remembered("i", "9:aa")
    other.note(Remembered("i", "7:bb", restored=1))
    assert one.read() == Remembered("i", "7:bb", restored=1)
    one.note(Remembered("i", "5:cc", restored=1), lower=True)
    assert HeadMemory(file).read() == Remembered("i", "5:cc", restored=1)
    one.note(Remembered("another", "1:dd"))
    assert HeadMemory(file).read() == Remembered("another", "1:dd")
    assert file.stat().st_mode & 0o777 == 0o600
    for memory in (one, other):
        memory.close()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"installation":"i","head":"x:aa"}', b'{"installation":"i"}'])
def test_a_damaged_file_remembers_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "head.json").write_bytes(text)
    memory = HeadMemory(tmp_path / "head.json")
    assert memory.read() is None
    memory.note(Remembered("i", "9:aa"))
    assert memory.read() == Remembered("i", "9:aa")
    memory.close()


def test_a_head_that_cannot_be_noted_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "head.json").mkdir()
    memory = HeadMemory(tmp_path / "head.json")
    memory.note(Remembered("i", "9:aa"))
    assert "cannot be noted" in memory.trouble
    assert memory.read() is None
