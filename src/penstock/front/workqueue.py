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

    def add(self, key: str, ahead: bool = False) -> None:
        if key in self.in_hand:
            self.named_again.add(key)
        elif key not in self.named:
            self.named.add(key)
            self.rows[ahead].waiting.append(key)
            self.rows[ahead].filled.set()

    def again(self, key: str, seconds: float) -> None:
        """Add the key in so many seconds; an earlier timer for it stands."""
        loop, before = asyncio.get_running_loop(), self.timed.get(key)
        if before is not None and before.when() <= loop.time() + seconds:
            return
        if before is not None:
            before.cancel()
        self.timed[key] = loop.call_later(seconds, self._in_time, key)

    def _in_time(self, key: str) -> None:
        del self.timed[key]
        self.add(key)

    async def take(self, ahead: bool = False) -> str:
        row = self.rows[ahead]
        while not row.waiting:
            row.filled.clear()
            await row.filled.wait()
        key = row.waiting.popleft()
        self.named.discard(key)
        self.in_hand.add(key)
        return key

    def done(self, key: str) -> None:
        self.in_hand.discard(key)
        if key in self.named_again:
            self.named_again.discard(key)
            self.add(key)
