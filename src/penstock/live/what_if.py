"""What-if: runs the engine's own code on a copy of the state, in a forked child. For `penstock plan`.

    question = Question(state, lambda copy: plan(copy, ...))      # in the engine's thread, between two steps
    result = await question.answer()                              # event loop and engine go on meanwhile

Copying a hundred thousand queued jobs object by object takes seconds, and blocks everybody else. A forked
child has its copy within milliseconds: it answers at low priority, may change the state, and exits.
"""

import asyncio
import gc
import os
import pickle
import signal
from collections.abc import Callable
from typing import Final, Generic, NoReturn, TypeVar

from penstock.core.fold.state import State
from penstock.live import background_snapshot, snapshot

#: Up to so many jobs the state is copied in place, which takes about three milliseconds.
FEW_JOBS: Final = 100
#: A child that has not answered by then is killed.
LONGEST_S: Final = 30

T = TypeVar("T")


class Unanswered(Exception):
    """The engine's copy raised, or there was no memory for it. The live engine is not affected."""


class Question(Generic[T]):
    """Create it in the engine's thread: it copies the state as of now."""

    def __init__(self, state: State, answer: Callable[[State], T]) -> None:
        self.child = self.pipe = 0
        self.result: T | None = None
        self.error = ""
        if background_snapshot.FORKS and len(state.jobs) > FEW_JOBS:
            self._fork(state, answer)
        else:
            self.result, self.error = _answered(snapshot.unpack(snapshot.pack(state)), answer)

    async def answer(self) -> T:
        """Raises `Unanswered`."""
        if self.child:
            await asyncio.to_thread(self._hear)
        if self.result is None:
            raise Unanswered(self.error)
        return self.result

    def _fork(self, state: State, answer: Callable[[State], T]) -> None:
        self.pipe, out = os.pipe()
        try:
            self.child = background_snapshot.fork()
        except OSError as error:  # no more processes, or no memory
            self.error = str(error)
            os.close(self.pipe)
            os.close(out)
            return
        if self.child == 0:
            _answer_and_end(state, answer, out)
        os.close(out)

    def _hear(self) -> None:
        with os.fdopen(self.pipe, "rb") as file:
            pickled = file.read()
        os.waitpid(self.child, 0)
        self.child = 0
        self.result, self.error = pickle.loads(pickled) if pickled else (None, "it took too long")


def _answered(copy: State, answer: Callable[[State], T]) -> tuple[T | None, str]:
    try:
        return answer(copy), ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it happened to a copy
        return None, f"{type(error).__name__}: {error}"


def _answer_and_end(copy: State, answer: Callable[[State], T], out: int) -> NoReturn:
    """In the child. It always exits here, and never becomes a second control plane."""
    try:
        os.nice(background_snapshot.POLITE)
        gc.disable()  # a collection would write to, and so copy, all shared pages
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST_S)
        os.closerange(3, out)
        os.closerange(out + 1, os.sysconf("SC_OPEN_MAX"))
        with os.fdopen(out, "wb") as pipe:
            pickle.dump(_answered(copy, answer), pipe)
        os._exit(0)
    finally:
        os._exit(1)
