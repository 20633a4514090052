"""What is coming: demand of the next days, from months so regular that the answer is known by hand."""

from dataclasses import replace

import pytest

from penstock.assess import sentences
from penstock.assess.coming import ComingDemand, coming_of
from penstock.assess.history import MonthHistory
from penstock.assess.report import assess
from penstock.core.units import DAY, HOUR
from tests.assess.test_decision import job, month

DAYS = 10


def office_hours(days: int = DAYS) -> MonthHistory:
    """Each day the same: 8 GPUs from nine to five."""
    return month([job(k, submit=24 * k + 9, start=24 * k + 9, run=8) for k in range(days)], days=days)


def coming(history: MonthHistory) -> ComingDemand:
    return coming_of(history, lambda at: f"day {at // DAY + 1}")


def test_days_that_are_all_the_same_go_on_without_a_spread() -> None:
    forecast = coming(replace(office_hours(), owned=()))
    wanted = [8.0 if 9 <= hour % 24 < 17 else 0.0 for hour in range(72)]
    assert [hour.at for hour in forecast.hours] == [(DAYS * 24 + hour) * HOUR for hour in range(72)]
    for level in ("p10", "p50", "p90"):
        assert [getattr(hour, level) for hour in forecast.hours] == pytest.approx(wanted)
    assert [(day.label, day.hours_above, day.hours_above_p90) for day in forecast.by_day] == [
        (f"day {DAYS + k}", 0, 0) for k in (1, 2, 3)
    ]
    assert [(day.mean, day.busiest, day.busiest_p90) for day in forecast.by_day] == [pytest.approx((8 / 3, 8, 8))] * 3
    assert [gpus for _, gpus in forecast.before] == pytest.approx(wanted[:24] * 7)
    assert (forecast.known_hours, forecast.owned_gpus, forecast.held) == (DAYS * 24, 8, forecast.checked)


def test_hours_above_what_is_owned_are_counted_likely_and_possible() -> None:
    """One day in five wants more than is owned. The nearest hours are surer than that."""
    busy = [job(k, submit=24 * k, start=24 * k, run=24, gpus=12 if k % 5 == 2 else 6) for k in range(20)]
    forecast = coming(month(busy, gpus=8, days=20))
    assert [(day.hours_above, day.hours_above_p90) for day in forecast.by_day] == [(0, 13), (0, 24), (0, 24)]
    assert all(hour.p10 <= hour.p50 <= hour.p90 for hour in forecast.hours)


def test_too_short_a_history_has_no_forecast_and_says_so() -> None:
    forecast = coming(office_hours(days=2))
    assert (forecast.hours, forecast.by_day, forecast.before) == ((), (), ())
    assert forecast.why_none == "it needs 72 whole hours of history, and 48 were seen"
    report = assess(office_hours(days=2), gpu_hour=None, currency="USD")
    assert sentences.coming(report) == [f"No forecast: {forecast.why_none}."]


def test_a_shorter_history_has_a_shorter_forecast() -> None:
    assert len(coming(office_hours(days=3)).hours) == 24
    assert len(coming(office_hours(days=4)).hours) == 48


def test_after_the_last_job_of_a_file_nobody_knows_of_submissions_but_a_watched_cluster_was_quiet() -> None:
    """The tail of a file, in which jobs end and none begins, is no falling demand."""
    quiet = replace(office_hours(), to_at=(DAYS + 2) * DAY)
    coverage = replace(quiet.coverage[0], to_at=quiet.to_at)
    file = coming(replace(quiet, coverage=(replace(coverage, source="csv jobs.csv"),)))
    watched = coming(replace(quiet, coverage=(replace(coverage, source="prometheus here"),)))
    assert (file.known_hours, watched.known_hours) == ((DAYS - 1) * 24 + 9, (DAYS + 2) * 24)
    assert max(hour.p50 for hour in file.hours) == pytest.approx(8)
    assert max(hour.p50 for hour in watched.hours) < 8


def test_a_run_that_goes_on_and_a_queued_job_are_wanted_now() -> None:
    ends = 24 * DAYS
    running = job(90, submit=ends - 30, start=ends - 10, run=10, gpus=4, cut="end", outcome="running")
    queued = job(91, submit=ends - 1, start=0, run=0, gpus=2, outcome="queued", started_at=None, ended_at=None)
    plain = coming(office_hours())
    forecast = coming(month([*sorted(office_hours().jobs, key=lambda record: record.id), running, queued], days=DAYS))
    assert forecast.before[-1][1] == plain.before[-1][1] + 2
    assert forecast.before[-29][1] == plain.before[-29][1] + 4


def test_without_any_run_there_is_no_forecast() -> None:
    lost = replace(office_hours(), jobs=tuple(replace(record, ended_at=None) for record in office_hours().jobs))
    assert coming(lost).why_none == "no job's start and end were seen"


def test_the_report_says_how_often_its_own_forecasts_held() -> None:
    says = sentences.coming(assess(office_hours(), gpu_hour=None, currency="USD"))
    assert says[0] == (
        "The next 72 hours, from day 11, 00:00 on: 3 GPUs wanted on average. Busiest is day 11, 09:00, with 8 GPUs"
        " (P50), or 8 to 8 (P10 to P90)."
    )
    assert says[1] == "More than the 8 GPUs of today are wanted in 0 of these hours at P50, and in 0 at P90."
    assert says[3].startswith("Made at earlier moments of this month, up to three days ahead, its P90 was not exceeded")
