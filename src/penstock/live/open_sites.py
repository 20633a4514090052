"""The sites of a running plane: opened, probed, and compared with the journal. They come and go while it runs.

`Plane` makes one and runs its probes; `SiteChanges` opens and closes sites through the plane.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from penstock.core.model.actions import ReleaseNode, StopAttempt
from penstock.core.model.events import Fact
from penstock.core.units import Instant, Millis
from penstock.drivers.driver import Driver, Say, SiteInventory
from penstock.live.alarms import Alarms
from penstock.live.clock import Clock
from penstock.live.dispatch import Dispatch
from penstock.live.recover import Belief, Differences
from penstock.live.sequencer import Sequencer, SiteAction
from penstock.live.site_claims import SiteClaims, Think
from penstock.live.site_probe import SiteProbe, warned


class OpenSites:
    def __init__(
        self,
        drivers: dict[str, Driver],
        *,
        sequencer: Sequencer,
        claims: SiteClaims,
        dispatch: Dispatch,
        alarms: Alarms,
        clock: Clock,
        hear: Say,
        think: Think,
        run: "Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]",
        look_ms: Millis,
    ) -> None:
        """`run` runs a probe until it is cancelled; if it ends by itself, so does the plane."""
        self.drivers, self.sequencer, self.claims, self.dispatch = drivers, sequencer, claims, dispatch
        self.alarms, self.clock, self.hear, self.think, self.run = alarms, clock, hear, think, run
        self.look_ms = look_ms
        self.beliefs = {site: Belief(site, sequencer.ids) for site in drivers}
        self.probes = {site: self._probe(site, driver, hear) for site, driver in drivers.items()}
        self._probing: dict[str, asyncio.Task[None]] = {}

    def _probe(self, site: str, driver: Driver, say: Say) -> SiteProbe:
        return SiteProbe(
            site,
            driver,
            say=say,
            compare=self._compare,
            now=self.clock.now,
            alarm=self.alarms.set,
            reachable=self.dispatch.set_reachable,
            claim=self.claims.take,
        )

    def know_lost(self, lost: Iterable[str]) -> None:
        """At a start: the journal has these as unreachable."""
        for probe in self.probes.values():
            probe.lost = probe.site in lost
            self.dispatch.set_reachable(probe.site, not probe.lost)

    def doubt(self, site: str) -> None:
        """A call to the site got no answer: look now, and not in half a minute."""
        if (probe := self.probes.get(site)) is not None:
            probe.doubt()

    def begin(self) -> None:
        for site in self.probes:
            self._keep_probing(site)

    def _keep_probing(self, site: str) -> None:
        self._probing[site] = self.run(self.probes[site].run(self.look_ms))

    async def look(self) -> None:
        """Probe all of them now."""
        await asyncio.gather(*(probe.look() for probe in self.probes.values()))

    async def close(self) -> None:
        """The plane stops, and its probes have."""
        for probe in self.probes.values():
            if probe.opened or probe.driver.claims is not None:
                await probe.driver.close()

    # --- one that comes, one that goes --------------------------------------------------------------------------------

    async def open_one(self, site: str, driver: Driver) -> Callable[[], None]:
        """Claim and open a site that the journal does not have yet. Call what it returns once `SiteJoined` is recorded:
        facts of the site wait until then. Raises `Refused` and `Fenced`; a site that does not answer is probed again.
        """
        held: list[Fact] = []
        joined = False

        def say(fact: Fact) -> None:
            self.hear(fact) if joined else held.append(fact)

        def join() -> None:
            nonlocal joined
            joined = True
            for fact in held:
                self.hear(fact)
            self._keep_probing(site)

        self.drivers[site], self.beliefs[site] = driver, Belief(site, self.sequencer.ids)
        self.claims.add(site, driver)
        probe = self.probes[site] = self._probe(site, driver, say)
        probe.lost = await self.think(lambda: site in self.sequencer.state_now().lost_sites)
        try:
            await probe.look()
        except BaseException:
            await self.close_one(site)
            raise
        return join

    async def close_one(self, site: str) -> None:
        """The journal has the site no longer, or not yet."""
        if (task := self._probing.pop(site, None)) is not None:
            task.cancel()
            await asyncio.wait([task])
        self.claims.remove(site)
        self.beliefs.pop(site, None)
        self.probes.pop(site, None)
        self.alarms.set("", site, "")
        self.alarms.set("", warned(site), "")
        if (driver := self.drivers.pop(site, None)) is not None:
            await driver.close()

    # --- what a site shows --------------------------------------------------------------------------------------------

    async def _compare(self, site: str, seen: SiteInventory, asked_at: Instant) -> None:
        """Correct the state by what a site shows, and stop orphans there."""
        belief = self.beliefs.get(site)
        if belief is None:  # it was removed since
            return
        differences: Differences = await self.think(
            lambda: belief.differences(self.sequencer.state_now(), seen, asked_at)
        )
        for fact in differences.facts:
            self.hear(fact)
        for attempt in differences.recorded:
            self.dispatch.forget(site, attempt)
        self._clear_away(site, differences)

    def _clear_away(self, site: str, differences: Differences) -> None:
        """Stop orphans: attempts that run although their end is recorded. Alarm on strangers, which the journal never
        had.
        """
        for attempt in differences.orphans:
            self.dispatch.do(SiteAction(StopAttempt(attempt, 0), site))
        for attempt in differences.strangers:
            self.alarms.set(
                "stranger",
                attempt,
                f"{attempt} runs at {site}, but the journal does not know it; Penstock leaves it alone. Check it.",
            )
        for node in differences.nodes:
            self.dispatch.do(SiteAction(ReleaseNode(node), site))
