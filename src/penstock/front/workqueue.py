"""Work queue: each key waits once however often it is added, and no two workers handle one key at a time. The
controllers use it.

There are two lanes, each with its own workers, so that a new Job does not wait behind all others.
"""

import asyncio
from collections import deque


class _Ring:
    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.filled = asyncio.Event()


class WorkQueue:
    def __init__(self) -> None:
        self.rows = (_Ring(), _Ring())  #: the second one is for new Jobs
        self.named: set[str] = set()  #: keys that wait in a lane
        self.in_hand: set[str] = set()
        self.named_again: set[str] = set()  #: keys added while a worker had them
        self.timed: dict[str, asyncio.TimerHandle] = {}  #: keys to add at a later time

    def add(self, thing: str, ahead: bool = False) -> None:
        if thing in self.in_hand:
            self.named_again.add(thing)
        elif thing not in self.named:
            self.named.add(thing)
            self.rows[ahead].waiting.append(thing)
            self.rows[ahead].filled.set()

    def again(self, thing: str, seconds: float) -> None:
        """Add the key in so many seconds; an earlier timer for it stands."""
        loop, before = asyncio.get_running_loop(), self.timed.get(thing)
        if before is not None and before.when() <= loop.time() + seconds:
            return
        if before is not None:
            before.cancel()
        self.timed[thing] = loop.call_later(seconds, self._in_time, thing)

    def _in_time(self, thing: str) -> None:
        del self.timed[thing]
        self.add(thing)

    async def take(self, ahead: bool = False) -> str:
        row = self.rows[ahead]
        while not row.waiting:
            row.filled.clear()
            await row.filled.wait()
        thing = row.waiting.popleft()
        self.named.discard(thing)
        self.in_hand.add(thing)
        return thing

    def done(self, thing: str) -> None:
        self.in_hand.discard(thing)
        if thing in self.named_again:
            self.named_again.discard(thing)
            self.add(thing)
