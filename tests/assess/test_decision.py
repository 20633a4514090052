"""Ways, buy or rent, pilot, go or no-go, on months so small that their truth is known by hand."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.assess import ways
from penstock.assess.assessment import Assessment, DecisionOptions, assess, work
from penstock.assess.buy_or_rent import HourlyLoad, buy_or_rent
from penstock.assess.decision import crossings, total
from penstock.assess.demo_month import GeneratedMonth, demo_reading, generated_month
from penstock.assess.history import Coverage, JobRecord, MonthHistory, OwnedGpus, SourceReading
from penstock.assess.join import join
from penstock.assess.own_cost import own_cost
from penstock.assess.page import page
from penstock.assess.prices import RentQuote, quote
from penstock.assess.replay import dealt_anew, replayable, slice_of
from penstock.assess.sections import ReportWords, savings_words
from penstock.assess.ways import (
    AS_IT_WAS,
    BOUGHT,
    BURST,
    CLOUD,
    LABELS,
    QUEUE,
    RECLAIMED,
    SPOT,
    ReplayFigures,
    measure,
    nearer_order,
    setting_of,
)
from penstock.assess.ways_words import OVERTAKEN
from penstock.core.errors import BadInput
from penstock.core.units import DAY, HOUR

OWN_HOUR = 2.0
RENT_HOUR = 7.3616  #: of an H100, by the table
COST = ("hour=2",)


def job(k: int, *, submit: float, start: float, run: float, gpus: int = 8, **more: Any) -> JobRecord:
    """Hours since the month's begin."""
    at, began, ended = (int(hours * HOUR) for hours in (submit, start, start + run))
    record = JobRecord(
        id=f"a/{k}",
        source="here",
        gpus=gpus,
        name="train",
        team="a",
        key="a/train",
        gpu_model="H100",
        submitted_at=at,
        started_at=began,
        ended_at=ended,
        submitted_by="csv",
        started_by="csv",
        ended_by="csv",
        outcome="succeeded",
    )
    return replace(record, **more)


def month(jobs: Iterable[JobRecord], gpus: int = 8, days: int = 4) -> MonthHistory:
    some = tuple(jobs)
    coverage = Coverage(source="here", from_at=0, to_at=days * DAY, jobs=len(some))
    history = join([SourceReading(coverage, some, (OwnedGpus(0, gpus, "H100"),), "told", calendar=False)])
    return replace(history, from_at=0, to_at=days * DAY)


@pytest.fixture(scope="module")
def generated() -> tuple[GeneratedMonth, Assessment]:
    truth = generated_month(3, jobs=120, days=4)
    return truth, assess(join([demo_reading(truth)]), DecisionOptions(own_cost=COST))


def figures(assessment: Assessment, name: str) -> ReplayFigures:
    way = assessment.ways.way(name)
    assert way is not None
    return way.measured


def quoted() -> RentQuote:
    rent = quote("H100")
    assert rent is not None
    return rent


def two_at_once(**more: Any) -> MonthHistory:
    """Two jobs of 10 h at the same moment on GPUs for one."""
    return month([job(1, submit=1, start=1, run=10, **more), job(2, submit=1, start=11, run=10)], days=1)


def test_each_way_has_the_money_and_delay_that_follow_from_the_month() -> None:
    assessment = assess(two_at_once(), DecisionOptions(own_cost=COST))
    owned = 8 * 24 * OWN_HOUR
    was, bought, cloud = (figures(assessment, name) for name in (AS_IT_WAS, BOUGHT, CLOUD))
    assert (was.money, was.mean_delay_h, was.p95_delay_h) == pytest.approx((owned, 5, 10))
    assert was.to_model_h == pytest.approx(15)
    assert (bought.money, bought.mean_delay_h) == pytest.approx((2 * owned, 0))
    # Each rented node is paid from the asking on, five minutes before the job runs.
    assert cloud.money == pytest.approx(2 * 8 * (10 + 5 / 60) * RENT_HOUR, rel=0.01)
    assert cloud.mean_delay_h == pytest.approx(5 / 60)


