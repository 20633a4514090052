"""Users meet the words of kubectl and Slurm; the core's phases stay in journals."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings

from penstock.core.engine import Step, replay
from penstock.core.model.lifecycle import ATTEMPT, JOB
from penstock.journal import states
from penstock.journal.open import open_reader
from penstock.journal.rows import Filter, JobCount
from tests.contract.journals import append, claimed, story
from tests.core.histories import History, Life, histories


def test_every_phase_has_a_word_and_every_word_finds_its_phases() -> None:
    job_states = {(phase, attempt): states.job_state(phase, attempt) for phase in JOB for attempt in ("", *ATTEMPT)}
    assert set(job_states.values()) == set(states.JOB_STATES) == {*states.QUEUED, *states.ACTIVE, *states.ENDED}
    for (phase, attempt), state in job_states.items():
        runs = None if phase != "placed" else attempt == "running"
        assert states.match(state) == states.Match(phase, runs)


def test_a_placed_job_is_running_once_its_attempt_is() -> None:
    job_states = [states.job_state("placed", attempt) for attempt in ("promised", "starting", "running")]
    assert job_states == ["starting", "starting", "running"]


def test_an_attempt_is_called_by_how_it_ended() -> None:
    ends = {
        how: states.attempt_state("over", how) for how in ("done", "failed", "lost", "stopped", "refused", "dropped")
    }
    assert ends == {
        "done": "succeeded",
        "failed": "failed",
        "lost": "preempted",
        "stopped": "stopped",
        "refused": "no_capacity",
        "dropped": "withdrawn",
    }
    assert [states.attempt_state(phase, "") for phase in ("promised", "starting", "running", "stopping")] == [
        "starting",
        "starting",
        "running",
        "stopping",
    ]


def test_words_of_earlier_versions_are_still_read() -> None:
    assert states.from_old(("waiting", "placed", "leaving", "done", "failed", "running")) == (
        "queued",
        "starting",
        "running",
        "stopping",
        "succeeded",
        "failed",
    )


def test_a_preempted_job_is_queued_and_says_that_it_was_preempted() -> None:
    assert states.is_preempted("waiting", "lost", "NoRoomThere")
    assert states.is_preempted("waiting", "stopped", "Preempted")
    assert not states.is_preempted("waiting", "", "WaitWorth")
    assert not states.is_preempted("placed", "lost", "LostNode")


@settings(max_examples=15, deadline=None)
@given(histories())
def test_lists_and_counts_agree_with_the_folded_state(history: History) -> None:
    """A job is found under one state, the one its phases say, and counted under it."""
    life = Life(history)
    life.run()
    with TemporaryDirectory() as folder:
        _compare(Path(folder) / "journal", life.steps)


def test_lists_and_counts_agree_after_every_step_of_a_story(tmp_path: Path) -> None:
    for upto in range(1, len(story()) + 1):
        _compare(tmp_path / f"{upto}.journal", story()[:upto])


def _compare(where: Path, steps: Sequence[Step]) -> None:
    journal, epoch = claimed(str(where))
    append(journal, epoch, steps)
    reader, live = open_reader(str(where)), replay((step.at, step.inputs, step.outputs) for step in steps).state
    listed = {state: reader.jobs(Filter(states=(state,)), limit=1_000) for state in states.JOB_STATES}
    by_state = {row.id: state for state, rows in listed.items() for row in rows}
    for job in live.jobs.values():
        assert by_state[job.id] == states.job_state(job.phase, job.attempt.phase if job.attempt else "")
    assert sorted(row.id for rows in listed.values() for row in rows) == sorted(
        row.id for row in reader.jobs(Filter(), limit=1_000)
    )
    rows = [(state, row) for state, some in listed.items() for row in some]
    teams = sorted({(state, row.team) for state, row in rows})
    gpus = {key: [row.gpus for state, row in rows if (state, row.team) == key] for key in teams}
    assert reader.counts() == [JobCount(*key, len(gpus[key]), sum(gpus[key])) for key in teams]
    reader.close()
    journal.close()
