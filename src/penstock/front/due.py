"""What is to be looked at: each thing once however often it is named, and never by two hands at a time."""

import asyncio
from collections import deque


class Due:
    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.named: set[str] = set()  #: of those that wait
        self.in_hand: set[str] = set()
        self.named_again: set[str] = set()  #: while somebody looked
        self.filled = asyncio.Event()
        self.timed: dict[str, asyncio.TimerHandle] = {}  #: to be named at a time of its own

    def add(self, thing: str) -> None:
        if thing in self.in_hand:
            self.named_again.add(thing)
        elif thing not in self.named:
            self.named.add(thing)
            self.waiting.append(thing)
            self.filled.set()

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

    async def take(self) -> str:
        while not self.waiting:
            self.filled.clear()
            await self.filled.wait()
        thing = self.waiting.popleft()
        self.named.discard(thing)
        self.in_hand.add(thing)
        return thing

    def done(self, thing: str) -> None:
        self.in_hand.discard(thing)
        if thing in self.named_again:
            self.named_again.discard(thing)
            self.add(thing)
