"""The report's last part: go or no-go, and the three assumptions that would flip it, each as a curve.

Ways are compared by money plus delay at its cost. A curve is the gain of the best burst over the best other way:
above zero it is a go. Cost of delay and rent change sums that were replayed; how much is owned is replayed anew, on a
slice of the month.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from penstock.assess.replay import Replayable, slice_of
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
    Way,
    WaysReport,
    measure,
)
from penstock.core.units import MICRO
from penstock.core.values import value
from penstock.formatting import money

Answer: TypeAlias = Literal["go", "no-go"]
Side: TypeAlias = Literal["below", "above"]
CLOSE: Final = 0.03  #: of the total: nearer than this, two ways are equal
LEAST_DELAY_H: Final = 0.1  #: a mean delay below this is none: nothing needs to be done
OWNED_SHARES: Final = (0.7, 0.85, 1.0, 1.15, 1.3)
SLICE_JOBS: Final = 3_000


@value
class FlipCurve:
    """One assumption. `points`: its value, and what the best burst gains a month over the best other way."""

    name: str
    unit: str
    here: float
    points: tuple[tuple[float, float], ...]
    flips_at: tuple[float, ...]
    beyond: tuple[tuple[Side, str], ...]  # of each flip: where bursting does not pay, and the way that costs no more


@value
class Decision:
    answer: Answer
    best: str  # name of the way
    says: tuple[str, ...]
    gain: float  # of the best burst over the best other way, for the month seen
    flips: tuple[FlipCurve, ...]


def decision_of(month: Replayable, report: WaysReport, advance: Callable[[int], None]) -> Decision:
    cost = float(report.setting.cost_of_delay)
    best = min(report.ways, key=lambda way: way.total(cost))
    bursts = [way for name in (BURST, SPOT) if (way := report.way(name))]
    others = [way for name in (AS_IT_WAS, QUEUE, RECLAIMED, BOUGHT, CLOUD) if (way := report.way(name))]
    gain = gain_of(bursts, others, cost, 1.0)
    answer: Answer = "go" if gain > CLOSE * best.total(cost) and not _nobody_waits(report) else "no-go"
    by_cost = _by_cost_of_delay(bursts, others, cost)
    return Decision(
        answer=answer,
        best=best.name,
        says=(*_says(answer, best, report), *_rests_on(by_cost, report)),
        gain=gain,
        flips=(
            by_cost,
            _by_rent(bursts, others, cost, report.setting.quote.on_demand / MICRO),
            _by_owned(month, report, cost, advance),
        ),
    )


def gain_of(bursts: Sequence[Way], others: Sequence[Way], cost: float, rent: float) -> float:
    """`rent`: how many times what is rented costs."""
    return min(total(way.measured, cost, rent) for way in others) - min(
        total(way.measured, cost, rent) for way in bursts
    )


def total(measured: ReplayFigures, cost: float, rent: float = 1.0) -> float:
    return measured.owned + measured.rent * rent + measured.delay_h * cost


def _nobody_waits(report: WaysReport) -> bool:
    was = report.way(AS_IT_WAS)
    return was is not None and was.measured.mean_delay_h < LEAST_DELAY_H and not was.measured.never_ran


def _says(answer: Answer, best: Way, report: WaysReport) -> list[str]:
    says = []
    was, reclaimed, burst = report.way(AS_IT_WAS), report.way(RECLAIMED), report.way(BURST)
    if _nobody_waits(report):
        says.append("Do nothing: jobs hardly wait for the GPUs that are owned, so there is no delay to buy off.")
        if was and best.name != AS_IT_WAS and was.measured.money - best.measured.money > CLOSE * was.measured.money:
            less = money(round((was.measured.money - best.measured.money) * MICRO), report.setting.currency)
            says.append(f"For money alone, {best.in_a_sentence} would cost {less} less.")
    elif answer == "go":
        says.append("Go: bursting costs less than the delay that it removes.")
    else:
        says.append(f"No-go for bursting: {best.in_a_sentence} costs no more, delay included.")
    if was and reclaimed and burst and not _nobody_waits(report):
        saved = was.measured.delay_h - reclaimed.measured.delay_h
        if saved >= 0.5 * (was.measured.delay_h - burst.measured.delay_h) and saved > 0:
            says.append(
                "Reclaim idle GPUs first: it removes at least half of the delay that bursting would, for nothing."
            )
    return says


def _rests_on(by_cost: FlipCurve, report: WaysReport) -> list[str]:
    """The answer is as good as the cost of delay that it takes, so that stands beside it."""
    if _nobody_waits(report):
        return []
    here, *at = (money(round(cost * MICRO), report.setting.currency) for cost in (by_cost.here, *by_cost.flips_at))
    most = money(round(by_cost.points[-1][0] * MICRO), report.setting.currency)
    flips = f"flips at {' and at '.join(at)}" if at else f"is the same at any cost up to {most}"
    return [f"That takes an hour of one job's delay to cost {here}, an assumption; the answer {flips}."]


def _by_cost_of_delay(bursts: Sequence[Way], others: Sequence[Way], here: float) -> FlipCurve:
    most = max(4 * here, 1.0)
    points = tuple((most * k / 40, gain_of(bursts, others, most * k / 40, 1.0)) for k in range(41))
    return _flip(
        "What an hour of delay costs, for one job", "a job and hour", here, points, lambda x: _least(others, x, 1.0)
    )


def _by_rent(bursts: Sequence[Way], others: Sequence[Way], cost: float, here: float) -> FlipCurve:
    points = tuple((here * k / 10, gain_of(bursts, others, cost, k / 10)) for k in range(2, 41))
    return _flip("What a rented GPU costs", "a GPU-hour", here, points, lambda x: _least(others, cost, x / here))


def _least(ways: Sequence[Way], cost: float, rent: float) -> str:
    return min(ways, key=lambda way: total(way.measured, cost, rent)).label


def _by_owned(month: Replayable, report: WaysReport, cost: float, advance: Callable[[int], None]) -> FlipCurve:
    """The same load on fewer or more owned GPUs: what growth or a purchase elsewhere does to the answer."""
    jobs = slice_of(month.jobs, SLICE_JOBS)
    points = []
    for share in OWNED_SHARES:
        owned = max(1, round(month.owned_gpus * share))
        *others, burst = (measure(name, month, jobs, report.setting, 0, owned) for name in (AS_IT_WAS, QUEUE, BURST))
        advance(3 * len(jobs))
        points.append((float(owned), min(total(other, cost) for other in others) - total(burst, cost)))
    scale = len(month.jobs) / len(jobs)
    scaled = tuple((owned, gain * scale) for owned, gain in points)
    nothing_rented = LABELS[QUEUE]
    return _flip(
        "How many GPUs are owned, for the same load", "GPUs", float(month.owned_gpus), scaled, lambda _: nothing_rented
    )


def _flip(
    name: str, unit: str, here: float, points: tuple[tuple[float, float], ...], instead: Callable[[float], str]
) -> FlipCurve:
    """`instead`: the best way without bursting, at a value of the assumption."""
    beyond: list[tuple[Side, str]] = [
        ("below", instead(x)) if y <= 0 else ("above", instead(to_x))
        for (x, y), (to_x, to_y) in pairwise(points)
        if (y > 0) != (to_y > 0)
    ]
    return FlipCurve(name, unit, here, points, tuple(crossings(points)), tuple(beyond))


def crossings(points: Sequence[tuple[float, float]]) -> list[float]:
    """Where a line through the points is zero."""
    zeros = []
    for (x, y), (to_x, to_y) in pairwise(points):
        if (y > 0) != (to_y > 0):
            zeros.append(x + (to_x - x) * y / (y - to_y) if y != to_y else x)
    return zeros
