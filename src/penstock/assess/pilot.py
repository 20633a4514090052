"""The report's sixth part: which recurring job to burst first, what that would cost and gain, and the same run wider.

A candidate is a job that ran at least three times. Points for what makes a burst easy and worth it; each point has its
reason, and what nobody knows gives none.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log2, sqrt
from statistics import mean, median
from typing import Final

from penstock.assess.history import JobRecord, MonthHistory
from penstock.assess.replay import RESTART_MS
from penstock.core.units import DAY, HOUR, MICRO, Millis, Money
from penstock.core.values import value

LEAST_RUNS: Final = 3
MOST_NAMED: Final = 12
WIDER: Final = 4  #: times as wide
EFFICIENCY: Final = 0.9  #: of each doubling, where a job's own runs do not show it
LEAST_RUN_MS: Final = 30 * 60_000  #: shorter runs are not worth a node's start
SHORT_WAIT_MS: Final = 10 * 60_000


@value
class WiderRun:
    """The same work on more GPUs."""

    gpus: int
    run_h: float
    cost: float
    speed_up: float
    source: str


@value
class PilotCandidate:
    """One recurring job. Run times are medians over its runs, waits are means."""

    key: str
    team: str
    gpus: int
    runs: int
    run_h: float
    wait_h: float | None  # None: nobody knows how long it waited
    p95_wait_h: float | None
    end_to_end_h: float
    gpu_hours: float
    points: int
    reasons: tuple[str, ...]  # for and against, each with its number
    fits: bool  # nothing known speaks against it


@value
class Pilot:
    """The one to begin with: baseline, and what a burst costs and gains for each run."""

    candidate: PilotCandidate
    cost_a_run: float
    cost_a_month: float
    gain_h: float  # sooner done, for each run
    after_h: float  # submission to end, burst at once
    wider: WiderRun
    success: str  # by what to judge it


@value
class PilotReport:
    ranked: tuple[PilotCandidate, ...]
    pilot: Pilot | None
    why_none: str
    recurring: int


def pilot_of(history: MonthHistory, tied: frozenset[str], gpu_hour: Money, read: bool) -> PilotReport:
    """`tied`: keys of jobs that cannot leave. `read`: whether manifests were read at all."""
    groups = _groups(history.jobs)
    ranked = sorted(
        (_candidate(key, runs, history, tied, read) for key, runs in groups.items()),
        key=lambda candidate: (not candidate.fits, -candidate.points, -candidate.gpu_hours, candidate.key),
    )
    fitting = [candidate for candidate in ranked if candidate.fits]
    chosen = fitting[0] if fitting else None
    return PilotReport(
        ranked=tuple(ranked[:MOST_NAMED]),
        pilot=None if chosen is None else _pilot(chosen, groups[chosen.key], history.span_ms, gpu_hour),
        why_none=_why_none(ranked),
        recurring=len(groups),
    )


def _groups(jobs: Sequence[JobRecord]) -> dict[str, list[JobRecord]]:
    groups: dict[str, list[JobRecord]] = defaultdict(list)
    for job in jobs:
        if job.key and (job.run_ms or 0) > 0:
            groups[job.key].append(job)
    return {key: runs for key, runs in groups.items() if len(runs) >= LEAST_RUNS}


def _candidate(
    key: str, runs: Sequence[JobRecord], history: MonthHistory, tied: frozenset[str], read: bool
) -> PilotCandidate:
    waits = sorted(wait for job in runs if (wait := job.wait_ms) is not None)
    run_ms = int(median(job.run_ms or 0 for job in runs))
    wait_ms = int(mean(waits)) if waits else None  # a mean: most runs may start at once, and some wait for a day
    judged = list(_judged(key, runs, run_ms, wait_ms, history, tied, read))
    return PilotCandidate(
        key=key,
        team=runs[-1].team,
        gpus=int(median(job.gpus for job in runs)),
        runs=len(runs),
        run_h=run_ms / HOUR,
        wait_h=None if wait_ms is None else wait_ms / HOUR,
        p95_wait_h=waits[max(0, -(-len(waits) * 95 // 100) - 1)] / HOUR if waits else None,
        end_to_end_h=(run_ms + (wait_ms or 0)) / HOUR,
        gpu_hours=sum(job.gpus * (job.run_ms or 0) for job in runs) / HOUR,
        points=sum(points for points, _ in judged),
        reasons=tuple(reason for _, reason in judged),
        fits=all(points >= 0 for points, _ in judged),
    )


def _judged(
    key: str,
    runs: Sequence[JobRecord],
    run_ms: Millis,
    wait_ms: Millis | None,
    history: MonthHistory,
    tied: frozenset[str],
    read: bool,
) -> Iterator[tuple[int, str]]:
    """Points and their reason; a negative one excludes."""
    if wait_ms is None:
        yield 0, "nobody knows how long it waited"
    elif wait_ms < SHORT_WAIT_MS:
        yield 0, "it hardly waits: there is little to gain"
    else:
        hours = wait_ms / HOUR
        yield min(4, 1 + int(2 * sqrt(hours))), f"it waits {hours:.1f} h (mean)"
    if run_ms < LEAST_RUN_MS:
        yield -1, f"it runs {run_ms / 60_000:.0f} min: too short for a rented node's start"
    elif run_ms >= 2 * HOUR:
        yield 1, f"it runs {run_ms / HOUR:.1f} h: five minutes for a node's start do not matter"
    varies = _variation(runs, history)
    if varies >= 1.0:
        yield 2, f"its demand varies (by {varies:.1f} times its mean from day to day)"
    if any(job.checkpoints for job in runs):
        yield 2, "it writes checkpoints: preemption costs it minutes"
    elif any(job.checkpoints is False for job in runs):
        yield 0, "no checkpoints were seen: rent it on demand, not as spot"
    priorities = {job.priority for job in runs if job.priority is not None}
    if named := sorted(priorities - {""}):
        yield 0, f"its priority is {named[0]}: ask whether it is critical"
    elif priorities:
        yield 1, "it has no priority over others: it is hardly critical"
    if key in tied:
        yield -1, "it cannot run elsewhere as it is (portability)"
    elif any(job.volumes for job in runs):
        yield -1, f"it mounts volume {next(job.volumes[0] for job in runs if job.volumes)}"
    elif read:
        yield 2, "nothing it refers to keeps it at home"
    if any(job.data for job in runs):
        yield -1 if any(len(job.data or ()) > 2 for job in runs) else 0, "it reads data sets that would have to move"
    failed = sum(job.outcome == "failed" for job in runs)
    if failed * 3 > len(runs):
        yield 0, f"{failed} of {len(runs)} runs failed: a poor baseline"
    elif len(runs) >= 10:
        yield 1, f"{len(runs)} runs: a firm baseline"


def _variation(runs: Sequence[JobRecord], history: MonthHistory) -> float:
    """Standard deviation of GPU-hours a day, over their mean."""
    days = max(1, -(-history.span_ms // DAY))
    sums = [0.0] * days
    for job in runs:
        at = job.submitted_at if job.submitted_at is not None else job.started_at or history.from_at
        sums[min(days - 1, max(0, (at - history.from_at) // DAY))] += job.gpus * (job.run_ms or 0)
    usual = mean(sums)
    return sqrt(mean((amount - usual) ** 2 for amount in sums)) / usual if usual else 0.0


def _pilot(candidate: PilotCandidate, runs: Sequence[JobRecord], span_ms: Millis, gpu_hour: Money) -> Pilot:
    start_h = RESTART_MS / HOUR
    cost = candidate.gpus * (candidate.run_h + start_h) * gpu_hour / MICRO
    after = candidate.run_h + start_h
    a_month = len(runs) * 30 * DAY / span_ms
    return Pilot(
        candidate=candidate,
        cost_a_run=cost,
        cost_a_month=cost * a_month,
        gain_h=max(0.0, candidate.end_to_end_h - after),
        after_h=after,
        wider=_wider(candidate, runs, gpu_hour, start_h),
        success=(
            f"done within {after:.1f} h of submission instead of {candidate.end_to_end_h:.1f} h, at no more than"
            f" the cost above, over {max(5, LEAST_RUNS)} runs."
        ),
    )


def _wider(candidate: PilotCandidate, runs: Sequence[JobRecord], gpu_hour: Money, start_h: float) -> WiderRun:
    gpus = candidate.gpus * WIDER
    kept, source = _scaling(runs)
    speed_up = WIDER * kept ** log2(WIDER)
    run_h = candidate.run_h / speed_up
    return WiderRun(gpus, run_h, gpus * (run_h + start_h) * gpu_hour / MICRO, speed_up, source)


def _scaling(runs: Sequence[JobRecord]) -> tuple[float, str]:
    """Efficiency of a doubling: from runs at two widths if there are three of each, else a stated guess."""
    widths: dict[int, list[Millis]] = defaultdict(list)
    for job in runs:
        widths[job.gpus].append(job.run_ms or 1)
    known = _known(widths)
    if len(known) < 2:
        return EFFICIENCY, f"a guess: {EFFICIENCY:.0%} of each doubling is kept".replace("%", " %")
    narrow, wide = known[0], known[-1]
    ratio = (known_ms(widths, narrow) / known_ms(widths, wide)) / (wide / narrow)
    kept = min(1.0, max(0.5, ratio ** (1 / log2(wide / narrow))))
    return kept, f"from its own runs on {narrow} and {wide} GPUs: {kept:.0%} of each doubling is kept".replace(
        "%", " %"
    )


def _known(widths: Mapping[int, Sequence[Millis]]) -> list[int]:
    return sorted(width for width, times in widths.items() if len(times) >= LEAST_RUNS)


def known_ms(widths: Mapping[int, Sequence[Millis]], width: int) -> float:
    return float(median(widths[width]))


def _why_none(ranked: Sequence[PilotCandidate]) -> str:
    if not ranked:
        return f"No job ran {LEAST_RUNS} times under one name or template, so there is no baseline to compare with."
    return "Something speaks against each recurring job; the table on the page says what."
