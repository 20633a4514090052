"""Look at one site now and then: is it there, and is it as we believe? The plane keeps one for each site.

The first look is part of starting. A site that cannot be asked three times in a row is lost, until it can be.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis
from penstock.drivers.driver import Driver, Say, SiteInventory, Unreachable
from penstock.live.dispatch import Raise

AGAIN_MS: Final[Millis] = 5 * SECOND  #: after a look that failed
MOST_MS: Final[Millis] = 10 * SECOND  #: one that takes longer has failed
FAILS: Final = 3

#: What to do with what was seen, and when it was asked for.
Compare: TypeAlias = Callable[[str, SiteInventory, Instant], Awaitable[None]]


class SiteProbe:
    def __init__(
        self,
        site: str,
        driver: Driver,
        say: Say,
        compare: Compare,
        now: Callable[[], Instant],
        alarm: Raise,
        back: Callable[[str], None],
    ) -> None:
        """`back`: called when it answers again after it did not."""
        self.site, self.driver, self.say, self.compare, self.now, self.alarm = site, driver, say, compare, now, alarm
        self.back = back
        self.lost = False  #: we said so, or it is on record
        self.opened = False
        self.fails = 0

    async def run(self, every_ms: Millis) -> None:
        while True:
            await asyncio.sleep((AGAIN_MS if self.fails else every_ms) / SECOND)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - another installation's site, or a bug of its driver: told
                self._failed(f"{type(error).__name__}: {error}")

    async def look(self) -> None:
        """Ask the site once. Raises `Refused` only if another installation works there."""
        asked_at = self.now()
        try:
            async with asyncio.timeout(MOST_MS / SECOND):
                seen = await self._ask()
        except (Unreachable, TimeoutError) as error:
            self._failed(str(error) or "it does not answer")
            return
        if self.fails:
            self.back(self.site)
        self.fails = 0
        self.alarm("", self.site, "")
        if self.lost:
            self.lost = False
            self.say(e.SiteBack(0, self.site))
        await self.compare(self.site, seen, asked_at)

    async def _ask(self) -> SiteInventory:
        if not self.opened:
            await self.driver.open(self.say)
            self.opened = True
        return await self.driver.look()

    def _failed(self, why: str) -> None:
        self.fails += 1
        self.alarm("site", self.site, f"{self.site} is out of reach: {why}")
        if self.fails == FAILS and not self.lost:
            self.lost = True
            self.say(e.SiteLost(0, self.site))
