"""A job's page: its state in a sentence, key numbers, and its attempts with their cost."""

from penstock.core.units import Instant
from penstock.core.values import value
from penstock.formatting import duration, money
from penstock.journal.states import ENDED
from penstock.web import schemas
from penstock.web.views import listing, timeline
from penstock.web.views.formats import TERMS, clock, listed, many, plain


@value
class TryRow:
    number: int
    offer: str
    term: str
    state: str
    asked: str
    ran: str
    kept: str
    spent: str
    held: str
    why: str


@value
class Facts:
    state: str
    since: str
    waited: str
    attempts: str
    kept: str
    kept_note: str
    spent: str
    held: str
    until: str
    asked: str


def lede(job: schemas.JobDetail, now: Instant) -> str:
    """The latest reason, after its result."""
    why = job.because.says if job.because else ""
    match job.state:
        case "running":
            since = next((attempt.started_at for attempt in reversed(job.tries) if attempt.started_at), None)
            state_words = f"Running on {job.offer}" + (f" since {clock(since, now)}." if since else ".")
        case "starting" | "stopping":
            state_words = f"{job.state.capitalize()} on {job.offer}."
        case "queued" if job.preempted:
            state_words = (
                "Preempted; it resumes from its last checkpoint." if job.kept_ms else "Preempted; it starts again."
            )
        case "queued" | "paused" | "refused":
            state_words = ""  # the reason contains it
        case ended:
            state_words = f"{ended.capitalize()}{f' on {job.offer}' if job.offer else ''}{_when(job, now)}."
            why = ""
    return plain(f"{state_words} {why}".strip(), now)


def _when(job: schemas.JobDetail, now: Instant) -> str:
    return f" at {clock(job.ended_at, now)}" if job.ended_at else ""


def facts(job: schemas.JobDetail, now: Instant, currency: str) -> Facts:
    end = job.ended_at if job.state in ENDED and job.ended_at else now
    deadline = next((attempt.deadline_at for attempt in reversed(job.tries) if attempt.held), None)
    return Facts(
        state=listing.state(job),
        since=f"submitted {clock(job.submitted_at, now)}" + (f", ended{_when(job, now)}" if job.ended_at else ""),
        waited=duration(sum(b - a for a, b in timeline.waits(job, end))),
        attempts=listed([many(len(job.tries), "attempt"), _some(job.moves, "move"), _some(job.losses, "preemption")]),
        kept=duration(job.kept_ms) if job.kept_ms else "none",
        kept_note="in its last checkpoint" if job.kept_ms else "no checkpoint yet",
        spent=money(job.spent, currency),
        held=money(job.held, currency),
        until=f"enough to run until {clock(deadline, now)}" if deadline else "nothing is held",
        asked=listed([f"team {job.team}", f"project {job.project}" if job.project else "", job.job_class]),
    )


def _some(count: int, noun: str) -> str:
    return many(count, noun) if count else ""


def tries(job: schemas.JobDetail, terms: dict[str, str], now: Instant, currency: str) -> list[TryRow]:
    return [
        TryRow(
            k + 1,
            attempt.offer,
            TERMS.get(terms.get(attempt.offer, ""), "neutral"),
            attempt.state.replace("_", " "),
            clock(attempt.promised_at, now),
            duration((attempt.ended_at or now) - attempt.started_at) if attempt.started_at else "never",
            duration(attempt.kept_ms) if attempt.kept_ms else "none",
            money(attempt.spent, currency),
            money(attempt.held, currency),
            attempt.because.says if attempt.because else "",
        )
        for k, attempt in enumerate(job.tries)
    ]
