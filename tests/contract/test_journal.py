"""What every journal keeps: the contract of `penstock.journal.journal`, the same for SQLite and PostgreSQL."""

import inspect
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.engine import replay
from penstock.core.errors import BadInput
from penstock.core.model.events import JobSubmitted
from penstock.core.model.types import Origin
from penstock.explain.story import tell
from penstock.journal.journal import Fenced, Held, Journal, KeptClaim
from penstock.journal.open import lines_of, open_journal, open_reader, read
from penstock.journal.redecide import redecide
from penstock.journal.rows import ClosedRow, Filter
from penstock.journal.schema import RETIRED, TABLES, Changes
from penstock.journal.seal import Doubtful
from penstock.journal.writer import JournalWriter
from tests.contract.journals import KINDS, LEASE, append, changed_by, claimed, epoch_of, everything, new_address, story
from tests.core.histories import History, Life, histories
from tests.stories.kit import clock, site, submitted
from tests.stories.kit import given as given_sites


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


@pytest.fixture
def journal(where: str) -> Iterator[JournalWriter]:
    found = open_journal(where)
    yield found
    found.close()


def test_it_is_what_the_live_loop_asks_for(journal: JournalWriter) -> None:
    kept: Journal = journal  # the type checker's word
    assert list(kept.read()) == []


@pytest.fixture
def told(journal: JournalWriter) -> JournalWriter:
    """One that holds the story."""
    append(journal, journal.claim("here", 0, LEASE), story())
    return journal


# --- steps -----------------------------------------------------------------------------------------------------------


def test_what_was_appended_is_read_and_means_the_same(journal: JournalWriter, where: str) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:3])
    for step in steps[3:]:
        append(journal, epoch, [step])
    for rows in (list(journal.read()), list(read(where))):
        assert [(row.number, row.at, row.inputs, row.outputs, row.revision) for row in rows] == [
            (step.number, step.at, step.inputs, step.outputs, step.revision) for step in steps
        ]
        assert redecide(rows, most=1).different == 0
    assert [row.number for row in journal.read(after=4)] == [step.number for step in steps[4:]]


def test_a_journal_is_read_while_it_is_written(journal: JournalWriter, where: str) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:4])
    reading = read(where)
    first = next(reading)
    append(journal, epoch, steps[4:])
    assert [row.number for row in (first, *reading)] == [step.number for step in steps]


def test_a_step_that_does_not_follow_is_refused(journal: JournalWriter) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:3])
    before = everything(journal)
    with pytest.raises(Fenced, match="is at step 3, and step 5 does not follow it"):
        journal.append(epoch, steps[4:5], Changes(), {}, {})
    with pytest.raises(Fenced, match="does not follow"):
        append(journal, epoch, [replace(steps[2], at=steps[2].at + 1)])
    assert everything(journal) == before
    append(journal, epoch, steps[3:])


def test_an_append_whose_answer_was_lost_is_made_again_and_is_there_once(journal: JournalWriter) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:5], {"d": b"x"}, {"k": "one"})
    before = everything(journal)
    append(journal, epoch, steps[:5], {"d": b"x"}, {"k": "one"})
    append(journal, epoch, steps[2:5])
    assert everything(journal) == before


def test_tables_that_cannot_be_written_leave_no_step_behind(journal: JournalWriter) -> None:
    """The steps were written and half of the tables, when a row had no id."""
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:2])
    before = everything(journal)
    changes = changed_by(steps[2:4], steps[:2])
    changes.put(ClosedRow(None, 0, 0))  # type: ignore[arg-type]  # which no table takes
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        journal.append(epoch, steps[2:4], changes, {}, {"k": "one"})
    assert everything(journal) == before
    append(journal, epoch, steps[2:])
    kept = everything(journal)
    journal.rebuild(epoch_of(journal))
    assert everything(journal) == kept


