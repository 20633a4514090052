"""Follows a pilot: the same figures of one recurring job before and after it began to burst, and a verdict with its
spread. `penstock pilot` calls it; `pilot` is the part of the report that chooses the job.

Each figure is a mean over runs. Its change has an interval of 90 % from a bootstrap over the runs. What the runs cannot
show is said: too few runs, and no clear difference, are answers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import sqrt
from random import Random
from statistics import fmean
from typing import Final, Literal, TypeAlias

from penstock.assess.history import JobRecord, MonthHistory
from penstock.core.units import HOUR, MICRO, Instant, Millis, Money
from penstock.core.values import value
from penstock.formatting import count, duration, instant, money

LEAST_RUNS: Final = 5  #: before and after; fewer say nothing
RESAMPLES: Final = 2_000
OUTSIDE: Final = 0.05  #: of the resamples, at each end of the interval
FAILED, NOT_ENDED, NO_SUBMISSION = "failed or cancelled", "not ended", "without a known submission"
Change: TypeAlias = Literal["lower", "higher", "no clear difference", "too few runs"]
PilotAnswer: TypeAlias = Literal["worth it", "not worth it", "no clear difference", "too few runs"]


@value
class PilotRun:
    """One run of the job that ended well, with all its attempts."""

    id: str
    submitted_at: Instant
    wait_ms: Millis | None  # None: nobody knows
    to_model_ms: Millis  # submission to end
    owned_gpu_ms: Millis
    rented_gpu_ms: Millis


@value
class PilotRuns:
    """What was seen of the job in a span of time."""

    source: str
    runs: tuple[PilotRun, ...]
    left_out: tuple[tuple[str, int], ...] = ()  # by reason
    knows_rented: bool = False  # whether the source tells which runs were rented


@value
class PilotStart:
    """What `pilot start` records. Amounts are of one GPU-hour, and of an hour of one run's delay."""

    job: str  # its `JobRecord.key`
    started_at: Instant  # runs submitted from here on are the pilot's
    calendar: bool
    currency: str
    own_gpu_hour: Money
    rent_gpu_hour: Money
    cost_of_delay: Money
    before: PilotRuns
    version: Literal[1] = 1


@value
class RunSpread:
    """One figure over the runs of one side: hours, or units of the currency."""

    runs: int
    mean: float
    p10: float
    p90: float


@value
class PilotFigure:
    """One figure before and after. The interval is of the change of the mean; None: there are too few runs."""

    name: str
    before: RunSpread | None
    after: RunSpread | None
    change: float | None
    low: float | None
    high: float | None
    verdict: Change


@value
class PilotOutcome:
    job: str
    started_at: Instant
    currency: str
    wait_h: PilotFigure
    to_model_h: PilotFigure
    cost: PilotFigure
    total: PilotFigure  # the cost of a run, and of the hours until its end at the cost of delay
    left_out_before: tuple[tuple[str, int], ...]
    left_out_after: tuple[tuple[str, int], ...]
    answer: PilotAnswer
    says: tuple[str, ...]


def follow(start: PilotStart, after: PilotRuns) -> PilotOutcome:
    """Where a source does not tell which runs were rented, all since the start count as such: the dearer end."""
    since = after.runs if after.knows_rented else tuple(map(_all_rented, after.runs))
    figure = _Figures(start.before.runs, since)
    total = figure.of("total", lambda run: _cost(run, start) + start.cost_of_delay * run.to_model_ms / HOUR / MICRO)
    outcome = PilotOutcome(
        job=start.job,
        started_at=start.started_at,
        currency=start.currency,
        wait_h=figure.of("wait", lambda run: None if run.wait_ms is None else run.wait_ms / HOUR),
        to_model_h=figure.of("time to model", lambda run: run.to_model_ms / HOUR),
        cost=figure.of("cost of a run", lambda run: _cost(run, start)),
        total=total,
        left_out_before=start.before.left_out,
        left_out_after=after.left_out,
        answer=ANSWERS[total.verdict],
        says=(),
    )
    return replace(outcome, says=tuple(_says(outcome, start, after)))