def test_a_burst_happens_only_where_delay_costs_more_than_renting() -> None:
    low = assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="0.1", cap="10000000"))
    assert (figures(low, BURST).rent, low.decision.answer) == (0, "no-go")
    high = assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="200", cap="10000000", buy=64))
    assert figures(high, BURST).rent == pytest.approx(8 * 10 * RENT_HOUR, rel=0.05)
    assert (high.decision.answer, high.decision.best) in {("go", "burst"), ("go", "spot")}
    saved = figures(high, AS_IT_WAS).delay_h - figures(high, BURST).delay_h
    assert saved == pytest.approx(10, rel=0.1)


def test_a_cap_keeps_rent_below_it() -> None:
    assessment = assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="200", cap="300"))
    assert figures(assessment, BURST).rent <= 300


def test_reclaiming_idle_gpus_ends_the_wait_for_nothing() -> None:
    idle = two_at_once(idle_gpu_ms=8 * 6 * HOUR, measured_gpu_ms=8 * 10 * HOUR, used_gpu_ms=8 * 4 * HOUR)
    assessment = assess(idle, DecisionOptions(own_cost=COST, cost_of_delay="200"))
    was, reclaimed = figures(assessment, AS_IT_WAS), figures(assessment, RECLAIMED)
    assert reclaimed.money == was.money
    assert (was.mean_delay_h, reclaimed.mean_delay_h) == pytest.approx((5, 2))
    assert any(line.startswith("Reclaim idle GPUs first") for line in assessment.decision.says)


def test_nothing_measured_leaves_a_way_out_and_says_so() -> None:
    assessment = assess(two_at_once(), DecisionOptions(own_cost=COST))
    assert [way.name for way in assessment.ways.ways] == [name for name in LABELS if name != RECLAIMED]
    assert assessment.ways.left_out[0].startswith("Idle GPUs reclaimed is left out: nobody measured")


def test_a_month_without_a_wait_needs_nothing() -> None:
    calm = month([job(k, submit=12 * k, start=12 * k, run=2) for k in range(6)])
    assessment = assess(calm, DecisionOptions(own_cost=COST))
    assert assessment.decision.answer == "no-go"
    assert assessment.decision.says[0].startswith("Do nothing")
    assert assessment.decision.says[1:] == ("For money alone, all in the cloud would cost $799.84 less.",)


def test_jobs_that_mount_volumes_stay_at_home() -> None:
    tied = month([job(k, submit=1, start=1 + 10 * k, run=10, volumes=("scratch",)) for k in range(2)])
    assessment = assess(tied, DecisionOptions(own_cost=COST, cost_of_delay="2000", cap="10000000"))
    assert figures(assessment, BURST).rent == 0
    assert "2 jobs stay at home" in " ".join(assessment.ways.notes)


def test_cut_runs_widen_the_ranges() -> None:
    jobs = [job(k, submit=k / 10, start=10 * k, run=10) for k in range(4)]
    whole = assess(month(jobs), DecisionOptions(own_cost=COST))
    cut = assess(
        month([*jobs[:2], *(replace(record, cut="end") for record in jobs[2:])]), DecisionOptions(own_cost=COST)
    )
    first, second = whole.ways.way(AS_IT_WAS), cut.ways.way(AS_IT_WAS)
    assert first is not None
    assert second is not None
    assert first.mean_delay_h.low == first.mean_delay_h.high  # run times are all alike
    assert second.mean_delay_h.low < second.measured.mean_delay_h < second.mean_delay_h.high


def test_carbon_is_counted_only_where_it_is_known() -> None:
    unknown = assess(two_at_once(), DecisionOptions(own_cost=COST))
    assert [way.co2_kg for way in unknown.ways.ways] == [None] * 6
    assessment = assess(two_at_once(), DecisionOptions(grid=100, cloud_grid=10, own_cost=("watts=1000", "pue=1")))
    was = assessment.ways.way(AS_IT_WAS)
    assert was is not None
    assert was.co2_kg == pytest.approx(8 * 24 * 0.1)


