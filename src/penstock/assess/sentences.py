"""The report in sentences, each with its numbers. What is not known is said as such. `penstock assess` prints them, and
they are in its JSON.
"""

from collections.abc import Iterator, Sequence

from penstock.assess.coming import ComingHour
from penstock.assess.history import Coverage, Disagreement
from penstock.assess.neighbours import NO_WAIT_MS
from penstock.assess.report import AssessReport
from penstock.assess.use import IDLE_WORDS
from penstock.assess.waits import WaitRange
from penstock.core.units import DAY, HOUR
from penstock.formatting import count, duration, instant, money


def not_seen(report: AssessReport) -> list[str]:
    """What could not be seen, and how sure the rest is: the first thing that the report says."""
    return [*how_sure(report), *details(report)]


def how_sure(report: AssessReport) -> list[str]:
    """The same in short: how much was seen, and of what nothing is known. It stands above the answer."""
    return list(_how_sure(report))


def _how_sure(report: AssessReport) -> Iterator[str]:
    spans = ", ".join(f"{_span(cover)} of {cover.source}" for cover in report.sources)
    yield f"Seen: {spans}. {count(report.jobs, 'job')}; {_share(report.cut, report.ran)} of run times cut off."
    waits = report.waits
    ran = waits.all.jobs + waits.unknown
    if ran:
        known = waits.all.jobs
        yield f"The wait is known of {known:,} of {count(ran, 'job')} that ran ({_share(known, ran)})."
    total = report.use.total
    if total.measured:
        yield f"Use was measured over {_share(total.measured, total.allocated)} of the allocated GPU time."
    else:
        yield "How the allocated GPUs were used is not known: no source measured it."
    if waits.demand.owned_is_known:
        yield f"{count(waits.demand.owned_gpus, 'owned GPU')}, by {report.owned_by}."
    else:
        yield (
            f"No source says how many GPUs are owned. The most seen in use at once, {waits.demand.owned_gpus:,}, stands"
            " in for them; --owned-gpus says how many there are."
        )


def details(report: AssessReport) -> list[str]:
    """What each source could not tell, and where two differ."""
    return list(_details(report))


def _details(report: AssessReport) -> Iterator[str]:
    for cover in report.sources:
        yield from (f"{cover.source}: {words}" for words in cover.missing)
        if cover.left_out:
            left = ", ".join(f"{number:,} × {why}" for why, number in cover.left_out)
            yield f"{cover.source}: left out {left}."
    yield from (_disagreement(row) for row in report.disagreements)


def use(report: AssessReport) -> list[str]:
    return list(_use(report))


def _use(report: AssessReport) -> Iterator[str]:
    total, used = report.use.total, report.use.total.used_share
    owned = report.use.owned_gpu_hours
    of_owned = f", {_share(total.allocated, owned)} of the owned {owned:,.0f}" if owned else ""
    yield f"{total.allocated:,.0f} GPU-hours were allocated{of_owned}."
    by_hour, days = report.use.by_hour_of_day, max(1.0, _length(report) / DAY)
    if len(by_hour) == DAY // HOUR:
        most, least = (pick(by_hour, key=lambda row: row.allocated) for pick in (max, min))
        yield (
            f"Most were allocated at {most.label} ({most.allocated / days:,.1f} GPUs on average), fewest at"
            f" {least.label} ({least.allocated / days:,.1f})."
        )
    if used is None:
        yield "How much of them was used is not known."
        return
    yield f"Of the {total.measured:,.0f} measured, {total.used:,.0f} were used: {used:.0%}.".replace("%", " %")
    assumed = ", an assumption that --gpu-hour replaces" if report.gpu_hour_is_assumed else ""
    price = f"{money(report.gpu_hour, report.currency)} a GPU-hour{assumed}"
    idle = report.use
    if not idle.idle_jobs:
        yield f"No allocation was idle ({IDLE_WORDS})."
        return
    yield (
        f"{count(idle.idle_jobs, 'job')} held GPUs that were idle ({IDLE_WORDS}): {idle.idle_gpu_hours:,.0f} GPU-hours,"
        f" {money(idle.idle_cost, report.currency)} at {price}."
    )


def waits(report: AssessReport) -> list[str]:
    return list(_waits(report))


