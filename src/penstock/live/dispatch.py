"""Dispatches actions to drivers, each call in a task of its own, and turns every answer into a fact. The plane calls
it. It knows no kind of action: `core/model/actions` says what each is about, `drivers/driver` which method it calls.

`Unreachable` is retried without end; the other errors become facts at once. A newer action about the same thing
replaces an older one: a stop does not wait for a start that hangs. A start at a site that is lost is withdrawn if
nothing of it can have reached the site, by us or by a control plane before us: then the job goes elsewhere.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant, Millis
from penstock.drivers.driver import (
    Driver,
    NoCapacity,
    Refused,
    Undelivered,
    Unreachable,
    Unstartable,
    no_capacity,
    refused,
    unstartable,
)
from penstock.live.sequencer import SiteAction
from penstock.site_answers import still_leads

#: Exponential backoff: the first delay and the longest.
FIRST_RETRY_MS: Final[Millis] = SECOND
LAST_RETRY_MS: Final[Millis] = 60 * SECOND

#: Words of a start that its site can know nothing of.
WITHDRAWN: Final = "site {} does not answer, and nothing of it was created there"

Hear: TypeAlias = Callable[[e.Fact], None]
#: kind, subject, text; an empty text clears the alarm.
Raise: TypeAlias = Callable[[str, str, str], None]


class Dispatch:
    def __init__(
        self, drivers: Mapping[str, Driver], hear: Hear, alarm: Raise, leads: Callable[[], bool] = lambda: True
    ) -> None:
        """`leads`: whether we still hold the journal's lease. Nothing is asked of a site while another process may have
        taken over.
        """
        self.drivers, self.hear, self.alarm, self.leads = drivers, hear, alarm, leads
        self.tasks: dict[tuple[str, str], tuple[a.Action, asyncio.Task[None]]] = {}
        self.deadlines: dict[str, Instant] = {}  #: the newest deadline of a thing whose start is still retried
        self.forgetting: set[asyncio.Task[None]] = set()
        self.denied: set[str] = set()  #: sites with an alarm about our own admission policies
        self.back: dict[str, asyncio.Event] = {}  #: by site: set to end the backoff of its retries
        self.lost: set[str] = set()  #: sites that are out of reach, by their probes
        self.doubt: Callable[[str], None] = lambda _: None  #: called with a site that did not answer a call

    def set_reachable(self, site: str, reachable: bool) -> None:
        """The site answers again, or is lost: retry its pending calls now, or withdraw them."""
        (self.lost.discard if reachable else self.lost.add)(site)
        if waited_for := self.back.pop(site, None):
            waited_for.set()

    def do(self, order: SiteAction) -> None:
        key = a.subject_of(order.action)
        before = self.tasks.get(key)
        if before is not None and before[0] == order.action:
            return  # in flight already
        if isinstance(order.action, a.SetDeadline):
            self.deadlines[order.action.thing] = order.action.deadline_at
        task = asyncio.create_task(self._carry_out(order, key, before and before[1]))
        self.tasks[key] = (order.action, task)

    async def _carry_out(self, order: SiteAction, key: tuple[str, str], before: asyncio.Task[None] | None) -> None:
        still_leads.set(self.leads)
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
        if order.refused:
            self.alarm("forged", thing, order.refused)
            return refused(order.action, order.refused)
        wait_ms, may_be_there = FIRST_RETRY_MS, order.repeated
        while True:
            while not self.leads():
                await asyncio.sleep(FIRST_RETRY_MS / SECOND)
            try:
                fact = await self._call(order)
            except NoCapacity as error:
                return no_capacity(order.action, error)
            except Unstartable as error:
                fact = unstartable(order.action, error)
                if error.obstacle == "denied":  # for whoever runs Penstock, not for the user
                    self._denied(order.site, str(error))
                if fact is not None:
                    return fact
            except Refused as error:
                fact = refused(order.action, str(error))
                self.alarm("refused", thing, f"Site {order.site} refuses {thing}: {error}")
                if fact is not None:
                    return fact
            except Unreachable as error:
                may_be_there |= not isinstance(error, Undelivered)
                if not may_be_there and order.site in self.lost:
                    self.alarm("", thing, "")
                    return unstartable(order.action, Unstartable(WITHDRAWN.format(order.site), LAST_RETRY_MS, "unfit"))
                self.doubt(order.site)
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
                self._denied(order.site, "")
                return fact
            await self._wait(order.site, wait_ms)
            wait_ms = min(2 * wait_ms, LAST_RETRY_MS)

    def _denied(self, site: str, words: str) -> None:
        """Our own admission policy is in our way at a site, or no longer: one alarm, however many actions meet it."""
        if words or site in self.denied:
            self.alarm("denied", f"the policies of {site}", words and f"Site {site} does not let Penstock act: {words}")
            (self.denied.add if words else self.denied.discard)(site)

    async def _wait(self, site: str, wait_ms: Millis) -> None:
        back = self.back.setdefault(site, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / SECOND):
                await back.wait()

    async def _call(self, order: SiteAction) -> e.Fact | None:
        """Call the driver; returns the fact that it is done."""
        driver = self.drivers.get(order.site)
        if driver is None:
            raise Unreachable("no driver of this site is set up; put it back into the sites file")
        return await driver.do(self._until(order.action), order.work)

    def _until(self, action: a.Action) -> a.Action:
        """The action with the newest deadline: the lease may have been renewed since the first try."""
        if not isinstance(action, a.LaunchNode | a.StartAttempt):
            return action
        nodes = action.nodes if isinstance(action, a.StartAttempt) else ()
        newest = self.deadlines.get(nodes[0] if nodes else a.thing_of(action), action.deadline_at)
        return action if newest == action.deadline_at else replace(action, deadline_at=newest)

    def forget(self, site: str, attempt: str) -> None:
        """Tell the site that the attempt's end is in the journal. If that fails, the next look shows it, and we tell it
        again.
        """
        driver = self.drivers.get(site)
        if driver is not None:
            task = asyncio.create_task(self._forget(driver, attempt))
            self.forgetting.add(task)
            task.add_done_callback(self.forgetting.discard)

    async def _forget(self, driver: Driver, attempt: str) -> None:
        try:
            await driver.forget(attempt)
        except (Unreachable, NoCapacity, Unstartable, Refused):
            return

    def cancel(self) -> list["asyncio.Task[None]"]:
        """Cancel calls in flight. They are idempotent, so a restart repeats them."""
        tasks = [task for _, task in self.tasks.values()] + list(self.forgetting)
        for task in tasks:
            task.cancel()
        return tasks

    async def stop(self) -> None:
        if tasks := self.cancel():
            await asyncio.wait(tasks)
