"""Virtual time for the real loop: an event loop whose clock jumps to the next timer when nobody has anything to do.

Within one instant everything that is ready runs first; only then does time move. `settle` waits for that, so that
whatever happens at one instant is in the inbox together, as it is in the simulator.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from heapq import heappop
from typing import Any, ParamSpec, TypeVar

from penstock.core.units import Instant
from penstock.live.clock import Clock
from penstock.live.mount_calls import DaemonThreads

P = ParamSpec("P")
T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def __init__(self, at: Instant) -> None:
        super().__init__()
        self.now: Instant = at
        self.quiet: list[asyncio.Future[None]] = []  #: who waits for everybody else to have had their say
        self.last: list[asyncio.Future[None]] = []  #: who waits for all that happens at this instant to be over
        self._clock_resolution = 0.0004  # timers within one millisecond are of one instant

    def time(self) -> float:
        return getattr(self, "now", 0) / 1000

    async def idle(self, last: bool = False) -> None:
        waits = self.create_future()
        (self.last if last else self.quiet).append(waits)
        await waits

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]  # any types
        """What is given to some thread is done at once: virtual time stands still meanwhile."""
        somebodys = executor is None or isinstance(executor, DaemonThreads)
        return super().run_in_executor(SameThread() if somebodys else executor, func, *args)

    def _run_once(self) -> None:
        if not self._ready:
            self._let_time_pass()
        super()._run_once()  # type: ignore[misc]  # the loop's own, and not for others

    def _let_time_pass(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(self._scheduled)._scheduled = False
        waits = next((future for future in (*self.quiet, *self.last) if not future.done()), None)
        self.quiet = [future for future in self.quiet if future is not waits and not future.done()]
        self.last = [future for future in self.last if future is not waits and not future.done()]
        if waits is not None:
            waits.set_result(None)
        elif self._scheduled:
            self.now = max(self.now, round(self._scheduled[0]._when * 1000))
        else:
            raise RuntimeError("nobody has anything to do, and nothing will ever happen")


class VirtualClock(Clock):
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        super().__init__(loop.time, loop.time)

    def now(self) -> Instant:
        return self.loop.now

    def begin_after(self, at: Instant) -> None:
        assert at <= self.loop.now

    async def settle(self) -> None:
        await self.loop.idle()

    async def until(self, at: Instant) -> None:
        await asyncio.sleep(max(0, at - self.loop.now) / 1000)


class SameThread(Executor):
    """The engine thinks where it is asked: virtual time stands still meanwhile."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it goes to whoever waits for the answer
            future.set_exception(error)
        return future

    def call(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self, work, *args)


def run(at: Instant, main: Callable[[VirtualClock], Any]) -> Any:
    """Run `main(clock)` to its end in a loop of its own, beginning at `at`."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(at)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(VirtualClock(loop)))
