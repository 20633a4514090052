"""`penstock-known`, for clusters where run times are declared and right, on generated load."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from penstock.core.engine import Step, replay
from penstock.core.fold.invariants import check
from penstock.core.model.events import StartPromised
from penstock.core.model.reasons import NotWorthWaiting
from penstock.core.units import HOUR
from penstock.journal.open import read
from penstock.journal.redecide import redecide
from penstock.journal.sqlite import BulkJournal
from penstock.policy.presets import policy
from penstock.sim.engine.report import Report
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import TraceJob

TRACE = generate(1_200, seed=3)
DEFERRED_PER_GPU_HOUR = 2.50


def live(name: str, knob: str, jobs: Sequence[TraceJob]) -> tuple[list[Step], Report]:
    scenario = yardstick(jobs, nodes_for(TRACE))
    steps: list[Step] = []
    report, _ = run(scenario, policy(name, knob, scenario.jobs), lambda step, _: steps.append(step))
    return steps, report


@cache
def lived(name: str, knob: str) -> tuple[list[Step], Report]:
    return live(name, knob, TRACE.jobs)


def cost(report: Report) -> float:
    return report.cloud_cost + DEFERRED_PER_GPU_HOUR * report.deferred_gpu_hours


def test_knowing_is_worth_money_and_time() -> None:
    """Against the best published policy, which knows as much: a tenth less of either, at least."""
    _, theirs = lived("compute", "0.25")
    _, known = lived("penstock-known", "10")
    assert known.mean_delay_h < 0.9 * theirs.mean_delay_h
    assert cost(known) < 0.9 * cost(theirs)


def test_less_is_waited_in_vain() -> None:
    """Who would not start in time bursts at once. What is left are wide jobs that later ones overtook."""
    known, by_history = (hours_in_vain(lived(name, "20")[0]) for name in ("penstock-known", "penstock-no-moves"))
    assert known < by_history / 3


def hours_in_vain(steps: list[Step]) -> float:
    """Of jobs that waited, and then burst."""
    starts = [event for step in steps for event in step.outputs if isinstance(event, StartPromised)]
    bursts = [start.because for start in starts if isinstance(start.because, NotWorthWaiting)]
    assert len(bursts) > 100
    return sum(why.waited_ms for why in bursts) / HOUR


def test_no_decision_depends_on_the_future() -> None:
    cut_at = TRACE.jobs[800].submit_at
    steps, _ = live("penstock-known", "20", [job for job in TRACE.jobs if job.submit_at < cut_at])
    whole, _ = lived("penstock-known", "20")
    before = [step.outputs for step in steps if step.at < cut_at]
    assert before == [step.outputs for step in whole if step.at < cut_at]


def test_its_journal_replays_and_is_decided_the_same(tmp_path: Path) -> None:
    steps, _ = lived("penstock-known", "20")
    with BulkJournal(str(tmp_path / "j.db"), group=5_000) as journal:
        for step in steps:
            journal.append(step)
    rows = list(read(str(tmp_path / "j.db")))
    check(replay((row.at, row.inputs, row.outputs) for row in rows).state)
    verdict = redecide(rows, most=1)
    assert (verdict.first, verdict.steps) == ((), len(rows))
