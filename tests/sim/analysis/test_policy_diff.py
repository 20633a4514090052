"""Two policies on the same jobs: what changes, for whom, by which recorded reason, and what of it is an estimate."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.model.types import DataRule, JobSpec
from penstock.core.units import GB, HOUR, MINUTE, money
from penstock.policy.presets import policy
from penstock.sim.analysis.journal_jobs import History
from penstock.sim.analysis.outcomes import REFUSED, UNFINISHED, Outcomes, Sums
from penstock.sim.analysis.policy_diff import (
    Setting,
    Side,
    as_record,
    diff,
    most_different,
    observe,
    variants_of,
)
from penstock.sim.engine.report import Report
from penstock.sim.scenario import Scenario, on_demand_site, owned_site, run, spot_site, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import TraceJob

DECLARED = (0, "declared")


def busy(costs: Any = "l1", seed: int = 1) -> Scenario:
    trace = generate(200, seed=seed, days=5)
    return yardstick(trace.jobs, nodes_for(trace, 1.1), costs=costs, knowledge="e2", seed=seed)


def side(scenario: Scenario, name: str = "old", knob: str = "20", **caps: str) -> Side:
    return Side(name, policy("penstock", knob, scenario.jobs), tuple((s, money(c), None) for s, c in caps.items()))


def two_jobs(*specs: JobSpec) -> Scenario:
    """One owned node that the first job keeps for ten hours, and a cloud beside it."""
    jobs = tuple(TraceJob(f"job-{k}", k * MINUTE, 10 * HOUR, spec) for k, spec in enumerate(specs))
    return Scenario(jobs, (owned_site(1), on_demand_site("l1")), {})


# --- one run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("costs", ["l1", "l2"])
def test_outcomes_are_counted_as_the_report_counts(costs: Any) -> None:
    scenario = busy(costs)
    watch = observe(Setting(scenario), side(scenario), DECLARED)  # type: ignore[arg-type]
    report, _ = run(scenario, policy("penstock", "20", scenario.jobs))
    sums = watch.outcomes({}).everybody
    assert counted(sums) == counted_by(report)
    assert sums.moved_bytes == 0 if costs == "l1" else sums.moved_bytes > 100 * GB


def counted(sums: Sums) -> dict[str, float]:
    means = {"mean_wait_h": sums.mean_wait_h, "mean_delay_h": sums.mean_delay_h}
    return {"jobs": sums.ended, "cost": sums.cost, "burst": sums.burst, "refused": sums.refused, **means}


def counted_by(report: Report) -> dict[str, float]:
    means = {"mean_wait_h": round(report.mean_wait_h, 3), "mean_delay_h": round(report.mean_delay_h, 3)}
    counts = {"jobs": report.jobs, "burst": report.cloud_jobs, "refused": report.refused_jobs}
    return {**counts, "cost": report.cloud_cost, **means}


def test_teams_add_up_to_everybody() -> None:
    scenario = busy("l2")
    observed = observe(Setting(scenario), side(scenario, org="200"), DECLARED).outcomes({})  # type: ignore[arg-type]
    for name in ("jobs", "ended", "refused", "unfinished", "burst", "capped", "moved_bytes"):
        assert sum(getattr(sums, name) for sums in observed.teams.values()) == getattr(observed.everybody, name)
    assert sum(sums.cost for sums in observed.teams.values()) == pytest.approx(observed.everybody.cost, abs=0.02)
    assert observed.everybody.capped == observed.caps["org"] > 0


# --- two runs ---------------------------------------------------------------------------------------------------------


def test_a_cap_makes_jobs_wait_and_each_says_so() -> None:
    scenario = two_jobs(JobSpec(8, team="vision"), JobSpec(8, team="speech"))
    comparison = diff(Setting(scenario), side(scenario), side(scenario, "new", org="1"))
    (changed,) = comparison.changed
    assert (changed.job, changed.team, changed.estimated) == ("job-1", "speech", "")
    assert (changed.old.offer, changed.new.offer, changed.new.cost) == ("cloud/on-demand", "lab/owned", 0.0)
    assert changed.old.cost > 150
    assert changed.new.delay_h == pytest.approx(9.983, abs=0.001)
    assert changed.old.reasons[-1].startswith("Owned GPUs were full")
    assert changed.new.reasons == (
        "Budget reached: org may spend $1.00 in month 1; $0.00 is spent, $0.00 is held, and this needs $4.00.",
        "8 GPUs were free after 9 h 59 min in the queue.",
    )
    assert (comparison.old_outcomes.caps, comparison.new_outcomes.caps) == ({}, {"org": 1})
    assert comparison.new_outcomes.teams["speech"].capped == 1
    assert comparison.new_outcomes.teams["vision"].capped == 0


def test_the_same_policy_twice_changes_nothing() -> None:
    scenario = busy("l2")
    advances: list[int] = []
    comparison = diff(Setting(scenario), side(scenario), side(scenario, "again"), advance=advances.append)
    assert comparison.changed == ()
    assert comparison.old_outcomes == comparison.new_outcomes
    assert comparison.estimates.range is None
    assert sum(advances) <= 2 * len(scenario.jobs)


def test_a_job_that_ends_under_one_policy_only_is_named_first() -> None:
    """Data of a class without a rule goes nowhere; a job of its own that only fits in the cloud is refused."""
    wide = JobSpec(16, data_class="personal", home="lab")
    scenario = two_jobs(JobSpec(8), wide)
    open_one = replace(side(scenario).policy, data_rules=(DataRule("personal", sites=("*",)),))
    comparison = diff(Setting(scenario), Side("open", open_one), side(scenario, "closed"))
    first = comparison.changed[0]
    assert (first.job, first.old.outcome, first.new.outcome) == ("job-1", "ended", "refused")
    assert "data class personal may not go to cloud" in first.new.reasons[-1]
    assert (comparison.old_outcomes.everybody.refused, comparison.new_outcomes.everybody.refused) == (0, 1)


def test_at_most_half_of_the_list_ended_under_one_policy_only() -> None:
    jobs = tuple(TraceJob(f"{k}", k, HOUR * (k + 1), JobSpec(1)) for k in range(100))
    scenario = Scenario(jobs, (owned_site(1), spot_site("s")), {})
    old, new = outcomes([0] * 100, [0] * 100), outcomes([0] * 50 + [5] * 50, [REFUSED] * 30 + [HOUR] * 70)
    chosen = [place for _, place in most_different(scenario, old, new, money("20"))]
    assert chosen[:10] == list(range(29, 19, -1))  # the largest of those that were refused
    assert chosen[10:] == list(range(50, 60))  # an hour and five millionths, then an hour
    all_refused = outcomes([0] * 100, [REFUSED] * 100)
    assert len(most_different(scenario, old, all_refused, money("20"))) == 20
    assert most_different(scenario, outcomes([0] * 100, [UNFINISHED] * 100), all_refused, money("20"), most=1) == [
        ("99", 99)
    ]


def outcomes(costs: list[int], delays: list[int]) -> Outcomes:
    from array import array

    return Outcomes(Sums(), {}, (), {}, array("q", costs), array("q", delays))


# --- estimates --------------------------------------------------------------------------------------------------------


def test_money_that_rests_on_estimates_is_a_share_with_a_range() -> None:
    scenario = busy("l1")
    unknown = {job.id: "running" for job in scenario.jobs[::10]}
    history = History(scenario.jobs, unknown, {"failed before they ran": 2}, (), (), "USD", 0)  # type: ignore[arg-type]
    setting = Setting(replace(scenario, jobs=scenario.jobs), history)
    comparison = diff(setting, side(scenario), side(scenario, "new", knob="200"), seeds=2)
    estimates = comparison.estimates
    assert (estimates.jobs, estimates.by_kind, estimates.share_of_jobs) == (20, {"running": 20}, 0.1)
    assert 0 < estimates.share_of_old_cost < 1
    assert estimates.runs == 3
    assert estimates.range is not None
    extra_cost = comparison.new_outcomes.everybody.cost - comparison.old_outcomes.everybody.cost
    assert estimates.range.cost[0] <= round(extra_cost, 2) <= estimates.range.cost[1]
    assert estimates.range.cost[0] < estimates.range.cost[1]
    assert comparison.left_out == {"failed before they ran": 2}


def test_the_run_that_knows_everything_is_only_added_where_it_says_something() -> None:
    assert variants_of(1, "declared") == [(0, "declared")]
    assert variants_of(3, "e2") == [(0, "e2"), (1, "e2"), (2, "e2"), (0, "e0")]
    assert variants_of(2, "e0") == [(0, "e0"), (1, "e0")]


def test_the_record_has_both_sides_of_each_team() -> None:
    scenario = two_jobs(JobSpec(8, team="vision"), JobSpec(8, team="speech"))
    record = as_record(diff(Setting(scenario), side(scenario), side(scenario, "new", org="1")))
    assert set(record["teams"]) == {"vision", "speech"}
    assert record["teams"]["speech"]["new"]["cost"] == 0.0 < record["teams"]["speech"]["old"]["cost"]
    assert [job["job"] for job in record["changed"]] == ["job-1"]