def test_text_that_no_database_takes_finds_nothing(where: str, journal: JournalWriter) -> None:
    """`GET /v1/jobs?text=%00` was a bug's traceback on PostgreSQL."""
    append(journal, journal.claim("here", 0, LEASE), story())
    with closing(open_reader(where)) as reader:
        for text in ("zero \0", "half \ud800", "\0"):
            assert reader.jobs(Filter(text=text)) == []
            assert reader.jobs(Filter(teams=(text,))) == []
            assert (reader.job(text), reader.attempts(text), reader.answer(text)) == (None, [], None)


# --- the chain -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("update steps set at = at + 1 where number = 3", "step 3 is not what was written"),
        ("update steps set inputs = outputs where number = 2", "step 2 is not what was written"),
        ("delete from steps where number = 4", "step 5 is not what was written"),
        ("delete from steps where number > 6", "steps 7 to 10 were written and are gone"),
        ("delete from steps", "steps 1 to 10 were written and are gone"),
        ("update journal set hash = (select hash from steps where number = 9)", "step 10 is not what was written"),
    ],
)
def test_what_was_changed_or_cut_off_afterwards_is_named(
    told: JournalWriter, where: str, change: str, found: str
) -> None:
    told.db.run(change)
    with pytest.raises(BadInput, match=found):
        list(read(where))
    with pytest.raises(BadInput, match=found):
        list(told.read())


def test_an_installation_has_a_name_of_its_own_for_ever(journal: JournalWriter, where: str) -> None:
    again = open_journal(where)
    assert again.installation == journal.installation
    with closing(open_reader(where)) as reader:
        assert reader.installation == journal.installation
    assert len(journal.installation) == 32
    again.close()


# --- who writes ------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_a_sentence(journal: JournalWriter, where: str) -> None:
    journal.claim("here", 1_000, LEASE)
    other = open_journal(where)
    with pytest.raises(Held, match="is written by here, for 20 s more unless it renews; stop that one, or wait"):
        other.claim("there", 11_000, LEASE)
    with pytest.raises(Held):  # the same set-up started twice
        other.claim("here", 11_000, LEASE)
    other.close()


def test_who_comes_back_after_a_crash_does_not_wait_for_its_own_lease(where: str) -> None:
    first, epoch = claimed(where, at=1_000)
    first.close()  # as a killed process is closed by the system
    second, later = claimed(where, at=2_000)
    assert later == epoch + 1
    second.close()
    third = open_journal(where)
    with pytest.raises(Held):
        third.claim("there", 3_000, LEASE)
    third.close()


def test_a_lease_that_was_given_back_is_free_at_once(where: str) -> None:
    first, epoch = claimed(where, at=1_000)
    first.release(epoch)
    first.close()
    second, later = claimed(where, holder="there", at=1_001)
    assert later == epoch + 1
    second.close()


def test_fault_6_a_stale_writer_changes_nothing(journal: JournalWriter, where: str) -> None:
    """It was stopped for longer than its lease; another took over; then it goes on as if nothing had happened."""
    steps = story()
    epoch = journal.claim("here", 0, LEASE)
    append(journal, epoch, steps[:4])
    other = open_journal(where)
    newer = other.claim("there", LEASE + 1, LEASE)
    append(other, newer, steps[4:6], {"kept": b"work"}, {"k": "one"})
    other.keep_snapshot(newer, 6, "s1", b"six")
    before, snapshots = everything(other), other.db.all("select * from snapshots")
    for stale in stale_writes(journal, epoch).values():
        with pytest.raises(Fenced, match="is written by there now"):
            stale()
    assert (everything(other), other.db.all("select * from snapshots")) == (before, snapshots)
    append(other, newer, steps[6:])
    other.close()


def stale_writes(journal: JournalWriter, epoch: int) -> dict[str, Callable[[], object]]:
    """All that a writer can write, by the method that does."""
    steps = story()
    return {
        "append": lambda: journal.append(epoch, steps[4:7], changed_by(steps[4:7], steps[:4]), {"d": b"x"}, {"l": "2"}),
        "renew": lambda: journal.renew(epoch, LEASE + 2, LEASE),
        "release": lambda: journal.release(epoch),
        "keep_claims": lambda: journal.keep_claims(epoch, [KeptClaim("lab", "one", "", "here")]),
        "restore": lambda: journal.restore(epoch, LEASE + 2),
        "forget_answers": lambda: journal.forget_answers(epoch, LEASE + 2),
        "erase_blob": lambda: journal.erase_blob(epoch, "kept"),
        "keep_snapshot": lambda: journal.keep_snapshot(epoch, 4, "s2", b"four"),
        "rebuild": lambda: journal.rebuild(epoch),
    }


