"""A journal in PostgreSQL over one blocking `psycopg` connection.

Rows go as one statement per table, with an array per column, and all statements of an append go in one round trip
(docs/decisions/0007). Imported only for `postgresql://` addresses: the driver is an extra.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from penstock.core.errors import BadInput
from penstock.extras import install
from penstock.journal.database import askable, marks
from penstock.journal.journal import Unwritable

try:
    import psycopg
except ImportError:  # reported when a PostgreSQL journal is opened
    raise BadInput(f"A journal in PostgreSQL needs its driver: {install('postgres')}") from None

#: Arbitrary keys of our advisory locks.
WRITER: Final = 0x70656E73
TRANSACTION: Final = 0x70656E74
#: Connection timeout in seconds; the plane retries.
PATIENCE: Final = 5
#: A writer that holds the lock and is idle for so many seconds is terminated. Folding a chunk takes a few.
STALLED_SECONDS: Final = 10
STALLED: Final = """
    select pg_terminate_backend(pid) from pg_locks join pg_stat_activity using (pid)
    where locktype = 'advisory' and objid = %s and granted and datname = current_database()
    and wait_event = 'ClientRead' and state_change < now() - make_interval(secs => %s)
"""
#: Temporary errors: no server, no space, read-only, too many connections, a lock.
PASSING: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.InsufficientPrivilege,
)


class PostgresDatabase:
    def __init__(self, url: str, readonly: bool = False) -> None:
        self.url, self.readonly = url, readonly
        self.where = _without_password(url)
        self._db: psycopg.Connection[Any] | None = None
        self._wants_lock = False

    @property
    def db(self) -> "psycopg.Connection[Any]":
        """The connection, opened again if it was lost."""
        if self._db is None or self._db.closed:
            self._db = self._connect()
            if self._wants_lock:
                self._try_lock()
        return self._db

    def _connect(self) -> "psycopg.Connection[Any]":
        with self._told():
            db = psycopg.connect(self.url, autocommit=True, connect_timeout=PATIENCE, **ALIVE)
            db.execute("set synchronous_commit = on")
            db.execute("set client_min_messages = warning")
            # A writer that was suspended during an append must not block the next one for ever.
            db.execute(f"set lock_timeout = '{PATIENCE}s'")
            db.execute("set idle_in_transaction_session_timeout = '30s'")
            if self.readonly:
                db.execute("set default_transaction_read_only = on")
            return db

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.ProgramLimitExceeded:  # a value too long for an index: no retry helps
            raise
        except psycopg.errors.UndefinedTable:
            raise BadInput(f"{self.where} holds no journal; `penstock up` makes one.") from None
        except PASSING as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            verb = "read" if self.readonly else "written"
            raise Unwritable(f"{self.where} cannot be {verb} now: {why.rstrip('.')}.") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One writer at a time: a transaction-level lock. Statements without results are pipelined."""
        with self._told():
            db = self.db
            try:
                with db.pipeline(), db.transaction():
                    db.execute("select pg_advisory_xact_lock(%s)", (TRANSACTION,))
                    yield
            except (psycopg.errors.LockNotAvailable, Unwritable) as error:  # the first round trip shows it
                if isinstance(error.__cause__ or error, psycopg.errors.LockNotAvailable):
                    self._end_stalled()
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._told():
            db = self.db
            with db.transaction(force_rollback=True):
                db.execute("set transaction isolation level repeatable read, read only")
                yield

    def _end_stalled(self) -> None:
        """Terminate a writer that was suspended during an append or whose machine is gone; it blocks all others, and
        the server has no timeout inside a pipeline. It learns that it is fenced when it comes back.
        """
        self.db.execute(STALLED, (TRANSACTION, STALLED_SECONDS))

    def all(self, sql: str, *values: Any) -> list[Any]:
        with self._told():
            return self.db.execute(_marked(sql), askable(values)).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        with self._told():
            self.db.execute(_marked(sql), values)

    def create(self, statement: str) -> None:
        self.run(statement.format(bytes="bytea", serial="bigint"))

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert all rows with one statement, one array per column."""
        if not rows:
            return
        with self._told(), self.db.cursor() as cursor:
            if sql.startswith("insert"):
                columns = [list(column) for column in zip(*rows, strict=True)]
                cursor.execute(_unnested(sql, columns), columns)
            else:
                cursor.executemany(_marked(sql), rows)

    def place(self) -> str:
        """The server since it was started, and the database: a dump that is restored is another one."""
        sql = "select oid::text, pg_postmaster_start_time()::text from pg_database where datname = current_database()"
        return ":".join(self.all(sql)[0])

    def lock(self) -> bool:
        """A session-level lock: the server releases it with the session, so a killed writer can restart at once."""
        self._wants_lock = True
        with self._told():
            return self._try_lock()

    def _try_lock(self) -> bool:
        row = self.db.execute("select pg_try_advisory_lock(%s)", (WRITER,)).fetchone()
        return bool(row and row[0])

    def forget(self) -> None:
        """VACUUM: returns the dead row's page."""
        self.run("vacuum blobs")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


#: TCP keepalives: a dead server is noticed within half a minute.
ALIVE: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def _marked(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _unnested(sql: str, columns: list[list[Any]]) -> str:
    arrays = ", ".join(f"%s::{_type(column)}[]" for column in columns)
    return sql.replace(f"values ({marks(len(columns))})", f"select * from unnest({arrays})")


def _type(column: list[Any]) -> str:
    """Text and bytes are never null, so a column of nulls is numeric."""
    known = next((cell for cell in column if cell is not None), 0)
    return "text" if isinstance(known, str) else "bytea" if isinstance(known, bytes) else "bigint"


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = (parts.username or "") + "@" if parts.username else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))
