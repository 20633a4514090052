"""The queue on the page: which jobs wait, why, and their expected start; and which run, where and since when."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from penstock.core.units import NEVER, Instant, Money
from penstock.core.values import value
from penstock.explain.shared_waits import SharedWait, shared
from penstock.formatting import duration, money
from penstock.web import schemas
from penstock.web.views.formats import NBSP, TERMS, clock, plain


@value
class Start:
    """The expected start, always with its bound. `at` is only for sorting."""

    says: str
    bound: str
    at: Instant


@value
class QueuedRow:
    name: str
    href: str
    team: str
    why: str
    gpus: int
    waited: str
    start: Start


@value
class RunningRow:
    name: str
    href: str
    team: str
    offer: str
    term: str
    state: str
    gpus: int
    since: str
    spent: str


def href(job: str) -> str:
    return f"/jobs/{quote(job)}"


def queued(jobs: Sequence[schemas.Job], now: Instant) -> list[QueuedRow]:
    """By expected start. What the notices tell of many is short here."""
    told = {wait.kind for wait in shared_waits(jobs, now)}
    rows = [
        QueuedRow(
            job.name or job.id,
            href(job.id),
            job.team,
            _why(job, now, told),
            job.gpus,
            duration(max(0, now - job.submitted_at)),
            start(job, now),
        )
        for job in jobs
    ]
    return sorted(rows, key=lambda row: row.start.at)


def _why(job: schemas.Job, now: Instant, told: set[str]) -> str:
    if not job.because:
        return "It was just submitted."
    return SHORT[job.because.kind] if job.because.kind in told else plain(job.because.says, now)


SHORT: Final = {
    "InQuietHours": "Queued in quiet hours.",
    "NoRoomThere": "Queued: no rented offer has capacity.",
    "PeriodUnknown": "Queued: the month's budget is not open yet.",
    "TeamAtLimit": "Queued: its team has all of its GPUs.",
}
#: The page tells of these elsewhere: money and a pause have notices of their own.
TOLD: Final = frozenset({"CapBinds", "RateBinds", "PlacementsPaused"})


def shared_waits(jobs: Sequence[schemas.Job], now: Instant) -> list[SharedWait]:
    """What several of them wait for."""
    waits = [(job.because.kind, job.because.numbers, job.gpus) for job in jobs if job.because]
    return [wait for wait in shared(waits, lambda at: clock(at, now)) if wait.kind not in TOLD]


def start(job: schemas.Job, now: Instant) -> Start:
    """Forecasts count from when they were made; an expired one is not repeated."""
    numbers: dict[str, Any] = job.because.numbers if job.because else {}
    decided_at = job.submitted_at if job.decided_at is None else job.decided_at
    match job.because.kind if job.because else "":
        case "WaitWorth" if numbers["about_ms"]:
            latest = NEVER if job.until_at is None else job.until_at
            forecast = Forecast(decided_at, decided_at + numbers["about_ms"], decided_at + numbers["worst_ms"], latest)
            return _expected(forecast, now)
        case "WaitedLongest":
            return Start(_about(decided_at + numbers["free_in_ms"], now), "nodes are reserved for it", decided_at)
        case "Paced":
            return Start(f"not before {_at(job.until_at, now)}", "or on owned GPUs", job.until_at or NEVER)
        case "CapBinds" | "RateBinds" | "PeriodUnknown":
            return Start("when the budget allows", "or on owned GPUs", NEVER)
        case "NoRoomThere":
            return Start(f"next try {_at(numbers['retry_at'], now)}", "or on owned GPUs", numbers["retry_at"])
        case "OnlyOwned":
            return Start("on owned GPUs only", "no estimate", NEVER - 1)
        case "PlacementsPaused":
            return Start("after the pause", "penstock resume", NEVER)
        case "InQuietHours":
            return Start(f"not before {_at(job.until_at, now)}", "or on owned GPUs", job.until_at or NEVER)
        case "AwaitsApproval":
            return Start("when it is approved", "or on owned GPUs", NEVER)
        case "TeamAtLimit":
            return Start("when its team has fewer GPUs", "", NEVER)
        case "WaitsForOwned" if job.until_at is not None:
            return _latest(job.until_at, now)
        case _ if job.until_at is not None and now < job.until_at < NEVER:
            return Start(f"looked at again {clock(job.until_at, now)}", "or on owned GPUs", job.until_at)
        case _:
            return Start("being decided", "", now)


@value
class Forecast:
    """Made at `made_at`: median start `p50_at`, p90 `p90_at`; at `latest_at` it bursts."""

    made_at: Instant
    p50_at: Instant
    p90_at: Instant
    latest_at: Instant


def _expected(forecast: Forecast, now: Instant) -> Start:
    """An expired forecast is not shown; an overdue one is shown with its age."""
    p90_at = min(forecast.p90_at, forecast.latest_at)
    if p90_at <= now:
        return _latest(forecast.latest_at, now)
    bound = f"{clock(p90_at, now)}" + (f"{NBSP}(p90)" if p90_at < forecast.latest_at else "")
    if forecast.p50_at <= now:
        return Start(f"by {bound}", f"estimated {duration(now - forecast.made_at)} ago", p90_at)
    p50_at = min(forecast.p50_at, p90_at)
    return Start(_about(p50_at, now), f"by{NBSP}{bound}", p50_at)


def _latest(at: Instant, now: Instant) -> Start:
    """Then it bursts, where money and capacity are there: no promise of a start."""
    if at <= now or at >= NEVER:
        return Start("any moment", "", now)
    return Start(f"on owned GPUs, or bursts {clock(at, now)}", "if money and room are there", at)


def _about(at: Instant, now: Instant) -> str:
    return "any moment" if at <= now else f"about{NBSP}{clock(at, now)}"


def _at(at: Instant | None, now: Instant) -> str:
    return "later" if at is None else clock(at, now)


def running(jobs: list[schemas.Job], terms: dict[str, str], now: Instant, currency: str) -> list[RunningRow]:
    return [
        RunningRow(
            job.name or job.id,
            href(job.id),
            job.team,
            job.offer,
            TERMS.get(terms.get(job.offer, ""), "neutral"),
            job.state,
            job.gpus,
            clock(job.started_at or job.submitted_at, now),
            cash(job.spent, currency),
        )
        for job in jobs
    ]


def cash(amount: Money, currency: str) -> str:
    return money(amount, currency) if amount else "none"
