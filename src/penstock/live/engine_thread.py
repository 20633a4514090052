"""The thread that owns engine and journal: calls run in it one after the other. The plane makes one.

    thread = EngineThread()
    state = await thread.call(sequencer.state_now)

asyncio's own way, `run_in_executor`, takes twice the processor time for a call: two futures, a condition and four
locks. Every submission waits for a call.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Call: TypeAlias = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class CallThread(Protocol):
    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Call it after all others. Who is cancelled before its turn is not called."""

    def shutdown(self) -> None:
        """Return when all calls have ended; then there are no more."""


class EngineThread:
    def __init__(self) -> None:
        self.calls: SimpleQueue[Call | None] = SimpleQueue()
        self.thread = threading.Thread(target=_work, args=(self.calls,), name="penstock-engine", daemon=True)
        self.thread.start()

    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self.calls.put((loop, result, work, args))
        return result

    def shutdown(self) -> None:
        self.calls.put(None)
        self.thread.join()


def _work(calls: "SimpleQueue[Call | None]") -> None:
    while (call := calls.get()) is not None:
        loop, result, work, args = call
        if result.cancelled():
            continue
        try:
            done, outcome = result.set_result, work(*args)
        except BaseException as error:  # noqa: BLE001 - it goes to whoever waits for the result
            done, outcome = result.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_tell, result, done, outcome)
        del call, result, work, args, done, outcome  # nothing is kept until the next call


def _tell(result: "asyncio.Future[Any]", done: Callable[[Any], None], outcome: object) -> None:
    if not result.cancelled():
        done(outcome)