ANSWERS: Final[dict[Change, PilotAnswer]] = {
    "lower": "worth it",
    "higher": "not worth it",
    "no clear difference": "no clear difference",
    "too few runs": "too few runs",
}


# --- runs of one job --------------------------------------------------------------------------------------------------


def runs_of(history: MonthHistory, job: str, source: str, from_at: Instant | None, to_at: Instant | None) -> PilotRuns:
    """Those submitted in this span. Attempts of one run count together."""
    left_out = Counter[str]()
    runs = []
    for attempts in _together(record for record in history.jobs if record.key == job):
        at = attempts[0].submitted_at
        if at is None:
            left_out[NO_SUBMISSION] += 1
        elif (from_at is None or at >= from_at) and (to_at is None or at < to_at):
            why = _not_counted(attempts[-1])
            if why:
                left_out[why] += 1
            else:
                runs.append(_run(attempts, at))
    knows = any(record.started_by == "journal" for record in history.jobs)
    return PilotRuns(source, tuple(runs), tuple(sorted(left_out.items())), knows)


def _together(records: Iterable[JobRecord]) -> list[list[JobRecord]]:
    """A journal's later attempts have no submission of their own: they follow the job's first."""
    by_job: dict[str, list[JobRecord]] = {}
    for record in records:
        is_later = record.started_by == "journal" and record.submitted_at is None
        by_job.setdefault(record.id.rpartition("#")[0] if is_later else record.id, []).append(record)
    return [sorted(attempts, key=lambda attempt: attempt.started_at or 0) for attempts in by_job.values()]


def _not_counted(last: JobRecord) -> str:
    if last.outcome in ("failed", "cancelled"):
        return FAILED
    went_on = last.started_by == "journal" and last.outcome != "succeeded"  # preempted, and queued again
    return NOT_ENDED if last.cut or last.ended_at is None or last.run_ms is None or went_on else ""


def _run(attempts: Sequence[JobRecord], submitted_at: Instant) -> PilotRun:
    rented = sum(attempt.gpus * (attempt.run_ms or 0) for attempt in attempts if attempt.rented)
    every = sum(attempt.gpus * (attempt.run_ms or 0) for attempt in attempts)
    return PilotRun(
        id=attempts[0].id,
        submitted_at=submitted_at,
        wait_ms=attempts[0].wait_ms,
        to_model_ms=max(0, (attempts[-1].ended_at or 0) - submitted_at),
        owned_gpu_ms=every - rented,
        rented_gpu_ms=rented,
    )


def _all_rented(run: PilotRun) -> PilotRun:
    return replace(run, owned_gpu_ms=0, rented_gpu_ms=run.owned_gpu_ms + run.rented_gpu_ms)


def _cost(run: PilotRun, start: PilotStart) -> float:
    return (run.owned_gpu_ms * start.own_gpu_hour + run.rented_gpu_ms * start.rent_gpu_hour) / HOUR / MICRO


# --- figures with their spread ----------------------------------------------------------------------------------------


class _Figures:
    def __init__(self, before: Sequence[PilotRun], after: Sequence[PilotRun]) -> None:
        self.before, self.after = before, after

    def of(self, name: str, measure: Callable[[PilotRun], float | None]) -> PilotFigure:
        old, new = (
            [number for run in runs if (number := measure(run)) is not None] for runs in (self.before, self.after)
        )
        change = fmean(new) - fmean(old) if old and new else None
        if change is None or min(len(old), len(new)) < LEAST_RUNS:
            return PilotFigure(name, _spread(old), _spread(new), change, None, None, "too few runs")
        low, high = interval(old, new, name)
        verdict: Change = "lower" if high < 0 else "higher" if low > 0 else "no clear difference"
        return PilotFigure(name, _spread(old), _spread(new), change, low, high, verdict)


