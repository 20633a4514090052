"""All front doors of an installation, and the journal that they follow. `wiring` opens it once the plane has started.

The journal is followed once for all doors: each home job's events become the lines of its tale, and its door is told
to look. After a restart the tales of what still lives are read again.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from penstock.core import events as e
from penstock.core.units import MINUTE, Millis
from penstock.front.door import Door, Home, live_jobs
from penstock.front.telling import Tale, job_of
from penstock.journal.journal import Reader, Row, Unwritable
from penstock.live.plane import Plane

AT_ONCE: Final = 200  #: rows of the journal read in one go
LATER_SECONDS: Final = 2.0
#: Older lines were told before a restart; clusters forget Events after an hour.
NEWS_MS: Final[Millis] = 10 * MINUTE


class Hall:
    def __init__(self, homes: Iterable[Home], plane: Plane, reader: Reader) -> None:
        self.plane, self.reader = plane, reader
        self.doors = {home.site: Door(home, plane, reader, self.tale) for home in homes}
        self.tales: dict[str, Tale] = {}
        self.currency = "USD"
        self.number = 0  #: the last row that was heard

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._remember()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            for door in self.doors.values():
                tasks.create_task(door.run())

    def tale(self, job: str) -> Tale:
        """An ended job's tale is not kept; what it still has to say is its row's."""
        return self.tales.get(job) or self._retold(job)

    # --- the journal --------------------------------------------------------------------------------------------------

    async def _remember(self) -> None:
        """What lives, as it stands: from here on the journal is followed."""
        self.number = self.plane.number
        self.currency = self.plane.view.policy.currency
        for row in await asyncio.to_thread(live_jobs, self.reader):
            if row.user.partition(":")[0] in self.doors:
                await asyncio.to_thread(self._retold, row.id)

    def _retold(self, job: str) -> Tale:
        spec = self.reader.spec(job)
        tale = Tale(job, spec.home if spec else "", spec.user.partition(":")[2] if spec else "", self.currency)
        for row in self.reader.story(job):
            if row.number <= self.number:
                self._hear_all(tale, row)
        tale.forget_before(self.plane.clock.now() - NEWS_MS)
        self.tales[job] = tale
        return tale

    def _hear_all(self, tale: Tale, row: Row) -> None:
        for event in (*row.inputs, *row.outputs):
            if isinstance(event, e.PolicySet) or job_of(event) == tale.job:
                tale.hear(event)

    async def _follow(self) -> None:
        while True:
            await self.plane.heard(self.number)
            try:
                rows = await asyncio.to_thread(self.reader.steps, self.number, AT_ONCE)
            except Unwritable:  # the journal's own trouble, told elsewhere
                await asyncio.sleep(LATER_SECONDS)
                continue
            for row in rows:
                self._hear(row)
                self.number = row.number

    def _hear(self, row: Row) -> None:
        for event in (*row.inputs, *row.outputs):
            if isinstance(event, e.PolicySet):
                self.currency = event.policy.currency
            elif isinstance(event, e.JobSubmitted) and event.spec.home in self.doors:
                self._begin(event)
            else:
                self._go_on(event)

    def _begin(self, event: e.JobSubmitted) -> None:
        tale = Tale(event.job, event.spec.home, event.spec.user.partition(":")[2], self.currency)
        tale.hear(event)
        self.tales[event.job] = tale

    def _go_on(self, event: Any) -> None:
        tale = self.tales.get(job_of(event))
        if tale is not None:
            tale.hear(event)
            self.doors[tale.home].touch(tale.job)
