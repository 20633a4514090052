"""Carry out what was promised: each action a driver call in a task of its own. Every answer comes back as a fact.
Nothing here is about one kind of action: `core/model/actions` says what each is about, `drivers/driver` what is called.

`Unreachable` is tried again, for as long as it takes; `NoCapacity` and `Refused` are facts at once. A newer action
about the same thing takes the place of an older one: a stop does not wait for a start that hangs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis
from penstock.drivers.driver import Driver, NoCapacity, Refused, Unreachable, no_capacity, refused
from penstock.live.sequencer import SiteAction

#: Between two tries: twice as long each time, up to the second.
FIRST_RETRY_MS: Final[Millis] = SECOND
LAST_RETRY_MS: Final[Millis] = 60 * SECOND

Hear: TypeAlias = Callable[[e.Fact], None]
#: kind, about, text; an empty text takes the alarm back.
Raise: TypeAlias = Callable[[str, str, str], None]


class Dispatch:
    def __init__(
        self, drivers: Mapping[str, Driver], hear: Hear, alarm: Raise, leads: Callable[[], bool] = lambda: True
    ) -> None:
        """`leads`: may anything be asked of a site now? Not while another may have taken over."""
        self.drivers, self.hear, self.alarm, self.leads = drivers, hear, alarm, leads
        self.tasks: dict[tuple[str, str], tuple[a.Action, asyncio.Task[None]]] = {}
        self.deadlines: dict[str, Instant] = {}  #: the newest asked for, while a start of the same thing is tried
        self.forgetting: set[asyncio.Task[None]] = set()
        self.back: dict[str, asyncio.Event] = {}  #: by site: what waits for it to answer need not wait any longer

    def try_again(self, site: str) -> None:
        """It answers again: whatever is to be tried there is tried now."""
        if waited_for := self.back.pop(site, None):
            waited_for.set()

    def do(self, order: SiteAction) -> None:
        key = a.subject_of(order.action)
        before = self.tasks.get(key)
        if before is not None and before[0] == order.action:
            return  # on its way already
        if isinstance(order.action, a.SetDeadline):
            self.deadlines[order.action.thing] = order.action.deadline_at
        task = asyncio.create_task(self._carry_out(order, key, before and before[1]))
        self.tasks[key] = (order.action, task)

    async def _carry_out(self, order: SiteAction, key: tuple[str, str], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            before.cancel()
            await asyncio.wait([before])
        try:
            fact = await self._until_answered(order, key[1])
            if fact is not None:
                self.hear(fact)
        finally:
            if self.tasks.get(key, (None, None))[1] is asyncio.current_task():
                del self.tasks[key]
                if isinstance(order.action, (a.SetDeadline, *a.LIFE)):
                    self.deadlines.pop(key[1], None)

    async def _until_answered(self, order: SiteAction, thing: str) -> e.Fact | None:
        wait_ms = FIRST_RETRY_MS
        while True:
            while not self.leads():
                await asyncio.sleep(FIRST_RETRY_MS / SECOND)
            try:
                fact = await self._call(order)
            except NoCapacity as error:
                return no_capacity(order.action, error.retry_ms)
            except Refused as error:
                fact = refused(order.action, str(error))
                self.alarm("refused", thing, f"Site {order.site} refuses {thing}: {error}")
                if fact is not None:
                    return fact
            except Unreachable as error:
                self.alarm(
                    "unreachable", thing, f"Site {order.site} does not answer about {thing}; Penstock retries: {error}"
                )
            except Exception as error:  # noqa: BLE001 - a bug of the driver: told, and tried again
                self.alarm(
                    "driver",
                    thing,
                    f"The driver of site {order.site} failed at {thing}: {type(error).__name__}: {error}",
                )
            else:
                self.alarm("", thing, "")
                return fact
            await self._wait(order.site, wait_ms)
            wait_ms = min(2 * wait_ms, LAST_RETRY_MS)

    async def _wait(self, site: str, wait_ms: Millis) -> None:
        back = self.back.setdefault(site, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / SECOND):
                await back.wait()

    async def _call(self, order: SiteAction) -> e.Fact | None:
        """Ask the site, and say in a fact that it is so."""
        driver = self.drivers.get(order.site)
        if driver is None:
            raise Unreachable("no driver of this site is set up; put it back into the sites file")
        return await driver.do(self._until(order.action), order.work)

    def _until(self, action: a.Action) -> a.Action:
        """With the newest deadline: a lease may have been renewed since this was first tried."""
        if not isinstance(action, a.LaunchNode | a.StartAttempt):
            return action
        nodes = action.nodes if isinstance(action, a.StartAttempt) else ()
        newest = self.deadlines.get(nodes[0] if nodes else a.thing_of(action), action.deadline_at)
        return action if newest == action.deadline_at else replace(action, deadline_at=newest)

    def forget(self, site: str, attempt: str) -> None:
        """Its end is on record. If that does not reach the site, the next look shows it, and it is told again."""
        driver = self.drivers.get(site)
        if driver is not None:
            task = asyncio.create_task(self._forget(driver, attempt))
            self.forgetting.add(task)
            task.add_done_callback(self.forgetting.discard)

    async def _forget(self, driver: Driver, attempt: str) -> None:
        try:
            await driver.forget(attempt)
        except (Unreachable, NoCapacity, Refused):
            return

    def cancel(self) -> list["asyncio.Task[None]"]:
        """Let go of calls on their way: told again after a restart, they do nothing twice."""
        tasks = [task for _, task in self.tasks.values()] + list(self.forgetting)
        for task in tasks:
            task.cancel()
        return tasks

    async def stop(self) -> None:
        if tasks := self.cancel():
            await asyncio.wait(tasks)
