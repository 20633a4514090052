"""Opens a journal by its address: a file, or `postgresql://...`. Commands and wiring call it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.core.errors import BadInput
from penstock.explain.story import StoryLine, tell
from penstock.journal.database import Database
from penstock.journal.head_memory import HeadMemory
from penstock.journal.journal import Reader, Row, Unwritable
from penstock.journal.reader import JournalReader, NoTables
from penstock.journal.writer import JournalWriter, steps_of


def open_journal(where: str, create: bool = True, key: bytes = b"", memory: HeadMemory | None = None) -> JournalWriter:
    """Open for writing; creates it unless `create` is false. `key`: of the installation, which seals snapshots.
    `memory`: of the newest head, without which a journal that lost steps is not recognised.
    """
    db = database(where)
    try:
        if not create:
            must_exist(where)
            db.all("select format from journal")
        return JournalWriter(db, key, memory)
    except BaseException:
        db.close()
        raise


def open_reader(where: str) -> Reader:
    """Open for reading."""
    must_exist(where)
    return JournalReader(lambda: database(where, readonly=True))


def read(where: str) -> Iterator[Row]:
    """All steps in order, each verified against the chain; works while another process writes."""
    must_exist(where)
    with reachable(), closing(database(where, readonly=True)) as db:
        yield from steps_of(db)


def lines_of(where: str, job: str) -> list[StoryLine]:
    """One job's story: from its own steps if there are tables, otherwise from all steps."""
    try:
        with reachable(), closing(open_reader(where)) as reader:
            return tell(reader.story(job), job)
    except NoTables:
        return tell(read(where), job)


def database(where: str, readonly: bool = False) -> Database:
    if is_postgres(where):
        from penstock.journal.postgres import PostgresDatabase

        return PostgresDatabase(where, readonly)
    from penstock.journal.sqlite import SqliteDatabase

    return SqliteDatabase(where, readonly)


def is_postgres(where: str) -> bool:
    return where.startswith(("postgresql://", "postgres://"))


@contextmanager
def reachable() -> Iterator[None]:
    """For commands: turn `Unwritable` into an error message."""
    try:
        yield
    except Unwritable as error:
        raise BadInput(str(error)) from None


def must_exist(where: str) -> None:
    if not is_postgres(where) and not Path(where).is_file():
        raise BadInput(f"There is no journal {where}; `penstock simulate --journal FILE` writes one.")
