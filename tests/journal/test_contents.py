"""`journal verify` holds tables, blobs and snapshots against the steps: what the chain does not cover by itself."""

import json
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.engine import replay
from penstock.core.errors import BadInput
from penstock.core.units import MICRO
from penstock.journal.contents import Contents, verify_contents
from penstock.journal.open import open_journal
from penstock.journal.schema import PROJECTION
from penstock.journal.sqlite import BulkJournal
from penstock.journal.writer import JournalWriter
from penstock.live import snapshot
from tests.contract.journals import KINDS, append, claimed, epoch_of, new_address, story
from tests.postgres import Server, server

WORK = b'{"command": ["true"]}'


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as database:
        yield database


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


@pytest.fixture
def kept(where: str) -> Iterator[JournalWriter]:
    """A live journal with everything that there is beside the chain."""
    journal, epoch = claimed(where)
    append(journal, epoch, story(), {sha256(WORK).hexdigest(): WORK})
    state = replay((step.at, step.inputs, step.outputs) for step in story()[:7]).state
    journal.keep_snapshot(epoch_of(journal), 7, snapshot.schema(), snapshot.pack(state))
    journal.keep_snapshot(epoch_of(journal), 9, "of another version", b"whatever it holds")
    yield journal
    journal.close()


def verified(where: str) -> Contents:
    return verify_contents(where, snapshot.schema(), snapshot.restored)


def test_what_was_written_is_as_the_steps_say(kept: JournalWriter, where: str) -> None:
    report = verified(where)
    assert (report.blobs, report.snapshots, report.snapshots_of_others) == (1, 1, 1)
    ((jobs,),) = kept.db.all("select count(*) from jobs")
    assert report.rows > jobs > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("update jobs set team = 'blue' where id = 'a'", "Row a of table jobs is not what the steps say"),
        ("update attempts set offer = 'free' where id = 'b.1'", "Row b.1 of table attempts"),
        ("update spend set spent = 0", "of table spend"),
        ("update caps set per_period = 99", "Row org of table caps"),
        ("delete from happened where job = 'c'", "Table happened lacks"),
        ("delete from attempts", "Table attempts lacks"),
        ("update counts set jobs = jobs + 1", "of table counts"),
        ("insert into closed values ('lab/x', 5, 1)", "Row lab/x of table closed"),
        ("update journal set projected = 3", "not those of the last step"),
        ("update blobs set content = hash from journal", "stands for was changed"),
        ("update snapshots set number = 8 where number = 7", "the snapshot of step 8 holds step 7"),
        ("update snapshots set number = 700 where number = 7", "a snapshot of step 700, and no such step"),
        ("update snapshots set state = substr(state, 1, 50) where number = 7", "snapshot of step 7 cannot be read"),
        ("update snapshots set hash = state where number = 7", "is not the state that its steps fold to"),
    ],
)
def test_what_was_changed_is_named(kept: JournalWriter, where: str, change: str, words: str) -> None:
    kept.db.run(change)
    with pytest.raises(BadInput, match="(?i)" + words.replace(".", r"\.")):
        verified(where)


def test_a_snapshot_that_holds_more_money_is_found(kept: JournalWriter, where: str) -> None:
    """`verify` said Whole, and the next start held $2,400 under a cap of $10."""
    state = replay((step.at, step.inputs, step.outputs) for step in story()[:7]).state
    next(iter(state.ledger.accounts.values())).held += 2_400 * MICRO
    kept.keep_snapshot(
        epoch_of(kept), 7, snapshot.schema(), snapshot.pack(state)
    )  # sealed, by somebody who has the key
    with pytest.raises(BadInput, match="The snapshot of step 7 is not the state that its steps fold to"):
        verified(where)


def test_tables_of_an_older_version_are_left_to_the_next_writer(kept: JournalWriter, where: str) -> None:
    kept.db.run("update journal set projection = ?", PROJECTION - 1)
    kept.db.run("delete from attempts")
    assert verified(where).rows == 0


def test_a_simulation_has_steps_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "month.journal")
    with BulkJournal(path) as journal:
        for step in story():
            journal.append(step)
    assert verified(path) == Contents(rows=0, blobs=0, snapshots=0, snapshots_of_others=0)
    assert main(["journal", "rebuild", path]) == 0
    capsys.readouterr()
    assert main(["journal", "verify", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] > 0


def test_the_command_names_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "live.journal")
    journal, epoch = claimed(path)
    append(journal, epoch, story())
    journal.close()
    assert main(["journal", "verify", path]) == 0
    assert "Beside it, as the steps say:" in capsys.readouterr().out
    with closing(open_journal(path)) as again:
        again.db.run("update jobs set spent = 7")
    assert main(["journal", "verify", path]) == 2
    captured = capsys.readouterr()
    assert "of table jobs is not what the steps say" in captured.err
    assert "Whole" not in captured.out
