"""When a simulation ends: everything has ended, or nothing ever will."""

from penstock.assess.replay import owned_sites, rented_site
from penstock.core.model.types import JobSpec
from penstock.core.units import DAY, HOUR, MINUTE, money
from penstock.policy.presets import ours
from penstock.sim.engine.report import Report
from penstock.sim.scenario import Scenario, run
from penstock.sim.traces.trace import TraceJob

WIDE = JobSpec(16, checkpoint_every_ms=15 * MINUTE, restart_ms=5 * MINUTE)


def simulated(job: TraceJob, cap: str) -> Report:
    sites = (*owned_sites(8), rented_site("cloud", "on_demand", money("5"), money("5")))
    scenario = Scenario((job,), sites, {}, caps=(("org", money(cap), None),))
    report, _ = run(scenario, ours("penstock", "20"))
    return report


def test_a_run_ends_where_each_month_s_cap_buys_less_than_a_checkpoint() -> None:
    """It went on for ever, and each month's rent was lost without a checkpoint: the job is wider than what is owned.
    Nothing is rented for it now.
    """
    report = simulated(TraceJob("a", 0, 10 * HOUR, WIDE), "30")
    assert (report.jobs, report.unfinished_jobs) == (0, 1)
    assert (report.cloud_cost, report.redone_gpu_hours) == (0, 0)


def test_a_run_goes_on_where_each_month_s_cap_buys_one_more_checkpoint() -> None:
    report = simulated(TraceJob("a", 0, 10 * HOUR, WIDE), "60")
    assert (report.jobs, report.unfinished_jobs) == (1, 0)
    assert report.mean_delay_h > 6 * 30 * 24


def test_a_run_goes_on_while_a_job_runs_for_months_without_a_checkpoint() -> None:
    report = simulated(TraceJob("a", 0, 300 * DAY, JobSpec(8)), "0")
    assert (report.jobs, report.unfinished_jobs) == (1, 0)
