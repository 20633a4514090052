"""The tables projected from the steps, as the lines they hold: `project` changes them, databases store them.

A table's columns are its class's fields, so there is one place to add one; then raise `PROJECTION`, and every journal
projects itself anew for its next writer. Lines are what a page shows and, beyond that, what the next event needs to
know: what an attempt still waits for, which hold belongs to which job.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_type_hints

#: Of the tables below and of what `project` writes into them.
PROJECTION: Final = 4


@dataclass(slots=True)
class Job:
    """As `journal.JobRow`, and what is not shown."""

    id: str
    number: int
    team: str
    name: str
    user: str
    project: str
    job_class: str
    priority: int
    gpus: int
    work: str
    submitted_at: int
    words: str  #: what a search looks at, in small letters
    phase: str = "waiting"
    attempt: str = ""
    next: str = ""  #: promised, and waits for `attempt` to be gone
    offer: str = ""
    started_at: int | None = None
    ended_at: int | None = None
    kept_ms: int = 0
    attempts: int = 0
    moves: int = 0
    losses: int = 0
    spent: int = 0
    held: int = 0
    until_at: int | None = None
    short_of: str = ""
    because: str = ""
    cancelled: int = 0
    holds: int = 0  #: open ones
    origin_site: str = ""
    origin_uid: str = ""


@dataclass(slots=True)
class Attempt:
    """As `journal.AttemptRow`, and what is not shown."""

    id: str
    number: int
    job: str
    team: str
    offer: str
    site: str
    width: int
    promised_at: int
    resume_ms: int
    kept_ms: int
    because: str
    phase: str = "promised"
    started_at: int | None = None
    ended_at: int | None = None
    outcome: str = ""
    spent: int = 0
    held: int = 0
    deadline_at: int | None = None
    stop_then: str = ""  #: what becomes of its job when it has stopped
    needs: str = "[]"  #: nodes, attempts and data sets it waits for, as JSON
    holds: int = 0  #: open ones


@dataclass(slots=True)
class Node:
    """A rented node that is not gone."""

    id: str
    attempt: str  #: for which it was asked
    offer: str
    gpus: int
    phase: str
    asked_at: int
    on: str = "[]"  #: attempts that run there or will, as JSON


@dataclass(slots=True)
class Hold:
    """An open one: what is held for an attempt or one of its nodes. Those who share a node share what it costs."""

    id: str
    attempt: str
    scopes: str  # JSON
    parts: str  # JSON: period and amount
    deadline_at: int
    beyond_ms: int  #: grace and kill: what is paid for after the deadline
    shares: str = "[]"  #: JSON: attempt, its GPUs now, and their milliseconds since the last charge
    counted_to: int = 0


@dataclass(slots=True)
class Offer:
    id: str
    site: str
    term: str
    gpu_model: str


@dataclass(slots=True)
class Closed:
    offer: str
    until_at: int
    refusals: int


@dataclass(slots=True)
class Cap:
    scope: str
    per_period: int | None
    per_hour: int | None


@dataclass(slots=True)
class Period:
    period: str
    starts_at: int
    ends_at: int


@dataclass(slots=True)
class Spend:
    scope: str
    period: str
    held: int
    spent: int


@dataclass(slots=True)
class Used:
    day: int
    offer: str
    team: str
    gpu_ms: int
    spent: int


@dataclass(slots=True)
class Count:
    """Jobs, and the GPUs they ask for. An id that comes again after its job has ended is counted again."""

    phase: str
    team: str
    jobs: int
    gpus: int


@dataclass(slots=True)
class Happened:
    """Which event concerns which job: a story reads only its own steps."""

    number: int
    part: int
    job: str
    kind: str


@dataclass(slots=True)
class Note:
    """What is one of a kind: the currency, and how far jobs and attempts are counted."""

    name: str
    text: str


Line: TypeAlias = Job | Attempt | Node | Hold | Offer | Closed | Cap | Period | Spend | Used | Count | Happened | Note


class Table:
    """`adds`: columns to which a new line of the same key is added, instead of taking the old one's place."""

    def __init__(self, name: str, line: type[Any], key: tuple[str, ...], adds: tuple[str, ...] = ()) -> None:
        self.name, self.line, self.key, self.adds = name, line, key, adds
        hints = get_type_hints(line)
        self.columns: tuple[str, ...] = tuple(field.name for field in fields(line))
        self.values: Callable[[Any], tuple[Any, ...]] = attrgetter(*self.columns)
        self.key_of = _getter(key)
        self.types: tuple[str, ...] = tuple(_type(hints[name]) for name in self.columns)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these names, as a tuple also of one."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda line: (get(line),)


def _type(hint: Any) -> str:
    if hint is str:
        return "text not null"
    return "bigint not null" if hint is int else "bigint"


TABLES: Final[dict[type[Any], Table]] = {
    table.line: table
    for table in (
        Table("jobs", Job, ("id",)),
        Table("attempts", Attempt, ("id",)),
        Table("nodes", Node, ("id",)),
        Table("holds", Hold, ("id",)),
        Table("offers", Offer, ("id",)),
        Table("closed", Closed, ("offer",)),
        Table("caps", Cap, ("scope",)),
        Table("periods", Period, ("period",)),
        Table("spend", Spend, ("scope", "period"), adds=("held", "spent")),
        Table("used", Used, ("day", "offer", "team"), adds=("gpu_ms", "spent")),
        Table("counts", Count, ("phase", "team"), adds=("jobs", "gpus")),
        Table("happened", Happened, ("number", "part", "job")),
        Table("notes", Note, ("name",)),
    )
}

#: Lists are read by number within a team, a phase or both; `words` is all that a search has to look at; `held` is
#: what a start looks for among all that has ended.
INDICES: Final = (
    "create unique index jobs_by_number on jobs (number)",
    "create index jobs_by_phase on jobs (phase, number)",
    "create index jobs_by_team on jobs (team, phase, number)",
    "create index jobs_of_team on jobs (team, number)",
    "create index jobs_by_words on jobs (number, words)",
    "create index jobs_by_origin on jobs (origin_uid) where origin_uid <> ''",
    "create index jobs_held on jobs (id) where holds > 0",
    "create index attempts_by_job on attempts (job, number)",
    "create index attempts_by_phase on attempts (phase, number)",
    "create index attempts_held on attempts (id) where holds > 0",
    "create index happened_by_job on happened (job, kind, number)",
)
