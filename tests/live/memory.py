"""A journal in memory, through the same codec, for stories of the loop that are not about disks."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from penstock.core.engine import VERSION, Step
from penstock.core.units import Instant
from penstock.journal import codec
from penstock.journal.journal import Durability, Fenced, Held, KeptClaim, KeptClaims, Missing, Row, Unwritable
from penstock.journal.schema import Changes


class MemoryJournal:
    """Survives the plane that writes it, as a file does. `broken`: appends fail with these words."""

    installation = "memory"

    def __init__(self) -> None:
        self.rows: list[tuple[int, Instant, bytes, bytes, int]] = []
        self.blobs: dict[str, bytes] = {}
        self.keys: dict[str, str] = {}
        self.snapshots: dict[str, tuple[int, bytes]] = {}
        self.epoch, self.holder, self.until = 0, "", 0
        self.broken = ""
        self.kept: dict[str, KeptClaim] = {}
        self.where, self.restored, self.lost = "memory", False, Missing(0, "")
        self.forgotten: Instant = 0  #: keys answered before then

    def claim(self, holder: str, at: Instant, lease_ms: int) -> int:
        if holder != self.holder and at < self.until:
            raise Held(self.holder)
        self.epoch, self.holder, self.until = self.epoch + 1, holder, at + lease_ms
        return self.epoch

    def renew(self, epoch: int, at: Instant, lease_ms: int, claims: Sequence[KeptClaim] = ()) -> str:
        self._write(epoch)
        self.until = at + lease_ms
        self.kept.update({kept.site: kept for kept in claims})
        return self.head

    def answered(self) -> str:
        return self.head

    def remember(self) -> None:
        pass

    def memory_trouble(self) -> str:
        return ""

    def silent_s(self) -> float:
        return 0.0

    def missing(self) -> Missing:
        return self.lost

    def durability(self) -> Durability:
        return Durability("Nothing is durable here.")

    def place(self) -> str:
        return self.where

    def claims(self) -> KeptClaims:
        return KeptClaims(dict(self.kept), self.head, self.restored)

    def keep_claims(self, epoch: int, claims: Sequence[KeptClaim], above: int = 0, settled: bool = False) -> int:
        self._write(epoch)
        self.kept.update({kept.site: kept for kept in claims})
        self.restored = self.restored and not settled
        self.epoch = max(epoch, above + 1)
        return self.epoch

    @property
    def head(self) -> str:
        """A number and a past of that length; enough to tell two journals apart."""
        return f"{len(self.rows)}:{sha256(repr(self.rows).encode()).hexdigest()}"

    def has(self, head: str) -> bool:
        number, _, link = head.partition(":")
        return sha256(repr(self.rows[: int(number)]).encode()).hexdigest() == link

    def release(self, epoch: int) -> None:
        self._write(epoch)
        self.holder, self.until = "", 0

    def append(
        self,
        epoch: int,
        steps: Sequence[Step],
        changes: Changes,  # noqa: ARG002 - it has no tables
        blobs: Mapping[str, bytes],
        keys: Mapping[str, str],
    ) -> None:
        self._write(epoch)
        for step in steps:
            assert step.number == len(self.rows) + 1
            row = (step.number, step.at, codec.encode(step.inputs), codec.encode(step.outputs), step.revision)
            self.rows.append(row)
        self.blobs.update(blobs)
        self.keys.update(keys)

    def _write(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise Fenced(self.holder)
        if self.broken:
            raise Unwritable(self.broken)

    def read(self, after: int = 0) -> Iterator[Row]:
        for number, at, inputs, outputs, revision in self.rows[after:]:
            yield Row(number, at, codec.decode(inputs), codec.decode(outputs), VERSION, revision)

    def forget_answers(self, epoch: int, before: Instant) -> None:
        self._write(epoch)
        self.forgotten = before

    def answer(self, key: str) -> str | None:
        return self.keys.get(key)

    def blob(self, digest: str) -> bytes | None:
        return self.blobs.get(digest)

    def erase_blob(self, epoch: int, *digests: str) -> None:
        self._write(epoch)
        for digest in digests:
            del self.blobs[digest]

    def keep_snapshot(self, epoch: int, number: int, schema: str, state: bytes) -> None:
        self._write(epoch)
        self.snapshots[schema] = (number, state)

    def snapshot(self, schema: str) -> tuple[int, bytes] | None:
        return self.snapshots.get(schema)

    def close(self) -> None:
        """Nothing to let go of."""
