"""Several sources of one month: the better evidence wins, and what differs is named."""

from dataclasses import replace

import pytest

from penstock.assess import sentences
from penstock.assess.demo_month import demo_reading, generated_month
from penstock.assess.history import JobRecord, OwnedGpus, SourceReading
from penstock.assess.join import join
from penstock.assess.redact import redact
from penstock.assess.report import AssessReport, assess
from penstock.assess.sources.reading import coverage_of, recurring_key
from penstock.assess.waits import quantile
from penstock.core.errors import BadInput
from penstock.core.units import DAY, HOUR, MICRO, MINUTE, NEVER
from tests.assess import months

ZERO = 20_000 * DAY


def job(name: str = "lab/a", **more: object) -> JobRecord:
    usual = JobRecord(
        id=name,
        source="cluster lab",
        gpus=8,
        team="vision",
        submitted_at=ZERO,
        started_at=ZERO + HOUR,
        ended_at=ZERO + 3 * HOUR,
        submitted_by="job",
        started_by="containers",
        ended_by="job",
        outcome="succeeded",
    )
    return replace(usual, **more)  # type: ignore[arg-type]


def reading(source: str, *jobs: JobRecord, **more: object) -> SourceReading:
    records = tuple(replace(record, source=source) for record in jobs)
    return replace(SourceReading(coverage_of(source, records), records), **more)  # type: ignore[arg-type]


def report_of(*readings: SourceReading) -> AssessReport:
    return assess(join(readings), gpu_hour=2 * MICRO, currency="USD")


def test_each_time_is_that_of_the_better_evidence() -> None:
    vague = job(started_by="job", started_at=ZERO, user="ada")
    sampled = job(
        submitted_at=ZERO + MINUTE,
        submitted_by="pod",
        started_by="pod",
        ended_by="samples",
        ended_at=ZERO + 2 * HOUR,
        cut="end",
        used_gpu_ms=HOUR,
        measured_gpu_ms=8 * HOUR,
    )
    (joined,) = join([reading("cluster lab", vague), reading("Prometheus p", sampled)]).jobs
    assert joined == replace(
        vague,
        source="cluster lab + Prometheus p",
        started_at=ZERO + HOUR,
        started_by="pod",
        used_gpu_ms=HOUR,
        measured_gpu_ms=8 * HOUR,
    )


def test_sources_that_differ_are_named_and_the_better_one_is_used() -> None:
    late = job(started_by="pod", started_at=ZERO + HOUR + 20 * MINUTE, gpus=4)
    owned = (OwnedGpus(ZERO, 8, "H100"),)
    history = join(
        [reading("cluster lab", job(), owned=owned), reading("Prometheus p", late, owned=(OwnedGpus(ZERO, 16),))]
    )
    assert (history.jobs[0].started_at, history.jobs[0].gpus) == (ZERO + HOUR, 8)
    lines = sentences.not_seen(assess(history, gpu_hour=None, currency="USD"))[-3:]
    both = "cluster lab and Prometheus p differ"
    assert lines == [
        f"{both} in width for 1 job, by up to 4 GPUs (lab/a); the first is used.",
        f"{both} by 8 owned GPUs; the first is used.",
        f"{both} on when a job started for 1 job, by up to 20 min (lab/a); the first is used.",
    ]


def test_a_second_run_of_the_same_name_is_another_job_and_a_uid_is_the_same_one() -> None:
    earlier = job(submitted_at=ZERO - DAY, started_at=ZERO - DAY, ended_at=ZERO - DAY + HOUR)
    jobs = join([reading("cluster lab", job()), reading("Prometheus p", earlier, job("lab/a#2"))]).jobs
    assert [record.source for record in jobs] == ["Prometheus p", "cluster lab + Prometheus p"]
    jobs = join([reading("journal j", job("x", uid="7")), reading("cluster lab", job("lab/a", uid="7"))]).jobs
    assert len(jobs) == 1


def test_clocks_that_cannot_be_compared_and_sources_without_a_job_are_refused() -> None:
    with pytest.raises(BadInput, match="csv a counts seconds from a zero of its own"):
        join([reading("csv a", job(), calendar=False), reading("cluster lab", job())])
    with pytest.raises(BadInput, match="No job with GPUs was seen"):
        join([reading("csv a")])


def test_a_span_leaves_out_what_lies_outside_of_it() -> None:
    early = job("lab/early", submitted_at=ZERO - DAY, started_at=ZERO - DAY, ended_at=ZERO - HOUR)
    across = job("lab/across", submitted_at=ZERO - DAY, started_at=ZERO - HOUR, ended_at=ZERO + HOUR)
    late = job("lab/late", submitted_at=ZERO + DAY, started_at=ZERO + DAY, ended_at=ZERO + DAY + HOUR)
    history = join([reading("sacct a", early, across, job(), late)], ZERO, ZERO + DAY)
    assert [record.id for record in history.jobs] == ["lab/across", "lab/a"]
    report = assess(history, gpu_hour=None, currency="USD")
    assert (report.use.total.allocated, report.waits.all.jobs) == (8 + 16, 1)
    with pytest.raises(BadInput, match="None of the 1 jobs that were seen lies between"):
        join([reading("sacct a", job())], ZERO + DAY)


