"""The journal's protocols: `Journal` for the live plane, which writes it, and `Reader` for everything that shows it.

`sqlite.py` and `postgres.py` implement the database; both pass `tests/contract`. `penstock.journal.open` opens either
by its address.

One row per step, appended before any action. Tables for lists and pages are projected in the same transaction. Blobs
(work to run, and other data that may have to be erased) are stored by digest outside the chain. Single writer, fenced
by epoch: it holds a lease, and every append names its epoch, so a stale writer changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.core.engine import Step
from penstock.core.model.types import JobSpec
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.journal.audit import AuditFilter, AuditRow
from penstock.journal.rows import AttemptRow, ClosedRow, Filter, Happening, JobCount, JobRow, SpendRow, UsedRow
from penstock.journal.schema import Changes
from penstock.journal.tokens import RevocationRow, TokenRow


class Held(Exception):
    """Another process holds the journal's lease: stand by, or exit."""


class Fenced(Exception):
    """We lost the lease to another writer, and this call wrote nothing. Stop at once."""


class Unwritable(Exception):
    """Disk full, read-only, or no database. Nothing was written; a retry may work."""


class LostSteps(Unwritable):
    """The database does not have steps that this process or its home folder was answered: a standby that was behind
    took its place, or an older copy. A retry works if the right one is back, or once a person lets this one go on.
    """


@value
class Row:
    number: int
    at: Instant
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    version: int
    revision: int


@value
class KeptClaim:
    """What a site is told that we are: `drivers/claim`. After a crash the site has one of the two incarnations."""

    site: str
    incarnation: str
    before: str
    place: str  # of the journal that was told so


@value
class Durability:
    """What is lost if the database's machine is, as far as its server says."""

    says: str = ""  # a sentence; empty: nobody has asked yet
    has_failover: bool = False  # a server, which others may take over from
    loses: bool = False  # what was accepted in the last moments may be lost then


@value
class Missing:
    """Steps that a journal no longer has, which a person let go on without them."""

    steps: int  # how many, as far as we know; 0: not known
    says: str  # what was in them, as far as we know


@value
class KeptClaims:
    """All claims, by site; the head that sites are told; and whether a person restored this journal from a backup."""

    claims: Mapping[str, KeptClaim]
    head: str  # number and hash of the last step
    restored: bool


class Journal(Protocol):
    """Blocking calls, one at a time; the plane makes them in a thread of their own."""

    @property
    def installation(self) -> str:
        """Our identity to clusters and clouds, created with the journal."""

    def claim(self, holder: str, at: Instant, lease_ms: int) -> int:
        """Become the writer and return the epoch. Raises `Held` while another holder's lease is valid.

        `holder` names the machine and the set-up, not the process: after a crash the same holder need not wait for its
        own lease.
        """

    def renew(self, epoch: int, at: Instant, lease_ms: int, claims: Sequence[KeptClaim] = ()) -> str:
        """Renew the lease, and keep these claims in the same commit. Returns the head: number and hash of the last
        step. Raises `Fenced` if another writer took over, and `LostSteps`.
        """

    def answered(self) -> str:
        """The newest head that this process knows to be durable: `NUMBER:HASH`. It never goes back, whatever the
        database says later; empty: none yet. Called from any thread.
        """

    def remember(self) -> None:
        """The sites are ours: from now on what is answered is remembered for the next process, too."""

    def memory_trouble(self) -> str:
        """Why the next process may not recognise that the journal lost steps, as sentences; empty: it will. Called from
        any thread.
        """

    def silent_s(self) -> float:
        """For how many seconds the database has not answered what it was asked. Called from any thread."""

    def missing(self) -> Missing:
        """What a journal that a person let go on does not have."""

    def durability(self) -> Durability:
        """What a failover of the database, or the loss of its disk, can lose."""

    def place(self) -> str:
        """Where this journal is: a copy of it is in another place."""

    def claims(self) -> KeptClaims: ...

    def keep_claims(self, epoch: int, claims: Sequence[KeptClaim], above: int = 0, settled: bool = False) -> int:
        """Keep these claims. Returns the epoch, which is raised if it was not `above` this one. `settled`: that a
        person restored this journal is used up. Raises `Fenced`.
        """

    def has(self, head: str) -> bool:
        """True if the journal has this step with this hash: `NUMBER:HASH`."""

    def release(self, epoch: int) -> None:
        """Give up the lease, so that the next holder need not wait."""

    def append(
        self,
        epoch: int,
        steps: Sequence[Step],
        changes: Changes,
        blobs: Mapping[str, bytes],
        keys: Mapping[str, str],
    ) -> None:
        """Commit all of it in one durable transaction, or nothing. `keys`: idempotency key -> the answer given for it.
        `changes`: what these steps change in the tables, from `projection`.

        Steps must continue the journal without gaps. Raises `Fenced` and `Unwritable`; any other error says that the
        database does not take something in these rows. After each of them nothing was written. An existing blob or key
        is not changed.
        """

    def read(self, after: int = 0) -> Iterator[Row]:
        """Steps in order, each checked against the chain."""

    def answer(self, key: str) -> str | None:
        """The answer given for an idempotency key."""

    def forget_answers(self, epoch: int, before: Instant) -> None:
        """Expire idempotency keys that were answered before then. Raises `Fenced`."""

    def blob(self, digest: str) -> bytes | None: ...

    def erase_blob(self, epoch: int, *digests: str) -> None:
        """Erase for good. The chain has only the digests and still verifies. Raises `Fenced`."""

    def keep_snapshot(self, epoch: int, number: int, schema: str, state: bytes) -> None:
        """Keep the state of this step, for the next start. Raises `Fenced`."""

    def snapshot(self, schema: str) -> tuple[int, bytes] | None:
        """The newest snapshot of this schema: a cache. Raises `seal.Doubtful` if it is not what was stored for its step
        of this journal.
        """

    def close(self) -> None: ...


