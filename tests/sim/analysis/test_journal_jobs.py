"""A journal's jobs become a trace: true run times where a job ended, and a named estimate where none is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.engine import Step
from penstock.core.errors import BadInput
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Site
from penstock.core.units import DAY, HOUR, MINUTE, Instant
from penstock.journal.open import read
from penstock.journal.sqlite import BulkJournal
from penstock.policy.presets import policy
from penstock.sim.analysis.journal_jobs import History, estimated_jobs, history
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from tests.stories.kit import given, offer, site, submitted


def test_a_journal_of_ended_jobs_is_the_trace_that_made_it(tmp_path: Path) -> None:
    """Also where spot nodes were lost and jobs moved: the run time is the pure one, whatever it took."""
    trace = generate(150, seed=3, days=4)
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l2", knowledge="e2")
    where = str(tmp_path / "month.journal")
    with BulkJournal(where) as journal:
        report, _ = run(scenario, policy("penstock", "20", scenario.jobs), lambda step, _: journal.append(step))
    past = history(read(where), where)
    wanted = {job: traced.run_ms for traced in scenario.jobs for job in members(traced.id, traced.spec.count)}
    assert report.moves
    assert {job.id: job.run_ms for job in past.jobs} == wanted
    assert (past.estimated, past.left_out, past.currency) == ({}, {}, "USD")
    assert sorted(s.id for s in past.sites) == sorted(s.id for s in scenario.sites)
    assert estimated_jobs(past) is past.jobs


def test_what_was_cut_off_is_named_and_estimated() -> None:
    journal = Told()
    for k in range(8):
        journal.ends(f"done-{k}", at=k * HOUR, run=(k + 1) * HOUR)
    journal.submits("runs", at=20 * HOUR)
    journal.starts("runs", at=20 * HOUR)
    journal.submits("waits", at=20 * HOUR)
    journal.submits("stopped", at=20 * HOUR)
    journal.starts("stopped", at=21 * HOUR)
    journal.tells(22 * HOUR, e.CancelRequested(22 * HOUR, "stopped"))
    journal.submits("changed-my-mind", at=22 * HOUR)
    journal.tells(22 * HOUR, e.CancelRequested(22 * HOUR, "changed-my-mind"))
    journal.tells(23 * HOUR, e.Woke(23 * HOUR))
    past = history(journal.rows, "a journal")
    assert past.estimated == {"runs": "running", "waits": "queued", "stopped": "cancelled"}
    assert past.left_out == {"cancelled before they ran": 1}
    least = {job.id: job.run_ms for job in past.jobs if job.id in past.estimated}
    assert least == {"runs": 3 * HOUR, "waits": 1, "stopped": HOUR}
    for seed in (0, 1, 2):
        runs = {job.id: job.run_ms for job in estimated_jobs(past, seed)}
        assert runs["stopped"] == HOUR  # a person let it run so long, and would again
        assert runs["runs"] > 3 * HOUR
        assert runs["waits"] > MINUTE
        assert [runs[f"done-{k}"] for k in range(8)] == [(k + 1) * HOUR for k in range(8)]
    drawn = {runs_of(past, seed)["runs"] for seed in range(1, 30)}
    assert drawn <= {k * HOUR for k in range(4, 9)}
    assert len(drawn) > 1


def test_a_slower_gpu_and_a_lost_node_do_not_lengthen_the_run_time() -> None:
    journal = Told()
    journal.submits("a", at=0)
    journal.starts("a", at=HOUR, number=1, speed=500)
    journal.tells(3 * HOUR, e.AttemptLost(3 * HOUR, "a.1", HOUR // 2))  # an hour was done, half of it kept
    journal.starts("a", at=4 * HOUR, number=2)
    journal.tells(6 * HOUR, e.AttemptEnded(6 * HOUR, "a.2", "done"))
    assert [(job.id, job.run_ms) for job in history(journal.rows, "a journal").jobs] == [("a", HOUR // 2 + 2 * HOUR)]


def test_members_of_an_array_end_apart() -> None:
    journal = Told()
    journal.submits("sweep", at=0, count=2)
    for k in range(2):
        journal.starts(f"sweep/{k}", at=0)
        journal.tells((k + 1) * HOUR, e.AttemptEnded((k + 1) * HOUR, f"sweep/{k}.1", "done"))
    past = history(journal.rows, "a journal")
    assert [(job.id, job.run_ms, job.spec.count) for job in past.jobs] == [
        ("sweep/0", HOUR, 1),
        ("sweep/1", 2 * HOUR, 1),
    ]


def test_time_begins_with_the_month_and_nodes_are_those_that_were_seen() -> None:
    journal = Told()
    lab = Site("lab", (Offer("lab/owned", "lab", "owned", (NodeShape(8),)),))
    journal.tells(
        100 * HOUR, e.PeriodOpened(100 * HOUR, "2026-11", 90 * HOUR, 800 * HOUR), e.SiteJoined(100 * HOUR, lab)
    )
    journal.tells(100 * HOUR, e.NodesSeen(100 * HOUR, "lab/owned", (("n1", 8), ("n2", 8), ("cordoned", 0))))
    journal.ends("a", at=101 * HOUR, run=HOUR, deadline_at=120 * HOUR)
    past = history(journal.rows, "a journal")
    assert past.zero == 3 * DAY - 5 * 30 * DAY  # so that the month begins on a Sunday, as it did
    since = [at - 150 * DAY for at in (past.jobs[0].submit_at, past.jobs[0].spec.deadline_at or 0)]
    assert since == [101 * HOUR - 3 * DAY, 120 * HOUR - 3 * DAY]
    assert past.sites[0].offers[0].shapes[0].count == 2


def test_a_journal_without_jobs_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="holds no job that ran or still could"):
        history([], "empty.journal")


def test_a_story_s_steps_will_do() -> None:
    """Whatever the engine records can be read back: steps have the form of rows."""
    penstock = given(site("lab", nodes=1), offer("cloud", price="20"))
    penstock.hears(submitted("a", gpus=8), at="09:00")
    past = history(penstock.steps, "a story")
    assert past.estimated == {"a": "queued"}


def runs_of(past: History, seed: int) -> dict[str, int]:
    return {job.id: job.run_ms for job in estimated_jobs(past, seed)}


class Told:
    """Rows as a journal has them, of facts and promises that are told by hand."""

    def __init__(self) -> None:
        self.rows: list[Step] = []

    def tells(self, at: Instant, *events: Any) -> None:
        self.rows.append(Step(len(self.rows) + 1, at, tuple(events), (), (), 1))

    def submits(self, job: str, at: Instant, **spec: Any) -> None:
        self.tells(at, e.JobSubmitted(at, len(self.rows), job, replace(JobSpec(8), **spec)))

    def starts(self, job: str, at: Instant, number: int = 1, speed: int = 1000) -> None:
        attempt = f"{job}.{number}"
        promise = e.StartPromised(
            *(at, job, attempt, "lab/owned", 8, speed, 0, ((0, 8),), (), None, (), ()),
            because=None,  # type: ignore[arg-type]
        )
        self.tells(at, promise, e.AttemptStarted(at, attempt))

    def ends(self, job: str, at: Instant, run: int, **spec: Any) -> None:
        self.submits(job, at, **spec)
        self.starts(job, at)
        self.tells(at + run, e.AttemptEnded(at + run, f"{job}.1", "done"))