def _waits(report: AssessReport) -> Iterator[str]:
    waited = report.waits
    if not waited.all.jobs:
        yield "No wait is known."
    elif waited.none_waited:
        yield (
            f"A month without a wait: 0 of {count(waited.all.jobs, 'job')} whose wait is known waited longer than"
            f" {duration(NO_WAIT_MS)}. For the sake of waits nothing needs to change."
        )
    else:
        yield (
            f"{waited.all.waited:,} of {count(waited.all.jobs, 'job')} waited longer than {duration(NO_WAIT_MS)}."
            f" Median {_time(waited.all.median_ms)}, p95 {_time(waited.all.p95_ms)}, {waited.all.sum_ms / HOUR:,.0f} h"
            " in all."
        )
    if waited.queued or (waited.unknown and waited.all.jobs):
        unknown = [count(waited.unknown, "job") + " of unknown wait"] if waited.unknown else []
        queued = [count(waited.queued, "job") + " still queued"] if waited.queued else []
        yield (
            f"With {' and '.join(unknown + queued)}, the median is {_between(waited.median)}, and p95"
            f" {_between(waited.p95)}."
        )
    if waited.queued:
        yield f"{count(waited.queued, 'job')} had not started at the end, the oldest after {_time(waited.queued_ms)}."
    yield from _demand(report)


def _demand(report: AssessReport) -> Iterator[str]:
    demand = report.waits.demand
    when = instant(demand.peak_at)
    yield f"Demand: {demand.gpu_hours:,.0f} GPU-hours; at its peak {count(demand.peak_gpus, 'GPU')}, {when}."
    if round(demand.low_gpu_hours) < round(demand.high_gpu_hours):
        yield (
            f"It lies between {demand.low_gpu_hours:,.0f} and {demand.high_gpu_hours:,.0f} GPU-hours, whatever cut"
            " runs, queued jobs and jobs of unknown start did."
        )
    gpus = f"the {count(demand.owned_gpus, 'owned GPU')}" if demand.owned_is_known else f"{demand.owned_gpus:,} GPUs"
    if demand.hours_above:
        yield (
            f"It was above {gpus} for {demand.hours_above:,.0f} h ({_share(demand.hours_above * HOUR, _length(report))}"
            f" of the time), by {demand.gpu_hours_above:,.0f} GPU-hours in all."
        )
    else:
        yield f"It was never above {gpus}."


def coming(report: AssessReport) -> list[str]:
    return list(_coming(report))


def _coming(report: AssessReport) -> Iterator[str]:
    demand = report.coming
    if not demand.hours:
        yield f"No forecast: {demand.why_none}."
        return
    mean = round(sum(hour.p50 for hour in demand.hours) / len(demand.hours))
    busiest = max(demand.hours, key=lambda hour: hour.p50)
    yield (
        f"The next {len(demand.hours)} hours, from {instant(demand.hours[0].at)} on: {count(mean, 'GPU')} wanted"
        f" on average. Busiest is {instant(busiest.at)}, with {count(round(busiest.p50), 'GPU')} (P50), or"
        f" {busiest.p10:,.0f} to {busiest.p90:,.0f} (P10 to P90)."
    )
    likely, possible = (sum(hour > demand.owned_gpus for hour in hours) for hours in _levels(demand.hours))
    yield (
        f"More than the {count(demand.owned_gpus, 'GPU')} of today are wanted in {likely:,} of these hours at P50, and"
        f" in {possible:,} at P90."
    )
    yield (
        f"It repeats what is usual at each hour of the day, by {demand.known_hours:,} hours of this month, and knows"
        " nothing of holidays, deadlines or plans."
    )
    if demand.checked:
        yield (
            f"Made at earlier moments of this month, up to three days ahead, its P90 was not exceeded in"
            f" {_share(demand.held, demand.checked)} of {demand.checked:,} hours; 90 % would be right."
        )


def _levels(hours: Sequence[ComingHour]) -> tuple[list[float], list[float]]:
    return [hour.p50 for hour in hours], [hour.p90 for hour in hours]


def _length(report: AssessReport) -> int:
    return max(1, report.to_at - report.from_at)


def _span(cover: Coverage) -> str:
    if cover.from_at is None or cover.to_at is None:
        return "nothing"
    length = cover.to_at - cover.from_at
    return count(round(length / DAY), "day") if length >= DAY else f"{length / HOUR:.0f} h"


def _disagreement(row: Disagreement) -> str:
    if row.field == "owned GPUs":
        return f"{row.kept} and {row.other} differ by {row.worst:,} owned GPUs; the first is used."
    apart = f"by up to {row.worst:,} GPUs" if row.field == "gpus" else f"by up to {_time(row.worst)}"
    aspect = "in width" if row.field == "gpus" else f"on when a job {row.field}"
    jobs = f"{count(row.count, 'job')}, {apart} ({row.example})"
    return f"{row.kept} and {row.other} differ {aspect} for {jobs}; the first is used."


def _between(ends: WaitRange) -> str:
    if ends.high_ms is None:
        return f"at least {_time(ends.low_ms)}"
    if ends.low_ms == ends.high_ms:
        return _time(ends.low_ms)
    return f"between {_time(ends.low_ms)} and {_time(ends.high_ms)}"


def _time(ms: int) -> str:
    return duration(ms) if ms else "0 s"


def _share(part: float, whole: float | None) -> str:
    """A part as people say it; small ones are not rounded to nothing."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"
