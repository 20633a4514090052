"""What the policy promises of whole months, on generated load: nobody starves, nothing dithers, predictions hold."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from penstock.core.engine import Step
from penstock.core.model import events as e
from penstock.core.model.reasons import WaitWorth
from penstock.core.units import DAY, HOUR, MINUTE
from penstock.policy.presets import policy
from penstock.sim.engine.report import Report
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import Trace

pytestmark = pytest.mark.slow


@cache
def month(jobs: int = 3_000) -> Trace:
    return generate(jobs, seed=7)


@cache
def lived(knob: str = "20", jobs: int = 3_000) -> tuple[tuple[Step, ...], Report]:
    trace = month(jobs)
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    steps: list[Step] = []
    report, _ = run(scenario, policy("penstock", knob, scenario.jobs), lambda step, _: steps.append(step))
    return tuple(steps), report


def promised(kind: type, steps: tuple[Step, ...]) -> list[Any]:
    return [event for step in steps for event in step.outputs if type(event) is kind]


def test_nobody_is_delayed_by_more_than_a_day_because_of_us() -> None:
    _, report = lived()
    assert report.max_delay_h <= 24


def test_at_worst_holds_for_eight_to_nineteen_of_twenty() -> None:
    """Of the jobs that were told: those that started on owned GPUs, and those that outlived what they were told."""
    steps, _ = lived(jobs=6_000)
    forecasts: dict[str, tuple[int, int]] = {}
    held = missed = 0
    for step in steps:
        for event in step.outputs:
            if type(event) is e.WaitPromised and isinstance(event.because, WaitWorth):
                forecasts[event.job] = (event.at, event.because.worst_ms)
            elif type(event) is e.StartPromised and event.job in forecasts:
                at, worst = forecasts.pop(event.job)
                missed += event.at - at > worst
                held += bool(event.slots) and event.at - at <= worst
    assert held + missed > 300
    assert 0.8 <= held / (held + missed) <= 0.95


def test_no_job_moves_more_often_than_allowed_or_sooner_than_it_settled() -> None:
    steps, _ = lived()
    moved: dict[str, list[int]] = {}
    for event in promised(e.StartPromised, steps):
        if event.after and event.because.kind in ("ComesHome", "MovesTogether"):
            moved.setdefault(event.job, []).append(event.at)
    assert moved
    for job, instants in moved.items():
        assert len(instants) <= 5, job
        assert all(b - a >= 30 * MINUTE for a, b in pairwise(instants)), job


def test_no_decision_depends_on_the_future() -> None:
    """The same month cut off in its middle: until then every promise is the same."""
    trace = month()
    cut_at = trace.jobs[len(trace.jobs) // 2].submit_at
    first = Trace(tuple(job for job in trace.jobs if job.submit_at < cut_at), trace.left_out)
    scenario = yardstick(first.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    steps: list[Step] = []
    run(scenario, policy("penstock", "20", scenario.jobs), lambda step, _: steps.append(step))
    whole, _ = lived()
    before = [step.outputs for step in steps if step.at < cut_at]
    assert before == [step.outputs for step in whole if step.at < cut_at]


def test_dearer_waiting_costs_more_money_and_less_delay() -> None:
    cheap, usual, dear = (lived(knob)[1] for knob in ("4", "20", "200"))
    assert cheap.mean_delay_h > usual.mean_delay_h > dear.mean_delay_h
    assert cheap.cloud_cost < usual.cloud_cost < dear.cloud_cost


def test_a_target_is_approached_from_either_side() -> None:
    """A quarter of an hour of mean delay, from a knob that is far too low and one that is far too high."""
    trace = month()
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    missed = {}
    for knob in ("2", "500"):
        plain, _ = run(scenario, policy("penstock", knob, scenario.jobs))
        aimed, _ = run(scenario, policy("penstock", knob, scenario.jobs, target_delay_ms=HOUR // 4))
        missed[knob] = (abs(plain.mean_delay_h - 0.25), abs(aimed.mean_delay_h - 0.25))
    for knob, (plain_miss, aimed_miss) in missed.items():
        assert aimed_miss < plain_miss / 2, f"from {knob}: {missed[knob]}"


def test_no_burst_begins_while_more_is_used_than_was_released() -> None:
    """Half of what the month would cost is its cap, released evenly; what runs already is paid on."""
    trace = month()
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    cap = round(lived()[1].cloud_cost / 2) * 1_000_000
    scenario = replace(scenario, caps=(("org", cap, None),))
    begun, at_middle = [0], [0]

    def see(step: Step, engine: Any) -> None:
        account = engine.state.ledger.accounts.get(("org", "month 1"))
        if account is None or step.at >= 30 * DAY:
            return
        starts = [event for event in step.outputs if type(event) is e.StartPromised and event.nodes]
        new = sum(part.amount for start in starts for ask in start.nodes for part in ask.hold.parts)
        if starts:
            released = cap * min(1000, 150 + step.at * 1000 // (30 * DAY)) // 1000
            assert account.spent + account.held - new <= released, f"at {step.at}"
            begun[0] += len(starts)
        if step.at < 15 * DAY:
            at_middle[0] = account.spent

    run(scenario, replace(policy("penstock", "20", scenario.jobs), pace=True), see)
    assert begun[0] > 100
    assert cap // 4 < at_middle[0] < cap * 3 // 4, "neither hoarded nor gone by the middle of the month"
