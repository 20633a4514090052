"""A journal in one SQLite file: the live connection, and the bulk writer for simulations.

WAL mode with `synchronous=FULL`, because a committed hold must survive a power cut. One connection alone writes and
checkpoints; readers open the file read-only. (SQLite before 3.51.3 is reported to damage a WAL that one connection
checkpoints while another commits.) A simulation can be repeated, so it groups many steps into one transaction and
leaves the tables to `penstock journal rebuild`.
"""

import os
import platform
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.engine import Step
from penstock.core.errors import BadInput
from penstock.journal.database import BASE, askable
from penstock.journal.hash_chain import FORMAT, GENESIS, Stored, stored
from penstock.journal.journal import Durability, Fenced, Unwritable

#: Errors about the values of a row. Python's own `OverflowError` and `UnicodeEncodeError` say the same.
UNSTORABLE = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)
#: Of the journal's pages that a reader keeps. There are as many readers as requests at once, and each kept two
#: megabytes: the system has the same pages in its own cache.
READER_CACHE_KB: Final = 512
STATEMENTS: Final = 64  #: compiled ones that a connection keeps, of some kilobytes each


class SqliteDatabase:
    """One connection, opened on first use, used by one thread at a time."""

    def __init__(self, path: str, readonly: bool = False, page_bytes: int = 4_096) -> None:
        self.where, self.readonly, self.page_bytes = path, readonly, page_bytes
        self._db: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._files: dict[str, tuple[int, int] | None] = {}  #: device and inode of the files that we write

    @property
    def db(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        # Quote `%` and `?` in the path.
        uri = Path(self.where).absolute().as_uri() + ("?mode=ro" if self.readonly else "")
        with self._told():
            db = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5, cached_statements=STATEMENTS
            )
            if self.readonly:
                db.execute(f"pragma cache_size=-{READER_CACHE_KB}")
            else:
                db.execute(f"pragma page_size={self.page_bytes}")  # for a new file; an existing one keeps its own
                (mode,) = db.execute("pragma journal_mode=wal").fetchone()  # some file systems have no WAL
                db.executescript("pragma synchronous=full; pragma secure_delete=on;")
                self._files = dict.fromkeys((self.where, f"{self.where}-wal") if mode == "wal" else (self.where,))
            return db

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Temporary errors become `Unwritable`; a file that is no database is `BadInput`; `UNSTORABLE` are neither."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or "Could not decode to UTF-8" in str(error):
                raise BadInput(f"{self.where} is not a journal: {error}.") from None
            raise Unwritable(
                f"{self.where} cannot be {'read' if self.readonly else 'written'} now: {error}."
            ) from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, UNSTORABLE):
                raise
            raise BadInput(f"{self.where} is not a journal: {error}.") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._told():
            self.db.execute("begin immediate")
            try:
                yield
                self.db.execute("commit")
                self._check_files()
            except BaseException:
                # A full disk may have rolled it back already; if this fails, the next connection rolls back.
                with suppress(sqlite3.Error):
                    if self.db.in_transaction:
                        self.db.execute("rollback")
                raise

    def _check_files(self) -> None:
        """Raise `Fenced` if what we write is not what others find under our name: the file was deleted or replaced, and
        a commit to it is as good as none.
        """
        for path, before in self._files.items():
            identity = self._identity(path)
            if identity is None or before not in (None, identity):
                how = "deleted" if identity is None else "replaced"
                raise Fenced(
                    f"{path} was {how} under its writer, which stops: nobody would find what it writes. Put the file"
                    " back, or a backup with `penstock journal restore`, and start again."
                )
            self._files[path] = identity

    def _identity(self, path: str) -> tuple[int, int] | None:
        try:
            file_stat = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unwritable(f"{path} cannot be found now: {error.strerror}.") from error
        return file_stat.st_dev, file_stat.st_ino

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._told():
            self.db.execute("begin")
            try:
                yield
            finally:
                self.db.execute("rollback")

    def all(self, sql: str, *values: Any) -> list[Any]:
        with self._told():
            return self.db.execute(sql, askable(values)).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        with self._told():
            self.db.execute(sql, values)

    def create(self, statement: str) -> None:
        self.run(statement.format(bytes="blob", serial="integer"))

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            with self._told():
                self.db.executemany(sql, rows)

    def place(self) -> str:
        """The machine since it was started, and the file: a copy is another file, or on another machine."""
        try:
            file_stat, boot = os.stat(self.where), Path("/proc/sys/kernel/random/boot_id")
            machine = boot.read_text("ascii").strip() if boot.exists() else platform.node()
        except OSError as error:
            raise Unwritable(f"{self.where} cannot be found now: {error.strerror}.") from error
        return f"{machine}:{file_stat.st_dev}:{file_stat.st_ino}"

    def lock(self) -> bool:
        """A file lock: the kernel releases it with the process. The file stays, because removing it is a race."""
        if self._lock_file is not None:
            return True
        try:
            lock_file = os.open(f"{self.where}-lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unwritable(f"{self.where}-lock cannot be written now: {error.strerror}.") from error
        try:
            flock(lock_file, LOCK_EX | LOCK_NB)
        except OSError:
            os.close(lock_file)
            return False
        self._lock_file = lock_file
        return True

    def durability(self) -> Durability:
        return Durability("A commit is on this machine's disk, and nowhere else: back it up.")

    def forget(self) -> None:
        """`secure_delete` has overwritten the row; a checkpoint clears the WAL, which still has the old page."""
        self.run("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


class BulkJournal:
    """Appends a simulation's steps, `group` of them per transaction. A context manager."""

    def __init__(self, path: str, group: int = 1) -> None:
        if Path(path).exists():
            raise BadInput(f"{path} exists already; name a new file for the journal, or remove that one.")
        self.path, self.group, self.last = path, group, GENESIS
        self.pending: list[Stored] = []
        self.database = SqliteDatabase(
            path, page_bytes=16_384
        )  # it writes megabytes at once: larger pages need a quarter of the calls
        with self._told(), self.database.transaction():
            for statement in BASE:
                self.database.create(statement)
            first = (FORMAT, uuid.uuid4().hex, 0, GENESIS, 0, 0)
            self.database.run("insert into journal values (?, ?, ?, ?, ?, ?)", *first)

    @property
    def db(self) -> sqlite3.Connection:
        return self.database.db

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Unwritable as error:
            raise BadInput(f"Cannot write a journal to {self.path}: {error.__cause__}.") from None

    def append(self, step: Step) -> None:
        row = stored(step, self.last)
        self.pending.append(row)
        self.last = row[-1]
        if len(self.pending) >= self.group:
            self.commit()

    def commit(self) -> None:
        if not self.pending:
            return
        with self._told(), self.database.transaction():
            self.database.write("insert into steps values (?, ?, ?, ?, ?, ?, ?)", self.pending)
            self.database.run("update journal set head = ?, hash = ?", self.pending[-1][0], self.last)
        self.pending.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()
        self.database.close()
