"""The journal's writer: `journal.Journal` over any `Database`. The live plane calls it, one call at a time.

Three things keep it a single writer. A lock that ends with the process (of the file or the server's session), so that a
killed writer can restart at once. A lease that expires, so that nobody waits for a machine that is gone. And the epoch
that every append names, checked in the same transaction: whatever clocks and locks say, a replaced writer is fenced and
changes nothing.

And a writer that was once answered a head writes nothing to a journal that does not have it: not a step, not its lease.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.core.engine import Step
from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.units import Instant
from penstock.formatting import duration
from penstock.journal.database import (
    BASE,
    CHUNK,
    JOURNAL,
    LIVE,
    MOVED,
    Database,
    as_bytes,
    has,
    hash_of,
    marks,
    stored_after,
    tables_sql,
    upsert,
)
from penstock.journal.folding import fold_row
from penstock.journal.hash_chain import FORMAT, GENESIS, Stored, checked, refuse_format, stored
from penstock.journal.head_memory import HeadMemory, Restores
from penstock.journal.journal import Durability, Fenced, Held, KeptClaim, KeptClaims, Missing, Row
from penstock.journal.known_head import Head, KnownHead
from penstock.journal.projection import project
from penstock.journal.schema import PROJECTION, RETIRED, TABLES, Changes
from penstock.journal.seal import Doubtful, key_name, opened, seal

APPEND = "insert into steps values (?, ?, ?, ?, ?, ?, ?)"


class JournalWriter:
    def __init__(self, db: Database, key: bytes = b"", memory: HeadMemory | None = None) -> None:
        """`key`: seals the snapshots; only who has it can make one that is believed. `memory`: of the newest head."""
        self.db, self.key, self.memory = db, key, memory
        self.asked_at: float | None = None  #: since when the database has not answered; None: it was not asked
        self.unsure = False  #: an append failed, and may be committed all the same
        with db.transaction():
            self._create()
        self.installation: str = db.all("select installation from journal")[0][0]
        self.known = KnownHead(db.where, self.installation, memory)
        self.leads = False  #: the sites are ours: what we are answered is worth remembering

    # --- opening -----------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Create missing tables: all of them, or those that a simulation leaves out."""
        self.db.create(JOURNAL)
        version = _only(self.db.all("select format from journal"))
        if version is None:
            first = (FORMAT, uuid.uuid4().hex, 0, GENESIS, 0, PROJECTION)
            self.db.run(f"insert into journal values ({marks(len(first))})", *first)
            self._create_tables()
        elif version != FORMAT:
            refuse_format(version, self.db.where)
            raise BadInput(
                f"{self.db.where} is a journal of format {version}, which is only read now; write a new one."
            )
        for statement in (*BASE, *LIVE, *MOVED):
            self.db.create(statement)
        if not self.db.all("select epoch from lease"):
            self.db.run("insert into lease values (0, '', 0)")

    def _create_tables(self) -> None:
        for statement in tables_sql():
            self.db.create(statement)

    def close(self) -> None:
        self.db.close()
        if self.memory is not None:
            self.memory.close()

    # --- who writes --------------------------------------------------------------------------------------------------

    def claim(self, holder: str, at: Instant, lease_ms: int) -> int:
        """Take the lease, bring the tables up to date, and return the epoch."""
        epoch = self.take(holder, at, lease_ms)
        self.catch_up(epoch)
        return epoch

    def take(self, holder: str, at: Instant, lease_ms: int, copied: bool = False) -> int:
        """Take the lease alone, for a rebuild of the tables. `copied`: the lease may be of whoever wrote the original;
        then the lock decides.
        """
        alone = self.db.lock()
        with self.db.transaction():
            epoch, other, until_at, head, restores = self._now()
            if at < until_at and not (alone and (copied or other in (holder, ""))):
                self.known.follow(head, restores, self._hash_of)
                raise Held(self._held_by(other, until_at - at))
            permitted = bool(self.db.all("select at from restores limit 1"))
            self.known.admit(head, restores, self._hash_of, permitted=permitted)
            self._keep_lease(epoch + 1, holder, at + lease_ms)
        return epoch + 1

    def _held_by(self, other: str, left_ms: int) -> str:
        return (
            f"{self.db.where} is written by {other}, for {duration(left_ms)} more unless it renews; "
            "stop that one, or wait until its lease runs out."
        )

    def renew(self, epoch: int, at: Instant, lease_ms: int, claims: Sequence[KeptClaim] = ()) -> str:
        with self._fenced(epoch) as (head, restores, holder):
            self._keep_lease(epoch, holder, at + lease_ms)
            self._keep_claims(claims)
        self._note(head, restores)
        if self.memory is not None:
            self.memory.sync()
        return _noted(head)

    def release(self, epoch: int) -> None:
        """Give up the lease, so that the next holder need not wait."""
        with self._fenced(epoch):
            self._keep_lease(epoch, "", 0)

    def _now(self) -> tuple[int, str, int, Head, Restores]:
        """Epoch, holder and end of the lease; the head; and a person's words that the journal goes on."""
        epoch, holder, until_at, number, link, restored, restored_at = self.db.all(NOW)[0]
        return epoch, holder, until_at, (number, as_bytes(link)), Restores(restored, restored_at or 0)

    def _keep_lease(self, epoch: int, holder: str, until_at: Instant) -> None:
        self.db.run("update lease set epoch = ?, holder = ?, until_at = ?", epoch, holder, until_at)

    @contextmanager
    def _fenced(self, epoch: int) -> Iterator[tuple[Head, Restores, str]]:
        """A transaction of whoever leads: nothing else writes to the journal."""
        self.asked_at = time.monotonic()
        try:
            with self.db.transaction():
                yield self._fence(epoch)
        finally:
            self.asked_at = None

    def silent_s(self) -> float:
        asked_at = self.asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    def _fence(self, epoch: int) -> tuple[Head, Restores, str]:
        """Raise `Fenced` unless we are the writer, and `LostSteps` unless the journal has all that we were answered.
        The head, a person's words that it goes on, and the lease's holder.
        """
        latest, holder, _, head, restores = self._now()
        if latest != epoch:
            raise Fenced(f"{self.db.where} is written by {holder or 'somebody else'} now; this writer must stop.")
        known = self.known.head
        if known is not None and head[0] == known[0] and head != known:
            raise Fenced(f"{self.db.where}: step {head[0]} was changed by somebody else; this writer must stop.")
        if not self.known.is_in(head, self._hash_of):
            raise self.known.lost(head)
        return head, restores, holder

    def _hash_of(self, number: int) -> bytes | None:
        return hash_of(self.db, number)

    def answered(self) -> str:
        return self.known.text

    def remember(self) -> None:
        self.leads = True
        self.known.remember()

    def _note(self, head: Head, restores: Restores, steps: Sequence[Step] = ()) -> None:
        self.known.note(head, restores, steps)
        if self.leads:
            self.known.remember()

    def memory_trouble(self) -> str:
        return "" if self.memory is None else self.memory.trouble

    def missing(self) -> Missing:
        return self.known.missing

    def durability(self) -> Durability:
        return self.db.durability()

    # --- which control plane the sites obey --------------------------------------------------------------------------

    def place(self) -> str:
        return self.db.place()

    def claims(self) -> KeptClaims:
        rows = self.db.all("select site, incarnation, before, place from claims")
        restored = bool(self.db.all("select at from restores limit 1"))
        return KeptClaims({row[0]: KeptClaim(*row) for row in rows}, self._noted_head(), restored)

    def keep_claims(self, epoch: int, claims: Sequence[KeptClaim], above: int = 0, settled: bool = False) -> int:
        with self._fenced(epoch) as (head, _, _):
            self.db.run("update lease set epoch = ?", max(epoch, above + 1))
            self._keep_claims(claims)
            if settled:
                self.db.run("insert into restored select at, head from restores")
                self.db.run("delete from restores")
            restores = self._now()[-1]
        self._note(head, restores)
        return max(epoch, above + 1)

    def _keep_claims(self, claims: Sequence[KeptClaim]) -> None:
        self.db.write(KEPT_CLAIM, [(kept.site, kept.incarnation, kept.before, kept.place) for kept in claims])

    def has(self, head: str) -> bool:
        return has(self.db, head)

    def restore(self, epoch: int, at: Instant) -> None:
        """A person says that this backup goes on: sites are claimed anew, whatever their claims say."""
        with self._fenced(epoch):
            self.db.run("delete from claims")
            before = self.db.all("select max(at) from restored")[0][0] or 0
            self.db.run("insert into restores values (?, ?)", max(at, before + 1), self._head()[0])

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        epoch: int,
        steps: Sequence[Step],
        changes: Changes,
        blobs: Mapping[str, bytes],
        keys: Mapping[str, str],
    ) -> None:
        self.unsure = True
        with self._fenced(epoch) as (head, restores, _):
            if steps and not self._are_there(steps, head[0]):
                head = self._append(steps, changes, head[1])
            self.db.write(KEPT_BLOB, list(blobs.items()))
            at = steps[-1].at if steps else 0
            self.db.write(KEPT_ANSWER, [(key, answer, at) for key, answer in keys.items()])
        self.unsure = False
        self._note(head, restores, steps)

    def _are_there(self, steps: Sequence[Step], head: int) -> bool:
        """True if this very append was committed before and only its answer was lost. Any other gap or overlap is
        refused.
        """
        if steps[0].number == head + 1:
            return False
        before = hash_of(self.db, steps[0].number - 1)
        if before is not None and hash_of(self.db, steps[-1].number) == _linked(steps, before)[-1][-1]:
            return True
        raise Fenced(f"{self.db.where} is at step {head}, and step {steps[0].number} does not follow it.")

    def _append(self, steps: Sequence[Step], changes: Changes, last: bytes) -> tuple[int, bytes]:
        rows = _linked(steps, last)
        self.db.write(APPEND, rows)
        write_changes(self.db, changes)
        number, link = rows[-1][0], rows[-1][-1]
        self.db.run("update journal set head = ?, hash = ?, projected = ?", number, link, number)
        return number, link

    def _head(self) -> tuple[int, bytes]:
        number, link = self.db.all("select head, hash from journal")[0]
        return number, as_bytes(link)

    def _noted_head(self) -> str:
        return _noted(self._head())

    # --- projections -------------------------------------------------------------------------------------------------

    def catch_up(self, epoch: int) -> int:
        """Project missing steps, or all if the tables are of another version. Returns how many. Raises `Fenced`."""
        projected, projection = self.db.all("select projected, projection from journal")[0]
        if projection != PROJECTION:
            return self.rebuild(epoch)
        if projected == self._head()[0]:
            return 0
        with self._fenced(epoch):
            return self._project_after(projected)

    def rebuild(self, epoch: int) -> int:
        """Rebuild the tables from the steps. Returns how many steps. Raises `Fenced`: a writer that was replaced may
        know tables of an older version only.
        """
        with self._fenced(epoch):
            for name in (*(table.name for table in TABLES.values()), *RETIRED):
                self.db.run(f"drop table if exists {name}")
            self._create_tables()
            self.db.run("update journal set projected = 0, projection = ?", PROJECTION)
            return self._project_after(0)

    def _project_after(self, projected: int) -> int:
        """Fold every step, and write the changes of those after `projected`. Returns how many."""
        state, changes, number = State(), Changes(), projected
        state.watch()
        for row in self.read():
            fold_row(state, row, self.db.where)
            if row.number > projected:
                number = row.number
                project(state, row, changes)
                if number % CHUNK == 0:
                    self._write_to(number, changes)
                    changes = Changes()
        self._write_to(number, changes)
        return number - projected

    def _write_to(self, number: int, changes: Changes) -> None:
        write_changes(self.db, changes)
        self.db.run("update journal set projected = ?", number)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, after: int = 0) -> Iterator[Row]:
        if self.unsure:  # wait for the database's lock: the append that failed ends first, committed or not
            with self.db.transaction():
                self._now()
            self.unsure = False
        return steps_of(self.db, after)

    def answer(self, key: str) -> str | None:
        reply = _only(self.db.all("select answer from replies where key = ?", key))
        return None if reply is None else str(reply)

    def forget_answers(self, epoch: int, before: Instant) -> None:
        with self._fenced(epoch):
            self.db.run("delete from replies where at < ?", before)

    def blob(self, digest: str) -> bytes | None:
        content = _only(self.db.all("select content from blobs where digest = ?", digest))
        return None if content is None else as_bytes(content)

    def erase_blob(self, epoch: int, *digests: str) -> None:
        with self._fenced(epoch):
            self.db.write("delete from blobs where digest = ?", [(digest,) for digest in digests])
        self.db.forget()

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def keep_snapshot(self, epoch: int, number: int, schema: str, state: bytes) -> None:
        """Store a snapshot, sealed with its step's hash, so that one of another past is never used."""
        link = hash_of(self.db, number)
        if link is None:
            raise BadInput(f"{self.db.where} has no step {number} to keep a snapshot of.")
        named, sealed = self._named(schema), seal(self.key, schema, number, link, state)
        with self._fenced(epoch):
            self.db.run("delete from snapshots where schema = ? or number < ?", named, number - MANY_STEPS)
            self.db.run("insert into snapshots values (?, ?, ?, ?)", named, number, link, sealed)

    def snapshot(self, schema: str) -> tuple[int, bytes] | None:
        try:
            kept = self.db.all("select number, state from snapshots where schema = ?", self._named(schema))
        except BadInput as error:  # a damaged page
            raise Doubtful(str(error)) from None
        if not kept:
            return None
        number, sealed = kept[0]
        link = hash_of(self.db, number)
        if link is None:
            raise Doubtful(f"there is a snapshot of step {number}, and no such step")
        return number, opened(self.key, schema, number, link, as_bytes(sealed))

    def _named(self, schema: str) -> str:
        return f"{schema}.{key_name(self.key)}"


