"""Rows that lists, pages and reports read: jobs, attempts, spend, use. `schema` stores most of them as they are.

A job's row and an attempt's say what the folded state says; `projection` makes them.
"""

from typing import Any

from penstock.core.model.types import Origin
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value


@value
class JobRow:
    """A job on a list: what was asked, where it is, and why."""

    id: str
    number: int  # the order of arrival; unique also within an array, and the key of pages
    team: str
    name: str
    user: str
    project: str
    job_class: str
    priority: int
    gpus: int
    work: str  # the digest of what runs
    phase: str  # core.lifecycle.JobPhase
    attempt: str  # where it has a place now, empty if nowhere
    offer: str  # of that attempt, or of its last one
    submitted_at: Instant
    started_at: Instant | None  # first ran
    ended_at: Instant | None
    kept_ms: Millis  # work that its last checkpoint holds
    attempts: int
    moves: int
    losses: int
    spent: Money
    held: Money
    until_at: Instant | None  # while it waits: when its answer is due at the latest
    short_of: str  # the scope whose cap binds it
    because: str  # the latest reason, as JSON with its `kind` and numbers; empty if nothing was decided yet
    origin_site: str = ""  # what it was submitted for, `JobSpec.origin`; empty: a request to the API
    origin_uid: str = ""
    # Read from other tables (`schema.LOOKED_UP`); empty in the row that is written.
    attempt_phase: str = ""  # of `attempt`: core.lifecycle.AttemptPhase
    decided_at: Instant | None = None  # when `because` was decided
    last_outcome: str = ""  # of the last attempt that was promised; empty if there is none, or it lives

    @property
    def words(self) -> str:
        """What a search looks at, in small letters."""
        return f"{self.id} {self.name} {self.user} {self.team}".lower()


@value
class AttemptRow:
    id: str
    number: int  # the order of promising: unique
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
    resume_ms: Millis  # work it began with
    kept_ms: Millis  # work that its last checkpoint holds
    spent: Money
    held: Money
    deadline_at: Instant | None  # it ends by itself then; None on standing offers
    because: str  # why there, as JSON


@value
class SpendRow:
    """One scope in one period of the books. Caps of jobs are on the jobs."""

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
    """One offer, team and day. GPU time is booked when an attempt is over, money when it is charged."""

    day: int  # whole days since the zero of instants
    offer: str
    team: str
    gpu_ms: int
    spent: Money


@value
class ClosedRow:
    """An offer that refused, and when it is tried again."""

    offer: str
    until_at: Instant
    refusals: int


@value
class Happening:
    """One event that concerns a job, or everybody."""

    number: int  # of its step
    part: int  # its place among the step's inputs and outputs
    at: Instant
    kind: str
    job: str  # empty: it concerns no single job
    event: Any


@value
class Filter:
    """Empty: all. `text` is looked for in id, name, user and team, whatever its case."""

    teams: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()  # core.lifecycle.JobPhase
    text: str = ""
    user: str = ""
    states: tuple[str, ...] = ()  # journal.states.JobState: as people call them; beside `phases`, either will do
    origin: Origin | None = None


@value
class JobCount:
    state: str  # journal.states.JobState
    team: str
    jobs: int
    gpus: int
