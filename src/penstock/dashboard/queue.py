"""Who waits, why, and when each may expect to start; and who runs, where, since when."""

from typing import Any
from urllib.parse import quote

from penstock.api import schemas
from penstock.core.units import NEVER, Instant, Money
from penstock.core.values import value
from penstock.dashboard.words import NBSP, TERMS, clock, plain
from penstock.journal.words import duration, money


@value
class Start:
    """When it may start: a pair, never a bare prediction. `at` is for the order only."""

    says: str
    at_worst: str
    at: Instant


@value
class WaitingRow:
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


def waiting(jobs: list[schemas.Job], decided: dict[str, Instant], now: Instant) -> list[WaitingRow]:
    """By expected start. `decided`: when each reason was recorded, as far as known; its times count from there."""
    rows = [
        WaitingRow(
            job.name or job.id,
            href(job.id),
            job.team,
            plain(job.because.says, now) if job.because else "It was just submitted.",
            job.gpus,
            duration(max(0, now - job.submitted_at)),
            start(job, decided.get(job.id, job.submitted_at), now),
        )
        for job in jobs
    ]
    return sorted(rows, key=lambda row: row.start.at)


def start(job: schemas.Job, decided_at: Instant, now: Instant) -> Start:
    numbers: dict[str, Any] = job.because.numbers if job.because else {}
    match job.because.kind if job.because else "":
        case "WaitWorth" if numbers["about_ms"]:
            latest = NEVER if job.until_at is None else job.until_at
            worst_at = min(decided_at + numbers["worst_ms"], latest)
            return _pair(decided_at + numbers["about_ms"], worst_at, latest, now)
        case "WaitedLongest":
            return Start(_about(decided_at + numbers["free_in_ms"], now), "nodes are kept for it", decided_at)
        case "Paced":
            return Start(f"not before {_at(job.until_at, now)}", "or on owned GPUs", job.until_at or NEVER)
        case "CapBinds" | "RateBinds" | "PeriodUnknown":
            return Start("when there is money", "or a raised cap", NEVER)
        case "NoRoomThere":
            return Start(f"tried again {_at(numbers['retry_at'], now)}", "or on owned GPUs", numbers["retry_at"])
        case "OnlyOwned":
            return Start("on owned GPUs only", "no time is known", NEVER - 1)
        case "PlacementsPaused":
            return Start("when resumed", "penstock resume", NEVER)
        case _ if job.until_at is not None:
            return _latest(job.until_at, now)
        case _:
            return Start("being decided", "", now)


def _pair(about_at: Instant, worst_at: Instant, latest_at: Instant, now: Instant) -> Start:
    """What was foretold and did not come true is not said again: then only its patience is certain."""
    if worst_at <= now:
        return _latest(latest_at, now)
    about_at = min(about_at, worst_at)
    return Start(_about(about_at, now), f"at{NBSP}worst{NBSP}{clock(worst_at, now)}", about_at)


def _latest(at: Instant, now: Instant) -> Start:
    return (
        Start("any moment", "", now) if at <= now or at >= NEVER else Start(f"by {clock(at, now)}", "at the latest", at)
    )


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
