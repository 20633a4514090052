"""So many requests to a cluster at once, and in which order the others go: what somebody waits for first. Of `client`.

What starts or ends something goes before what shows it, and that before what is only told of it. In a long burst of
starts nobody should look at Jobs that show nothing for minutes, so every fourth turn is for what is shown.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeAlias

Rank: TypeAlias = Literal[0, 1, 2]
NOW: Final = 0  #: binds, creates, stops, and whatever is read
SOON: Final = 1  #: what people look at: the status of home Jobs
LATER: Final = 2  #: Events, and what nobody sees: marks on what is over
SHARE: Final = 4  #: every so many turns what is shown goes first


class PriorityLimiter:
    def __init__(self, many: int) -> None:
        self.free, self.turns = many, 0
        self.waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque(), deque())

    @asynccontextmanager
    async def one(self, rank: Rank) -> AsyncIterator[None]:
        """A lane of one's own."""
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
            if turn.done() and not turn.cancelled():  # it was given to us just before we left
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
