"""Remembers the newest head that a journal answered, in the file `head.json` of the home folder. `writer` keeps it.

A database can come back shorter than it was: a standby that was behind took its place, a backup was put there, a disk
lied. Whoever writes on then loses in silence what people were told is accepted. So the head of every commit is noted
here, too, and a writer refuses a journal that does not have it.

Noted with every commit and not synced: that survives the process, which is what dies with a database. Every heartbeat
syncs it, for a power cut.

Each installation has a block of its own in the file: a start with another installation's journal leaves it alone.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.units import Instant
from penstock.core.values import value

FILE: Final = "head.json"
ROOM: Final = 2_000  #: bytes for each installation: one block, written over and over
MOST: Final = 50  #: installations in a file
MOST_WORDS: Final = 1_200  #: of a block for what is missing
HEAD: Final = re.compile(r"[0-9]{1,18}:(?:[0-9a-f]{2})+")
MOST_NUMBER: Final = 10**18  #: of what a block counts

DAMAGED: Final = (
    "{} is damaged ({}), so it does not say which step the journal answered last. Whether the journal has lost steps is"
    " judged by the sites' claims and by anchors alone; look whether it has the newest jobs that you know of."
)


@value
class Restores:
    """A person's words that a journal goes on without steps."""

    times: int = 0
    at: Instant = 0  # the newest; 0: not known, an older version counted them

    def are_after(self, known: "Restores") -> bool:
        """By its time: one that was restored twice from the same backup has each time one."""
        return self.at > known.at if known.at or not known.times else self.times > known.times


@value
class Remembered:
    installation: str
    head: str  # NUMBER:HASH of the last step
    restored: int = 0  # how often a person had let this journal go on without steps
    at: Instant = 0  # of that step
    missing: str = ""  # what was lost, once that was found
    restored_at: Instant = 0  # when a person did so last

    @property
    def number(self) -> int:
        return int(self.head.partition(":")[0])

    @property
    def restores(self) -> Restores:
        return Restores(self.restored, self.restored_at)


class HeadMemory:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.damage = ""  #: what was wrong with the file when it was read
        self.failure = ""  #: why the head cannot be noted; empty: it is
        self._out: int | None = None
        self._synced = True

    @property
    def trouble(self) -> str:
        """What a person should know of it; empty: nothing."""
        return " ".join(filter(None, (self.damage, self.failure)))

    def read(self, installation: str) -> Remembered | None:
        """None: nothing is remembered of it, or that is damaged, which `damage` says."""
        try:
            with _opened(self.file, os.O_RDONLY) as file:
                blocks = _blocks(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage = DAMAGED.format(self.file, error.strerror or error)
            return None
        found = next((block for block in blocks if block and block.installation == installation), None)
        if found is None and (None in blocks or not blocks):
            self.damage = DAMAGED.format(self.file, "its text is not what Penstock wrote" if blocks else "it is empty")
        return found

    def note(self, remembered: Remembered, lower: bool = False) -> None:
        """Never lowered by another process of this home that is behind, unless told to. Never raises: a step that is
        committed is committed.
        """
        try:
            self._write(remembered, lower)
            self.failure, self._synced = "", False
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
            with _opened(self.file, os.O_RDWR | os.O_CREAT) as file:
                self._out = os.dup(file)
        fcntl.flock(self._out, fcntl.LOCK_EX)
        try:
            blocks = _blocks(self._out)
            place = _place(blocks, remembered.installation)
            before = blocks[place] if place < len(blocks) else None
            if before is None or lower or not _is_newer(before, remembered):
                os.pwrite(self._out, _encoded(remembered), place * ROOM)
        finally:
            fcntl.flock(self._out, fcntl.LOCK_UN)

    def _failed(self, error: OSError) -> None:
        why = error.strerror or error
        self.failure = (
            f"The head of the journal cannot be noted in {self.file} ({why}): a journal that loses steps while Penstock"
            " does not run is recognised by the sites' claims and by anchors alone."
        )


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A plain file of the home folder itself. A pipe would be waited for, and a link may lead to a dead mount."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        yield file
    finally:
        os.close(file)


def _blocks(file: int) -> list[Remembered | None]:
    """What is remembered, by installation. None: a block that is damaged."""
    text = os.pread(file, MOST * ROOM, 0).rstrip(b" \n")
    return [_decoded(text[start : start + ROOM]) for start in range(0, len(text), ROOM)]


def _place(blocks: list[Remembered | None], installation: str) -> int:
    """The number of its block: another installation's is never written over, and a damaged one is nobody's."""
    for place, block in enumerate(blocks):
        if block is not None and block.installation == installation:
            return place
    place = blocks.index(None) if None in blocks else len(blocks)
    if place >= MOST:
        raise OSError(errno.ENOSPC, f"it has the heads of {MOST} other installations; move it away")
    return place


def _is_newer(one: Remembered, other: Remembered) -> bool:
    return (one.restored_at, one.restored, one.number) > (other.restored_at, other.restored, other.number)


def _encoded(remembered: Remembered) -> bytes:
    text = msgspec.json.encode(remembered)
    if len(text) >= ROOM:
        text = msgspec.json.encode(replace(remembered, missing=""))
    return text.ljust(ROOM - 1) + b"\n"


def _decoded(text: bytes) -> Remembered | None:
    try:
        block = msgspec.json.decode(text, type=Remembered)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    counts = (block.restored, block.restored_at, block.at)
    sound = HEAD.fullmatch(block.head) and all(0 <= number < MOST_NUMBER for number in counts)
    return block if sound else None
