"""The generated load: the same for the same seed, of the shape real departments have, in the size asked for."""

import hashlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import pytest

from penstock.core.errors import BadInput
from penstock.core.model.types import JOB_CLASSES, JobSpec
from penstock.core.units import DAY, HOUR, MINUTE, SECOND
from penstock.sim.traces.generate import demand_gpu_hours, generate, nodes_for
from penstock.sim.traces.trace import Trace, TraceJob, read, write_csv

MONTH = generate(20_000)

#: What seed 7 gives, for ever: if this changes, every published figure on generated load does.
SEED_7 = "42e137a2f3dada84b9be638bdaec2c56b665685148f49da4f872564ea26c3f0d"


def digest(trace: Trace) -> str:
    return hashlib.sha256(
        repr([(job.id, job.submit_at, job.run_ms, job.spec.gpus) for job in trace.jobs]).encode()
    ).hexdigest()


def test_a_seed_gives_the_same_jobs_for_ever() -> None:
    assert digest(generate(2_000, seed=7)) == SEED_7


def test_the_hash_seed_of_the_interpreter_does_not_matter() -> None:
    program = "from penstock.sim.traces.generate import generate; print(hash('x'), repr(generate(300).jobs))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split(maxsplit=1)
        for seed in ("1", "2")
    ]
    assert printed[0][0] != printed[1][0]
    assert printed[0][1] == printed[1][1]


def test_another_seed_gives_other_jobs() -> None:
    assert generate(100, seed=1) != generate(100, seed=2)


@pytest.mark.parametrize(("jobs", "teams", "days"), [(1, 1, 1.0), (7, 3, 0.5), (500, 12, 10.0), (2_000, 3, 30.0)])
def test_there_are_as_many_jobs_and_teams_over_as_many_days_as_asked(jobs: int, teams: int, days: float) -> None:
    trace = generate(jobs, teams=teams, days=days)
    assert len(trace.jobs) == jobs
    assert len({job.id for job in trace.jobs}) == jobs
    assert len({job.spec.team for job in trace.jobs}) <= teams
    assert [job.submit_at for job in trace.jobs] == sorted(job.submit_at for job in trace.jobs)
    assert all(job.run_ms >= SECOND for job in trace.jobs)
    # Tries after a failure may come a little later than the last day.
    assert all(0 <= job.submit_at < days * DAY + 12 * HOUR for job in trace.jobs)


def test_ids_are_the_team_and_a_number() -> None:
    assert generate(3, teams=1).jobs[2].id == "vision-000003"


def test_nobody_tells_the_run_time() -> None:
    assert all(job.spec.expected_run_ms is None for job in MONTH.jobs)


def test_most_jobs_are_narrow_and_most_gpu_hours_are_not() -> None:
    widths = Counter(job.spec.gpus for job in MONTH.jobs)
    assert set(widths) <= {1, 2, 4, 8, 16, 32, 64}
    assert 0.55 < widths[1] / len(MONTH.jobs) < 0.85
    assert 0.005 < sum(count for width, count in widths.items() if width > 8) / len(MONTH.jobs) < 0.10
    assert (
        demand_gpu_hours(Trace(tuple(job for job in MONTH.jobs if job.spec.gpus == 1), {}))
        < demand_gpu_hours(MONTH) / 2
    )


