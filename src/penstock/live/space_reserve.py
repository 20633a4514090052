"""Disk reserve: space that is kept for the day on which the disk is full, so that what fills it can still be cancelled.

A file of zeros beside the journal. When the disk is full, it is deleted, and the journal can record ends and cancels
again; new jobs are refused until there is room to make the file anew. Called in the engine's thread.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

SIZE: Final = 64_000_000
#: The file is made anew only when so many times its size is free: a disk at its end must not flutter.
ROOMY: Final = 2


class SpaceReserve:
    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self.path, self.size = folder / "reserve", size
        self.is_spent = False  #: there is too little space for new jobs

    def look(self) -> None:
        """Call every few seconds: makes the file where there is room for it, and gives it up before the end."""
        free = shutil.disk_usage(self.path.parent).free
        if self.path.exists() and self.path.stat().st_size == self.size:
            if free < self.size // 4:
                self.spend()
            else:
                self.is_spent = False
        else:
            self.is_spent = True
            if free > self.size * ROOMY:
                self._make()

    def spend(self) -> bool:
        """The journal cannot be written: free the space. False if there is none to free."""
        try:
            self.path.unlink()
        except OSError:
            return False
        self.is_spent = True
        return True

    def _make(self) -> None:
        """A disk may fill up meanwhile: then there is no file, and `look` tries again."""
        with contextlib.suppress(OSError):
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file, 0, self.size)
                else:  # a file without blocks reserves nothing
                    os.write(file, bytes(self.size))
                os.ftruncate(file, self.size)
            finally:
                os.close(file)
            self.is_spent = False
