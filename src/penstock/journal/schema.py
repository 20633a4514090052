"""The journal's table definitions, derived from row classes: `projection` makes rows, databases store them, `reader`
reads them.

A table's columns are its row's fields, so a column is added in one place; then raise `PROJECTION`, and every journal is
projected anew by its next writer. Rows that `Reader` returns unchanged are in `rows`.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_type_hints

from penstock.core.values import value
from penstock.journal.audit import AuditRow
from penstock.journal.rows import AttemptRow, ClosedRow, JobRow, UsedRow
from penstock.journal.tokens import RevocationRow, TokenRow

#: The version of the tables below and of their content.
PROJECTION: Final = 6
#: Tables of older versions, dropped by a rebuild.
RETIRED: Final = ("offers", "notes")


@value
class NodeRow:
    """A rented node that is not gone."""

    id: str
    attempt: str  # the attempt it was launched for
    offer: str
    gpus: int
    phase: str  # core.lifecycle.NodePhase
    asked_at: int
    on: str  # its attempts, as JSON


@value
class HoldRow:
    """Money held for an attempt, or for its node."""

    id: str
    attempt: str
    scopes: str  # as JSON
    parts: str  # period and amount, as JSON
    deadline_at: int
    beyond_ms: int  # grace and kill time, paid after the deadline


@value
class ScopeCapRow:
    scope: str
    per_period: int | None
    per_hour: int | None


@value
class PeriodRow:
    period: str
    starts_at: int
    ends_at: int


@value
class CountRow:
    """Jobs of a team in one of the core's phases."""

    phase: str
    team: str
    jobs: int
    gpus: int


@value
class AccountRow:
    """One scope in one budget period."""

    scope: str
    period: str
    held: int
    spent: int


@value
class HappenedRow:
    """Which event concerns which job, so that a story reads only its own steps."""

    number: int
    part: int
    job: str
    kind: str


TableRow: TypeAlias = (
    JobRow
    | AttemptRow
    | NodeRow
    | HoldRow
    | ClosedRow
    | ScopeCapRow
    | PeriodRow
    | AccountRow
    | UsedRow
    | CountRow
    | HappenedRow
    | TokenRow
    | RevocationRow
    | AuditRow
)


class Table:
    """`adds`: columns that a new row of the same key adds to, instead of replacing. `computed`: columns for searching
    that are properties of the row and are not read back. `looked_up`: fields of the row that are joined from other
    tables; they are no columns.
    """

    def __init__(
        self,
        name: str,
        line: type[Any],
        key: tuple[str, ...],
        adds: tuple[str, ...] = (),
        computed: tuple[str, ...] = (),
        looked_up: Iterable[str] = (),
    ) -> None:
        self.name, self.line, self.key, self.adds = name, line, key, adds
        hints = get_type_hints(line) | dict.fromkeys(computed, str)
        self.columns: tuple[str, ...] = (
            *(field.name for field in fields(line) if field.name not in looked_up),
            *computed,
        )
        self.values: Callable[[Any], tuple[Any, ...]] = attrgetter(*self.columns)
        self.key_of = _getter(key)
        self.types: tuple[str, ...] = tuple(_type(hints[name]) for name in self.columns)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these attributes, as a tuple also for one."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda line: (get(line),)


def _type(hint: Any) -> str:
    if hint is str:
        return "text not null"
    return "bigint not null" if hint is int else "bigint"


#: How fields of a job's row are joined from other tables.
LOOKED_UP: Final = {
    "decided_at": (
        "(select steps.at from happened join steps on steps.number = happened.number where happened.job = jobs.id and "
        "happened.kind in ('WaitPromised', 'ReservePromised', 'StartPromised', 'StopPromised', 'JobRefused', "
        "'JobFailed') "
        "order by happened.number desc limit 1)"
    ),
    "attempt_phase": "coalesce((select attempts.phase from attempts where attempts.id = jobs.attempt), '')",
    "last_outcome": (
        "coalesce((select attempts.outcome from attempts where attempts.job = jobs.id "
        "order by attempts.number desc limit 1), '')"
    ),
}

TABLES: Final[dict[type[Any], Table]] = {
    table.line: table
    for table in (
        Table("jobs", JobRow, ("id",), computed=("words",), looked_up=LOOKED_UP),
        Table("attempts", AttemptRow, ("id",)),
        Table("nodes", NodeRow, ("id",)),
        Table("holds", HoldRow, ("id",)),
        Table("closed", ClosedRow, ("offer",)),
        Table("caps", ScopeCapRow, ("scope",)),
        Table("periods", PeriodRow, ("period",)),
        Table("spend", AccountRow, ("scope", "period")),
        Table("used", UsedRow, ("day", "offer", "team"), adds=("gpu_ms", "spent")),
        Table("counts", CountRow, ("phase", "team"), adds=("jobs", "gpus")),
        Table("happened", HappenedRow, ("number", "part", "job")),
        Table("tokens", TokenRow, ("id",)),
        Table("revocations", RevocationRow, ("token",)),
        Table("audit", AuditRow, ("number", "part")),
    )
}

#: Lists are read by number within a team, a phase or both; a search reads only `words`.
INDICES: Final = (
    "create unique index jobs_by_number on jobs (number)",
    "create index jobs_by_phase on jobs (phase, number)",
    "create index jobs_by_team on jobs (team, phase, number)",
    "create index jobs_of_team on jobs (team, number)",
    "create index jobs_by_words on jobs (number, words)",
    "create index jobs_by_origin on jobs (origin_uid) where origin_uid <> ''",
    "create index attempts_by_job on attempts (job, number)",
    "create index attempts_by_phase on attempts (phase, number)",
    "create index happened_by_job on happened (job, kind, number)",
    "create index tokens_by_number on tokens (number)",
    "create index revocations_by_number on revocations (number)",
    "create index audit_by_who on audit (who, number)",
    "create index audit_by_subject on audit (about, number)",
)


class Changes:
    """Changes to the tables: rows to put by key, keys to delete, amounts to add by key."""

    def __init__(self) -> None:
        self.puts: dict[type[Any], dict[tuple[Any, ...], TableRow]] = {}
        self.drops: dict[type[Any], dict[tuple[Any, ...], None]] = {}

    def put(self, line: TableRow) -> None:
        kind = type(line)
        key = TABLES[kind].key_of(line)
        self.puts.setdefault(kind, {})[key] = line
        if kind in self.drops:
            self.drops[kind].pop(key, None)

    def drop(self, kind: type[Any], *key: Any) -> None:
        self.puts.get(kind, {}).pop(key, None)
        self.drops.setdefault(kind, {})[key] = None

    def add(self, line: UsedRow | CountRow) -> None:
        table, rows = TABLES[type(line)], self.puts.setdefault(type(line), {})
        key = table.key_of(line)
        known: Any = rows.get(key)
        if known is not None:
            line = replace(line, **{name: getattr(known, name) + getattr(line, name) for name in table.adds})
        rows[key] = line
