"""Tables and sacct texts of several ages: what they say is what happened, and what they lack is said."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from penstock.assess import sentences
from penstock.assess.demo_month import GeneratedMonth, generated_month
from penstock.assess.history import OwnedGpus
from penstock.assess.join import join
from penstock.assess.replay import replayable
from penstock.assess.report import assess
from penstock.assess.sources.sacct import read_sacct
from penstock.assess.sources.tables import read_table
from penstock.core.errors import BadInput
from penstock.core.units import HOUR, MINUTE
from penstock.sim.traces import trace
from tests.assess import months

MONTH = generated_month(1, jobs=300, days=10)


def written(folder: Path, text: str, name: str = "a.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


@pytest.mark.parametrize("text", [months.sacct_16, months.sacct_20, months.sacct_24])
def test_sacct_of_any_age_tells_the_same_month(text: Callable[[GeneratedMonth], str], tmp_path: Path) -> None:
    reading = read_sacct(written(tmp_path, text(MONTH)), UTC)
    ran = [job for job in reading.jobs if job.started_at is not None]
    assert [(job.gpus, job.submitted_at, job.started_at, job.ended_at) for job in ran] == [
        (job.job.spec.gpus, job.submitted_at, job.started_at, job.ended_at) for job in MONTH.jobs
    ]
    months.assert_true(join([reading]), MONTH)


def test_what_a_sacct_text_leaves_open_is_counted(tmp_path: Path) -> None:
    reading = read_sacct(written(tmp_path, months.sacct_24(MONTH)), UTC)
    assert {job.gpu_model for job in reading.jobs} == {"h100", ""}
    assert [job.outcome for job in reading.jobs if job.started_at is None] == ["cancelled"]
    assert read_sacct(written(tmp_path, months.sacct_20(MONTH)), UTC).coverage.left_out == (("no whole GPU", 300),)


SACCT = "JobID|Submit|Eligible|Start|End|ElapsedRaw|State|AllocTRES|ReqTRES\n"


def test_running_pending_held_and_requeued_jobs(tmp_path: Path) -> None:
    rows = [
        "1|2026-10-01T08:00:00|2026-10-01T08:00:00|2026-10-01T09:00:00|Unknown|3600|RUNNING|gres/gpu=8|gres/gpu=8",
        "2|2026-10-01T08:00:00|2026-10-01T08:00:00|2026-10-09T09:00:00|Unknown|0|PENDING||gres/gpu=8",
        "3|2026-10-01T08:00:00|2026-10-01T11:00:00|2026-10-01T11:30:00|2026-10-01T12:00:00|1800|COMPLETED|gres/gpu=1|",
        "4|2026-10-01T08:00:00|2026-10-01T08:00:00|2026-10-01T08:10:00|2026-10-01T08:20:00|600|NODE_FAIL|gres/gpu=1|",
        "4|2026-10-01T08:20:00|2026-10-01T08:20:00|2026-10-01T08:30:00|2026-10-01T08:50:00|1200|COMPLETED|gres/gpu=1|",
        "5|2026-10-01T08:00:00|2026-10-01T08:00:00|2026-10-01T08:10:00|2026-10-01T08:20:00|600|COMPLETED|gres/gpu:1g.10gb=1|",
    ]
    reading = read_sacct(written(tmp_path, SACCT + "\n".join(rows)), UTC)
    assert [(job.id, job.outcome, job.cut, job.wait_ms, job.run_ms) for job in reading.jobs] == [
        ("1", "running", "end", HOUR, 3 * HOUR),
        ("2", "queued", "", None, None),
        ("3", "succeeded", "", 30 * MINUTE, 30 * MINUTE),
        ("4", "failed", "", 10 * MINUTE, 10 * MINUTE),
        ("4#2", "succeeded", "", 10 * MINUTE, 20 * MINUTE),
    ]
    assert reading.coverage.left_out == (("slices of GPUs", 1),)
    assert (reading.coverage.cut, reading.coverage.unknown_starts) == (1, 0)


def test_a_quality_of_service_other_than_the_usual_one_is_a_priority(tmp_path: Path) -> None:
    times = "2026-10-01T08:00:00|2026-10-01T08:00:00|2026-10-01T09:00:00|2026-10-01T10:00:00|3600|COMPLETED"
    rows = [f"{k}|{times}|gres/gpu=8|gres/gpu=8|{qos}" for k, qos in enumerate(("normal", "urgent", ""))]
    text = SACCT.replace("ReqTRES", "ReqTRES|QOS") + "\n".join(rows)
    assert [job.priority for job in read_sacct(written(tmp_path, text), UTC).jobs] == ["", "urgent", ""]
    assert {job.priority for job in read_sacct(written(tmp_path, months.sacct_24(MONTH)), UTC).jobs} == {None}


def test_times_without_a_zone_are_of_the_zone_that_was_named(tmp_path: Path) -> None:
    row = "1|2026-10-01T08:00:00||2026-10-01T09:00:00|2026-10-01T10:00:00|3600|COMPLETED|gres/gpu=8|"
    path = written(tmp_path, SACCT + row)
    (berlin,), (utc,) = read_sacct(path, ZoneInfo("Europe/Berlin")).jobs, read_sacct(path, ZoneInfo("UTC")).jobs
    assert (utc.started_at or 0) - (berlin.started_at or 0) == 2 * HOUR
    assert any("taken as UTC" in words for words in read_sacct(path, ZoneInfo("UTC")).coverage.missing)
    assert not any("taken as UTC" in words for words in read_sacct(path, ZoneInfo("Europe/Berlin")).coverage.missing)


def test_a_table_with_times_tells_the_month_and_one_without_starts_tells_no_wait(tmp_path: Path) -> None:
    path = written(tmp_path, months.table(MONTH))
    months.assert_true(join([read_table(path, UTC)]), MONTH)
    bare = written(tmp_path, "job_id,submit_s,gpus\na,0,8\nb,10,0\n")
    reading = read_table(bare, UTC)
    assert (reading.calendar, reading.coverage.left_out) == (False, (("no whole GPU", 1),))
    assert "no wait, allocation or use is known" in " ".join(reading.coverage.missing)
    assert reading.jobs[0].started_at is None


def without_starts(month: GeneratedMonth) -> str:
    rows = ((job.job.id, job.submitted_at // 1000, job.job.run_ms / 1000, job.job.spec.gpus) for job in month.jobs)
    return "job_id,submit_s,duration_s,gpus\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows)


def test_run_times_without_starts_are_enough_for_all_but_waits(tmp_path: Path) -> None:
    """A trace of submissions and run times, as public ones are, was answered with "ran 0, 0 GPU-hours, demand 0"."""
    truth = months.gpu_hours(MONTH)
    history = join([read_table(written(tmp_path, without_starts(MONTH)), UTC)])
    report = assess(replace(history, owned=(OwnedGpus(history.from_at, 64),)), gpu_hour=None, currency="USD")
    assert truth > 1_000
    months.near(report.use.total.allocated, truth, 0.01)
    demand = report.waits.demand
    months.near(demand.gpu_hours, truth, 0.01)
    assert demand.low_gpu_hours == pytest.approx(demand.gpu_hours) == pytest.approx(demand.high_gpu_hours)
    assert (report.waits.all.jobs, report.waits.unknown) == (0, len(MONTH.jobs))
    assert (report.waits.median.high_ms, "No wait is known." in sentences.waits(report)) == (None, True)
    assert not any("the median is" in words for words in sentences.waits(report))
    assert report.coming.hours
    assert "runs are counted from their submission on" in " ".join(history.coverage[0].missing)


def test_it_is_replayed_as_the_same_jobs_that_simulate_reads(tmp_path: Path) -> None:
    path = written(tmp_path, without_starts(MONTH))
    month = replayable(join([read_table(path, UTC)]))
    read = trace.read(path).jobs
    zero = read[0].submit_at
    assert [(job.id, job.submit_at, job.run_ms) for job in month.jobs] == [
        (job.id, job.submit_at - zero, job.run_ms) for job in sorted(read, key=lambda job: (job.submit_at, job.id))
    ]
    assert (month.no_wait, month.left_out) == (0, 0)  # nothing has to be guessed


@pytest.mark.parametrize(("start", "end"), [("1790007200", ""), ("", "1790010800")])
def test_a_run_time_and_one_end_of_the_run_are_both_ends(tmp_path: Path, start: str, end: str) -> None:
    run_times = written(tmp_path, "job_id,submit_s,duration_s,gpus\na,1790000000,3600,8\n", "a.csv")
    ends = written(tmp_path, f"job_id,submit_s,start_s,end_s,gpus\na,1790000000,{start},{end},8\n", "b.csv")
    job = join([read_table(run_times, UTC), read_table(ends, UTC)]).jobs[0]
    began = 1_790_000_000_000
    assert (job.started_at, job.ended_at, job.wait_ms) == (began + 2 * HOUR, began + 3 * HOUR, 2 * HOUR)


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    path = written(tmp_path, "when,wait,took,n\n2026-10-01T08:00:00Z,60,,4\n2026-10-01T09:00:00Z,0,60,4\n")
    columns = {"submit": "when", "queue": "wait", "duration": "took", "gpus": "n"}
    first, second = read_table(path, UTC, columns).jobs
    assert (first.wait_ms, first.cut, second.run_ms) == (MINUTE, "end", MINUTE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("gpus,start\n1,2\n", "no column submit_s or submit"),
        ("submit,gpus\nnonsense,1\n", "line 2: submit 'nonsense' is not a time"),
        ("submit,gpus\n2026-10-01T08:00:00Z,many\n", "line 2: gpus 'many' is not a number"),
        ("submit,gpus,start,end\n0,1,20,10\n", "line 2: it ends 10 s before it starts"),
        ("submit,gpus,start,end\n4000,1,0,10\n", "line 2: it starts 4000 s before it is submitted"),
        ("submit,gpus\n1,2,3\n", "3 fields under a header of 2"),
        ("submit,gpus\n2026-10-01T08:00:00Z,1\n2026-10-01T08:00:00,1\n", "line 3"),
    ],
)
def test_a_bad_table_is_one_message_with_its_lines(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        read_table(written(tmp_path, text), UTC)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("JobID Submit\n", "no pipes"),
        ("JobID|Submit|State\n", "no column Start"),
        (SACCT + "1|2026-10-01T08:00:00\n", "2 fields under a header of 9"),
        (SACCT + "1|soon||None|None|0|PENDING||gres/gpu=8\n", "Submit 'soon'"),
        (SACCT + "1|2026-10-01T08:00:00||None|None|0|PENDING||gres/gpu=x\n", "gres/gpu 'x' is not a number"),
    ],
)
def test_a_bad_sacct_text_is_one_message_with_its_lines(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        read_sacct(written(tmp_path, text), UTC)
