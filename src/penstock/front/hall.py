"""All front doors of an installation, and the journal that they follow. `wiring` opens it once the plane has started.

The journal is followed once for all doors: each home job's events become the lines of its tale, and its door is told
to look. After a restart the tales of what still lives are read again.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from penstock.core import events as e
from penstock.core.ids import job_concerned
from penstock.core.units import MINUTE, Millis
from penstock.front.bringing import Bringing
from penstock.front.door import Door
from penstock.front.gate import Gate
from penstock.front.home import Home, live_jobs
from penstock.front.parting import Parting
from penstock.front.telling import Tale
from penstock.journal.journal import Reader, Row, Unwritable
from penstock.kube.closure import Json
from penstock.live.plane import Plane

BRING_HOME: Final = "bring-home"  #: as the file of clusters that we leave has it
AT_ONCE: Final = 200  #: rows of the journal read in one go
LATER_SECONDS: Final = 2.0
#: Older lines were told before a restart; clusters forget Events after an hour.
NEWS_MS: Final[Millis] = 10 * MINUTE
#: Nothing on a home Job shows them: no need to look at it.
UNSEEN: Final = (e.LeaseRenewed, e.DeadlineSet, e.AttemptCheckpointed, e.AttemptProgressed)


class Hall:
    def __init__(
        self,
        homes: Iterable[Home],
        plane: Plane,
        reader: Reader,
        kept: Path | None = None,
        others: Iterable[Home] = (),
    ) -> None:
        """`kept`: a file that says which clusters we are leaving, so that a restart does not take their Jobs again.
        `others`: clusters that are no home, where attempts run."""
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
        self.elsewhere = {
            one.site: Parting(one.site, one.cluster, one.namespaces, plane.installation) for one in others
        }
        self.bringing: dict[str, asyncio.Event] = {site: asyncio.Event() for site in self.doors}
        self.parted = {site: asyncio.Event() for site in self.doors}  #: nothing of its Jobs is anywhere any more
        for site, how in self._leaving().items():
            self._begin_to_leave(site, how)

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
                tasks.create_task(self._bring_home(door))
                tasks.create_task(self._leave_elsewhere(door))
            tasks.create_task(self._leave_all())

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

    # --- leaving ------------------------------------------------------------------------------------------------------

    def leave(self, site: str, bring_home: bool = False) -> None:
        """Give every Job of this cluster back. Kept on disk before anything is done."""
        how = BRING_HOME if bring_home else ""
        if self.kept is not None:
            lines = [f"{one} {said}".strip() for one, said in {**self._leaving(), site: how}.items()]
            self.kept.write_text("\n".join(lines) + "\n", "utf-8")
        self._begin_to_leave(site, how)

    def _begin_to_leave(self, site: str, how: str) -> None:
        self.doors[site].leaving.set()
        if how == BRING_HOME:
            self.bringing[site].set()

    def _leaving(self) -> dict[str, str]:
        if self.kept is None or not self.kept.exists():
            return {}
        said = [line.partition(" ") for line in self.kept.read_text("utf-8").splitlines()]
        return {site: how for site, _, how in said if site in self.doors}

    async def _bring_home(self, door: Door) -> None:
        await self.bringing[door.site].wait()
        await Bringing(self.plane, self.reader).bring(door.site, door.left)

    async def _leave_elsewhere(self, door: Door) -> None:
        """Once its Jobs are given back: what was made for them in other clusters goes, too."""
        await door.left.wait()
        others = [other.parting for other in self.doors.values() if other is not door]
        await asyncio.gather(*(one.take(self._made_for(door.site)) for one in (*others, *self.elsewhere.values())))
        self.parted[door.site].set()

    def _made_for(self, site: str) -> Callable[[str], bool]:
        @lru_cache(10_000)
        def mine(job: str) -> bool:
            row = self.reader.job(job)
            return row is not None and row.user.startswith(f"{site}:")

        return mine

    async def _leave_all(self) -> None:
        """No home is left: then nothing of ours stays in any cluster."""
        for parted in self.parted.values():
            await parted.wait()
        await asyncio.gather(*(one.part() for one in self.elsewhere.values()))

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
            if isinstance(event, e.PolicySet) or job_concerned(event) == tale.job:
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
        tale = self.tales.get(job_concerned(event))
        if tale is not None:
            tale.hear(event)
            if not isinstance(event, UNSEEN):
                self.doors[tale.home].touch(tale.job)


def _words(error: Exception) -> str:
    inner = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return f"{type(inner).__name__}: {inner}"