def test_one_wrong_time_does_not_make_a_report_of_decades() -> None:
    """Every hour of such a month was a row of the report, and a point of its pictures."""
    old = job("lab/old", submitted_at=ZERO - 9_000 * DAY, started_at=ZERO - 9_000 * DAY, ended_at=ZERO - 8_999 * DAY)
    with pytest.raises(
        BadInput, match=r"What was seen spans 9,000 days \(2000-02-13 .* to 2024-10-04 .*\); a report has at most 1,100"
    ):
        join([reading("sacct a", old, job())])
    assert [seen.id for seen in join([reading("sacct a", old, job())], from_at=ZERO - DAY).jobs] == ["lab/a"]


def test_a_month_without_a_wait_says_so() -> None:
    lines = sentences.waits(report_of(reading("cluster lab", job(started_at=ZERO + MINUTE))))
    assert lines[0] == (
        "A month without a wait: 0 of 1 job whose wait is known waited longer than 5 min. For the sake of waits"
        " nothing needs to change."
    )


def test_unknown_waits_widen_the_range_and_are_never_filled_in() -> None:
    known = [job(f"lab/{k}") for k in range(3)]
    unknown = [job(f"lab/u{k}", started_by="job") for k in range(2)]
    waits = report_of(reading("cluster lab", *known, *unknown)).waits
    assert (waits.all.jobs, waits.unknown, waits.all.median_ms) == (3, 2, HOUR)
    assert (waits.median.low_ms, waits.median.high_ms) == (HOUR, HOUR)
    more = report_of(reading("cluster lab", *known[:1], *unknown)).waits
    assert (more.median.low_ms, more.median.high_ms) == (0, HOUR)


def test_demand_is_what_would_run_without_waits() -> None:
    first = job(submitted_at=ZERO, started_at=ZERO, ended_at=ZERO + 2 * HOUR)
    second = job("lab/b", submitted_at=ZERO + HOUR, started_at=ZERO + 2 * HOUR, ended_at=ZERO + 4 * HOUR)
    demand = report_of(reading("cluster lab", first, second, owned=(OwnedGpus(ZERO, 8),))).waits.demand
    assert (demand.peak_gpus, demand.peak_at) == (16, ZERO + HOUR)
    assert (demand.gpu_hours, demand.hours_above, demand.gpu_hours_above) == (32, 1, 8)
    assert demand.by_hour == ((ZERO, 8, 8), (ZERO + HOUR, 16, 8), (ZERO + 2 * HOUR, 8, 8), (ZERO + 3 * HOUR, 0, 8))


@pytest.mark.parametrize("seed", range(3))
def test_a_generated_month_is_reported_as_it_was(seed: int) -> None:
    month = generated_month(seed, jobs=400, days=10)
    history = join([demo_reading(month)])
    months.assert_true(history, month, within=0.001)
    use = assess(history, gpu_hour=None, currency="USD").use
    used = sum(ran.job.spec.gpus * ran.job.run_ms * ran.used_permille for ran in month.jobs) / 1000 / HOUR
    months.near(use.total.used, used, 0.001)
    months.near(use.total.allocated, months.gpu_hours(month), 0.001)
    months.near(sum(row.allocated for row in use.by_day), use.total.allocated, 0.001)


def test_on_thinned_months_the_stated_range_covers_the_truth_nine_times_in_ten() -> None:
    assert sum(map(covered, range(50))) >= 45


def covered(seed: int) -> bool:
    """The month is cut while jobs run and wait, and one start in seven is not known."""
    month = generated_month(seed, jobs=150, days=6)
    cut_at = month.jobs[100].submitted_at
    whole = demo_reading(month)
    seen = [_cut(record, cut_at) for record in whole.jobs if (record.submitted_at or 0) <= cut_at]
    thinned = tuple(
        replace(record, started_by="job") if record.started_at and k % 7 == seed % 7 else record
        for k, record in enumerate(seen)
    )
    cover = replace(whole.coverage, to_at=cut_at)
    waits = report_of(replace(whole, jobs=thinned, coverage=cover, measured=())).waits
    truth = sorted(ran.started_at - ran.submitted_at for ran in month.jobs if ran.submitted_at <= cut_at)
    stated = [(500, waits.median), (950, waits.p95)]
    return all(
        wide.low_ms <= quantile(truth, permille) <= (NEVER if wide.high_ms is None else wide.high_ms)
        for permille, wide in stated
    )


def _cut(record: JobRecord, at: int) -> JobRecord:
    if (record.started_at or 0) > at:
        return replace(record, started_at=None, ended_at=None, started_by="", ended_by="", outcome="queued")
    return replace(record, ended_at=at, cut="end", outcome="running") if (record.ended_at or 0) > at else record


def test_redacted_reports_hold_no_name() -> None:
    whole = join([demo_reading(generated_month(0, jobs=50, days=4))])
    hidden = redact(whole, b"k" * 32)
    text = repr(hidden)
    for named in whole.jobs:
        for name in (named.id, named.name, named.team, named.user, named.key):
            assert name not in text
    assert len({record.team for record in hidden.jobs}) == len({record.team for record in whole.jobs})
    assert redact(whole, b"l" * 32).jobs[0].team != hidden.jobs[0].team


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("train-20261103", "t/train"),
        ("train-2026-11-03", "t/train"),
        ("bert-finetune", "t/bert-finetune"),
        ("llama7", "t/llama"),
        ("nightly-x8k2p", "t/nightly"),
        ("nightly-train", "t/nightly-train"),
        ("2026", "t/2026"),
        ("", ""),
    ],
)
def test_runs_of_one_script_have_one_key(name: str, key: str) -> None:
    assert recurring_key("t", name) == key