@pytest.mark.parametrize("seed", range(5))
def test_run_times_have_a_short_middle_and_a_long_tail(seed: int) -> None:
    runs = sorted(job.run_ms for job in generate(5_000, seed=seed).jobs)
    assert 4 * MINUTE < median(runs) < 40 * MINUTE
    assert runs[len(runs) * 99 // 100] > 12 * HOUR
    assert runs[-1] <= 7 * DAY


def test_no_job_is_wider_than_the_load_makes_sensible_or_than_asked() -> None:
    assert max(job.spec.gpus for job in generate(1_000).jobs) == 8
    assert max(job.spec.gpus for job in generate(2_000, widest=4).jobs) == 4
    assert max(job.spec.gpus for job in generate(100_000).jobs) == 64


def test_offices_are_quiet_at_night_and_at_weekends() -> None:
    by_hour = Counter(job.submit_at % DAY // HOUR for job in MONTH.jobs)
    assert sum(by_hour[hour] for hour in range(9, 18)) > 3 * sum(by_hour[hour] for hour in range(6))
    by_day = Counter(job.submit_at // DAY % 7 for job in MONTH.jobs)
    assert (by_day[5] + by_day[6]) / 8 < 0.7 * sum(by_day[day] for day in range(5)) / 22


def test_what_a_person_runs_again_takes_about_as_long_again() -> None:
    """Otherwise nothing could be learned from names, and a comparison of estimators would show nothing."""
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for job in MONTH.jobs:
        runs[job.spec.user, job.spec.name].append(job.run_ms)
    usual = {who: median(taken) for who, taken in runs.items()}
    near = sum(
        usual[job.spec.user, job.spec.name] / 3 < job.run_ms < usual[job.spec.user, job.spec.name] * 3
        for job in MONTH.jobs
    )
    assert len(runs) < 150
    assert near / len(MONTH.jobs) > 0.6
    assert max(usual.values()) > 50 * min(usual.values())


def test_some_have_no_checkpoints_some_deadlines_and_every_class_occurs() -> None:
    without = sum(job.spec.checkpoint_every_ms is None for job in MONTH.jobs) / len(MONTH.jobs)
    assert 0.1 < without < 0.5
    assert {job.spec.checkpoint_every_ms for job in MONTH.jobs} == {None, 15 * MINUTE}
    assert {job.spec.job_class for job in MONTH.jobs} == set(JOB_CLASSES)
    assert {job.spec.priority for job in MONTH.jobs} == {0, 5, 10, 20}
    deadlines = [job for job in MONTH.jobs if job.spec.deadline_at is not None]
    assert 0.005 < len(deadlines) / len(MONTH.jobs) < 0.1
    assert all((job.spec.deadline_at or 0) >= job.submit_at + 2 * job.run_ms for job in deadlines)


def test_sweeps_are_submitted_together() -> None:
    together = Counter((job.submit_at, job.spec.user, job.spec.name) for job in MONTH.jobs)
    assert 20 < max(together.values()) <= 60


def test_many_jobs_share_few_specs() -> None:
    """A million specs would take half a gigabyte."""
    kept = {id(job.spec) for job in MONTH.jobs if job.spec.deadline_at is None}
    assert len(kept) < 500


def test_a_generated_load_survives_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "month.csv.gz")
    write_csv(MONTH, path)
    assert read(path) == MONTH


def test_nodes_for_a_load_is_demand_over_what_nodes_can_do_between_first_and_last_submission() -> None:
    trace = Trace((TraceJob("a", HOUR, 10 * HOUR, JobSpec(16)), TraceJob("b", 11 * HOUR, 20 * HOUR, JobSpec(8))), {})
    assert demand_gpu_hours(trace) == 320
    assert nodes_for(trace) == 4
    assert nodes_for(trace, load=0.5) == 8
    assert nodes_for(trace, load=2.0, gpus_per_node=4) == 4
    assert nodes_for(trace, load=100.0) == 1


def test_one_job_alone_gets_the_nodes_it_runs_on() -> None:
    assert nodes_for(Trace((TraceJob("a", HOUR, 10 * HOUR, JobSpec(16)),), {})) == 2
    assert nodes_for(Trace((), {})) == 1


def test_a_load_that_cannot_be_is_told() -> None:
    with pytest.raises(BadInput, match=r"^0 jobs cannot be generated; ask for 1 to 100,000,000\.$"):
        generate(0)
    with pytest.raises(BadInput, match=r"^0 teams cannot be generated; ask for 1 to 1,000\.$"):
        generate(1, teams=0)
    with pytest.raises(
        BadInput, match=r"^A load over nan days cannot be generated; ask for an hour \(0\.042\) to 3,650 days\.$"
    ):
        generate(1, days=float("nan"))
    with pytest.raises(BadInput, match=r"^No job can be at most 0 GPUs wide; ask for 1 or more\.$"):
        generate(1, widest=0)
    with pytest.raises(BadInput, match=r"^A load of 0 on nodes of 8 GPUs makes no sense; "):
        nodes_for(MONTH, load=0)


@pytest.mark.slow
def test_a_million_jobs_can_be_generated() -> None:
    assert len(generate(1_000_000).jobs) == 1_000_000
