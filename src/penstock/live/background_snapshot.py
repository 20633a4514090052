"""Writes down a large state while everybody goes on: a copy of this process does it. The scribe calls it.

    copyist.begin(state)          # takes a few milliseconds, however much waits in the state
    number, packed = copyist.done()

To pack a hundred thousand waiting jobs takes a second or two, and nothing could be decided meanwhile. A forked copy has
the state as it was, for as long as it likes; it touches nothing else, closes all that it inherited (the journal's lock
among it) and ends without any farewell.
"""

import os
import sys
import tempfile
import warnings
from typing import BinaryIO, Final, NoReturn

from penstock.core.fold.state import State
from penstock.live import snapshot

#: Below so many jobs it is quicker to write it down oneself: some twenty milliseconds at most.
MANY_JOBS: Final = 1_000
POLITE: Final = 10  #: steps of niceness: whoever decides goes first
FORKS: Final = sys.platform == "linux"  #: elsewhere a copy without its threads may not even allocate


class BackgroundSnapshot:
    def __init__(self) -> None:
        self.child = 0
        self.number = 0  #: the step that is being written down
        self.file: BinaryIO | None = None

    def begin(self, state: State) -> None:
        """`OSError`: there is no room for a copy, or for what it would write."""
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
        """The step and its state, once; None while it is being written, or if that failed: it is only a cache."""
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
    """A copy of this process, with this thread alone: 0 in the copy, its process id in the original."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads: the copy needs none of them, nor their locks
        return os.fork()


def _write_down(state: State, file: int) -> NoReturn:
    """In the copy. Whatever goes wrong, it ends here, and does not become a second control plane."""
    try:
        os.nice(POLITE)
        os.closerange(3, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))
        with os.fdopen(file, "wb") as written:
            written.write(snapshot.pack(state))
        os._exit(0)
    finally:
        os._exit(1)
