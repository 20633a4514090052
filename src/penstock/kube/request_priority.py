"""Limits concurrent requests to a cluster and orders the waiting ones by priority. `client` uses it.

Starts and stops go before status writes, and these before Events. Every fourth turn goes to a status write, so that a
long burst of starts does not hide the status of Jobs for minutes.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

Rank: TypeAlias = Literal[0, 1, 2]
NOW: Final = 0  #: binds, creates, stops, and all reads
SOON: Final = 1  #: the status of home Jobs
LATER: Final = 2  #: Events, and marks on ended Jobs
SHARE: Final = 4  #: every so many turns a status write goes first


class PriorityLimiter:
    def __init__(self, slots: int) -> None:
        self.free, self.turns = slots, 0
        self.waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque(), deque())

    @asynccontextmanager
    async def slot(self, rank: Rank) -> AsyncIterator[None]:
        """Wait for a free slot, and hold it."""
        await self._take(rank)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, rank: Rank) -> None:
        if self.free:
            self.free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[rank].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # we got the slot just before we were cancelled: pass it on
                self._give_back()
            raise

    def _give_back(self) -> None:
        self.turns += 1
        now, soon, later = self.waiting
        for waiting in (soon, now, later) if self.turns % SHARE == 0 else (now, soon, later):
            while waiting:
                if not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    return
        self.free += 1