def write_changes(db: Database, changes: Changes) -> None:
    """Bring the tables up to date."""
    for kind, lines in changes.puts.items():
        table = TABLES[kind]
        values = f"values ({marks(len(table.columns))})"
        db.write(upsert(table, values), [table.values(line) for line in lines.values()])
    for kind, keys in changes.drops.items():
        table = TABLES[kind]
        named = " and ".join(f'"{name}" = ?' for name in table.key)
        db.write(f"delete from {table.name} where {named}", list(keys))


def steps_of(db: Database, after: int = 0) -> Iterator[Row]:
    """Steps in order, each verified against the chain, and the last against the head."""
    version = _only(db.all("select format from journal"))
    refuse_format(version, db.where)
    # A journal of format 1 has no recorded head.
    head = db.all("select head, hash from journal")[0] if version > 1 else (0, b"")
    last = hash_of(db, after)
    if last is None:
        raise BadInput(f"{db.where} has no step {after}; its last is {head[0]}.")
    noted = (head[0], as_bytes(head[1])) if head[0] > after else None
    yield from checked(stored_after(db, after), last, noted, db.where)


NOW = (
    "select epoch, holder, until_at, head, hash, (select count(*) from restored), (select max(at) from restored)"
    " from lease cross join journal"
)
KEPT_CLAIM = (
    "insert into claims values (?, ?, ?, ?) on conflict (site) do update set "
    "incarnation = excluded.incarnation, before = excluded.before, place = excluded.place"
)
KEPT_BLOB = "insert into blobs values (?, ?) on conflict (digest) do nothing"
KEPT_ANSWER = "insert into replies values (?, ?, ?) on conflict (key) do nothing"
#: Another version's snapshots are kept for this many steps, for a downgrade.
MANY_STEPS = 1_000_000


def _linked(steps: Sequence[Step], last: bytes) -> list[Stored]:
    rows: list[Stored] = []
    for step in steps:
        rows.append(stored(step, last))
        last = rows[-1][-1]
    return rows


def _noted(head: Head) -> str:
    return f"{head[0]}:{head[1].hex()}"


def _only(rows: list[Any]) -> Any:
    return rows[0][0] if rows else None
