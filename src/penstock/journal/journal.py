"""What a journal is: `Journal` to the live loop, which writes it, and `Reader` to everything that shows it.

`sqlite.py` and `postgres.py` keep one; `tests/contract` is the suite that both pass. `penstock.journal.open` finds the
right one by its name.

One row a step, appended before anyone acts; tables for lists and pages projected in the same transaction; blobs (what
runs, and other things that may have to be erased) by digest, outside the chain. One writer: it holds a lease with an
epoch that every append names, so that a stale one changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.core.engine import Step
from penstock.core.model.types import JobSpec
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.journal.rows import AttemptRow, ClosedRow, Filter, Happening, JobCount, JobRow, SpendRow, UsedRow
from penstock.journal.schema import Changes


class Held(Exception):
    """Another process writes this journal: stand by, or go away."""


class Fenced(Exception):
    """The lease was lost: somebody else writes now, and nothing was written by this call. Stop at once."""


class Unwritable(Exception):
    """Disk full, read-only, or the database gone. Nothing was written; the same call may work later."""


@value
class Row:
    number: int
    at: Instant
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    version: int
    revision: int


class Journal(Protocol):
    """Calls block, one at a time; the loop makes them in a thread of their own."""

    @property
    def installation(self) -> str:
        """Who this is to clusters and clouds; made with the journal, and never again."""

    def claim(self, holder: str, at: Instant, lease_ms: int) -> int:
        """Become the writer; the epoch. Raises `Held` while another's lease has not run out.

        `holder` names the machine and the set-up, not the process: who comes back after a crash is the same holder,
        and need not wait for its own lease to run out.
        """

    def renew(self, epoch: int, at: Instant, lease_ms: int) -> None:
        """Still here. Raises `Fenced` if somebody else is."""

    def release(self, epoch: int) -> None:
        """Done writing: the next holder need not wait for the lease to run out."""

    def append(
        self,
        epoch: int,
        steps: Sequence[Step],
        changes: Changes,
        blobs: Mapping[str, bytes],
        keys: Mapping[str, str],
    ) -> None:
        """All of it in one durable transaction, or nothing. `keys`: idempotency key -> the answer given for it.

        `changes`: what these steps change in the tables, as `projection` says.

        Steps follow what is there, number by number. Raises `Fenced` and `Unwritable`; after either, nothing of it is
        there. A blob or a key that is there already stays as it was.
        """

    def read(self, after: int = 0) -> Iterator[Row]:
        """Steps in order, each checked against the chain."""

    def answer(self, key: str) -> str | None:
        """What an idempotency key was answered with."""

    def forget_answers(self, epoch: int, before: Instant) -> None:
        """Keys that were answered before then are new again. Raises `Fenced`."""

    def blob(self, digest: str) -> bytes | None: ...

    def erase_blob(self, digest: str) -> None:
        """For good. The chain names its digest and still verifies."""

    def keep_snapshot(self, number: int, schema: str, state: bytes) -> None: ...

    def snapshot(self, schema: str) -> tuple[int, bytes] | None:
        """The newest one of this schema: a cache, never the truth. None also if the journal is not what it was."""

    def close(self) -> None: ...


class Reader(Protocol):
    """Read-only, from any thread, on connections of its own: it never waits for the writer, nor the writer for it.

    Raises `Unwritable` while the database is gone, too: the same call may work later.
    """

    @property
    def installation(self) -> str: ...

    def at_one_row(self) -> "AbstractContextManager[Reader]":
        """A reader whose answers are all of one instant: of the row whose number its `head` says."""

    def head(self) -> int:
        """The number of the last step; 0: none yet."""

    def jobs(self, wanted: Filter, after: int | None = None, limit: int = 50) -> list[JobRow]:
        """Newest first. `after`: the `number` of the last one of the page before."""

    def job(self, job: str) -> JobRow | None: ...

    def spec(self, job: str) -> JobSpec | None:
        """What was asked for."""

    def counts(self) -> list[JobCount]:
        """Jobs and GPUs asked for, by state and team."""

    def attempts(self, job: str) -> list[AttemptRow]:
        """In the order they were promised."""

    def attempt(self, attempt: str) -> AttemptRow | None: ...

    def placed(self) -> list[AttemptRow]:
        """Every attempt that is not over."""

    def story(self, job: str) -> list[Row]:
        """The steps that concern it, with what does of each, for `explain.story.tell`; none if no such job came."""

    def spend(self) -> list[SpendRow]:
        """Every capped or used scope in every period, oldest period first."""

    def used(self, from_day: int = 0) -> list[UsedRow]: ...

    def closed(self) -> list[ClosedRow]: ...

    def feed(
        self, before: tuple[int, int] | None = None, limit: int = 50, kinds: tuple[str, ...] = ()
    ) -> list[Happening]:
        """What just happened, newest first, at most `limit`. `before`: step and part of the last one seen."""

    def steps(self, after: int, limit: int = 200) -> list[Row]:
        """For streams: in order, not checked against the chain."""

    def answer(self, key: str) -> str | None: ...

    def blob(self, digest: str) -> bytes | None: ...

    def close(self) -> None: ...
