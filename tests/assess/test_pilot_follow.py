"""A pilot's verdict: the same figures before and after, with a spread that is honest about few runs."""

from dataclasses import replace
from random import Random

import pytest

from penstock.assess.history import JobRecord
from penstock.assess.join import join
from penstock.assess.pilot_follow import (
    PilotRun,
    PilotRuns,
    PilotStart,
    follow,
    interval,
    runs_of,
)
from penstock.assess.sources.journal import reading_of
from penstock.core.engine import Step
from penstock.core.units import HOUR, MICRO
from penstock.policy.presets import policy
from penstock.sim.scenario import run as simulate
from penstock.sim.scenario import yardstick
from penstock.sim.traces.generate import generate, nodes_for
from tests.assess.test_decision import job, month


def run(k: int, *, wait: float, hours: float, rented: bool = False, gpus: int = 8) -> PilotRun:
    gpu_ms = int(gpus * hours * HOUR)
    return PilotRun(
        id=f"run-{k}",
        submitted_at=k * HOUR,
        wait_ms=int(wait * HOUR),
        to_model_ms=int((wait + hours) * HOUR),
        owned_gpu_ms=0 if rented else gpu_ms,
        rented_gpu_ms=gpu_ms if rented else 0,
    )


def begun(waits: list[float], cost_of_delay: int = 20) -> PilotStart:
    return PilotStart(
        job="a/train",
        started_at=100 * HOUR,
        calendar=False,
        currency="USD",
        own_gpu_hour=2 * MICRO,
        rent_gpu_hour=3 * MICRO,
        cost_of_delay=cost_of_delay * MICRO,
        before=PilotRuns("here", tuple(run(k, wait=wait, hours=2) for k, wait in enumerate(waits))),
    )


def since(waits: list[float]) -> PilotRuns:
    return PilotRuns("there", tuple(run(k, wait=w, hours=2, rented=True) for k, w in enumerate(waits)), (), True)


def test_a_pilot_that_saves_hours_for_a_few_dollars_is_worth_it() -> None:
    outcome = follow(begun([3, 4, 5, 4, 3]), since([0.1] * 6))
    assert (outcome.answer, outcome.wait_h.verdict, outcome.cost.verdict) == ("worth it", "lower", "higher")
    assert outcome.cost.change == pytest.approx(8 * 2 * (3 - 2))
    assert outcome.wait_h.change == pytest.approx(0.1 - 3.8)
    shorter = "shorter by 3 h 42 min (90 %: 2 h 45 min to 4 h 39 min)."
    assert outcome.says == (
        "a/train: 5 runs before day 5, 04:00, 6 runs since.",
        f"Wait: 3 h 48 min before, 6 min since (means); {shorter}",
        f"Time to model: 5 h 48 min before, 2 h 6 min since (means); {shorter}",
        "Cost of a run: $32.00 before, $48.00 since (means); higher by $16.00 (90 %: $16.00 to $16.00).",
        "Verdict: worth it, with an hour of delay at $20.00: a run gains $58.00 (90 %: $39.03 to $76.97).",
    )


def test_the_same_pilot_is_not_worth_it_where_delay_costs_little() -> None:
    outcome = follow(begun([3, 4, 5, 4, 3], cost_of_delay=1), since([0.1] * 6))
    assert outcome.answer == "not worth it"
    assert outcome.says[-1].startswith("Verdict: not worth it, with an hour of delay at $1.00: a run loses $12.30")


@pytest.mark.parametrize(("before", "after"), [([4.0] * 4, [0.1] * 50), ([4.0] * 50, [0.1] * 4), ([4.0] * 9, [])])
def test_too_few_runs_are_an_answer(before: list[float], after: list[float]) -> None:
    outcome = follow(begun(before), since(after))
    assert outcome.answer == "too few runs"
    assert outcome.total.low is None
    assert outcome.says[-1] == "Verdict: too few runs to say. It takes 5 runs that ended on each side."


def test_no_clear_difference_says_what_it_could_be() -> None:
    outcome = follow(begun([1, 6, 2, 5, 3, 4], 50), since([2.1, 4.4, 2.2, 4.3, 3.4]))
    assert outcome.answer == "no clear difference"
    assert "More runs narrow it." in outcome.says[-1]


def test_runs_count_as_rented_where_a_source_does_not_tell() -> None:
    blind = PilotRuns("a table", tuple(run(k, wait=0.1, hours=2) for k in range(5)))
    outcome = follow(begun([4.0] * 5), blind)
    assert outcome.cost.after is not None
    assert outcome.cost.after.mean == pytest.approx(8 * 2 * 3)
    assert "a table does not tell which runs were rented: all since the start count as rented." in outcome.says


def test_the_interval_holds_the_true_change_nine_times_in_ten() -> None:
    """Waits are skewed: exponential ones, seven runs on each side, whose means truly differ by an hour."""
    chance = Random(5)
    held = 0
    for _ in range(100):
        old, new = ([chance.expovariate(1 / of) for _ in range(7)] for of in (3.0, 2.0))
        low, high = interval(old, new, "wait")
        held += low <= -1.0 <= high
    assert held >= 85


def test_only_runs_that_ended_well_in_their_time_count() -> None:
    jobs: list[JobRecord] = [job(k, submit=k, start=k + 1, run=2) for k in range(6)]
    jobs[1] = replace(jobs[1], outcome="failed")
    jobs[2] = replace(jobs[2], cut="end")
    jobs[3] = replace(jobs[3], key="a/other")
    history = month(jobs, gpus=64)
    before = runs_of(history, "a/train", "here", None, 5 * HOUR)
    assert [pilot_run.id for pilot_run in before.runs] == ["a/0", "a/4"]
    assert before.left_out == (("failed or cancelled", 1), ("not ended", 1))
    assert before.runs[0] == PilotRun("a/0", 0, HOUR, 3 * HOUR, 16 * HOUR, 0)
    assert [pilot_run.id for pilot_run in runs_of(history, "a/train", "here", 5 * HOUR, None).runs] == ["a/5"]


def test_a_journal_s_attempts_of_one_run_count_together() -> None:
    """Moved and preempted runs: time to model ends with the last attempt, and each attempt costs where it ran."""
    trace = generate(150, seed=3, days=4)
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l2", knowledge="e2")
    steps: list[Step] = []
    report, _ = simulate(scenario, policy("penstock", "20", scenario.jobs), lambda step, _: steps.append(step))
    history = join([reading_of(steps, "journal")])
    assert report.moves
    per_key = [
        runs_of(history, key, "journal", None, None) for key in dict.fromkeys(record.key for record in history.jobs)
    ]
    runs = [pilot_run for some in per_key for pilot_run in some.runs]
    assert len(runs) == len({record.id for record in history.jobs if record.submitted_at is not None})
    everything = sum(record.gpus * (record.run_ms or 0) for record in history.jobs)
    assert sum(pilot_run.owned_gpu_ms + pilot_run.rented_gpu_ms for pilot_run in runs) == everything
    assert any(pilot_run.rented_gpu_ms and pilot_run.owned_gpu_ms for pilot_run in runs)
    assert all(some.knows_rented for some in per_key)
