"""The inbox: people's requests and sites' facts, until the plane's next turn takes them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.core.model.events import Fact
from penstock.live.sequencer import Ask, Told

#: Requests and facts in one row at most: a larger row would delay the next one too long.
MOST_TOGETHER: Final = 500

Waiting: TypeAlias = tuple[Ask, "asyncio.Future[Told]"]


class Inbox:
    def __init__(self) -> None:
        self.asks: deque[Waiting] = deque()
        self.facts: deque[Fact] = deque()
        self.filled = asyncio.Event()  #: something came that no turn has taken

    def ask(self, ask: Ask) -> "asyncio.Future[Told]":
        """The answer, once the request is durable."""
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self.asks.append((ask, future))
        self.filled.set()
        return future

    def hear(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.filled.set()

    def take_asks(self) -> list[Waiting]:
        return [self.asks.popleft() for _ in range(min(len(self.asks), MOST_TOGETHER))]

    def take_facts(self, too_early: Callable[[list[Fact]], list[Fact]]) -> list[Fact]:
        """All facts but those that it is too early to record."""
        facts = list(self.facts)
        self.facts.clear()
        if waiting := too_early(facts):
            self.facts.extend(waiting)
            facts = [fact for fact in facts if fact not in waiting]
        if not self.asks:  # `take_asks` comes first, and took them all
            self.filled.clear()
        return facts

    def put_back(self, asks: Sequence[Waiting], facts: Sequence[Fact] = ()) -> None:
        """Nothing was recorded: they come first when it is tried again. This wakes nobody."""
        self.asks.extendleft(reversed(asks))
        self.facts.extendleft(reversed(facts))

    def turn_away(self, error: Exception) -> None:
        """Answer every request with this error."""
        while self.asks:
            _, future = self.asks.popleft()
            if not future.done():
                future.set_exception(error)
