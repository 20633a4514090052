"""Anchors: heads of a journal that are kept outside of it, so that a rewritten journal is found however whole it is.

An anchor file has a line of JSON for each: `{"at": ..., "installation": ..., "head": "NUMBER:HASH"}`. `penstock up
--anchor` appends them, `penstock journal verify --anchor` compares them. The `claim.json` of a local site, and the
annotation on a cluster's Lease, have the same fields and can be compared, too.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.formatting import instant

STDERR: Final = "-"  #: as a file's name: anchors go to the log of the service
MOST_LETTERS: Final = 64 << 10  #: of a line; a longer one is no anchor
TAIL_BYTES: Final = 256 << 10  #: of a file that a start compares: the newest anchors


@value
class Anchor:
    head: str
    installation: str
    at: Instant = 0  # 0: a claim, which does not say
    restored: bool = False  # a person restored a backup of this head: later heads from before are of another past


def write_anchor(file: str, anchor: Anchor) -> tuple[int, int]:
    """Append durably; returns how many bytes the file had, and has. Raises `OSError`; nothing but a plain file is
    written to, and no link is followed.
    """
    line = msgspec.json.encode(anchor) + b"\n"
    if file == STDERR:
        print(f"anchor {line.decode()}", end="", file=sys.stderr, flush=True)
        return 0, 0
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    out = os.open(file, flags, 0o600)
    try:
        file_stat = os.fstat(out)
        if not stat.S_ISREG(file_stat.st_mode):
            raise OSError(f"{file} is no plain file")
        torn = file_stat.st_size and os.pread(out, 1, file_stat.st_size - 1) != b"\n"  # a crash cut the last line short
        os.write(out, b"\n" + line if torn else line)
        os.fsync(out)
        return file_stat.st_size, os.fstat(out).st_size
    finally:
        os.close(out)


def compare(file: str, installation: str, has: Callable[[str], bool], tail: int = 0) -> int:
    """Hold the file's anchors against the journal; returns how many there are. Raises `BadInput` that names the first
    one which the journal does not have. `tail`: only so many bytes of its end.
    """
    waiting: list[Anchor] = []  #: not in the journal; forgiven by a later note that a backup was restored
    anchored = 0
    for anchor in _anchors(file, tail):
        if anchor.installation != installation:
            raise BadInput(f"{file} has anchors of installation {anchor.installation}, and this is {installation}.")
        anchored += 1
        if anchor.restored and has(anchor.head):
            waiting = [kept for kept in waiting if _number(kept.head) <= _number(anchor.head)]
        elif not has(anchor.head):
            waiting.append(anchor)
    if waiting:
        when = f" at {instant(waiting[0].at)}" if waiting[0].at else ""
        number, _, link = waiting[0].head.partition(":")
        raise BadInput(
            f"Step {number}, anchored as {link[:12]}...{when} in {file}, is gone or another one now; this is not the"
            " journal it was. If a backup was restored, `penstock journal restore --anchor` notes that."
        )
    return anchored


def _anchors(file: str, tail: int) -> Iterator[Anchor]:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as lines:
            if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
                raise BadInput(f"{file} is no plain file, and has no anchors.")
            if tail and lines.seek(0, os.SEEK_END) > tail:
                lines.seek(-tail, os.SEEK_END)
                lines.readline(MOST_LETTERS)  # the rest of a line
            else:
                lines.seek(0)
            number = 0
            while line := lines.readline(MOST_LETTERS):
                number += 1
                if line.rstrip().endswith(b"}"):  # otherwise it was cut short when it was written
                    yield _anchor(line, f"{file}, line {number}")
    except OSError as error:
        raise BadInput(f"Cannot read the anchors in {file}: {error.strerror}.") from None


def _anchor(line: bytes, where: str) -> Anchor:
    try:
        anchor = msgspec.json.decode(line.removeprefix(b"anchor "), type=Anchor)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise BadInput(f"{where} is no anchor of a journal.") from None
    if not _number(anchor.head):
        raise BadInput(f"{where} is no anchor of a journal: its head is no NUMBER:HASH.")
    return anchor


def _number(head: str) -> int:
    number = head.partition(":")[0]
    return int(number) if number.isdecimal() and len(number) < 19 else 0
