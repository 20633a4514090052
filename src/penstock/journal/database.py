"""The `Database` protocol of a journal, and the SQL that SQLite and PostgreSQL share. `writer` and `reader` use it.

Statements have `?` for values. A temporary failure raises `Unwritable`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from penstock.journal.hash_chain import COLUMNS, GENESIS, Stored
from penstock.journal.journal import Durability
from penstock.journal.schema import INDICES, TABLES, Table

#: Rows per fetch when a whole journal is read.
CHUNK: Final = 1_000


MOST_DIGITS: Final = 18  #: of a step's number


class Database(Protocol):
    """One connection. It connects on first use, and again after a lost connection."""

    where: str  #: its name for people, without passwords

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside are committed durably together, or none is."""

    def reading(self) -> AbstractContextManager[None]:
        """All reads inside see one instant (snapshot isolation)."""

    def all(self, sql: str, *values: Any) -> list[Any]: ...

    def run(self, sql: str, *values: Any) -> None: ...

    def create(self, statement: str) -> None:
        """Create a table or an index; `{bytes}` and `{serial}` stand for the database's own types."""

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute the statement for each row. It may be pipelined, so that an error shows at the commit."""

    def place(self) -> str:
        """Where this database is: a copy of it is in another place. It may change when a machine restarts."""

    def lock(self) -> bool:
        """Take the exclusive writer lock until this process ends. False if another process has it."""

    def durability(self) -> Durability:
        """What a failover, or the loss of a disk, can lose."""

    def forget(self) -> None:
        """Overwrite deleted data as far as the database can."""

    def close(self) -> None: ...


#: Tables that are no projection. `head` and `hash` repeat the last step, so that a truncated journal is detected.
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
    # What each site's claim is, and was before: `live/site_claims`. No part of the chain: it changes every few seconds.
    """create table if not exists claims (
        site text primary key, incarnation text not null, before text not null, place text not null
    )""",
    # A person's word that this journal goes on though others know more of it; then the same, used up and kept.
    "create table if not exists restores (at bigint not null, head bigint not null)",
    "create table if not exists restored (at bigint not null, head bigint not null)",
)
#: Older versions kept idempotency keys for ever, without a time. Those get another day.
MOVED: Final = (
    "create table if not exists answers (key text primary key, answer text not null)",
    "insert into replies select key, answer, (select at from steps order by number desc limit 1) from answers",
    "drop table answers",
)


def tables_sql() -> Iterator[str]:
    """DDL of the projected tables. Identifiers are quoted because `user` is a keyword."""
    for table in TABLES.values():
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(table.columns, table.types, strict=True))
        yield f"create table if not exists {table.name} ({columns}, primary key ({_names(table.key)}))"
    yield from (index.replace("index ", "index if not exists ", 1) for index in INDICES)


def upsert(table: Table, values: str) -> str:
    """`values`: the source of the rows. A row with an existing key replaces it or is added to it."""
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


def askable(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values to look for. Text that no database takes finds nothing, instead of failing: `projection` stores none."""
    return tuple(_text(cell) if isinstance(cell, str) and not cell.isprintable() else cell for cell in values)


def _text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def marks(count: int) -> str:
    return ", ".join("?" * count)


def stored_after(db: Database, after: int) -> Iterator[Stored]:
    """Rows in order, fetched in chunks, with no cursor open in between."""
    while chunk := db.all(f"select {COLUMNS} from steps where number > ? order by number limit {CHUNK}", after):
        yield from (plain(values) for values in chunk)
        after = chunk[-1][0]


def plain(values: Sequence[Any]) -> Stored:
    """The row with bytes as bytes. Text that somebody stored instead fails the hash check, as it should."""
    number, at, inputs, outputs, version, revision, link = values
    return number, at, as_bytes(inputs), as_bytes(outputs), version, revision, as_bytes(link)


def as_bytes(content: Any) -> bytes:
    """A cell as bytes, whatever somebody stored in it: SQLite keeps any type in any column."""
    return bytes(content) if isinstance(content, bytes | memoryview) else str(content).encode(errors="surrogatepass")


def hash_of(db: Database, number: int) -> bytes | None:
    """The hash of this step, the genesis hash for step 0; None if there is no such step."""
    if number == 0:
        return GENESIS
    rows = db.all("select hash from steps where number = ?", number)
    return as_bytes(rows[0][0]) if rows else None


def has(db: Database, head: str) -> bool:
    """True if there is this step with this hash: `NUMBER:HASH`."""
    number, _, link = head.partition(":")
    if not number.isdecimal() or len(number) > MOST_DIGITS:
        return False
    stored = hash_of(db, int(number))
    return stored is not None and stored.hex() == link
