"""A journal in PostgreSQL over one blocking `psycopg` connection.

Rows go as one statement per table, with an array per column, and all statements of an append go in one round trip
(docs/decisions/0007). Imported only for `postgresql://` addresses: the driver is an extra.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from penstock.core.errors import BadInput
from penstock.extras import install
from penstock.formatting import count
from penstock.journal.database import askable, marks
from penstock.journal.journal import Durability, Unwritable

try:
    import psycopg
except ImportError:  # reported when a PostgreSQL journal is opened
    raise BadInput(f"A journal in PostgreSQL needs its driver: {install('postgres')}") from None

#: Arbitrary keys of our advisory locks.
WRITER: Final = 0x70656E73
TRANSACTION: Final = 0x70656E74
#: Connection timeout in seconds; the plane retries.
PATIENCE: Final = 5
#: For an answer to one statement, or to a commit; a synchronous standby that is gone lets commits wait for ever.
ANSWER_SECONDS: Final = 10.0
#: The same for what may take long: an index, a vacuum.
LONG_SECONDS: Final = 600.0
SETTINGS: Final = (
    "select current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
    " current_setting('fsync')"
)
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


class PostgresConnection(psycopg.Connection[Any]):
    """One that does not wait for ever. A server that stands still, or whose network is gone, says nothing; the timeouts
    that it has itself stand still with it.
    """

    answer_s: float = ANSWER_SECONDS

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._within(gen, monotonic() + self.answer_s), *args, **kwargs)

    def _within(self, gen: Any, until: float) -> Any:
        """The same steps of the protocol; psycopg resumes them several times a second though nothing came."""
        try:
            state = next(gen)
            while True:
                came = yield state
                if not came and monotonic() > until:
                    self.pgconn.finish()  # or whoever ends the transaction would wait for it again
                    raise psycopg.OperationalError(f"it has not answered for {self.answer_s:g} s")
                state = gen.send(came)
        except StopIteration as done:
            return done.value


class PostgresDatabase:
    def __init__(self, url: str, readonly: bool = False) -> None:
        self.url, self.readonly = url, readonly
        self.where = _without_password(url)
        self._db: PostgresConnection | None = None
        self._wants_lock = False

    @property
    def db(self) -> "PostgresConnection":
        """The connection, opened again if it was lost."""
        if self._db is None or self._db.closed:
            self._db = self._connect()
            if self._wants_lock:
                self._try_lock()
        return self._db

    def _connect(self) -> "PostgresConnection":
        with self._told():
            db = PostgresConnection.connect(self.url, autocommit=True, connect_timeout=PATIENCE, **ALIVE)
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
            db = self._db
            if db is not None and not db.closed and db.info.parameter_status("in_hot_standby") == "on":
                self.close()  # a standby: the address may name the server that takes writes, too
            why = (str(error).splitlines() or [type(error).__name__])[0]
            verb = "read" if self.readonly else "written"
            raise Unwritable(f"{self.where} cannot be {verb} now: {why.rstrip('.')}.") from error

    @contextmanager
    def _patient(self) -> Iterator[None]:
        with self._told():
            db = self.db
        db.answer_s = LONG_SECONDS
        try:
            yield
        finally:
            db.answer_s = ANSWER_SECONDS

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
        with self._patient():
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

    def durability(self) -> Durability:
        """From the server's own settings, and the standbys that are connected now."""
        ((commit, names, fsync),) = self.all(SETTINGS)
        standbys = self.all("select sync_state from pg_stat_replication")
        return _durability(commit, names, fsync, [state for (state,) in standbys])

    def forget(self) -> None:
        """VACUUM: returns the dead row's page."""
        with self._patient():
            self.run("vacuum blobs")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


#: TCP keepalives: a dead server is noticed within half a minute.
ALIVE: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def _durability(commit: str, names: str, fsync: str, states: list[str | None]) -> Durability:
    """`states`: of each standby, `sync`, `quorum`, `potential` or `async`; None where our account may not see it."""
    if fsync == "off":
        return _may_lose("fsync is off on the database server: a power cut can lose submissions that were accepted.")
    if names and commit not in ("off", "local"):
        if states and not {"sync", "quorum", None} & set(states):
            return _may_lose(f"The database waits for {names} with each commit, and none of these is connected.")
        return Durability(f"Synchronous: a commit waits for {names}; a failover to it loses nothing.", True, False)
    if states:
        return _may_lose(
            f"Asynchronous: a failover can lose what a standby has not got ({count(len(states), 'standby')} connected)."
            " With synchronous_standby_names set on the database server it loses nothing."
        )
    return _may_lose("No standby is connected: if the database server is lost, so is what its backups do not have.")


def _may_lose(says: str) -> Durability:
    return Durability(says, True, True)


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
