"""Probes one site periodically: is it reachable, and does its inventory match the state? The plane has one for each
site.

The first probe is part of starting. A site that has not answered for ten seconds, and twice at least, is lost until it
answers again: nothing starts there meanwhile. A call that gets no answer counts, and brings the next probe at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis
from penstock.drivers.driver import Driver, Say, SiteInventory, Unreachable
from penstock.journal.journal import Fenced
from penstock.live.dispatch import Raise

AGAIN_MS: Final[Millis] = 5 * SECOND  #: after a failed probe
MOST_MS: Final[Millis] = 10 * SECOND  #: timeout of a probe
LOST_MS: Final[Millis] = 10 * SECOND  #: since the first failure; an API server that restarts is back before that
FAILS: Final = 2

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
        reachable: Callable[[str, bool], None],
        claim: Callable[[str], Awaitable[None]],
    ) -> None:
        """`reachable`: called when the site answers again, and when it is lost. `claim`: makes the site ours before it
        is opened.
        """
        self.site, self.driver, self.say, self.compare, self.now, self.alarm = site, driver, say, compare, now, alarm
        self.reachable, self.claim = reachable, claim
        self.lost = False  #: SiteLost was reported, or is recorded
        self.opened = False
        self.fails = 0
        self.since: Instant = 0  #: of the first failure, or of the doubt before it
        self.doubted = asyncio.Event()  #: a call to the site failed since the last look
        self.looked_at: Instant = 0

    def doubt(self) -> None:
        """A call got no answer: look at once, unless we just did."""
        if not self.fails and not self.doubted.is_set() and self.now() - self.looked_at >= AGAIN_MS:
            self.since = self.now()
            self.doubted.set()

    async def run(self, every_ms: Millis) -> None:
        while True:
            await self._pause(AGAIN_MS if self.fails else every_ms)
            try:
                await self.look()
            except Fenced:  # the site obeys another control plane of our installation: the plane ends
                raise
            except Exception as error:  # noqa: BLE001 - another installation's site, or a bug of its driver: told
                self._failed(f"{type(error).__name__}: {error}")

    async def _pause(self, most_ms: Millis) -> None:
        if self.fails:
            await asyncio.sleep(most_ms / SECOND)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(most_ms / SECOND):
                await self.doubted.wait()

    async def look(self) -> None:
        """Probe once. Raises `Refused` only if another installation owns the site, `Fenced` if another control plane
        of ours does.
        """
        self.looked_at = self.now()
        try:
            if not self.opened:
                await self.claim(self.site)
            asked_at = self.now()
            async with asyncio.timeout(MOST_MS / SECOND):
                seen = await self._ask()
        except (Unreachable, TimeoutError) as error:
            self._failed(str(error) or "it does not answer")
            return
        if self.fails or self.lost:
            self.reachable(self.site, True)
        self.fails = 0
        self.doubted.clear()
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
        if not self.fails and not self.doubted.is_set():
            self.since = self.looked_at
        self.fails += 1
        self.alarm("site", self.site, f"{self.site} is out of reach: {why}")
        failures = self.fails + self.doubted.is_set()
        if not self.lost and failures >= FAILS and self.now() - self.since >= LOST_MS:
            self.lost = True
            self.say(e.SiteLost(0, self.site))
            self.reachable(self.site, False)
