"""Verifies what lies beside the chain against the chain: tables, blobs, snapshots. `penstock journal verify` calls it.

All of it is read at one instant, and the steps are folded once. The tables are projected anew into a temporary file and
compared row by row; a snapshot must hold the state that its step folds to; a blob must have its digest.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.values import value
from penstock.journal.database import CHUNK, Database, as_bytes, hash_of, tables_sql
from penstock.journal.folding import fold_all
from penstock.journal.open import database, must_exist, reachable
from penstock.journal.projection import project
from penstock.journal.schema import PROJECTION, TABLES, Changes, Table
from penstock.journal.seal import SEAL_BYTES, Doubtful
from penstock.journal.sqlite import SqliteDatabase
from penstock.journal.writer import steps_of, write_changes

SHOWN: Final = 5  #: problems that are told; the rest is counted
BLOBS: Final = 50  #: read at once: each may have a megabyte

#: Makes a snapshot's bytes a state of this step, or raises `Doubtful`.
Restore = Callable[[int, bytes], State]


@value
class Contents:
    """How much was verified."""

    rows: int  # of tables; 0 also for a simulation's journal, which has none
    blobs: int
    snapshots: int
    snapshots_of_others: int  # of other versions: nobody here believes them, and nobody can read them


def verify_contents(where: str, schema: str, restored: Restore) -> Contents:
    """Raises `BadInput` that names what differs. `schema`: of the snapshots that this version reads."""
    must_exist(where)
    with reachable(), closing(database(where, readonly=True)) as db, db.reading():
        format_, *_ = db.all("select format from journal")[0]
        if format_ == 1:
            return Contents(rows=0, blobs=0, snapshots=0, snapshots_of_others=0)
        problems: list[str] = []
        verified = _verify(db, schema, restored, problems)
    if problems:
        more = f" And {len(problems) - SHOWN:,} more." if len(problems) > SHOWN else ""
        raise BadInput(f"{where}: {' '.join(problems[:SHOWN])}{more}")
    return verified


def _verify(db: Database, schema: str, restored: Restore, problems: list[str]) -> Contents:
    head, projected, projection = db.all("select head, projected, projection from journal")[0]
    live = bool(projected) or projection == PROJECTION  # a simulation's journal has steps alone
    snapshots = _Snapshots(db, schema, restored, problems) if live else None
    with (
        tempfile.TemporaryDirectory(prefix="penstock-verify-") as folder,
        closing(SqliteDatabase(str(Path(folder) / "tables.db"))) as anew,
    ):
        _fold(db, anew, snapshots)
        if projection == PROJECTION and projected != head:
            problems.append("The tables are not those of the last step; run `penstock journal rebuild`.")
        tables = TABLES.values() if projection == PROJECTION else ()  # the next writer makes others anew
        rows = sum(_compare(db, anew, table, problems) for table in tables)
    return Contents(
        rows=rows,
        blobs=_blobs(db, problems) if live else 0,
        snapshots=len(snapshots.wanted) if snapshots else 0,
        snapshots_of_others=snapshots.others if snapshots else 0,
    )


def _fold(db: Database, anew: Database, snapshots: "_Snapshots | None") -> None:
    """Fold all steps into tables of their own, and hold each snapshot against its step on the way."""
    changes = Changes()
    with anew.transaction():
        for statement in tables_sql():
            anew.create(statement)
        for row, state in fold_all(steps_of(db), db.where):
            project(state, row, changes)
            if snapshots is not None:
                snapshots.hold_against(row.number, state)
            if row.number % CHUNK == 0:
                write_changes(anew, changes)
                changes = Changes()
        write_changes(anew, changes)


class _Snapshots:
    """The snapshots that a start of this version may believe."""

    def __init__(self, db: Database, schema: str, restored: Restore, problems: list[str]) -> None:
        self.db, self.restored, self.problems = db, restored, problems
        names = [(str(name), number) for name, number in db.all("select schema, number from snapshots")]
        ours = [(name, number) for name, number in names if name.startswith(f"{schema}.")]
        self.wanted, self.others = ours, len(names) - len(ours)
        self.problems += [f"There is a snapshot of step {n}, and no such step." for _, n in ours if _missing(db, n)]

    def hold_against(self, number: int, state: State) -> None:
        for name, _ in [point for point in self.wanted if point[1] == number]:
            sealed, link = self.db.all("select state, hash from snapshots where schema = ?", name)[0]
            try:
                kept = self.restored(number, as_bytes(sealed)[SEAL_BYTES:])
                same = kept.digest() == state.digest() and as_bytes(link) == hash_of(self.db, number)
                why = "" if same else f"The snapshot of step {number} is not the state that its steps fold to."
            except Doubtful as doubt:
                why = f"{str(doubt).capitalize()}."
            if why:
                self.problems.append(why)


def _missing(db: Database, number: Any) -> bool:
    return not isinstance(number, int) or number < 1 or hash_of(db, number) is None


def _compare(db: Database, anew: Database, table: Table, problems: list[str]) -> int:
    """How many rows the table has; each must be the one that the steps make."""
    columns = ", ".join(f'"{name}"' for name in table.columns)
    key = " and ".join(f'"{name}" = ?' for name in table.key)
    places = [table.columns.index(name) for name in table.key]
    rows = 0
    for row in _rows(db, table, columns):
        rows += 1
        made = anew.all(f"select {columns} from {table.name} where {key}", *(row[place] for place in places))
        if not made or tuple(made[0]) != tuple(row):
            name = "/".join(str(row[place]) for place in places)
            problems.append(f"Row {name} of table {table.name} is not what the steps say.")
    ((wanted,),) = anew.all(f"select count(*) from {table.name}")
    if rows < wanted:
        problems.append(f"Table {table.name} lacks {wanted - rows:,} rows.")
    return rows


def _rows(db: Database, table: Table, columns: str) -> Iterator[tuple[Any, ...]]:
    """In the order of the key, as this database sorts; in chunks."""
    key = ", ".join(f'"{name}"' for name in table.key)
    marks = ", ".join("?" * len(table.key))
    places = [table.columns.index(name) for name in table.key]
    chunk = db.all(f"select {columns} from {table.name} order by {key} limit {CHUNK}")
    while chunk:
        yield from chunk
        last = [chunk[-1][place] for place in places]
        chunk = db.all(
            f"select {columns} from {table.name} where ({key}) > ({marks}) order by {key} limit {CHUNK}", *last
        )


def _blobs(db: Database, problems: list[str]) -> int:
    """How many blobs there are; each must have its digest. Erased ones are not there, and that is all right."""
    blobs, last = 0, ""
    while chunk := db.all(f"select digest, content from blobs where digest > ? order by digest limit {BLOBS}", last):
        for digest, content in chunk:
            if sha256(as_bytes(content)).hexdigest() != digest:
                problems.append(f"What the digest {str(digest)[:12]}... stands for was changed.")
        blobs, last = blobs + len(chunk), chunk[-1][0]
    return blobs
