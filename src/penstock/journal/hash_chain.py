"""Encodes steps as rows of a hash chain, and verifies them: equal in every database, so that every tool reads every
journal.
"""

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, TypeAlias

from penstock.core.engine import VERSION, Step
from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.journal import codec
from penstock.journal.journal import Row

#: The format of the tables. Format 1 had no head and no installation; its steps are equal and still readable.
FORMAT: Final = 2
READABLE: Final = (1, 2)
GENESIS: Final = sha256(b"penstock").digest()
COLUMNS: Final = "number, at, inputs, outputs, version, revision, hash"
#: The columns of table `steps`.
Stored: TypeAlias = tuple[int, int, bytes, bytes, int, int, bytes]


def stored(step: Step, last: bytes) -> Stored:
    """The step as a row, chained to the previous row's hash."""
    inputs, outputs = codec.encode(step.inputs), codec.encode(step.outputs)
    link = chain(last, step.number, step.at, inputs, outputs, VERSION, step.revision)
    return step.number, step.at, inputs, outputs, VERSION, step.revision, link


def chain(last: bytes, number: int, at: Instant, inputs: bytes, outputs: bytes, version: int, revision: int) -> bytes:
    """A row's hash covers the row and the previous hash, and so the whole past."""
    head = b"%d|%d|%d|%d|%d|" % (number, at, version, revision, len(inputs))
    return sha256(last + head + inputs + outputs).digest()


def checked(rows: Iterable[Stored], last: bytes, head: tuple[int, bytes] | None, where: str) -> Iterator[Row]:
    """Verify rows against the chain, and the end against the recorded `head`."""
    number = 0
    for entry in rows:
        number = entry[0]
        last = chain(last, *entry[:-1])
        if last != entry[-1] or (head and number == head[0] and last != head[1]):
            raise BadInput(f"{where}: step {number} is not what was written; the journal was changed after the fact.")
        yield row(entry, where)
    if head and number < head[0]:
        raise BadInput(f"{where}: steps {number + 1} to {head[0]} were written and are gone; use a whole copy of it.")


def row(stored_row: Stored, where: str) -> Row:
    number, at, inputs, outputs, version, revision, _ = stored_row
    _refuse_newer(number, version, where)
    return Row(number, at, codec.decode(inputs, version), codec.decode(outputs, version), version, revision)


def row_with(stored_row: Stored, parts: Collection[int], where: str) -> Row:
    """The row with only these of its events; parts count through inputs, then outputs."""
    number, at, inputs, outputs, version, revision, _ = stored_row
    _refuse_newer(number, version, where)
    first = codec.count(inputs)
    later = {part - first for part in parts}
    return Row(
        number,
        at,
        codec.decode_some(inputs, parts, version),
        codec.decode_some(outputs, later, version),
        version,
        revision,
    )


def _refuse_newer(number: int, version: int, where: str) -> None:
    if version > VERSION:
        raise BadInput(f"{where}: step {number} was written by a newer Penstock; use that version to read it.")


def refuse_format(version: Any, where: str) -> None:
    if version not in READABLE:
        raise BadInput(f"{where} is a journal of another format ({version}); this version reads {FORMAT}.")