def test_bursting_is_not_credited_with_what_a_better_queue_gives_for_nothing(
    generated: tuple[GeneratedMonth, Assessment],
) -> None:
    """The month as it was is first come, first served, and bursts had our queue as well: more than half of what they
    "saved" came from the order of the queue, and no row said so.
    """
    _, assessment = generated
    cost = float(assessment.ways.setting.cost_of_delay)
    was, queue = figures(assessment, AS_IT_WAS), figures(assessment, QUEUE)
    assert (queue.rent, queue.money) == (0, was.money)
    assert queue.mean_delay_h < was.mean_delay_h
    best = min(total(figures(assessment, name), cost) for name in (BURST, SPOT))
    assert assessment.decision.gain <= total(queue, cost) - best
    words = savings_words(assessment, ReportWords(assessment))
    assert re.search(r"Of the \$[\d.]+k of burst [a-z ]+, Penstock's queue alone gives \$[\d.]+k: bursting adds", words)
    assert "more in cash" in words


def test_the_replay_of_a_generated_month_is_near_its_truth(generated: tuple[GeneratedMonth, Assessment]) -> None:
    """Savings follow from waits, rent and demand; the truth of each is known."""
    truth, assessment = generated
    report = assessment.report
    gpu_hours = sum(ran.job.spec.gpus * ran.job.run_ms for ran in truth.jobs) / HOUR
    starts = sum(ran.job.spec.gpus for ran in truth.jobs) * 5 / 60
    cloud = figures(assessment, CLOUD)
    assert cloud.gpu_hours_rented == pytest.approx(gpu_hours, rel=0.05)
    assert cloud.rent >= (gpu_hours + starts) * RENT_HOUR * 0.95  # nodes of 1, 4 and 8 GPUs are a little too large
    owned = truth.owned_gpus * (report.to_at - report.from_at) / HOUR * OWN_HOUR
    assert figures(assessment, AS_IT_WAS).money == pytest.approx(owned)
    assert assessment.buy_or_rent.all_rented == pytest.approx(
        report.waits.demand.gpu_hours * RENT_HOUR * 365 * DAY / (report.to_at - report.from_at), rel=0.05
    )


def test_as_it_was_is_replayed_in_the_order_that_is_nearer_to_what_was_seen() -> None:
    """One node, so that no GPU is free in pieces: the replay's waits are the month's own."""
    truth = generated_month(3, jobs=80, days=6)
    assert truth.owned_gpus == 8
    assessment = assess(join([demo_reading(truth)]), DecisionOptions(own_cost=COST))
    assert not assessment.ways.setting.overtakes
    seen = sum(truth.waits_ms) / len(truth.jobs) / HOUR
    assert figures(assessment, AS_IT_WAS).mean_delay_h == pytest.approx(seen, rel=0.05)