def _spread(numbers: Sequence[float]) -> RunSpread | None:
    ordered = sorted(numbers)
    if not ordered:
        return None
    last = len(ordered) - 1
    return RunSpread(len(ordered), fmean(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)])


def interval(old: Sequence[float], new: Sequence[float], seed: str) -> tuple[float, float]:
    """Where the change of the mean lies, nine times in ten. A bootstrap of few runs is too narrow: it is widened by
    about what Student's t has over the normal distribution.
    """
    chance = Random(f"penstock pilot {seed}")
    changes = sorted(
        fmean(chance.choices(new, k=len(new))) - fmean(chance.choices(old, k=len(old))) for _ in range(RESAMPLES)
    )
    center, few = fmean(new) - fmean(old), min(len(old), len(new))
    wider = sqrt(few / (few - 3))
    low, high = changes[int(OUTSIDE * RESAMPLES)], changes[int((1 - OUTSIDE) * RESAMPLES)]
    return center + (low - center) * wider, center + (high - center) * wider


# --- words ------------------------------------------------------------------------------------------------------------


def _says(outcome: PilotOutcome, start: PilotStart, after: PilotRuns) -> Iterator[str]:
    runs = count(len(after.runs), "run")
    yield f"{outcome.job}: {count(len(start.before.runs), 'run')} before {instant(start.started_at)}, {runs} since."
    for side, left_out in (("before", outcome.left_out_before), ("since", outcome.left_out_after)):
        if left_out:
            yield f"Not counted {side}: {', '.join(f'{n:,} {why}' for why, n in left_out)}."
    yield _said("Wait", outcome.wait_h, _hours, ("shorter", "longer"))
    yield _said("Time to model", outcome.to_model_h, _hours, ("shorter", "longer"))
    yield _said("Cost of a run", outcome.cost, lambda amount: _money(amount, start), ("lower", "higher"))
    if not after.knows_rented:
        yield f"{after.source} does not tell which runs were rented: all since the start count as rented."
    yield _verdict(outcome, start)


def _said(name: str, figure: PilotFigure, words: Callable[[float], str], less_more: tuple[str, str]) -> str:
    if figure.before is None or figure.after is None or figure.change is None:
        return f"{name}: not known {'before' if figure.before is None else 'since'}."
    sides = f"{name}: {words(figure.before.mean)} before, {words(figure.after.mean)} since (means)"
    if figure.low is None or figure.high is None:
        return f"{sides}; too few runs to say more."
    if figure.verdict == "no clear difference":
        return f"{sides}; no clear difference: the change lies between {words(figure.low)} and {words(figure.high)}."
    less, more = less_more
    ends = sorted((abs(figure.low), abs(figure.high)))
    way = less if figure.verdict == "lower" else more
    return f"{sides}; {way} by {words(abs(figure.change))} (90 %: {words(ends[0])} to {words(ends[1])})."


def _verdict(outcome: PilotOutcome, start: PilotStart) -> str:
    price = f"with an hour of delay at {money(start.cost_of_delay, start.currency)}"
    total = outcome.total
    if total.low is None or total.high is None or total.change is None:
        return f"Verdict: too few runs to say. It takes {LEAST_RUNS} runs that ended on each side."
    if outcome.answer == "no clear difference":
        return (
            f"Verdict: no clear difference, {price}: a run gains between {_money(-total.high, start)} and"
            f" {_money(-total.low, start)}. More runs narrow it."
        )
    verb, low, high = ("gains", -total.high, -total.low) if total.change < 0 else ("loses", total.low, total.high)
    return (
        f"Verdict: {outcome.answer}, {price}: a run {verb} {_money(abs(total.change), start)}"
        f" (90 %: {_money(low, start)} to {_money(high, start)})."
    )


def _hours(hours: float) -> str:
    return duration(round(hours * HOUR))


def _money(amount: float, start: PilotStart) -> str:
    return money(round(amount * MICRO), start.currency)
