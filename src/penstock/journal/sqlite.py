"""A journal in one SQLite file: one row a step, chained by hash, written by one connection.

`synchronous=FULL` in WAL mode, because a committed hold must survive a power cut. A simulation, which can be run
again, groups many steps into one transaction.
"""

import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.engine import VERSION, Step
from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.journal import codec

SCHEMA: Final = """
create table journal (format integer not null);
create table steps (
    number integer primary key, at integer not null, inputs blob not null, outputs blob not null,
    version integer not null, revision integer not null, hash blob not null
);
"""
FORMAT: Final = 1
GENESIS: Final = sha256(b"penstock").digest()


@value
class Row:
    number: int
    at: Instant
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    version: int
    revision: int


class Journal:
    """Appends; `group` steps to a transaction. Use it in a `with` block."""

    def __init__(self, path: str, group: int = 1) -> None:
        if Path(path).exists():
            raise BadInput(f"{path} exists already; name a new file for the journal, or remove that one.")
        try:
            self.db = sqlite3.connect(path, isolation_level=None)
            self.db.executescript("pragma journal_mode=wal; pragma synchronous=full;" + SCHEMA)
        except sqlite3.Error as error:
            raise BadInput(f"Cannot write a journal to {path}: {error}.") from None
        self.db.execute("insert into journal values (?)", (FORMAT,))
        self.path, self.group, self.last = path, group, GENESIS
        self.pending: list[tuple[object, ...]] = []

    def append(self, step: Step) -> None:
        inputs, outputs = codec.encode(step.inputs), codec.encode(step.outputs)
        self.last = chain(self.last, step.number, step.at, inputs, outputs, VERSION, step.revision)
        self.pending.append((step.number, step.at, inputs, outputs, VERSION, step.revision, self.last))
        if len(self.pending) >= self.group:
            self.commit()

    def commit(self) -> None:
        try:
            self.db.execute("begin")
            self.db.executemany("insert into steps values (?, ?, ?, ?, ?, ?, ?)", self.pending)
            self.db.execute("commit")
        except sqlite3.Error as error:
            raise BadInput(f"Cannot write the journal {self.path}: {error}.") from None
        self.pending.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.pending:
            self.commit()
        self.db.close()


def chain(last: bytes, number: int, at: Instant, inputs: bytes, outputs: bytes, version: int, revision: int) -> bytes:
    """Each row's hash covers the row and, through the one before, the whole past."""
    head = f"{number}|{at}|{version}|{revision}|{len(inputs)}|".encode()
    return sha256(last + head + inputs + outputs).digest()


def read(path: str) -> Iterator[Row]:
    """All steps in order, each checked against the chain."""
    last = GENESIS
    for number, at, inputs, outputs, version, revision, found in _rows(path):
        last = chain(last, number, at, inputs, outputs, version, revision)
        if last != found:
            raise BadInput(f"{path}: step {number} is not what was written; the journal was changed after the fact.")
        if version > VERSION:
            raise BadInput(f"{path}: step {number} was written by a newer Penstock; use that version to read it.")
        yield Row(number, at, codec.decode(inputs), codec.decode(outputs), version, revision)


def _rows(path: str) -> Iterator[tuple[int, int, Any, Any, int, int, Any]]:
    if not Path(path).is_file():
        raise BadInput(f"There is no journal {path}; `penstock simulate --journal FILE` writes one.")
    try:
        db = sqlite3.connect(f"file:{Path(path).absolute()}?mode=ro", uri=True)
        (found,) = db.execute("select format from journal").fetchone() or (None,)
        if found != FORMAT:
            raise BadInput(f"{path} is a journal of another format ({found}); this version reads {FORMAT}.")
        # Cast, so that text put there by somebody is bytes that do not match the chain, and no surprise.
        columns = "number, at, cast(inputs as blob), cast(outputs as blob), version, revision, hash"
        yield from db.execute(f"select {columns} from steps order by number")
        db.close()
    except sqlite3.Error as error:
        raise BadInput(f"{path} is not a journal: {error}.") from None
