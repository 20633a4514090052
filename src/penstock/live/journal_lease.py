"""The plane's lease on its journal: claimed at the start, renewed by every heartbeat, valid for a while after that."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.core.units import SECOND, Instant, Millis
from penstock.journal.journal import Held, Journal, KeptClaim, LostSteps, Unwritable
from penstock.live.clock import Clock
from penstock.live.site_claims import Think


class JournalLease:
    def __init__(self, journal: Journal, clock: Clock, think: Think, holder: str, lease_ms: Millis) -> None:
        self.journal, self.clock, self.think, self.holder, self.lease_ms = journal, clock, think, holder, lease_ms
        self.epoch = 0  #: 0: never held
        self.until: Instant = 0  #: until then no other process can hold it

    @property
    def is_valid(self) -> bool:
        """After a suspend it is not: the journal is asked before any site is."""
        return self.clock.now() < self.until

    async def claim(self, *, stand_by: Callable[[str], None] | None, again_ms: Millis) -> int:
        """Its epoch. Raises `Held` and `Unwritable`, or with `stand_by` tells that why it waits, and tries again."""
        while True:
            try:
                at = self.clock.now()
                self.epoch = await self.think(self.journal.claim, self.holder, at, self.lease_ms)
                self.until = at + self.lease_ms
                return self.epoch
            except Held:
                if stand_by is None:
                    raise
                stand_by("Another process leads this installation; this one stands by.")
            except LostSteps as error:  # another one may have been started in its place, and be the right one
                if stand_by is None:
                    raise
                stand_by(f"This process stands by: {error}")
            except Unwritable as error:  # a leader that was suspended while it appended blocks all others
                if stand_by is None:
                    raise
                stand_by(f"This process stands by, and cannot reach the journal ({error}).")
            await asyncio.sleep(again_ms / SECOND)

    async def renew(self, claims: Sequence[KeptClaim] = ()) -> str:
        """The journal's head. Raises `Fenced` and `Unwritable`."""
        at = self.clock.now()
        head: str = await self.think(self.journal.renew, self.epoch, at, self.lease_ms, claims)
        self.until = at + self.lease_ms
        return head

    async def release(self) -> None:
        await self.think(self.journal.release, self.epoch)