class Reader(Protocol):
    """Read-only, thread-safe, on its own connections: reader and writer never wait for each other.

    Raises `Unwritable` while the database is unreachable; a retry may work.
    """

    @property
    def installation(self) -> str: ...

    def at_one_row(self) -> "AbstractContextManager[Reader]":
        """A reader whose answers are all as of one row, the one that its `head` returns."""

    def head(self) -> int:
        """The number of the last step; 0 if there is none."""

    def jobs(self, wanted: Filter, after: int | None = None, limit: int = 50) -> list[JobRow]:
        """Newest first. `after`: the `number` of the previous page's last job."""

    def job(self, job: str) -> JobRow | None: ...

    def spec(self, job: str) -> JobSpec | None:
        """The submitted spec."""

    def counts(self) -> list[JobCount]:
        """Jobs and requested GPUs by state and team."""

    def queued(self, team: str) -> int:
        """How many jobs of the team are queued or paused."""

    def queued_by(self, user: str) -> int:
        """How many jobs of this person are queued or paused, over all teams."""

    def attempts(self, job: str) -> list[AttemptRow]:
        """In the order they were promised."""

    def attempt(self, attempt: str) -> AttemptRow | None: ...

    def placed(self) -> list[AttemptRow]:
        """All attempts that are not over."""

    def story(self, job: str) -> list[Row]:
        """The steps that concern the job, each with only those events, for `explain.story.tell`; empty if there is no
        such job.
        """

    def spend(self) -> list[SpendRow]:
        """All capped or used scopes by period, oldest period first."""

    def used(self, from_day: int = 0) -> list[UsedRow]: ...

    def closed(self) -> list[ClosedRow]: ...

    def feed(
        self, before: tuple[int, int] | None = None, limit: int = 50, kinds: tuple[str, ...] = ()
    ) -> list[Happening]:
        """Recent events, newest first, at most `limit`. `before`: step and part of the last one seen."""

    def tokens(self, after: int = 0, browsers_after: int = 0) -> list[TokenRow]:
        """Tokens issued after this step, in order; of browsers' tokens only those that expire after this second."""

    def token(self, token: str) -> TokenRow | None: ...

    def revocations(self, after: int = 0) -> list[RevocationRow]:
        """Tokens revoked after this step, in order."""

    def audit(self, wanted: AuditFilter, before: tuple[int, int] | None = None, limit: int = 50) -> list[AuditRow]:
        """Who did what, newest first, at most `limit`. `before`: step and part of the last one seen."""

    def steps(self, after: int, limit: int = 200) -> list[Row]:
        """Rows in order for streams, not verified against the chain."""

    def answer(self, key: str) -> str | None: ...

    def blob(self, digest: str) -> bytes | None: ...

    def close(self) -> None: ...
