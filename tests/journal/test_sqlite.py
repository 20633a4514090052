"""A journal in a file: what was appended is what is read, and what was changed is found."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings

from penstock.core.engine import VERSION, replay
from penstock.core.errors import BadInput
from penstock.journal.hash_chain import GENESIS
from penstock.journal.open import read
from penstock.journal.redecide import redecide
from penstock.journal.sqlite import BulkJournal
from penstock.policy.rules import PolicyRules
from tests.core.histories import History, Life, histories
from tests.stories.kit import ended, nothing, offer, policy, site, submitted
from tests.stories.kit import given as given_story


def small(path: Path) -> BulkJournal:
    penstock = given_story(site("lab"), offer("cloud", sizes=(1,), sold_by="attempt"), policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(nothing, at="09:10")
    penstock.hears(ended("a.1"), ended("b.1"), at="10:00")
    with BulkJournal(str(path)) as journal:
        for step in penstock.steps:
            journal.append(step)
    return journal


@settings(max_examples=25)
@given(histories())
def test_what_is_read_folds_to_the_live_state_and_decides_the_same(
    tmp_path_factory: pytest.TempPathFactory, history: History
) -> None:
    life = Life(history)
    life.run()
    path = tmp_path_factory.mktemp("journal") / "j.db"
    with BulkJournal(str(path), group=7) as journal:
        for step in life.steps:
            journal.append(step)
    rows = list(read(str(path)))
    assert [(row.number, row.at, row.inputs, row.outputs, row.revision) for row in rows] == [
        (step.number, step.at, step.inputs, step.outputs, step.revision) for step in life.steps
    ]
    again = replay((row.at, row.inputs, row.outputs) for row in rows)
    assert list(map(repr, again.state.canonical())) == list(map(repr, life.engine.state.canonical()))
    verdict = redecide(rows, 3, PolicyRules())
    assert verdict.first == ()
    assert (verdict.steps, verdict.different) == (len(rows), 0)


def test_a_group_is_committed_when_it_is_full_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    penstock = given_story(site("lab"))
    with BulkJournal(str(path), group=2) as journal:
        journal.append(penstock.steps[0])
        assert list(read(str(path))) == []
        penstock.hears(nothing, at="09:00")
        journal.append(penstock.steps[1])
        assert len(list(read(str(path)))) == 2
        penstock.hears(nothing, at="09:01")
        journal.append(penstock.steps[2])
    assert len(list(read(str(path)))) == 3


def test_a_committed_step_survives_a_power_cut(tmp_path: Path) -> None:
    with BulkJournal(str(tmp_path / "j.db")) as journal:
        assert journal.db.execute("pragma synchronous").fetchone() == (2,)
        assert journal.db.execute("pragma journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "change",
    [
        "update steps set inputs = replace(cast(inputs as text), 'lab', 'lob') where number = 1",
        "update steps set outputs = cast('[]' as blob) where number = 2",
        "update steps set at = at + 1 where number = 3",
        "update steps set revision = 2 where number = 2",
        "delete from steps where number = 2",
        "update steps set hash = x'00' where number = 4",
    ],
)
def test_a_tampered_row_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j.db"
    small(path)
    with sqlite3.connect(path) as db:
        assert db.execute(change).rowcount == 1
    db.close()
    with pytest.raises(BadInput, match="was changed after the fact"):
        list(read(str(path)))


def test_a_row_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"
    monkeypatch.setattr("penstock.journal.hash_chain.VERSION", VERSION + 1)
    small(path)
    monkeypatch.undo()
    with pytest.raises(BadInput, match="step 1 was written by a newer Penstock"):
        list(read(str(path)))


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    small(path)
    with sqlite3.connect(path) as db:
        db.execute("update journal set format = 99")
    db.close()
    with pytest.raises(BadInput, match=r"another format \(99\)"):
        list(read(str(path)))


def test_the_chain_begins_with_a_known_word_and_each_link_is_new(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    last = small(path).last
    db = sqlite3.connect(path)
    hashes = [row[0] for row in db.execute("select hash from steps order by number")]
    db.close()
    assert hashes[-1] == last
    assert len({GENESIS, *hashes}) == len(hashes) + 1


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_text("something")
    with pytest.raises(BadInput, match="exists already"):
        BulkJournal(str(path))


def test_what_is_no_journal_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no journal"):
        list(read(str(tmp_path / "missing.db")))
    (tmp_path / "text.db").write_text("not a database, however long it may be\n" * 50)
    with pytest.raises(BadInput, match="is not a journal"):
        list(read(str(tmp_path / "text.db")))
