"""All front doors of an installation, and the journal that they follow. `wiring` opens it once the plane has started.

The journal is followed once for all doors: each home job's events become the lines of its tale, and its door is told
to look. After a restart the tales of what still lives are read again.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from penstock.core import events as e
from penstock.core.units import MINUTE, Millis
from penstock.front.door import Door
from penstock.front.gate import Gate
from penstock.front.home import Home, live_jobs
from penstock.front.telling import Tale, job_of
from penstock.journal.journal import Reader, Row, Unwritable
from penstock.kube.closure import Json
from penstock.live.plane import Plane

AT_ONCE: Final = 200  #: rows of the journal read in one go
LATER_SECONDS: Final = 2.0
#: Older lines were told before a restart; clusters forget Events after an hour.
NEWS_MS: Final[Millis] = 10 * MINUTE
#: Nothing on a home Job shows them: no need to look at it.
UNSEEN: Final = (e.LeaseRenewed, e.DeadlineSet, e.AttemptCheckpointed, e.AttemptProgressed)


class Hall:
    def __init__(self, homes: Iterable[Home], plane: Plane, reader: Reader, kept: Path | None = None) -> None:
        """`kept`: a file that says which clusters we are leaving, so that a restart does not take their Jobs again."""
        self.plane, self.reader, self.kept = plane, reader, kept
        self.tales: dict[str, Tale] = {}
        self.gates = [one for one in plane.drivers.values() if isinstance(one, Gate)]
        self.doors = {
            home.site: Door(home, plane, reader, self.tale, self.tales, self._is_being_bound) for home in homes
        }
        for gate in self.gates:
            gate.seen, gate.bound = self._seen, self._bound
        self.currency = "USD"
        self.number = 0  #: the last row that was heard
        for site in self._leaving():
            self.doors[site].leaving.set()

    async def keep_open(self) -> None:
        """Until it is cancelled. Whatever goes wrong in here, the plane and what runs are not touched by it."""
        while True:
            try:
                await self.run()
            except Exception as error:  # noqa: BLE001 - a bug of ours: told, and tried again
                self.plane.alarms.set("front door", "hall", f"Home Jobs are not looked at: {_words(error)}")
                await asyncio.sleep(LATER_SECONDS)

    async def run(self) -> None:
        await self._remember()
        self.plane.alarms.set("", "hall", "")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            for door in self.doors.values():
                tasks.create_task(door.run())

    def tale(self, job: str) -> Tale:
        """An ended job's tale is not kept; what it still has to say is its row's."""
        return self.tales.get(job) or self._retold(job)

    def _seen(self, site: str, place: str) -> Json | None:
        return self.doors[site].job_at(place) if site in self.doors else None

    def _bound(self, site: str, job: Json) -> None:
        if site in self.doors:
            self.doors[site].bound(job)

    def _is_being_bound(self, attempt: str) -> bool:
        return any(attempt in gate.binding for gate in self.gates)

    def leave(self, site: str) -> None:
        """Give every Job of this cluster back. Kept on disk before anything is done."""
        if self.kept is not None:
            self.kept.write_text("\n".join([*self._leaving(), site]) + "\n", "utf-8")
        self.doors[site].leaving.set()

    def _leaving(self) -> list[str]:
        if self.kept is None or not self.kept.exists():
            return []
        return [site for site in self.kept.read_text("utf-8").split() if site in self.doors]

    # --- the journal --------------------------------------------------------------------------------------------------

    async def _remember(self) -> None:
        """What lives, as it stands: from here on the journal is followed."""
        self.number = self.plane.number
        self.currency = self.plane.view.policy.currency
        for row in await asyncio.to_thread(live_jobs, self.reader):
            site, _, uid = row.user.partition(":")
            if site in self.doors:
                self.doors[site].ids[uid] = row.id
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
            if not isinstance(event, UNSEEN):
                self.doors[tale.home].touch(tale.job)


def _words(error: Exception) -> str:
    inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return f"{type(inner).__name__}: {inner}"
