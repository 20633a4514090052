"""A copy of the process writes the state down as it was, and nothing that happens meanwhile is in it."""

import os

import pytest

from penstock.core.engine import Engine
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec
from penstock.live import background_snapshot, snapshot
from penstock.live.background_snapshot import BackgroundSnapshot
from penstock.live.sequencer import SNAPSHOT_EVENTS, Sequencer, Told
from tests.conftest import Part
from tests.live.memory import MemoryJournal
from tests.live.test_sequencer import opened, sequencer, submit
from tests.live.test_snapshot import crowded

pytestmark = pytest.mark.skipif(not background_snapshot.FORKS, reason=Part.LINUX)


def ended(background: BackgroundSnapshot) -> None:
    """Wait for it, and leave the rest to `done`."""
    os.waitid(os.P_PID, background.child, os.WEXITED | os.WNOWAIT)


def test_what_is_decided_meanwhile_is_not_in_it() -> None:
    engine, background = crowded(50), BackgroundSnapshot()
    number, digest = engine.state.steps, engine.state.digest()
    background.begin(engine.state)
    engine.handle(e.JobSubmitted(2, 50, "late", JobSpec(1)))
    ended(background)
    result = background.done()
    assert result is not None
    assert result[0] == number
    assert snapshot.unpack(result[1]).digest() == digest != engine.state.digest()
    assert background.done() is None


def test_a_copy_that_fails_is_no_snapshot() -> None:
    engine, background = Engine(), BackgroundSnapshot()
    engine.state.jobs["x"] = lambda: None  # type: ignore[assignment]  # what cannot be written down
    background.begin(engine.state)
    ended(background)
    assert background.done() is None
    assert background.child == 0


def test_one_that_is_given_up_leaves_nothing_behind() -> None:
    background = BackgroundSnapshot()
    background.begin(State())
    child = background.child
    background.give_up()
    assert background.done() is None
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def crowd(journal: MemoryJournal) -> Sequencer:
    """More jobs wait, and more was recorded, than a state has that is written down in place."""
    made = opened(journal)
    for k in range(-(-SNAPSHOT_EVENTS // 1_000)):
        made.take([submit()] * 1_000, [], 2_000 + k)
    return made


def test_a_restart_finds_what_the_copy_wrote() -> None:
    journal = MemoryJournal()
    made = crowd(journal)
    number, digest = made.state_now().steps, made.state_now().digest()
    made.save()
    assert journal.snapshots == {}
    ended(made.background)
    made.save()
    assert [kept for kept, _ in journal.snapshots.values()] == [number]
    assert sequencer(journal).state_now().digest() == digest


def test_without_room_for_a_copy_everything_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be out of processes or of memory; a snapshot is only a cache."""

    def refuses() -> int:
        raise OSError("no more processes")

    journal = MemoryJournal()
    made = crowd(journal)
    monkeypatch.setattr(os, "fork", refuses)
    made.save()
    assert (journal.snapshots, made.background.child) == ({}, 0)
    assert made.take([submit()], [], 3_000).answers[0] == Told(made.state_now().steps, "j10000", again=False)
