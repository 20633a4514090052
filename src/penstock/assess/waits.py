"""The report's second part: who waited, how long and for what width; and demand above what is owned.

Demand is what would run at a moment if nothing had to wait: each job's GPUs from its submission on, for as long as it
ran. It needs no simulation, and no GPU is counted twice.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from penstock.assess.history import VAGUE_START, JobRecord, MonthHistory, OwnedGpus
from penstock.assess.join import hours_between
from penstock.assess.neighbours import NO_WAIT_MS, Neighbours, hides_its_wait
from penstock.assess.owned import OwnedSteps, most_at_once
from penstock.core.units import DAY, HOUR, NEVER, Instant, Millis
from penstock.core.values import value

MOST_NAMED: Final = 100
K = TypeVar("K", bound=Hashable)


@value
class WaitRow:
    """Waits of one team, or of one width."""

    label: str
    jobs: int
    waited: int  # longer than NO_WAIT_MS
    median_ms: Millis
    p95_ms: Millis
    sum_ms: Millis


@value
class WaitRange:
    """Where the true figure lies, as far as the jobs tell whose wait is not known."""

    low_ms: Millis
    high_ms: Millis | None  # None: it depends on jobs that are still queued, and nobody knows for how long


@value
class DemandReport:
    gpu_hours: float
    low_gpu_hours: float  # where the true demand lies, whatever cut runs, queued jobs and vague starts did
    high_gpu_hours: float
    peak_gpus: int
    peak_at: Instant
    owned_gpus: int  # at the end
    owned_is_known: bool  # False: the most GPUs seen at once stand in for them
    hours_above: float
    gpu_hours_above: float
    by_hour: tuple[tuple[Instant, float, int], ...]  # mean GPUs wanted, and owned
    by_day: tuple[tuple[str, float, float, int], ...]  # mean GPUs wanted, those of the busiest hour, hours above owned


@value
class WaitReport:
    all: WaitRow
    unknown: int  # jobs that ran and whose wait nobody knows
    queued: int  # jobs that still wait
    queued_ms: Millis  # and the longest of these waits so far
    median: WaitRange
    p95: WaitRange
    by_team: tuple[WaitRow, ...]
    by_width: tuple[WaitRow, ...]
    longest: tuple[tuple[str, str, int, Millis], ...]  # job, team, GPUs, wait
    demand: DemandReport

    @property
    def none_waited(self) -> bool:
        return self.all.waited == 0 and self.queued == 0 and self.all.jobs > 0


def waits_of(history: MonthHistory, day: Callable[[Instant], str] = lambda at: f"day {at // DAY + 1}") -> WaitReport:
    """`day`: an instant's day, as people name it."""
    ran = [job for job in history.jobs if job.started_at is not None and job.started_at >= history.from_at]
    known = [(job, wait) for job in ran if (wait := job.wait_ms) is not None]
    unknown = sum(job.wait_ms is None and not _goes_on_elsewhere(job) for job in ran)
    queued = [job for job in history.jobs if job.outcome == "queued" and job.submitted_at is not None]
    still = [max(0, history.to_at - (job.submitted_at or 0)) for job in queued]
    waits = sorted(wait for _, wait in known)
    return WaitReport(
        all=_row("all", waits),
        unknown=unknown,
        queued=len(queued),
        queued_ms=max(still, default=0),
        median=_range(waits, unknown, still, 500),
        p95=_range(waits, unknown, still, 950),
        by_team=_by(known, lambda job: job.team),
        by_width=tuple(sorted(_by(known, lambda job: job.gpus), key=lambda row: int(row.label))),
        longest=_longest(known),
        demand=demand_of(history, day),
    )


def _goes_on_elsewhere(job: JobRecord) -> bool:
    """A later attempt of a job whose wait is known: it was preempted or moved, and did not wait from a submission."""
    return job.started_by == "journal" and job.submitted_at is None


def _row(label: str, waits: Sequence[Millis]) -> WaitRow:
    """`waits` are sorted."""
    waited = sum(wait > NO_WAIT_MS for wait in waits)
    return WaitRow(label, len(waits), waited, quantile(waits, 500), quantile(waits, 950), sum(waits))


def _by(known: Iterable[tuple[JobRecord, Millis]], key: Callable[[JobRecord], K]) -> tuple[WaitRow, ...]:
    groups: dict[K, list[Millis]] = defaultdict(list)
    for job, wait in known:
        groups[key(job)].append(wait)
    rows = [_row(str(label), sorted(waits)) for label, waits in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.sum_ms, row.label)))


def _longest(known: Iterable[tuple[JobRecord, Millis]]) -> tuple[tuple[str, str, int, Millis], ...]:
    rows = sorted(((job.id, job.team, job.gpus, wait) for job, wait in known if wait > NO_WAIT_MS), key=lambda r: -r[3])
    return tuple(rows[:MOST_NAMED])


