"""A journal's jobs as a trace: when each was submitted, what it asked for, and how long it ran. `policy diff` replays
them under another policy.

A job that ended by itself has a true run time. One that was still running, queued, cancelled or refused has none: its
run time is estimated by the engine's own life table, or drawn from the jobs that ended, and named in `estimated`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.fold.runtimes import LifeTable
from penstock.core.model.types import DataSet, NodeShape, Site
from penstock.core.units import DAY, Instant, Millis
from penstock.core.values import value
from penstock.sim.analysis.journal_fold import JobLife, Unknown, fold
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.simulator import MONTH_MS
from penstock.sim.traces.trace import TraceJob

CANCELLED_EARLY: Final = "cancelled before they ran"
NEVER_TAKEN: Final = "failed before they ran"


@value
class History:
    """What a journal knows of its jobs, and of the sites where they ran.

    Instants count from `zero`, so that a simulated month begins with the month of the first job, on the same day of the
    week, and the time of day is what it was in UTC. Hours of a policy then mean what they meant, but for summer time.
    """

    jobs: tuple[TraceJob, ...]  # run time: the true one, or the least that it can be
    estimated: Mapping[str, Unknown]
    left_out: Mapping[str, int]
    sites: tuple[Site, ...]
    data: tuple[DataSet, ...]
    currency: str
    zero: Instant


def history(rows: Iterable[Any], where: str) -> History:
    """Fold the rows of a journal. A journal without a job that can be used is one `BadInput`."""
    folded = fold(rows)
    left_out: dict[str, int] = {}
    kept: list[JobLife] = []
    for life in folded.lives.values():
        early = _left_out(life)
        if early:
            left_out[early] = left_out.get(early, 0) + 1
        else:
            kept.append(life)
    if not kept:
        raise BadInput(f"{where} holds no job that ran or still could; there is nothing to compare.")
    zero = _zero(folded.periods, min(life.submitted_at for life in kept))
    kept.sort(key=lambda life: life.submitted_at)
    return History(
        jobs=tuple(_job(life, zero, folded.last_at) for life in kept),
        estimated={life.id: life.fate for life in kept if life.fate != "ended" and life.fate != "never taken"},
        left_out=left_out,
        sites=tuple(_counted(site, folded.nodes) for site in folded.sites.values()),
        data=tuple(folded.data.values()),
        currency=folded.currency,
        zero=zero,
    )


def _left_out(life: JobLife) -> str:
    if life.fate == "cancelled" and not life.runs:
        return CANCELLED_EARLY
    return NEVER_TAKEN if life.fate == "never taken" else ""


def _zero(periods: Iterable[tuple[Instant, Instant]], first_at: Instant) -> Instant:
    begun = [starts_at for starts_at, ends_at in periods if starts_at <= first_at < ends_at]
    day = max(begun, default=first_at) // DAY
    months = next(k for k in range(7) if (k * MONTH_MS // DAY - day) % 7 == 0)
    return day * DAY - months * MONTH_MS


def _job(life: JobLife, zero: Instant, last_at: Instant) -> TraceJob:
    """The members of an array end apart, so each is a job of its own."""
    spec = life.spec if life.spec.count == 1 else replace(life.spec, count=1)
    if spec.deadline_at is not None:
        spec = replace(spec, deadline_at=spec.deadline_at - zero)
    return TraceJob(life.id, life.submitted_at - zero, max(1, life.done_at(last_at)), spec)


def _counted(site: Site, nodes: Mapping[str, tuple[tuple[str, int], ...]]) -> Site:
    """Where a cluster says how many nodes there are, as many as it said last."""
    offers = [
        replace(offer, shapes=tuple(_with_count(shape, nodes[offer.id]) for shape in offer.shapes))
        if offer.id in nodes
        else offer
        for offer in site.offers
    ]
    return replace(site, offers=tuple(offers))


def _with_count(shape: NodeShape, nodes: tuple[tuple[str, int], ...]) -> NodeShape:
    return shape if shape.count is not None else replace(shape, count=sum(gpus == shape.gpus for _, gpus in nodes))


# --- run times that nobody knows --------------------------------------------------------------------------------------


def estimated_jobs(month: History, seed: int = 0) -> tuple[TraceJob, ...]:
    """The jobs with a run time each. Seed 0: the expected one; others draw it from jobs that ended, keyed by job.

    A job that a person cancelled runs as long as it was let, and a declared run time is believed.
    """
    if not month.estimated:
        return month.jobs
    table = LifeTable()
    by_width: dict[int, list[Millis]] = {}
    for job in month.jobs:
        if job.id not in month.estimated:
            table.learn(job.spec, job.run_ms)
            by_width.setdefault(job.spec.gpus, []).append(job.run_ms)
    for ended in by_width.values():
        ended.sort()
    return tuple(
        replace(job, run_ms=_estimate(job, table, by_width.get(job.spec.gpus, []), seed))
        if month.estimated.get(job.id, "cancelled") != "cancelled"
        else job
        for job in month.jobs
    )


def _estimate(job: TraceJob, table: LifeTable, ended: list[Millis], seed: int) -> Millis:
    longer = bisect_right(ended, job.run_ms)
    if seed == 0 or longer == len(ended):
        return job.run_ms + max(1, table.remaining(job.spec, job.run_ms))
    return ended[longer + int(uniform(seed, "run time", job.id) * (len(ended) - longer))]
