"""What a journal needs of a database, and the SQL that all of them understand. `writer` and `reader` are its callers.

Statements have `?` for values. Whatever keeps a statement from working now and may pass is `Unwritable`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.journal.hash_chain import COLUMNS, GENESIS, Stored
from penstock.journal.schema import INDICES, TABLES, Table

#: Rows fetched at once when a journal is read from end to end.
CHUNK: Final = 1_000


class Database(Protocol):
    """One connection. Connects when first used, and again when the connection was lost."""

    where: str  #: as people name it, without passwords

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside, durably, or nothing."""

    def reading(self) -> AbstractContextManager[None]:
        """All that is read inside is of one instant, whatever is written meanwhile."""

    def all(self, sql: str, *values: Any) -> list[Any]: ...

    def run(self, sql: str, *values: Any) -> None: ...

    def create(self, statement: str) -> None:
        """A table or an index; `{bytes}` and `{serial}` are called differently everywhere."""

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for each row; may be sent with the next, so that an error shows at the commit."""

    def lock(self) -> bool:
        """Be the only process that writes, until this one ends. False: another is."""

    def forget(self) -> None:
        """Overwrite what was deleted, as far as the database can."""

    def close(self) -> None: ...


#: What is not projected. `head` and `hash`: the last step, noted beside it so that a missing end is noticed.
JOURNAL: Final = """create table if not exists journal (
    format bigint not null, installation text not null, head bigint not null, hash {bytes} not null,
    projected bigint not null, projection bigint not null
)"""
STEPS: Final = """create table if not exists steps (
    number {serial} primary key, at bigint not null, inputs {bytes} not null, outputs {bytes} not null,
    version bigint not null, revision bigint not null, hash {bytes} not null
)"""
SNAPSHOTS: Final = """create table if not exists snapshots (
    schema text primary key, number bigint not null, hash {bytes} not null, state {bytes} not null
)"""
BASE: Final = (JOURNAL, STEPS)
LIVE: Final = (
    SNAPSHOTS,
    "create table if not exists lease (epoch bigint not null, holder text not null, until_at bigint not null)",
    "create table if not exists replies (key text primary key, answer text not null, at bigint not null)",
    "create index if not exists replies_by_time on replies (at)",
    "create table if not exists blobs (digest text primary key, content {bytes} not null)",
)
#: Keys used to be kept for ever, without a time: whoever opens such a journal keeps them for another day.
MOVED: Final = (
    "create table if not exists answers (key text primary key, answer text not null)",
    "insert into replies select key, answer, (select at from steps order by number desc limit 1) from answers",
    "drop table answers",
)


def tables_sql() -> Iterator[str]:
    """The projected tables. Identifiers are quoted, because `user` is a word of SQL's own."""
    for table in TABLES.values():
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(table.columns, table.types, strict=True))
        yield f"create table if not exists {table.name} ({columns}, primary key ({_names(table.key)}))"
    yield from (index.replace("index ", "index if not exists ", 1) for index in INDICES)


def upsert(table: Table, values: str) -> str:
    """`values` is where the rows come from. A line of a key that is there takes its place, or is added to it."""
    others = [name for name in table.columns if name not in table.key]
    changes = [
        f'"{name}" = {table.name}."{name}" + excluded."{name}"'
        if name in table.adds
        else f'"{name}" = excluded."{name}"'
        for name in others
    ]
    return (
        f"insert into {table.name} ({_names(table.columns)}) {values} "
        f"on conflict ({_names(table.key)}) do update set {', '.join(changes)}"
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def marks(count: int) -> str:
    return ", ".join("?" * count)


def stored_after(db: Database, after: int) -> Iterator[Stored]:
    """Rows in order, a chunk at a time: nothing stays open while somebody thinks about them."""
    while found := db.all(f"select {COLUMNS} from steps where number > ? order by number limit {CHUNK}", after):
        yield from (plain(values) for values in found)
        after = found[-1][0]


def plain(values: Sequence[Any]) -> Stored:
    """Bytes as bytes, also where somebody has put text: then they do not match the chain, which is the right answer."""
    number, at, inputs, outputs, version, revision, link = values
    return number, at, _bytes(inputs), _bytes(outputs), version, revision, _bytes(link)


def _bytes(found: Any) -> bytes:
    return found.encode() if isinstance(found, str) else bytes(found)


def hash_of(db: Database, number: int) -> bytes | None:
    """Of the step of this number; of none before the first."""
    if number == 0:
        return GENESIS
    found = db.all("select hash from steps where number = ?", number)
    return _bytes(found[0][0]) if found else None
