"""What a job prints and reports, as the supervisor takes it in: bounded, and never by a file's name twice. Standard
library only.

The job prints into a pipe, and the supervisor writes the log, so that nobody can make it longer than its limit or put
something else in its place. The report is a plain file that the supervisor made and holds open.
"""

import fcntl
import os
import re
from contextlib import suppress
from typing import Final

#: A log leaves so much of its disk free, which may be the journal's: as much again as `live.space_reserve` keeps there.
KEEP_FREE: Final = 64_000_000
PIECE: Final = 1 << 20  #: taken in at once, and as much as the pipe should hold
REPORT_BYTES: Final = 64 << 20  #: of a report are read; a mark has thirty
LONGEST_MARK: Final = 4096
_SET_PIPE_SIZE: Final = 1031  # fcntl's F_SETPIPE_SZ


class Lines:
    """Whole lines out of pieces."""

    def __init__(self) -> None:
        self.rest = b""

    def of(self, piece: bytes) -> bytes:
        *lines, rest = re.split(rb"[\r\n]", self.rest + piece)
        self.rest = rest[-LONGEST_MARK:]  # an endless line is data, not a mark
        return b"\n".join(lines)


class JobLog:
    """The log of an attempt, and the pipe that its job prints into."""

    def __init__(self, path: str, most_bytes: int, uid: int = 0, keep_free: int = KEEP_FREE) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self.file = os.open(path, flags, 0o600)
        self.left = most_bytes  #: room in the log; -1: it was said that there is none
        self.most_bytes, self.keep_free = most_bytes, keep_free
        self.lost = 0  #: bytes that the disk had no room for, since the log last said how many
        self.lines = Lines()
        self.source, self.target = os.pipe()
        os.set_blocking(self.source, False)
        if uid:
            os.fchown(self.target, uid, uid)  # or the job could not open /dev/stdout
        with suppress(OSError):  # the user's pipes may be used up: then a smaller one will do
            fcntl.fcntl(self.source, _SET_PIPE_SIZE, PIECE)

    def started(self) -> None:
        """The job has its end of the pipe."""
        os.close(self.target)
        self.target = -1

    @property
    def sources(self) -> list[int]:
        """What to wait for; nothing, once nobody can print any more."""
        return [self.source] if self.source >= 0 else []

    def take(self) -> bytes | None:
        """Take in what was printed; returns its whole lines. None: nothing was."""
        piece = self._piece()
        self._add(piece)
        return self.lines.of(piece) if piece else None

    def _piece(self) -> bytes:
        if self.source < 0:
            return b""
        try:
            piece = os.read(self.source, PIECE)
        except BlockingIOError:
            return b""
        if not piece:
            os.close(self.source)
            self.source = -1
        return piece

    def _add(self, piece: bytes) -> None:
        if self.left >= 0 and piece:
            kept = piece[: self.left]
            self.left -= len(kept)
            self._write(kept)
            if len(kept) < len(piece):
                self.left = -1
                self.say(f"this log has reached its limit of {self.most_bytes} bytes; the rest is dropped", "\n")

    def say(self, words: str, before: str = "") -> bool:
        """A line of our own, also where there is no room for the job's."""
        return self._append(f"{before}penstock: {words}\n".encode("utf-8", "replace"))

    def _write(self, text: bytes) -> None:
        """On a disk that is nearly full the job goes on and its words are lost: the log says so then, and how many they
        were once there is room again.
        """
        if not self._has_room():
            if not self.lost:
                self.say("the disk is nearly full; what is printed from here on is dropped until there is room", "\n")
            self.lost += len(text)
            return
        if self.lost and self.say(f"{self.lost} bytes could not be written here", "\n"):
            self.lost = 0
        if not self._append(text):
            self.lost += len(text)

    def _has_room(self) -> bool:
        disk = os.fstatvfs(self.file)
        return disk.f_bavail * disk.f_frsize >= self.keep_free

    def _append(self, text: bytes) -> bool:
        try:
            while text:
                text = text[os.write(self.file, text) :]
        except OSError:
            return False
        return True


class JobReport:
    """The file that the job's `PENSTOCK_REPORT` names: made by us, owned by the job, read through our own handle."""

    def __init__(self, path: str, uid: int = 0) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.file = os.open(path, flags, 0o600)
        if uid:
            os.fchown(self.file, uid, uid)
        self.offset, self.lines = 0, Lines()

    def take(self) -> bytes | None:
        """New whole lines. None: nothing was written, or more than anybody reads."""
        room = min(PIECE, REPORT_BYTES - self.offset)
        piece = os.pread(self.file, room, self.offset) if room > 0 else b""
        self.offset += len(piece)
        return self.lines.of(piece) if piece else None