@pytest.mark.parametrize("seed", range(2))
def test_the_kind_of_queue_is_the_nearest_of_all_although_others_are_given_up(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long month is looked at in part first, and a replay ends once it cannot be the nearest any more. One within a
    hundredth of what was seen is near enough.
    """
    month = replayable(join([demo_reading(generated_month(seed, jobs=80, days=4, load=0.9))]))
    setting = setting_of(month, quoted(), own_cost("H100", COST), "20", None, None)
    kinds = [replace(setting, overtakes=order, pooled=pooled) for pooled in (False, True) for order in (True, False)]
    replays = [measure(AS_IT_WAS, month, month.jobs, kind, 0) for kind in kinds]
    monkeypatch.setattr(ways, "RANGE_JOBS", 40)
    for seen_h in (0.0, *(replay.mean_delay_h for replay in replays), 1_000.0):
        nearest = min(abs(replay.mean_delay_h - seen_h) for replay in replays)
        kind, replay = nearer_order(month, setting, seen_h, lambda _: None)
        assert replay == replays[kinds.index(kind)]
        assert abs(replay.mean_delay_h - seen_h) <= max(nearest, ways.NEAR_H, ways.NEAR * seen_h)


def test_a_replay_is_given_up_once_its_delays_are_more_than_was_asked_for() -> None:
    month = replayable(two_at_once())
    setting = setting_of(month, quoted(), own_cost("H100", COST), "20", None, None)
    assert measure(AS_IT_WAS, month, month.jobs, setting, 0, most_delay_h=10).delay_h == 10
    with pytest.raises(ways.TooMuchDelay):
        measure(AS_IT_WAS, month, month.jobs, setting, 0, most_delay_h=9.9)


@pytest.mark.parametrize("cut", [False, True])
def test_the_progress_bar_counts_every_replay(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "RANGE_JOBS", 30)
    monkeypatch.setattr(ways, "LAST_JOBS", 10)
    whole = join([demo_reading(generated_month(3, jobs=40, days=2))])
    jobs = tuple(
        replace(run, cut="end", outcome="running") if cut and k > 35 else run for k, run in enumerate(whole.jobs)
    )
    history, replayed = replace(whole, jobs=jobs), list[int]()
    assess(history, DecisionOptions(own_cost=COST), replayed.append)
    assert sum(replayed) == work(history)


def test_reclaimed_gpus_may_go_to_small_jobs_that_overtake_a_wide_one_and_the_report_says_so() -> None:
    """Shorter runs, longer waits: as it was, two jobs end together and a job of 16 GPUs starts. With the idle half of
    one reclaimed, a long job of 8 GPUs starts in its place, and the wide one waits for that, too.
    """
    jobs = [
        job(1, submit=0, start=0, run=4, idle_gpu_ms=8 * 2 * HOUR, measured_gpu_ms=8 * 4 * HOUR, used_gpu_ms=8 * HOUR),
        job(2, submit=0, start=0, run=4),
        job(3, submit=1, start=4, run=1, gpus=16),
        job(4, submit=3, start=5, run=10),
    ]
    assessment = assess(month(jobs, gpus=16), DecisionOptions(own_cost=COST))
    assert assessment.ways.setting.overtakes
    assert figures(assessment, AS_IT_WAS).delay_h == pytest.approx(3 + 2)
    assert figures(assessment, RECLAIMED).delay_h == pytest.approx(12)
    assert OVERTAKEN in assessment.ways.notes
    calm = assess(month(jobs[:2], gpus=16), DecisionOptions(own_cost=COST))
    assert OVERTAKEN not in calm.ways.notes


# --- other months like this one ---------------------------------------------------------------------------------------


def test_dealing_anew_keeps_the_work_of_each_job() -> None:
    trace = replayable(join([demo_reading(generated_month(2, jobs=200, days=5))]))
    dealt = dealt_anew(trace.jobs, 1)
    assert dealt != trace.jobs
    assert sum(traced.run_ms * traced.spec.gpus for traced in dealt) == sum(
        traced.run_ms * traced.spec.gpus for traced in trace.jobs
    )
    assert dealt == dealt_anew(trace.jobs, 1)
    assert [traced.submit_at for traced in dealt] == [traced.submit_at for traced in trace.jobs]


def test_a_slice_is_the_middle_and_begins_at_zero() -> None:
    trace = replayable(join([demo_reading(generated_month(2, jobs=200, days=5))]))
    part = slice_of(trace.jobs, 50)
    assert (len(part), part[0].submit_at) == (50, 0)
    assert [traced.id for traced in part] == [traced.id for traced in trace.jobs[75:125]]
    assert slice_of(trace.jobs, 500) == trace.jobs


def test_a_job_of_a_million_gpus_is_not_replayed_and_the_report_asks_about_it() -> None:
    """It rented 125,000 nodes in each replay."""
    slip = month([job(1, submit=1, start=1, run=10), job(2, submit=1, start=11, run=10, gpus=1_000_000)], days=1)
    assessment = assess(slip, DecisionOptions(own_cost=COST))
    assert {way.measured.jobs for way in assessment.ways.ways} == {1}
    assert "1 job of more than 20,000 GPUs: not replayed. Is the width right?" in assessment.ways.notes


def test_a_month_without_a_run_cannot_be_replayed() -> None:
    with pytest.raises(BadInput, match="cannot be replayed"):
        replayable(month([job(1, submit=1, start=1, run=0)]))


# --- buy or rent ------------------------------------------------------------------------------------------------------


def test_what_is_always_wanted_is_cheaper_owned_and_what_seldom_is_rented() -> None:
    """10 GPUs in every hour, 30 in one of ten; owning pays above 2 / 7.36 = 27 % of the time."""
    rent, own = quote("H100"), own_cost("H100", COST)
    assert rent is not None
    hours = [30.0 if k % 10 == 0 else 10.0 for k in range(720)]
    comparison = buy_or_rent(hours, 16, rent, own, None)
    assert comparison.today.break_even == pytest.approx(OWN_HOUR / RENT_HOUR, rel=0.001)
    assert (comparison.today.best_gpus, comparison.best.gpus) == (10, 10)
    assert comparison.best.served == pytest.approx(10 / 12)
    assert comparison.best.cost == pytest.approx(10 * OWN_HOUR * 8760 + 2 * RENT_HOUR * 8760, rel=0.001)
    assert comparison.all_rented == pytest.approx(12 * RENT_HOUR * 8760, rel=0.001)
    assert comparison.all_owned == pytest.approx(30 * OWN_HOUR * 8760, rel=0.001)
    assert comparison.eighty.gpus == 10
    assert min(cost for _, cost in comparison.today.points) == pytest.approx(comparison.today.best_cost)


def test_a_newer_generation_is_counted_in_todays_speed() -> None:
    rent, own, new = quote("H100"), own_cost("H100", ()), quote("B200")
    assert rent is not None
    assert new is not None
    comparison = buy_or_rent([10.0] * 720, 16, rent, own, (new, own_cost("B200", ())))
    assert comparison.newer is not None
    assert comparison.newer.speed == pytest.approx(2.2, rel=0.01)
    assert comparison.newer.best_cost < comparison.today.best_cost


def test_where_owning_is_dearer_nothing_is_owned() -> None:
    assert HourlyLoad([5.0, 6.0]).best(1.0, 2.0) == 0.0


# --- pilot and flips --------------------------------------------------------------------------------------------------


def test_the_pilot_is_a_job_that_waits_and_can_leave() -> None:
    waits = [job(k, submit=20 * k, start=20 * k + 6, run=4, checkpoints=True) for k in range(4)]
    tied = [job(10 + k, submit=20 * k, start=20 * k + 9, run=4, key="b/tied", volumes=("scratch",)) for k in range(4)]
    short = [job(20 + k, submit=20 * k, start=20 * k + 1, run=0.1, key="c/short") for k in range(4)]
    report = assess(month([*waits, *tied, *short], gpus=16), DecisionOptions(own_cost=COST)).pilot
    assert [(template.key, template.fits) for template in report.ranked] == [
        ("a/train", True),
        ("b/tied", False),
        ("c/short", False),
    ]
    assert report.pilot is not None
    assert (report.pilot.candidate.end_to_end_h, report.pilot.gain_h) == pytest.approx((10, 6 - 5 / 60))
    assert report.pilot.cost_a_run == pytest.approx(8 * (4 + 5 / 60) * RENT_HOUR, rel=0.001)
    assert (report.pilot.wider.gpus, report.pilot.wider.run_h) == pytest.approx((32, 4 / 3.24))
    assert report.pilot.wider.source.startswith("a guess: 90 % of each doubling")


def test_of_two_equal_jobs_the_one_without_priority_over_others_goes_first() -> None:
    def runs(first: int, **more: Any) -> list[JobRecord]:
        return [job(first + k, submit=20 * k, start=20 * k + 6, run=4, **more) for k in range(4)]

    some = [*runs(0, key="a/nightly", priority="production"), *runs(10, key="b/sweep", priority="")]
    ranked = assess(month([*some, *runs(20, key="c/unread")], gpus=24), DecisionOptions(own_cost=COST)).pilot.ranked
    assert [candidate.key for candidate in ranked] == ["b/sweep", "a/nightly", "c/unread"]
    assert [candidate.points - ranked[2].points for candidate in ranked] == [1, 0, 0]
    assert "it has no priority over others: it is hardly critical" in ranked[0].reasons
    assert "its priority is production: ask whether it is critical" in ranked[1].reasons
    assert not any("priority" in reason for reason in ranked[2].reasons)


def test_runs_at_two_widths_tell_their_scaling() -> None:
    narrow = [job(k, submit=20 * k, start=20 * k + 1, run=8, gpus=4) for k in range(3)]
    wide = [job(9 + k, submit=20 * k, start=20 * k + 1, run=5, gpus=8) for k in range(3)]
    report = assess(month([*narrow, *wide], gpus=16), DecisionOptions(own_cost=COST)).pilot
    assert report.pilot is not None
    assert report.pilot.wider.source == "from its own runs on 4 and 8 GPUs: 80 % of each doubling is kept"


def test_without_recurring_jobs_there_is_no_pilot() -> None:
    report = assess(two_at_once(), DecisionOptions(own_cost=COST)).pilot
    assert (report.pilot, report.ranked) == (None, ())
    assert report.why_none.startswith("No job ran 3 times")


def test_crossings_are_where_the_line_is_zero() -> None:
    assert crossings([(0, -1), (1, 1), (2, 3), (3, -3)]) == pytest.approx([0.5, 2.5])
    assert crossings([(0, 1), (1, 2)]) == []


def test_the_cost_of_delay_flips_where_rent_equals_delay() -> None:
    assessment = assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="200", cap="10000000"))
    flip = assessment.decision.flips[0]
    burst, was = figures(assessment, "spot"), figures(assessment, AS_IT_WAS)
    assert flip.flips_at[0] == pytest.approx(burst.rent / (was.delay_h - burst.delay_h), rel=0.05)
    assert [one.here for one in assessment.decision.flips] == pytest.approx([200, RENT_HOUR, 8], rel=0.001)


def test_each_flip_says_which_way_is_better_beyond_it() -> None:
    assessment = assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="200", cap="10000000"))
    by_delay, by_rent, by_owned = assessment.decision.flips
    assert by_delay.beyond[0] == ("below", "As it was")
    assert by_rent.beyond == (("below", "All in the cloud"), ("above", "More GPUs bought"))
    assert len(by_owned.beyond) == len(by_owned.flips_at)
    assert "It flips at $20.88; below that, best: as it was." in page(assessment)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_nobody(generated: tuple[GeneratedMonth, Assessment]) -> None:
    text = page(generated[1], made_up=True)
    for head in ("What was seen", "Use:", "Waits", "Ways to have run", "Buy or rent", "Portability", "Pilot", "flip"):
        assert head in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert text.count("<svg") == text.count("</svg>")
    assert "style=" not in text


def test_the_page_says_how_much_was_seen_before_its_answer_and_what_the_answer_takes() -> None:
    text = page(assess(two_at_once(), DecisionOptions(own_cost=COST, cost_of_delay="200", cap="10000000", buy=64)))
    text = text.replace("\u00a0", " ")  # a number keeps to its unit
    seen = "Seen: 1 day of here. 2 jobs; 0 % of run times cut off. The wait is known of 2 of 2 jobs that ran (100 %)."
    answer = "Go: bursting costs less than the delay that it removes."
    takes = "That takes an hour of one job&#x27;s delay to cost $200.00, an assumption; the answer flips at $"
    assert 0 < text.index(seen) < text.index(answer) < text.index(takes) < text.index("<h2")
    assert "83 % of their hours allocated" in text


def test_use_is_drawn_by_day_and_by_hour_of_the_day(generated: tuple[GeneratedMonth, Assessment]) -> None:
    use = generated[1].report.use
    days = (generated[1].report.to_at - generated[1].report.from_at) / DAY
    first = use.by_hour_of_day[0]
    assert first.label == "00:00"
    text = page(generated[1])
    assert f"GPUs allocated by hour of the day: 00:00 {first.allocated / days:,.1f}; 03:00" in text
    assert "GPU-hours by day" in text
    assert "GPUs allocated by hour of the day" not in page(assess(two_at_once(), DecisionOptions(own_cost=COST)))


def test_names_of_jobs_are_escaped() -> None:
    """A name with the tag of a cell's second line in it once went to the page as it was."""
    names = ("<b>x", "<i>t", "<span class='why'><u>pay here")
    runs = [
        job(k, submit=20 * k, start=20 * k + 1, run=3, key=names[k % 3], team=names[1 + k % 2], id=f"{names[2]}{k}")
        for k in range(9)
    ]
    idle = [replace(run, idle_gpu_ms=8 * HOUR, measured_gpu_ms=24 * HOUR, used_gpu_ms=HOUR) for run in runs]
    text = page(assess(month(idle, days=8), DecisionOptions(own_cost=COST)))
    assert "pay here" in text
    for tag in ("<b>", "<i>", "<u>"):
        assert tag not in text
