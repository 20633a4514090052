"""Rows for lists, pages and reports: jobs, attempts, spend, use. `schema` stores most of them unchanged.

A job's row and an attempt's repeat the folded state; `projection` makes them.
"""

from typing import Any

from penstock.core.model.types import Origin
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value


@value
class JobRow:
    """A job in a list: its request, its state, and why."""

    id: str
    number: int  # the order of arrival; unique also within an array; the key for paging
    team: str
    name: str
    user: str
    project: str
    job_class: str
    priority: int
    gpus: int
    work: str  # the digest of its work
    phase: str  # core.lifecycle.JobPhase
    attempt: str  # its live attempt; empty if none
    offer: str  # of that attempt, or of the last one
    submitted_at: Instant
    started_at: Instant | None  # its first start
    ended_at: Instant | None
    kept_ms: Millis  # work that its last checkpoint holds
    attempts: int
    moves: int
    losses: int
    spent: Money
    held: Money
    until_at: Instant | None  # while queued: when it is decided again at the latest
    short_of: str  # the scope whose cap binds it
    because: str  # the latest reason, as JSON with its `kind` and numbers; empty if nothing was decided yet
    origin_site: str = ""  # the home Job's site, `JobSpec.origin`; empty: submitted through the API
    origin_uid: str = ""
    # Joined from other tables (`schema.LOOKED_UP`); empty in the stored row.
    attempt_phase: str = ""  # of `attempt`: core.lifecycle.AttemptPhase
    decided_at: Instant | None = None  # when `because` was decided
    last_outcome: str = ""  # of the last attempt that was promised; empty if there is none, or it lives

    @property
    def words(self) -> str:
        """The text that a search matches, in lower case."""
        return f"{self.id} {self.name} {self.user} {self.team}".lower()


@value
class AttemptRow:
    id: str
    number: int  # the order of promises; unique
    job: str
    team: str
    offer: str
    site: str
    width: int
    phase: str  # core.lifecycle.AttemptPhase
    promised_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    outcome: str  # how it ended: done, failed, stopped, lost, refused, dropped; empty while it lives
    resume_ms: Millis  # work that it resumed with
    kept_ms: Millis  # work that its last checkpoint holds
    spent: Money
    held: Money
    deadline_at: Instant | None  # when it ends by itself; None on standing offers
    because: str  # why there, as JSON


@value
class SpendRow:
    """One scope in one budget period. A job's own cap is in its row."""

    scope: str
    period: str
    cap: Money | None
    per_hour: Money | None
    spent: Money
    held: Money
    starts_at: Instant | None
    ends_at: Instant | None


@value
class UsedRow:
    """Use of one offer by one team on one day. GPU time is booked when an attempt ends, money when it is charged."""

    day: int  # days since the epoch of instants
    offer: str
    team: str
    gpu_ms: int
    spent: Money


@value
class ClosedRow:
    """An offer that refused, and when it is probed again."""

    offer: str
    until_at: Instant
    refusals: int


@value
class Happening:
    """One event that concerns a job, or all jobs."""

    number: int  # of its step
    part: int  # its index in the step's inputs and outputs
    at: Instant
    kind: str
    job: str  # empty: it concerns no single job
    event: Any


@value
class Filter:
    """Empty fields match all. `text` is searched in id, name, user and team, ignoring case."""

    teams: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()  # core.lifecycle.JobPhase
    text: str = ""
    user: str = ""
    states: tuple[str, ...] = ()  # journal.states.JobState: users' words; an alternative to `phases`
    origin: Origin | None = None


@value
class JobCount:
    state: str  # journal.states.JobState
    team: str
    jobs: int
    gpus: int
