"""Calls of the file system that a dead mount may hold for ever: of files that people name, wherever they are. Policy
file, sites file, certificate and anchors are read and written by it.

A call that hangs is given up after a while, and its thread keeps nobody: neither the caller nor the process's end.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from penstock.config.document import read_regular
from penstock.core.errors import BadInput

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE_SECONDS: Final = 10.0


class MountCalls:
    """One call at a time, so that a dead mount holds one thread and not one more every other second."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.patience_seconds = patience_seconds
        self.last: asyncio.Future[Any] | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """What it returns or raises; `TimeoutError` if that takes too long, or an earlier one still hangs."""
        async with asyncio.timeout(self.patience_seconds):
            if self.last is not None and not self.last.done():
                await asyncio.wait([self.last])
            done = asyncio.get_running_loop().run_in_executor(DaemonThreads(), work)
            done.add_done_callback(_look_at)
            self.last = done
            return await asyncio.shield(done)


class DaemonThreads(Executor):
    """A thread for each call. The interpreter waits for all others at its end, those of the loop's executor too."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        threading.Thread(target=_run, args=(future, partial(work, *args, **kwargs)), daemon=True).start()
        return future


def _run(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised again where it was called
        future.set_exception(error)


def _look_at(done: "asyncio.Future[Any]") -> None:
    """An error that comes when nobody waits any more is no news."""
    if not done.cancelled():
        done.exception()


class FollowedFile:
    """A file that is read again and again, because it may change."""

    def __init__(self, path: str, most: int) -> None:
        self.path, self.most = path, most
        self.calls = MountCalls()
        self.failed = 0  #: looks in a row
        self.trouble = ""  #: why it cannot be read, since the second look: at one an editor may be replacing it

    async def look(self) -> bytes | None:
        """Its content; None if it cannot be read, which `trouble` says."""
        try:
            raw = await self.read()
        except BadInput as error:
            self.failed += 1
            self.trouble = str(error) if self.failed > 1 else ""
            return None
        self.failed, self.trouble = 0, ""
        return raw

    async def read(self) -> bytes:
        """Its content. Raises `BadInput` if it is no plain file, too large, or does not come."""
        try:
            return await self.calls.call(lambda: read_regular(self.path, self.most))
        except TimeoutError:
            seconds = f"{self.calls.patience_seconds:.0f} s"
            raise BadInput(f"{self.path} could not be read within {seconds}; is its file system still there?") from None
