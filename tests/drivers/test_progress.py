"""What jobs report by printing it, as every driver reads it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import events as e
from penstock.drivers import attempt_facts, progress
from penstock.drivers.attempt_facts import Reported


def test_steps_and_checkpoints_are_read_wherever_they_stand_in_a_line() -> None:
    marks: dict[str, int] = {}
    progress.note(marks, b"12:00 INFO penstock: step 3 of 10\nnoise\n", lambda: 99)
    assert marks == {"step": 3, "of": 10}
    progress.note(marks, b"penstock: checkpoint", lambda: 40)
    assert marks == {"step": 3, "of": 10, "checkpoint_ms": 40, "checkpoint_step": 3}
    progress.note(marks, b"penstock: checkpoint step 2\npenstock: step 10", lambda: 50)
    assert marks == {"step": 10, "of": 10, "checkpoint_ms": 50, "checkpoint_step": 2}
    assert progress.has_finished(marks)
    assert (progress.steps(marks), progress.permille(marks)) == ((10, 10), 1000)
    assert progress.kept_ms(marks, resume_ms=1000, speed_permille=2000) == 1100


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 120)), max_size=30))
def test_each_checkpoint_is_said_once_and_progress_once_a_tenth(seen: list[tuple[int, int]]) -> None:
    reported = Reported()
    facts = [fact for kept, step in seen for fact in reported.news(0, "a.1", kept, {"step": step, "of": 100})]
    kept = [fact.kept_ms for fact in facts if isinstance(fact, e.AttemptCheckpointed)]
    assert kept == sorted(set(kept))
    assert max(kept, default=0) == max((kept_ms for kept_ms, _ in seen), default=0)
    tenths = [fact.done_permille // 100 for fact in facts if isinstance(fact, e.AttemptProgressed)]
    assert all(earlier != other for earlier, other in zip([0, *tenths], tenths, strict=False))


def test_how_an_attempt_ended_is_one_fact_in_every_driver() -> None:
    assert attempt_facts.ended(7, "a.1", "stopped", 50, "told to stop") == e.AttemptStopped(7, "a.1", 50)
    assert attempt_facts.ended(7, "a.1", "lost", 50, "its node is gone") == e.AttemptLost(7, "a.1", 50)
    assert attempt_facts.ended(7, "a.1", "done", 50, "exit code 0") == e.AttemptEnded(7, "a.1", "done", "exit code 0")
    assert attempt_facts.ended(7, "a.1", "failed", 50, "exit code 3") == e.AttemptEnded(
        7, "a.1", "failed", "exit code 3"
    )
