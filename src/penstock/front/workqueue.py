"""What is to be looked at: each thing once however often it is named, and never by two hands at a time.

There are two rows to wait in, each with hands of its own, so that who has just come does not wait for all the others.
"""

import asyncio
from collections import deque


class _Ring:
    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.filled = asyncio.Event()


class WorkQueue:
    def __init__(self) -> None:
        self.rows = (_Ring(), _Ring())  #: the second: ahead of the others
        self.named: set[str] = set()  #: of those that wait
        self.in_hand: set[str] = set()
        self.named_again: set[str] = set()  #: while somebody looked
        self.timed: dict[str, asyncio.TimerHandle] = {}  #: to be named at a time of its own

    def add(self, thing: str, ahead: bool = False) -> None:
        if thing in self.in_hand:
            self.named_again.add(thing)
        elif thing not in self.named:
            self.named.add(thing)
            self.rows[ahead].waiting.append(thing)
            self.rows[ahead].filled.set()

    def again(self, thing: str, seconds: float) -> None:
        """In so many seconds, or sooner if that was said already: one look then says when the next is due."""
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