def test_fault_6_all_that_a_writer_writes_is_fenced(journal: JournalWriter) -> None:
    """A replaced leader erased blobs and replaced snapshots when it woke up: these two did not ask for the epoch."""
    methods = [(name, method) for name, method in vars(JournalWriter).items() if not name.startswith("_")]
    writes = {
        name
        for name, method in methods
        if re.search(r"self\._fenced\(|self\.db\.transaction\(", inspect.getsource(method))
    }
    assert writes - {"take", "catch_up", "read"} == set(stale_writes(journal, 1))  # `read` waits for a lock


def test_a_renewed_lease_is_not_taken(journal: JournalWriter, where: str) -> None:
    epoch = journal.claim("here", 0, LEASE)
    journal.renew(epoch, 20_000, LEASE)
    other = open_journal(where)
    with pytest.raises(Held, match="for 10 s more"):
        other.claim("there", 40_000, LEASE)
    other.close()


# --- what is kept beside ---------------------------------------------------------------------------------------------


def test_fault_14_an_answer_is_there_with_its_step_or_not_at_all(journal: JournalWriter, where: str) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    with pytest.raises(Fenced):
        append(journal, epoch + 1, steps[:1], {"d": b"work"}, {"k": "one"})
    assert (journal.answer("k"), journal.blob("d"), list(journal.read())) == (None, None, [])
    append(journal, epoch, steps[:1], {"d": b"work"}, {"k": "one"})
    append(journal, epoch, steps[1:2], {"d": b"other"}, {"k": "two"})  # the first answer stays
    reader = open_reader(where)
    for found in (journal, reader):
        assert (found.answer("k"), found.blob("d"), found.answer("x"), found.blob("x")) == ("one", b"work", None, None)
    reader.close()


def test_a_head_that_somebody_changed_under_the_writer_is_no_past_to_go_on_from(journal: JournalWriter) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:2])
    changes = changed_by(steps[2:3], steps[:2])
    journal.db.run("update journal set hash = (select hash from steps where number = 1)")
    with pytest.raises(Fenced, match="step 2 was changed by somebody else"):
        journal.append(epoch, steps[2:3], changes, {}, {})
    assert journal.db.all("select max(number) from steps")[0][0] == 2


def test_a_key_is_new_again_when_its_time_is_over(journal: JournalWriter) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:1], keys={"old": "one"})
    append(journal, epoch, steps[1:2], keys={"new": "two"})
    with pytest.raises(Fenced):
        journal.forget_answers(epoch + 1, steps[1].at)
    assert journal.answer("old") == "one"
    journal.forget_answers(epoch, steps[1].at)
    assert (journal.answer("old"), journal.answer("new")) == (None, "two")


def test_keys_of_a_journal_that_kept_them_for_ever_are_known_for_another_day(
    journal: JournalWriter, where: str
) -> None:
    epoch, steps = journal.claim("here", 0, LEASE), story()
    append(journal, epoch, steps[:2])
    journal.db.create("create table answers (key text primary key, answer text not null)")
    journal.db.run("insert into answers values ('k', 'one')")
    again = open_journal(where)
    assert again.answer("k") == "one"
    again.close()
    journal.forget_answers(epoch, steps[1].at)
    assert journal.answer("k") == "one"
    journal.forget_answers(epoch, steps[1].at + 1)
    assert journal.answer("k") is None


