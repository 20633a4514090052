"""What a journal is to the live loop. `sqlite.py` and `postgres.py` keep it; `tests/contract/journals.py` is their
suite.

One row a step, appended before anyone acts; tables for lists and pages projected in the same transaction; blobs (what
runs, and other things that may have to be erased) by digest, outside the chain. One writer: it holds a lease with an
epoch that every append names, so that a stale one changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.core.engine import Step
from penstock.core.units import Instant
from penstock.core.values import value


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
    """Calls block; the loop makes them in a thread of their own."""

    installation: str

    def claim(self, holder: str, at: Instant, lease_ms: int) -> int:
        """Become the writer; the epoch. Raises `Held` while another's lease has not run out."""

    def renew(self, epoch: int, at: Instant, lease_ms: int) -> None:
        """Still here. Raises `Fenced` if somebody else is."""

    def append(self, epoch: int, steps: Sequence[Step], blobs: Mapping[str, bytes], keys: Mapping[str, str]) -> None:
        """All of it in one durable transaction, or nothing. `keys`: idempotency key -> the answer given for it."""

    def read(self, after: int = 0) -> Iterator[Row]:
        """Steps in order, each checked against the chain."""

    def answer(self, key: str) -> str | None:
        """What an idempotency key was answered with."""

    def blob(self, digest: str) -> bytes | None: ...

    def keep_snapshot(self, number: int, schema: str, state: bytes) -> None: ...

    def snapshot(self, schema: str) -> tuple[int, bytes] | None:
        """The newest one of this schema: a cache, never the truth."""

    def close(self) -> None: ...
