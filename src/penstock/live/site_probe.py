"""Probes one site periodically: is it reachable, and does its inventory match the state? The plane has one for each
site.

The first probe is part of starting. After three failures in a row the site is lost, until it answers again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis
from penstock.drivers.driver import Driver, Say, SiteInventory, Unreachable
from penstock.journal.journal import Fenced
from penstock.live.dispatch import Raise

AGAIN_MS: Final[Millis] = 5 * SECOND  #: after a failed probe
MOST_MS: Final[Millis] = 10 * SECOND  #: timeout of a probe
FAILS: Final = 3

#: Called with the inventory and the instant it was asked for.
Compare: TypeAlias = Callable[[str, SiteInventory, Instant], Awaitable[None]]


def warned(site: str) -> str:
    """The subject of the alarm about what a person should mend at a site that answers."""
    return f"{site}:warns"


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
        claim: Callable[[str], Awaitable[None]],
    ) -> None:
        """`back`: called when the site answers again. `claim`: makes the site ours before it is opened."""
        self.site, self.driver, self.say, self.compare, self.now, self.alarm = site, driver, say, compare, now, alarm
        self.back, self.claim = back, claim
        self.lost = False  #: SiteLost was reported, or is recorded
        self.opened = False
        self.fails = 0

    async def run(self, every_ms: Millis) -> None:
        while True:
            await asyncio.sleep((AGAIN_MS if self.fails else every_ms) / SECOND)
            try:
                await self.look()
            except Fenced:  # the site obeys another control plane of our installation: the plane ends
                raise
            except Exception as error:  # noqa: BLE001 - another installation's site, or a bug of its driver: told
                self._failed(f"{type(error).__name__}: {error}")

    async def look(self) -> None:
        """Probe once. Raises `Refused` only if another installation owns the site, `Fenced` if another control plane
        of ours does.
        """
        try:
            if not self.opened:
                await self.claim(self.site)
            asked_at = self.now()
            async with asyncio.timeout(MOST_MS / SECOND):
                seen = await self._ask()
        except (Unreachable, TimeoutError) as error:
            self._failed(str(error) or "it does not answer")
            return
        if self.fails:
            self.back(self.site)
        self.fails = 0
        self.alarm("", self.site, "")
        self.alarm("site", warned(self.site), seen.warns)
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