def test_a_blob_can_be_erased_and_the_chain_still_verifies(told: JournalWriter, where: str) -> None:
    secret = b"a name that somebody wants forgotten" * 300
    digest = sha256(secret).hexdigest()
    epoch = told.claim("here", 0, LEASE)
    append(told, epoch, [], {digest: secret, "other": b"stays"})
    told.erase_blob(epoch, digest)
    assert (told.blob(digest), told.blob("other")) == (None, b"stays")
    assert len(list(read(where))) == len(story())
    for path in Path(where).parent.glob("live.journal*"):
        assert b"somebody wants forgotten" not in path.read_bytes()


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_the_newest_snapshot_of_a_schema_is_found(told: JournalWriter) -> None:
    assert told.snapshot("s1") is None
    told.keep_snapshot(epoch_of(told), 4, "s1", b"four")
    told.keep_snapshot(epoch_of(told), 9, "s1", b"nine")
    told.keep_snapshot(epoch_of(told), 10, "s2", b"ten")
    assert told.snapshot("s1") == (9, b"nine")
    assert told.snapshot("s2") == (10, b"ten")
    assert told.snapshot("s3") is None


def test_a_snapshot_of_another_past_is_not_taken(told: JournalWriter) -> None:
    """An older copy of the journal was put back, and other steps were written since."""
    told.keep_snapshot(epoch_of(told), 9, "s1", b"nine")
    told.db.run("update steps set hash = (select hash from steps where number = 2) where number = 9")
    with pytest.raises(Doubtful, match="the snapshot of step 9 is not what was stored"):
        told.snapshot("s1")
    told.db.run("delete from steps where number >= 9")
    with pytest.raises(Doubtful, match="a snapshot of step 9, and no such step"):
        told.snapshot("s1")


@pytest.mark.parametrize(
    "change", ["state = substr(state, 1, 40)", "state = hash", "number = 8", "state = state || hash"]
)
def test_a_changed_snapshot_is_not_taken(told: JournalWriter, change: str) -> None:
    """Somebody who can write the database had their own state believed: money held that nobody had promised."""
    told.keep_snapshot(epoch_of(told), 8, "s0", b"eight" * 20)
    told.keep_snapshot(epoch_of(told), 9, "s1", b"nine" * 20)
    told.db.run(f"update snapshots set {change} where number = 9")
    with pytest.raises(Doubtful):
        told.snapshot("s1")


def test_a_snapshot_of_one_schema_or_key_is_not_another_ones(told: JournalWriter) -> None:
    told.keep_snapshot(epoch_of(told), 9, "s1", b"nine")
    stranger = JournalWriter(told.db, key=b"another installation's")
    assert stranger.snapshot("s1") is None
    told.db.run("update snapshots set schema = ?", stranger._named("s1"))
    with pytest.raises(Doubtful):
        stranger.snapshot("s1")
    told.db.run("update snapshots set schema = ?", told._named("s2"))
    with pytest.raises(Doubtful):
        told.snapshot("s2")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_rebuilt_are_the_tables_kept_byte_for_byte(told: JournalWriter) -> None:
    before = everything(told)
    assert before["jobs"]
    assert told.rebuild(epoch_of(told)) == len(story())
    assert everything(told) == before


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(histories(), st.data())
@pytest.mark.slow
def test_after_any_history_cut_anywhere_too(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    history: History,
    data: st.DataObject,
) -> None:
    life = Life(history)
    life.run()
    for kind in KINDS:
        journal, epoch = claimed(new_address(kind, tmp_path_factory.mktemp("any"), request))
        at = 0
        while at < len(life.steps):
            size = data.draw(st.integers(1, 30))
            append(journal, epoch, life.steps[at : at + size])
            at += size
        before = everything(journal)
        journal.rebuild(epoch_of(journal))
        assert everything(journal) == before
        journal.close()


def test_tables_of_another_version_are_made_anew_by_the_next_writer(told: JournalWriter, where: str) -> None:
    before = everything(told)
    told.db.run("update journal set projection = 0")
    told.db.run("drop table jobs")
    told.db.run("create table jobs (was text)")
    for name in RETIRED:
        told.db.run(f"create table {name} (was text)")
    told.close()
    again, _ = claimed(where)
    assert everything(again) == before
    for name in RETIRED:
        with pytest.raises(BadInput, match="journal"):
            again.db.all(f"select * from {name}")
    again.close()


