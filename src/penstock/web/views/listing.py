"""The list of all jobs: state, since when, and cost."""

from typing import Final

from penstock.core.units import Instant
from penstock.core.values import value
from penstock.journal.states import ACTIVE, ENDED, QUEUED
from penstock.web import schemas
from penstock.web.views.formats import clock, plain
from penstock.web.views.queue import cash, href

#: The filters by their word in the URL: label and states.
SHOWN: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "": ("All", ()),
    "queued": ("Queued", QUEUED),
    "running": ("Running", ACTIVE),
    "ended": ("Ended", ENDED),
}


@value
class ListedRow:
    name: str
    href: str
    team: str
    why: str
    state: str
    since: str
    gpus: int
    spent: str


def rows(jobs: list[schemas.Job], now: Instant, currency: str) -> list[ListedRow]:
    return [
        ListedRow(
            job.name or job.id,
            href(job.id),
            job.team,
            _why(job, now),
            state(job),
            clock(job.ended_at or job.started_at or job.submitted_at, now),
            job.gpus,
            cash(job.spent, currency),
        )
        for job in jobs
    ]


def state(job: schemas.Job) -> str:
    """The word of `penstock jobs`."""
    return f"{job.state} (preempted)" if job.preempted else job.state


def _why(job: schemas.Job, now: Instant) -> str:
    """Why a live job is where it is; for a refused job, why it was refused."""
    if job.because is None or (job.state in ENDED and job.state != "refused"):
        return ""
    return plain(job.because.says, now)