def quantile(waits: Sequence[Millis], permille: int) -> Millis:
    """The nearest rank of sorted waits; 0 if there are none."""
    return waits[max(0, -(-len(waits) * permille // 1000) - 1)] if waits else 0


def _range(waits: Sequence[Millis], unknown: int, still: Sequence[Millis], permille: int) -> WaitRange:
    """Low: the unknown ones did not wait, and queued jobs start now. High: the unknown ones waited as long as the
    longest that is known, or nobody knows how long if none is; and queued jobs wait for ever.
    """
    worst = max([*waits[-1:], *still], default=NEVER)
    low = quantile(sorted([*waits, *[0] * unknown, *still]), permille)
    high = quantile([*waits, *[worst] * unknown, *[NEVER] * len(still)], permille)
    return WaitRange(low, None if high == NEVER else high)


# --- demand -----------------------------------------------------------------------------------------------------------


def demand_of(history: MonthHistory, day: Callable[[Instant], str]) -> DemandReport:
    neighbours = Neighbours(history.jobs)
    wanted = [span for job in history.jobs if (span := _wanted(job, history, neighbours)) is not None]
    known = bool(history.owned)
    owned = OwnedSteps(history.owned if known else [OwnedGpus(0, most_at_once(history.jobs))])
    turns: Counter[Instant] = Counter()
    for at, end, gpus in wanted:
        turns[at] += gpus
        turns[end] -= gpus
    peak, peak_at, held, above_ms, above_gpu_ms = 0, history.from_at, 0, 0, 0
    moments = sorted({*turns, *owned.changes(history.from_at, history.to_at), history.from_at, history.to_at})
    for at, until in pairwise(moments):
        held += turns[at]
        if held > peak:
            peak, peak_at = held, at
        beyond = held - owned.at(at)
        if beyond > 0:
            above_ms += until - at
            above_gpu_ms += beyond * (until - at)
    by_hour = tuple(_by_hour(wanted, history, owned))
    bounds = [_bounds(job, history, neighbours) for job in history.jobs]
    return DemandReport(
        gpu_hours=sum((end - at) * gpus for at, end, gpus in wanted) / HOUR,
        low_gpu_hours=sum(low for low, _ in bounds) / HOUR,
        high_gpu_hours=sum(high for _, high in bounds) / HOUR,
        peak_gpus=peak,
        peak_at=peak_at,
        owned_gpus=owned.at(history.to_at),
        owned_is_known=known,
        hours_above=above_ms / HOUR,
        gpu_hours_above=above_gpu_ms / HOUR,
        by_hour=by_hour,
        by_day=tuple(_by_day(by_hour, day)),
    )


def _wanted(job: JobRecord, history: MonthHistory, neighbours: Neighbours) -> tuple[Instant, Instant, int] | None:
    """When it would have run without a wait, within the month. None: it never ran, so nobody knows for how long."""
    run_ms = job.run_ms
    if run_ms is None or job.started_at is None:
        return None
    begin = job.started_at - (job.wait_ms or 0)
    if hides_its_wait(job):
        run_ms -= neighbours.start(job) - job.started_at
    at, end = max(begin, history.from_at), min(begin + run_ms, history.to_at)
    return (at, end, job.gpus) if at < end else None


def _bounds(job: JobRecord, history: MonthHistory, neighbours: Neighbours) -> tuple[Millis, Millis]:
    """GPU time that it wanted within the month: the least and the most that it can have been."""
    span = _wanted(job, history, neighbours)
    if span is None:
        waits = job.outcome == "queued" and job.submitted_at is not None
        return 0, job.gpus * max(0, history.to_at - max(job.submitted_at or 0, history.from_at)) if waits else 0
    at, end, gpus = span
    if (job.started_by in VAGUE_START and not job.counts_from_submission) or job.cut in ("start", "both"):
        ended_at = history.to_at if job.cut == "both" else min(job.ended_at or 0, history.to_at)
        return 0, gpus * max(end - at, ended_at - at)  # it started at some time before its end
    if job.wait_ms is None and job.submitted_at is None:
        least = gpus * (end - at) if at > history.from_at else 0  # without its wait it may lie before the month
        return least, gpus * max(end - at, min(job.run_ms or 0, history.span_ms))
    return gpus * (end - at), gpus * ((history.to_at if job.cut else end) - at)


def _by_hour(
    wanted: Iterable[tuple[Instant, Instant, int]], history: MonthHistory, owned: OwnedSteps
) -> Iterable[tuple[Instant, float, int]]:
    sums: Counter[Instant] = Counter()
    for at, end, gpus in wanted:
        for hour, ms in hours_between(at, end):
            sums[hour] += ms * gpus
    for hour in range(history.from_at // HOUR * HOUR, history.to_at, HOUR):
        yield hour, sums[hour] / HOUR, owned.at(hour)


def _by_day(
    by_hour: Iterable[tuple[Instant, float, int]], day: Callable[[Instant], str]
) -> Iterable[tuple[str, float, float, int]]:
    days: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for at, gpus, owned in by_hour:
        days[day(at)].append((gpus, owned))
    for label, hours in days.items():
        wanted = [gpus for gpus, _ in hours]
        yield label, sum(wanted) / len(wanted), max(wanted), sum(gpus > owned for gpus, owned in hours)