def test_a_home_job_of_an_older_version_is_found_by_its_origin_after_the_upgrade(where: str) -> None:
    """Its user was `SITE:UID`. What lives then must be found again, or it would be submitted a second time."""
    penstock = given_sites(site("lab"))
    penstock.hears(submitted("a", team="vision", home="lab"), at="09:00")
    *before, last = penstock.steps
    (event,) = last.inputs
    assert isinstance(event, JobSubmitted)
    old = replace(event, spec=replace(event.spec, user="lab:u-9"))
    journal, epoch = claimed(where)
    append(journal, epoch, [*before, replace(last, inputs=(old,))])
    journal.db.run("update journal set projection = 3")
    journal.close()
    again, _ = claimed(where)
    reader = open_reader(where)
    (row,) = reader.jobs(Filter(origin=Origin("lab", "u-9")))
    spec = reader.spec("a")
    assert (row.id, row.user, row.origin_site, row.origin_uid) == ("a", "vision", "lab", "u-9")
    assert spec is not None
    assert (spec.user, spec.origin) == ("vision", Origin("lab", "u-9"))
    reader.close()
    again.close()


def test_steps_that_were_never_projected_are_when_somebody_writes(told: JournalWriter, where: str) -> None:
    before = everything(told)
    for table in TABLES.values():
        told.db.run(f"delete from {table.name}")
    told.db.run("update journal set projected = 0")
    with pytest.raises(BadInput, match="run `penstock journal rebuild` on it"):
        open_reader(where)
    assert [line.text for line in lines_of(where, "b")] == [line.text for line in tell(story(), "b")]
    told.close()
    again, _ = claimed(where)
    assert everything(again) == before
    again.close()


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("told")
def test_jobs_are_listed_newest_first_by_page_and_filter(where: str) -> None:
    reader = open_reader(where)
    ids = [job.id for job in reader.jobs(Filter())]
    assert ids == ["sweep/2", "sweep/1", "sweep/0", "c", "wide", "b", "a"]
    first = reader.jobs(Filter(), limit=3)
    assert [job.id for job in first] == ids[:3]
    assert [job.id for job in reader.jobs(Filter(), after=first[-1].number, limit=3)] == ids[3:6]
    wanted = {
        Filter(teams=("blue",)): ["b"],
        Filter(teams=("red",), phases=("cancelled", "done")): ["c", "a"],
        Filter(teams=("red", "blue"), phases=("done",)): ["b", "a"],
        Filter(phases=("refused",)): ["wide"],
        Filter(text="EINS"): ["a"],
        Filter(text="ada"): ["b"],
        Filter(text="sweep/1"): ["sweep/1"],
        Filter(text="%"): [],
        Filter(text="sweep_1"): [],
        Filter(user="Ada"): ["b"],
        Filter(origin=Origin("lab", "u-7")): ["c"],
        Filter(origin=Origin("lab", "u-8")): [],
        Filter(origin=Origin("west", "u-7")): [],
        Filter(origin=Origin("", "")): [],
        Filter(teams=("green",)): [],
    }
    assert {some: [job.id for job in reader.jobs(some)] for some in wanted} == wanted
    reader.close()


def test_what_is_read_at_one_row_is_of_that_row_whatever_is_written_meanwhile(where: str) -> None:
    steps = story()
    journal, epoch = claimed(where)
    append(journal, epoch, steps[:3])
    reader = open_reader(where)
    with reader.at_one_row() as then:
        assert then.head() == 3
        before = then.job("b"), then.attempts("b"), then.jobs(Filter()), then.steps(0)
        append(journal, epoch, steps[3:])
        assert (then.head(), reader.head()) == (3, len(steps))
        assert (then.job("b"), then.attempts("b"), then.jobs(Filter()), then.steps(0)) == before
        assert reader.job("b") != before[0]
    with reader.at_one_row() as now:
        assert (now.head(), now.job("b")) == (len(steps), reader.job("b"))
    reader.close()
    journal.close()


