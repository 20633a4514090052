"""The scribe: what is on record is what the engine knows, whatever goes wrong."""

from collections.abc import Iterator

import pytest

from penstock.core.decide.rules import BuiltInRules
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Policy
from penstock.journal.journal import Row, Unwritable
from penstock.live import snapshot
from penstock.live.sequencer import Ask, Sequencer, Told
from tests.live.memory import MemoryJournal
from tests.parity_live import SimulatedMonths
from tests.stories.kit import site


def sequencer(journal: MemoryJournal) -> Sequencer:
    made = Sequencer(journal, SimulatedMonths(), BuiltInRules())
    made.epoch = journal.claim("test", 0, 1)
    return made


def submit(team: str = "a", key: str = "", body: str = "") -> Ask:
    return Ask((e.JobSubmitted(0, 0, "", JobSpec(1, team)),), key=key, body=body)


def opened(journal: MemoryJournal) -> Sequencer:
    made = sequencer(journal)
    made.take((), [site("lab")(0), e.PolicySet(0, 0, Policy("p"))], 1_000)
    return made


def test_what_cannot_be_written_is_unknown_afterwards() -> None:
    """If it were not, a job nobody was promised would be in the state, and its hold in the books."""
    journal = MemoryJournal()
    made = opened(journal)
    before = made.state_now().digest()
    journal.broken = "disk full"
    with pytest.raises(Unwritable):
        made.take([submit()], [], 2_000)
    assert made.engine is not None
    assert made.engine.dead
    journal.broken = ""
    assert made.state_now().digest() == before
    assert made.take([submit()], [], 3_000).answers == (Told(2, "j0", again=False),)


def test_a_rebuilt_scribe_goes_on_as_the_first_would_have() -> None:
    journal, other = MemoryJournal(), MemoryJournal()
    made, same = opened(journal), opened(other)
    for k in range(20):
        made.take([submit()], [], 2_000 + k)
        same.take([submit()], [], 2_000 + k)
        made = sequencer(journal)
    assert journal.rows == other.rows


def test_a_restart_folds_only_what_came_after_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    made = opened(journal)
    for k in range(10):
        made.take([submit()], [], 2_000 + k)
    made.save_now()
    made.take([submit()], [], 3_000)
    read: list[int] = []

    def noted(after: int = 0) -> Iterator[Row]:
        read.append(after)
        return MemoryJournal.read(journal, after)

    monkeypatch.setattr(journal, "read", noted)
    again = sequencer(journal)
    assert again.state_now().digest() == made.state_now().digest()
    assert read == [11]
    assert journal.snapshots.keys() == {snapshot.schema()}


def test_nothing_happens_at_an_instant_without_facts_or_a_deadline() -> None:
    journal = MemoryJournal()
    made = opened(journal)
    assert made.take((), (), 5_000).steps == ()
    assert len(journal.rows) == 1


def test_what_is_said_twice_in_one_instant_is_recorded_once() -> None:
    journal = MemoryJournal()
    made = opened(journal)
    made.take((), [e.SiteLost(7, "lab"), e.SiteLost(8, "lab")], 5_000)
    (row,) = journal.read(1)
    assert row.inputs == (e.SiteLost(5_000, "lab"),)


def test_one_ask_is_recorded_whole_or_not_at_all_and_people_are_numbered_in_order() -> None:
    journal = MemoryJournal()
    made = opened(journal)
    both = Ask(submit().facts + submit("b").facts, answer="two")
    taken = made.take([both, submit("c")], [], 2_000)
    assert taken.answers == (Told(2, "two", again=False), Told(2, "j2", again=False))
    (row,) = journal.read(1)
    assert [(fact.number, fact.job, fact.spec.team) for fact in row.inputs] == [
        (0, "j0", "a"),
        (1, "j1", "b"),
        (2, "j2", "c"),
    ]
