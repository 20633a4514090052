"""Packs a snapshot of a large state in a forked child while the engine goes on. The sequencer calls it.

    background.begin(state)          # takes a few milliseconds, however many jobs are queued
    number, packed = background.done()

Packing a hundred thousand queued jobs takes a second or two, in which the engine could not decide. The forked child has
the state as of the fork. It touches nothing else, closes all inherited files (the journal's lock among them) and leaves
with `_exit`.
"""

import os
import sys
import tempfile
import warnings
from typing import BinaryIO, Final, NoReturn

from penstock.core.fold.state import State
from penstock.live import snapshot

#: Below so many jobs packing in place is quicker: about twenty milliseconds at most.
MANY_JOBS: Final = 1_000
POLITE: Final = 10  #: niceness of the child: the engine goes first
FORKS: Final = sys.platform == "linux"  #: elsewhere a forked child without its threads may not even allocate


class BackgroundSnapshot:
    def __init__(self) -> None:
        self.child = 0
        self.number = 0  #: the step of the snapshot in progress
        self.file: BinaryIO | None = None

    def begin(self, state: State) -> None:
        """Fork the child. Raises `OSError` if there is no memory or disk space for it."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the copy has ended
        self.number = state.steps
        try:
            child = fork()
        except OSError:
            self.file.close()
            raise
        if child == 0:
            _write_down(state, self.file.fileno())
        self.child = child

    def done(self) -> tuple[int, bytes] | None:
        """The step and its snapshot, once; None while the child runs, or if it failed: a snapshot is only a cache."""
        if not self.child:
            return None
        ended, status = os.waitpid(self.child, os.WNOHANG)
        if not ended:
            return None
        packed = self._close()
        return (self.number, packed) if status == 0 else None

    def give_up(self) -> None:
        if self.child:
            os.kill(self.child, 9)
            os.waitpid(self.child, 0)
            self._close()

    def _close(self) -> bytes:
        self.child = 0
        assert self.file is not None
        with self.file as file:
            file.seek(0)
            return file.read()


def fork() -> int:
    """Fork with this thread alone: 0 in the child, its process id in the parent."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # about threads: the child needs neither them nor their locks
        return os.fork()


def _write_down(state: State, file: int) -> NoReturn:
    """In the child. It always exits here, and never becomes a second control plane."""
    try:
        os.nice(POLITE)
        os.closerange(3, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))
        with os.fdopen(file, "wb") as written:
            written.write(snapshot.pack(state))
        os._exit(0)
    finally:
        os._exit(1)
