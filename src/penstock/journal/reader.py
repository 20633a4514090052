"""Queries for lists, pages and streams: `journal.Reader` over any `Database`. The API, front door and commands call it
from any thread.

Each call borrows a read-only connection, so readers wait neither for the writer nor for each other.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice, product
from typing import Any, TypeVar

from penstock.core.errors import BadInput
from penstock.core.model.events import TokenIssued
from penstock.core.model.types import JobSpec
from penstock.journal import states
from penstock.journal.audit import AuditFilter, AuditRow
from penstock.journal.database import Database, marks, plain
from penstock.journal.hash_chain import COLUMNS, refuse_format, row, row_with
from penstock.journal.journal import Row, Unwritable
from penstock.journal.rows import AttemptRow, ClosedRow, Filter, Happening, JobCount, JobRow, SpendRow, UsedRow
from penstock.journal.schema import LOOKED_UP
from penstock.journal.tokens import RevocationRow, TokenRow, token_row

T = TypeVar("T")


class NoTables(BadInput):
    """The journal of a simulation, which has no tables."""


class JournalReader:
    def __init__(self, connect: Callable[[], Database]) -> None:
        self.connect = connect
        self.idle: list[Database] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._borrowed() as db:
            self.where = db.where
        version = self._all("select format from journal")[0][0]
        refuse_format(version, self.where)
        head, projected = self._all("select head, projected from journal")[0] if version > 1 else (1, 0)
        if projected < head:
            raise NoTables(f"{self.where} has no tables yet to list jobs from; run `penstock journal rebuild` on it.")
        self.installation: str = self._all("select installation from journal")[0][0]

    @contextmanager
    def _borrowed(self) -> Iterator[Database]:
        # list.append and list.pop are atomic, so threads need no lock.
        db = self.idle.pop() if self.idle else self.connect()
        with self._returned(db):
            yield db

    @contextmanager
    def _returned(self, db: Database) -> Iterator[None]:
        """A connection that failed is closed; nobody gets it again."""
        try:
            yield
        except Unwritable:
            db.close()
            raise
        except BaseException:
            self.idle.append(db)
            raise
        self.idle.append(db)

    def _all(self, sql: str, *values: Any) -> list[Any]:
        pooled = bool(self.idle)
        try:
            with self._borrowed() as db:
                return db.all(sql, *values)
        except Unwritable:
            if not pooled:
                raise
        fresh = self.connect()  # the pooled connection was stale: once more with a new one
        with self._returned(fresh):
            return fresh.all(sql, *values)

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()

    @contextmanager
    def at_one_row(self) -> Iterator["JournalReader"]:
        with self._borrowed() as db, db.reading():
            yield _AtOneRow(db, self.installation)

    def head(self) -> int:
        return int(self._all("select head from journal")[0][0])

    # --- jobs --------------------------------------------------------------------------------------------------------

    def jobs(self, wanted: Filter, after: int | None = None, limit: int = 50) -> list[JobRow]:
        """One query per team and phase, each a walk along an index, then the newest of all."""
        matches = [*map(states.Match, wanted.phases), *map(states.match, wanted.states)]
        asked = product(wanted.teams or (None,), matches or (None,))
        pages = [self._page(wanted, team, match, after, limit) for team, match in asked]
        newest = heapq.merge(*pages, key=lambda job: job.number, reverse=True)
        return list(islice(newest, limit))

    def _page(
        self, wanted: Filter, team: str | None, match: states.Match | None, after: int | None, limit: int
    ) -> list[JobRow]:
        clauses: list[tuple[str, Any]] = []
        if team is not None:
            clauses.append(("team = ?", team))
        if match is not None:
            clauses.append(("phase = ?", match.phase))
            if match.attempt_runs is not None:
                clauses.append((ATTEMPT_RUNS if match.attempt_runs else f"not {ATTEMPT_RUNS}", "running"))
        if wanted.user:
            clauses.append(('"user" = ?', wanted.user))
        if wanted.origin is not None:
            clauses.append(("origin_uid = ? and origin_uid <> ''", wanted.origin.uid))  # matches the partial index
            clauses.append(("origin_site = ?", wanted.origin.site))
        if wanted.text:
            clauses.append((r"words like ? escape '\'", f"%{_literal(wanted.text.lower())}%"))
        if after is not None:
            clauses.append(("number < ?", after))
        where = " and ".join(clause for clause, _ in clauses) or "1 = 1"
        # The inner query reads only the index; rows are fetched for the page alone.
        inner = f"select number from jobs where {where} order by number desc limit ?"
        sql = f"select {_columns(JobRow)} from jobs where number in ({inner}) order by number desc"
        return self._made(JobRow, sql, *(value for _, value in clauses), limit)

    def job(self, job: str) -> JobRow | None:
        return _first(self._made(JobRow, f"select {_columns(JobRow)} from jobs where id = ?", job))

    def counts(self) -> list[JobCount]:
        """The table counts by phase; running jobs are counted among the attempts."""
        counted_states: list[JobCount] = []
        for phase, team, *counted in self._all(COUNTS):
            jobs, gpus, running_jobs, running_gpus = map(int, counted)
            if running_jobs:
                counted_states.append(JobCount("running", team, running_jobs, running_gpus))
            if jobs > running_jobs:
                counted_states.append(JobCount(states.job_state(phase), team, jobs - running_jobs, gpus - running_gpus))
        return sorted(counted_states, key=lambda count: (count.state, count.team))

    def queued(self, team: str) -> int:
        sums = self._all("select sum(jobs) from counts where team = ? and phase in ('waiting', 'paused')", team)
        return int(sums[0][0] or 0)

    def queued_by(self, user: str) -> int:
        """How many jobs this person has queued or paused, over all teams."""
        sums = self._all("""select count(*) from jobs where "user" = ? and phase in ('waiting', 'paused')""", user)
        return int(sums[0][0])

    def spec(self, job: str) -> JobSpec | None:
        sql = "select number, part from happened where job = ? and kind = 'JobSubmitted' order by number desc limit 1"
        place = _first(self._all(sql, job))
        if place is None:
            return None
        (row,) = self._rows([place]).values()
        spec: JobSpec = row.inputs[0].spec
        return spec

    def attempts(self, job: str) -> list[AttemptRow]:
        return self._made(AttemptRow, f"select {_columns(AttemptRow)} from attempts where job = ? order by number", job)

    def attempt(self, attempt: str) -> AttemptRow | None:
        return _first(self._made(AttemptRow, f"select {_columns(AttemptRow)} from attempts where id = ?", attempt))

    def placed(self) -> list[AttemptRow]:
        live = "phase in ('promised', 'starting', 'running', 'stopping')"
        return self._made(AttemptRow, f"select {_columns(AttemptRow)} from attempts where {live} order by number")

    def _made(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [kind(*columns) for columns in self._all(sql, *values)]

    # --- what happened -----------------------------------------------------------------------------------------------

    def story(self, job: str) -> list[Row]:
        mine = self._all("select number, part from happened where job = ?", job)
        if not mine:
            return []
        policies = self._all(
            "select number, part from happened where job = '' and kind = 'PolicySet'"
        )  # for the currency
        return list(self._rows([*mine, *policies]).values())

    def feed(
        self, before: tuple[int, int] | None = None, limit: int = 50, kinds: tuple[str, ...] = ()
    ) -> list[Happening]:
        where, values = _where([(f"kind in ({marks(len(kinds))})", kinds)] if kinds else [], before)
        sql = (
            f"select number, part, min(job), min(kind) from happened where {where} "
            "group by number, part order by number desc, part desc limit ?"
        )
        places = self._all(sql, *values, limit)
        rows = self._rows([(number, part) for number, part, *_ in places])
        events = {number: iter(reversed((*row.inputs, *row.outputs))) for number, row in rows.items()}
        return [_happening(rows[number], part, job, kind, next(events[number])) for number, part, job, kind in places]

    def steps(self, after: int, limit: int = 200) -> list[Row]:
        stored_steps = self._all(f"select {COLUMNS} from steps where number > ? order by number limit ?", after, limit)
        return [row(plain(stored), self.where) for stored in stored_steps]

    def _rows(self, wanted: list[tuple[int, int]]) -> dict[int, Row]:
        """By number, each with only the wanted parts."""
        parts: dict[int, set[int]] = {}
        for number, part in wanted:
            parts.setdefault(number, set()).add(part)
        numbers, rows = sorted(parts), dict[int, Row]()
        for start in range(0, len(numbers), AT_ONCE):
            some = padded(numbers[start : start + AT_ONCE])
            sql = f"select {COLUMNS} from steps where number in ({marks(len(some))}) order by number"
            rows |= {
                stored[0]: row_with(plain(stored), parts[stored[0]], self.where) for stored in self._all(sql, *some)
            }
        return rows

    # --- money and offers --------------------------------------------------------------------------------------------

    def spend(self) -> list[SpendRow]:
        periods = {
            period: (start, end) for period, start, end in self._all("select period, starts_at, ends_at from periods")
        }
        caps = {scope: (cap, rate) for scope, cap, rate in self._all("select scope, per_period, per_hour from caps")}
        booked = {(scope, period): (spent, held) for scope, period, spent, held in self._all(SPEND)}
        keys = {*booked, *product(caps, periods)}
        rows = [
            SpendRow(scope, period, *caps.get(scope, (None, None)), *booked.get((scope, period), (0, 0)),
                     *periods.get(period, (None, None)))
            for scope, period in keys
        ]  # fmt: skip
        return sorted(rows, key=lambda budget: (budget.starts_at or 0, budget.period, budget.scope))

    def used(self, from_day: int = 0) -> list[UsedRow]:
        return self._made(
            UsedRow, f"select {_columns(UsedRow)} from used where day >= ? order by day, offer, team", from_day
        )

    def closed(self) -> list[ClosedRow]:
        return self._made(ClosedRow, f"select {_columns(ClosedRow)} from closed order by offer")

    # --- tokens and the audit trail ----------------------------------------------------------------------------------

    def tokens(self, after: int = 0, browsers_after: int = 0) -> list[TokenRow]:
        """Only those that their step issued: a row that somebody added to the table alone lets nobody in."""
        wanted = "number > ? and (made_by = '' or expires_at > ?)"
        sql = f"select {_columns(TokenRow)} from tokens where {wanted} order by number, part"
        listed = self._made(TokenRow, sql, after, browsers_after)
        steps = self._rows([(row.number, row.part) for row in listed])
        issued = {
            (number, event.token): event
            for number, row in steps.items()
            for event in row.inputs
            if isinstance(event, TokenIssued)
        }
        return [
            row
            for row in listed
            if (event := issued.get((row.number, row.id))) and token_row(row.number, row.part, event) == row
        ]

    def token(self, token: str) -> TokenRow | None:
        return _first(self._made(TokenRow, f"select {_columns(TokenRow)} from tokens where id = ?", token))

    def revocations(self, after: int = 0) -> list[RevocationRow]:
        sql = f"select {_columns(RevocationRow)} from revocations where number > ? order by number, part"
        return self._made(RevocationRow, sql, after)

    def audit(self, wanted: AuditFilter, before: tuple[int, int] | None = None, limit: int = 50) -> list[AuditRow]:
        named = [(name, getattr(wanted, name)) for name in ("who", "did", "about")]
        where, values = _where([(f"{name} = ?", (wish,)) for name, wish in named if wish], before)
        sql = f"select {_columns(AuditRow)} from audit where {where} order by number desc, part desc limit ?"
        return self._made(AuditRow, sql, *values, limit)

    # --- what is kept beside -----------------------------------------------------------------------------------------

    def answer(self, key: str) -> str | None:
        reply = _first(self._all("select answer from replies where key = ?", key))
        return None if reply is None else str(reply[0])

    def blob(self, digest: str) -> bytes | None:
        content = _first(self._all("select content from blobs where digest = ?", digest))
        return None if content is None else bytes(content[0])


class _AtOneRow(JournalReader):
    """Reads in one transaction of one connection. Never retried: a retry would see another row."""

    def __init__(self, db: Database, installation: str) -> None:
        self.db, self.where, self.installation = db, db.where, installation

    @contextmanager
    def _borrowed(self) -> Iterator[Database]:
        yield self.db

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self.db.all(sql, *values)

    def close(self) -> None:
        """The connection belongs to the other reader."""


#: Values per statement; old SQLite allows 999.
AT_ONCE = 500
#: A placed job is running if its attempt is, otherwise starting (see `journal.states`).
ATTEMPT_RUNS = "exists (select 1 from attempts where attempts.id = jobs.attempt and attempts.phase = ?)"
RUNNING = (
    "select jobs.team, count(*) as jobs, sum(jobs.gpus) as gpus from attempts "
    "join jobs on jobs.id = attempts.job and jobs.attempt = attempts.id and jobs.phase = 'placed' "
    "where attempts.phase = 'running' group by jobs.team"
)
COUNTS = (
    "select counts.phase, counts.team, counts.jobs, counts.gpus, coalesce(running.jobs, 0), coalesce(running.gpus, 0) "
    f"from counts left join ({RUNNING}) as running on running.team = counts.team and counts.phase = 'placed' "
    "where counts.jobs > 0"
)
SPEND = "select scope, period, spent, held from spend"


def padded(numbers: list[int]) -> list[int]:
    """With the last one repeated, so that there are as many as some power of two. A connection keeps the statements
    that it has compiled, some kilobytes each: one for each count filled memory for an hour.
    """
    return numbers + numbers[-1:] * ((1 << (len(numbers) - 1).bit_length()) - len(numbers)) if numbers else numbers


def _columns(kind: type[Any]) -> str:
    return ", ".join(LOOKED_UP.get(field.name, f'"{field.name}"') for field in fields(kind))


def _where(clauses: list[tuple[str, tuple[Any, ...]]], before: tuple[int, int] | None) -> tuple[str, list[Any]]:
    """All of these clauses and, from the newest back, what is older than `before`; with the values for their marks."""
    if before is not None:
        clauses = [*clauses, ("(number, part) < (?, ?)", before)]
    where = " and ".join(clause for clause, _ in clauses) or "1 = 1"
    return where, [value for _, some in clauses for value in some]


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")


def _first(rows: list[T]) -> T | None:
    return rows[0] if rows else None


def _happening(row: Row, part: int, job: str, kind: str, event: Any) -> Happening:
    """Members of a job array were submitted in one event."""
    return Happening(row.number, part, row.at, kind, getattr(event, "job", job), event)
