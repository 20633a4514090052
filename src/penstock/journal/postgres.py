"""A journal in PostgreSQL: one connection of `psycopg`, which blocks, as a journal's calls do.

Rows go as one statement a table, with a column as an array each, and all statements of an append leave in one round
trip (docs/decisions/0007). Imported only where an address says `postgresql://`: the driver is an extra.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from penstock.core.errors import BadInput
from penstock.journal.database import marks
from penstock.journal.journal import Unwritable

try:
    import psycopg
except ImportError:  # said when one is asked for, in a sentence
    raise BadInput("A journal in PostgreSQL needs its driver: pip install 'penstock[postgres]'.") from None

#: Any two numbers: they name our locks in the journal's own database.
WRITER: Final = 0x70656E73
TRANSACTION: Final = 0x70656E74
#: How long a connection may take, in seconds; the loop tries again.
PATIENCE: Final = 5
#: A writer that keeps the lock and says nothing for so many seconds writes no more. Folding a chunk takes a few.
STALLED_SECONDS: Final = 10
STALLED: Final = """
    select pg_terminate_backend(pid) from pg_locks join pg_stat_activity using (pid)
    where locktype = 'advisory' and objid = %s and granted and datname = current_database()
    and wait_event = 'ClientRead' and state_change < now() - make_interval(secs => %s)
"""
#: Errors after which the same statement may work: no server, no space, read-only, too many connections, a lock.
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
        """Made anew when the old one was lost: the server may have been restarted."""
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
            # A writer that was stopped in the middle of an append must not keep the next one out for ever.
            db.execute(f"set lock_timeout = '{PATIENCE}s'")
            db.execute("set idle_in_transaction_session_timeout = '30s'")
            if self.readonly:
                db.execute("set default_transaction_read_only = on")
            return db

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.UndefinedTable:
            raise BadInput(f"{self.where} holds no journal; `penstock up` makes one.") from None
        except PASSING as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            verb = "read" if self.readonly else "written"
            raise Unwritable(f"{self.where} cannot be {verb} now: {why.rstrip('.')}.") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One at a time, whoever writes: the lock ends with it. What nobody waits for an answer to is sent together."""
        with self._told():
            db = self.db
            try:
                with db.pipeline(), db.transaction():
                    db.execute("select pg_advisory_xact_lock(%s)", (TRANSACTION,))
                    yield
            except (psycopg.errors.LockNotAvailable, Unwritable) as error:  # the first word with the server says it
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
        """Whoever was stopped in the middle of an append, or whose machine is gone, keeps everybody out; and of what is
        sent together the server has no timeout. What has said nothing for so long is ended: it learns that it is
        fenced when it comes back."""
        self.db.execute(STALLED, (TRANSACTION, STALLED_SECONDS))

    def all(self, sql: str, *values: Any) -> list[Any]:
        with self._told():
            return self.db.execute(_marked(sql), values).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        with self._told():
            self.db.execute(_marked(sql), values)

    def create(self, statement: str) -> None:
        self.run(statement.format(bytes="bytea", serial="bigint"))

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Rows to insert go as one statement, a column an array."""
        if not rows:
            return
        with self._told(), self.db.cursor() as cursor:
            if sql.startswith("insert"):
                columns = [list(column) for column in zip(*rows, strict=True)]
                cursor.execute(_unnested(sql, columns), columns)
            else:
                cursor.executemany(_marked(sql), rows)

    def lock(self) -> bool:
        """The server lets go of it when the session ends, so that who was killed can come back at once."""
        self._wants_lock = True
        with self._told():
            return self._try_lock()

    def _try_lock(self) -> bool:
        found = self.db.execute("select pg_try_advisory_lock(%s)", (WRITER,)).fetchone()
        return bool(found and found[0])

    def forget(self) -> None:
        """The row is dead; this is what gives its page back."""
        self.run("vacuum blobs")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


#: A server that is gone without a word is noticed within half a minute.
ALIVE: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def _marked(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _unnested(sql: str, columns: list[list[Any]]) -> str:
    arrays = ", ".join(f"%s::{_type(column)}[]" for column in columns)
    return sql.replace(f"values ({marks(len(columns))})", f"select * from unnest({arrays})")


def _type(column: list[Any]) -> str:
    """Text and bytes are never missing, so a column without any value is one of numbers."""
    known = next((cell for cell in column if cell is not None), 0)
    return "text" if isinstance(known, str) else "bytea" if isinstance(known, bytes) else "bigint"


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = (parts.username or "") + "@" if parts.username else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))
