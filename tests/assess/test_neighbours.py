"""When a job of unknown submission or start was submitted or started, by the jobs next to it."""

from dataclasses import replace

from penstock.assess.history import JobRecord
from penstock.assess.neighbours import Neighbours, Waited, hides_its_wait
from penstock.assess.waits import waits_of
from penstock.core.units import HOUR
from tests.assess.test_decision import job, month

ENDS: tuple[Waited, ...] = ("least", "expected", "most")


def vague(record: JobRecord) -> JobRecord:
    """As the status of a Job tells it: its start is its submission."""
    return replace(record, started_at=record.submitted_at, started_by="job")


def starts(jobs: list[JobRecord], record: JobRecord) -> list[float]:
    neighbours = Neighbours(jobs)
    return [neighbours.start(record, waited) / HOUR for waited in ENDS]


def test_a_job_between_two_that_did_not_wait_did_not_wait_either() -> None:
    hidden = vague(job(2, submit=5, start=5, run=3))
    assert hides_its_wait(hidden)
    assert starts([job(1, submit=4, start=4, run=1), hidden, job(3, submit=6, start=6, run=1)], hidden) == [5, 5, 6]


def test_a_job_between_two_that_waited_started_between_them_and_ran_as_long_as_its_namesakes() -> None:
    before, after = job(1, submit=4, start=10, run=2), job(3, submit=6, start=14, run=2)
    hidden = vague(job(2, submit=5, start=11, run=2))
    assert starts([before, hidden, after], hidden) == [10, 11, 14 - 1 - 1 / 3600]
    stranger = replace(hidden, key="a/other")
    assert starts([before, stranger, after], stranger)[1] == (10 + 13 - 1 / 3600) / 2


def test_tasks_of_one_instant_started_among_the_others_of_it() -> None:
    tasks = [job(k, submit=5, start=5 + 4 * k, run=4) for k in range(5)]
    hidden = vague(tasks[3])
    assert starts([*tasks[:3], hidden, tasks[4]], hidden) == [5, 17, 21 - 1 / 3600]


def test_an_unknown_submission_lies_between_those_of_the_jobs_that_started_next_to_it() -> None:
    waited = Neighbours([job(1, submit=4, start=10, run=1), job(3, submit=8, start=12, run=1)])
    assert [waited.submission(11 * HOUR, end) / HOUR for end in ENDS] == [8, 6, 4]
    calm = Neighbours([job(1, submit=4, start=4, run=1), job(3, submit=12, start=12, run=1)])
    assert [calm.submission(8 * HOUR, end) / HOUR for end in ENDS] == [8, 8, 4]
    assert Neighbours([]).submission(8 * HOUR) == 8 * HOUR


def test_demand_has_a_range_where_runs_are_cut_jobs_queued_or_starts_vague() -> None:
    """8 GPUs, 96 hours. Each run is 10 h long; of each job the least and the most that it can have wanted."""
    whole = job(1, submit=0, start=0, run=10)
    cut = replace(job(2, submit=70, start=86, run=10), cut="end")
    queued = replace(job(3, submit=90, start=0, run=0), started_at=None, ended_at=None, started_by="", outcome="queued")
    hidden = vague(job(4, submit=10, start=30, run=10))
    demand = waits_of(month([whole, cut, queued, hidden])).demand
    assert demand.low_gpu_hours == 8 * (10 + 10 + 0 + 0)
    assert demand.high_gpu_hours == 8 * (10 + 26 + 6 + 30)
    assert demand.low_gpu_hours < demand.gpu_hours < demand.high_gpu_hours
    exact = waits_of(month([whole])).demand
    assert exact.low_gpu_hours == exact.gpu_hours == exact.high_gpu_hours
