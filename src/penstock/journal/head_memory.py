"""Remembers the newest head that a journal answered, in the file `head.json` of the home folder. `writer` keeps it.

A database can come back shorter than it was: a standby that was behind took its place, a backup was put there, a disk
lied. Whoever writes on then loses in silence what people were told is accepted. So the head of every commit is noted
here, too, and a writer refuses a journal that does not have it.

Noted with every commit and not synced: that survives the process, which is what dies with a database. Every heartbeat
syncs it, for a power cut.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.units import Instant
from penstock.core.values import value

FILE: Final = "head.json"
ROOM: Final = 2_000  #: bytes of the file: one block, written over and over
MOST_WORDS: Final = 1_200  #: of them for what is missing


@value
class Remembered:
    installation: str
    head: str  # NUMBER:HASH of the last step
    restored: int = 0  # how often a person had let this journal go on without steps
    at: Instant = 0  # of that step
    missing: str = ""  # what was lost, once that was found

    @property
    def number(self) -> int:
        return int(self.head.partition(":")[0])


class HeadMemory:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.trouble = ""  #: why the head cannot be noted; empty: it is
        self._out: int | None = None
        self._synced = True

    def read(self) -> Remembered | None:
        """None: nothing is remembered, or the file is damaged."""
        try:
            return _decoded(self.file.read_bytes())
        except OSError:
            return None

    def note(self, remembered: Remembered, lower: bool = False) -> None:
        """Never lowered by another process of this home that is behind, unless told to. Never raises: a step that is
        committed is committed.
        """
        try:
            self._write(remembered, lower)
            self.trouble, self._synced = "", False
        except OSError as error:
            self._failed(error)

    def sync(self) -> None:
        if self._out is None or self._synced:
            return
        try:
            os.fsync(self._out)
            self._synced = True
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        self.sync()
        if self._out is not None:
            os.close(self._out)
            self._out = None

    def _write(self, remembered: Remembered, lower: bool) -> None:
        if self._out is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._out = os.open(self.file, flags, 0o600)
        fcntl.flock(self._out, fcntl.LOCK_EX)
        try:
            before = None if lower else _decoded(os.pread(self._out, ROOM, 0))
            if before is None or not _is_newer(before, remembered):
                os.pwrite(self._out, msgspec.json.encode(remembered).ljust(ROOM - 1) + b"\n", 0)
        finally:
            fcntl.flock(self._out, fcntl.LOCK_UN)

    def _failed(self, error: OSError) -> None:
        self.trouble = f"The head of the journal cannot be noted in {self.file}: {error.strerror or error}."


def _is_newer(one: Remembered, other: Remembered) -> bool:
    same = one.installation == other.installation
    return same and (one.restored, one.number) > (other.restored, other.number)


def _decoded(text: bytes) -> Remembered | None:
    try:
        remembered = msgspec.json.decode(text, type=Remembered)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    number, _, link = remembered.head.partition(":")
    return remembered if number.isdecimal() and len(number) < 19 and link else None
