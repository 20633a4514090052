"""A journal as a source: each attempt is a run, and the first one ends the wait."""

from penstock.assess.sources.journal import reading_of
from penstock.core.engine import Engine, Step
from penstock.core.units import HOUR
from penstock.policy.presets import policy
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate


def test_a_simulated_journal_tells_every_run_and_the_owned_gpus() -> None:
    trace = generate(60, seed=1, teams=2, days=2)
    scenario = yardstick(trace.jobs, 2, costs="l1", knowledge="e2", seed=1)
    steps: list[Step] = []

    def see(step: Step, _: Engine) -> None:
        steps.append(step)

    report, _ = run(scenario, policy("compute", "0.25", scenario.jobs), see)
    reading = reading_of(steps, "journal month.journal")
    first = [job for job in reading.jobs if job.submitted_at is not None]
    assert len(first) == report.jobs == 60
    assert not reading.calendar
    assert sum(job.gpus * (job.run_ms or 0) for job in reading.jobs) / HOUR > 0
    assert {job.id: job.submitted_at for job in first} == {job.id: job.submit_at for job in scenario.jobs}
    assert any(job.rented for job in reading.jobs) == bool(report.cloud_jobs)
    assert reading.owned[-1].gpus == 16