@pytest.mark.usefixtures("told")
def test_a_job_says_where_it_is_what_it_cost_and_why(where: str) -> None:
    reader, state = open_reader(where), replay((s.at, s.inputs, s.outputs) for s in story()).state
    assert reader.job("nobody") is None
    job = reader.job("b")
    assert job is not None
    assert (job.phase, job.team, job.user, job.gpus, job.attempts, job.losses) == ("done", "blue", "Ada", 8, 2, 1)
    assert (job.last_outcome, job.attempt_phase, job.decided_at) == ("done", "", clock("09:40"))  # its second start
    assert job.started_at is not None
    assert job.ended_at is not None
    assert job.spent == sum(a.spent for (scope, _), a in state.ledger.accounts.items() if scope == "org") > 0
    refused = reader.job("wide")
    assert refused is not None
    assert '"kind":"TooWide"' in refused.because
    assert '"gpus":999' in refused.because
    attempts = reader.attempts("b")
    assert [(one.id, one.phase, one.outcome) for one in attempts] == [("b.1", "over", "lost"), ("b.2", "over", "done")]
    assert sum(one.spent for one in attempts) == job.spent
    assert reader.attempt("b.1") == attempts[0]
    assert reader.attempt("b.9") is None
    spec = reader.spec("sweep/2")
    assert spec is not None
    assert (spec.gpus, spec.count, reader.spec("nobody")) == (1, 3, None)
    assert {one.id for one in reader.placed()} == set(state.attempts)
    assert sum(count.jobs for count in reader.counts()) == 7
    assert {(count.state, count.team, count.jobs, count.gpus) for count in reader.counts()} >= {
        ("succeeded", "blue", 1, 8)
    }
    reader.close()


@pytest.mark.usefixtures("told")
def test_a_story_reads_its_own_steps_and_says_all_of_it(where: str) -> None:
    reader, steps = open_reader(where), story()
    for job in ("a", "b", "c", "wide", "sweep/1"):
        rows = reader.story(job)
        assert tell(rows, job) == tell(steps, job) == lines_of(where, job)
    assert len(reader.story("c")) < len(steps)
    assert reader.story("nobody") == []
    reader.close()


@pytest.mark.usefixtures("told")
def test_the_feed_tells_the_newest_first_page_by_page(where: str) -> None:
    reader = open_reader(where)
    whole = reader.feed(limit=1_000)
    assert [(one.number, one.part) for one in whole] == sorted([(one.number, one.part) for one in whole], reverse=True)
    assert {type(one.event).__name__ == one.kind for one in whole} == {True}
    assert [one.job for one in whole if one.kind == "JobSubmitted"] == ["sweep", "c", "wide", "b", "a"]
    page = reader.feed(limit=2)
    rest = reader.feed(before=(page[-1].number, page[-1].part), limit=1_000)
    assert len(page) == 2
    assert page + rest == whole
    assert [one.job for one in reader.feed(kinds=("JobRefused", "AttemptLost"))] == ["b", "wide"]
    reader.close()


@pytest.mark.usefixtures("told")
def test_steps_can_be_followed_from_any_number(where: str) -> None:
    reader, steps = open_reader(where), story()
    assert reader.head() == len(steps)
    assert [row.number for row in reader.steps(3, limit=2)] == [4, 5]
    assert [row.inputs for row in reader.steps(0)] == [step.inputs for step in steps]
    assert reader.steps(len(steps)) == []
    reader.close()


@pytest.mark.usefixtures("told")
def test_spend_names_every_capped_or_used_scope_in_every_period(where: str) -> None:
    reader, state = open_reader(where), replay((s.at, s.inputs, s.outputs) for s in story()).state
    spend = {(one.scope, one.period): one for one in reader.spend()}
    for key, account in state.ledger.accounts.items():
        assert (spend[key].cap, spend[key].spent, spend[key].held) == (account.cap, account.spent, account.held)
    assert {period for scope, period in spend if scope == "org"} == {name for _, _, name in state.ledger.periods}
    assert [one.starts_at for one in reader.spend()] == sorted(one.starts_at or 0 for one in reader.spend())
    used = reader.used()
    assert sum(one.spent for one in used if one.team == "blue") == sum(one.spent for one in used) > 0
    assert reader.used(from_day=9) == []
    assert reader.closed() == []
    reader.close()
