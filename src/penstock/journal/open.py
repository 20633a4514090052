"""A journal by its name: a file, or `postgresql://...`. Commands and the wiring call these."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.core.errors import BadInput
from penstock.journal.database import Database
from penstock.journal.journal import Row, Unwritable
from penstock.journal.keeper import Keeper
from penstock.journal.queries import NoTables, Queries
from penstock.journal.story import Line, tell


def open_journal(where: str, create: bool = True) -> Keeper:
    """To write it; made if there is none, unless told not to."""
    if not create and not is_postgres(where):
        _must_exist(where)
    return Keeper(database(where), create)


def open_reader(where: str) -> Queries:
    """To show it."""
    if not is_postgres(where):
        _must_exist(where)
    return Queries(lambda: database(where, readonly=True))


def read(where: str) -> Iterator[Row]:
    """All steps in order, each checked against the chain."""
    if not is_postgres(where):
        from penstock.journal import sqlite

        yield from sqlite.read(where)
        return
    db = database(where, readonly=True)
    with reachable(), closing(db):
        yield from Keeper(db, create=False).read()


def lines_of(where: str, job: str) -> list[Line]:
    """One job's story: its own steps where the tables say which they are, otherwise from all of them."""
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
    """For commands: what cannot be reached now is the end of them, in a sentence."""
    try:
        yield
    except Unwritable as error:
        raise BadInput(str(error)) from None


def _must_exist(where: str) -> None:
    if not Path(where).is_file():
        raise BadInput(f"There is no journal {where}; `penstock up` or `penstock simulate --journal FILE` writes one.")
