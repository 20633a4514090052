"""The local driver: attempts are processes on this machine, with slots for GPUs. `wiring` makes one for each local
site.

The driver writes orders and reads results; `supervisor.py` runs each attempt, `store.py` owns the folder. The driver
keeps no state that matters: a control plane that restarts reads everything from disk.

While anything runs, it polls every `tick_ms`, with a few `stat` calls for each attempt, all of them in a thread: a slow
disk, or what a job put in a file's place, must not block the event loop. A file that is not what we wrote there harms
its attempt alone, and is an alarm.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, ParamSpec, TypeAlias, TypeVar

from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import Site
from penstock.core.units import NEVER, SECOND, Instant, Millis
from penstock.data.checkpoints import Store
from penstock.data.plain_files import DamagedFile
from penstock.drivers import attempt_facts, progress
from penstock.drivers.attempt_facts import Reported
from penstock.drivers.driver import BaseDriver, Command, Refused, Say, SeenAttempt, SiteInventory, Unreachable, Work
from penstock.drivers.local import attempt_exec
from penstock.drivers.local.claim import FolderClaim
from penstock.drivers.local.nodes import LocalNodes
from penstock.drivers.local.store import LocalSettings, LocalStore, kept_ms
from penstock.drivers.records import Record
from penstock.kube.exec_protocol import Printed, Typed

P = ParamSpec("P")
T = TypeVar("T")
Alarm: TypeAlias = Callable[[str, str, str], None]  #: kind, about, text; an empty text clears it

NEWS_MS: Final[Millis] = SECOND  #: a job that reports faster is heard this often
MOST_ALARMS: Final = 5  #: of one site, so that its jobs cannot hide what others say
AGAIN_S: Final = 0.2  #: how long a call waits for the next look at most


class Watched:
    """An attempt that has not ended, as the last look found it, and what was reported of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.order: Record | None = None  #: read by the first look
        self.reported = Reported(every_ms=NEWS_MS)
        self.marks: Record = {}
        self.marks_stamp = 0
        self.began = False
        self.end: Record = {}
        self.waiting = 0  #: calls of `start` that wait for it: they answer before any other fact is reported

    @contextmanager
    def awaited(self) -> Iterator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class LocalDriver(BaseDriver):
    def __init__(
        self,
        site: Site,
        folder: Path,
        installation: str,
        checkpoints: Store,
        clock: Callable[[], Instant],
        settings: LocalSettings = LocalSettings(),  # noqa: B008 - a value
        team_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`team_of`: the team of a job, which decides where one site is one team's."""
        self.site, self.clock, self.settings, self.checkpoints = site, clock, settings, checkpoints
        self.team_of = team_of
        self.alarm: Alarm = _no_alarm  #: set by `wiring`
        self.alarmed: dict[str, str] = {}  #: by attempt, the alarms that stand
        self.disk = LocalStore(site, folder, installation, clock, settings)
        self.watched: dict[str, Watched] = {}
        self.say: Say = _to_nobody
        self.looked = asyncio.Condition()  #: notified after each look at the disk
        self.something = asyncio.Event()  #: set while there is something to poll
        self.looking: asyncio.Task[None] | None = None
        self.threads = ThreadPoolExecutor(4, thread_name_prefix=f"site-{site.id}")
        self.capacity = self.nodes = LocalNodes(self.disk, self.run, self.until, self.something)
        self.folder_claim = FolderClaim(folder, self.disk.claim, self.disk.locked)

    @property
    def claims(self) -> FolderClaim:
        return self.folder_claim

    # --- coming and going --------------------------------------------------------------------------------------------

    def use(self, site: Site) -> None:
        """What the site offers from now on; what runs is not touched."""
        self.site = site
        self.disk.use(site)

    async def open(self, say: Say) -> None:
        await self.run(self.disk.claim)
        await self.run(self.disk.prune)
        self.say = say
        for attempt, folder in (await self.run(self.disk.attempts)).items():
            self._watch(attempt, folder)
        await self.capacity.open(say)
        self.something.set()
        await self._look_once()
        self.looking = asyncio.create_task(self._keep_looking(), name=f"site {self.site.id}")

    async def close(self) -> None:
        self.say = _to_nobody
        await self.capacity.close()
        if self.looking is not None:
            self.looking.cancel()
            with suppress(asyncio.CancelledError):
                await self.looking
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.folder_claim.close()

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def start(self, ask: StartAttempt, work: Work) -> None:
        folder = await self.run(self.disk.attempt, ask.attempt)
        if await self.run(self.disk.is_over, folder):
            if ask.attempt not in self.watched:
                self._watch(ask.attempt, folder)  # the next look says how it ended
            return
        await self.run(self._admit, ask)
        await self.run(self.folder_claim.check)
        if await self.run(self.disk.lacks_node, ask):  # it ended after the start was ordered, while nobody was there
            self.say(e.AttemptLost(self.clock(), ask.attempt, ask.resume_ms))
            raise asyncio.CancelledError  # as below
        env = await self.run(self._checkpoints, ask)
        folder = await self.run(self.disk.order, ask, work, env)
        await self.run(self.disk.begin, folder)
        with self._watch(ask.attempt, folder).awaited():
            await self.until(lambda: os.path.lexists(folder / "begun.json") or not self.disk.is_kept(folder))
        if await self.run(self.disk.never_began, folder):
            raise asyncio.CancelledError  # ended before it ran, which is reported as a fact

    def _admit(self, ask: StartAttempt) -> None:
        if self.settings.one_team:
            self.disk.admit(self.team_of(ask.job))

    def turns_away(self, team: str) -> str:
        """Why this team cannot use the site; empty if it can. The door asks before it takes a job."""
        return self.disk.turns_away(team)

    def _checkpoints(self, ask: StartAttempt) -> dict[str, str]:
        try:
            return self.checkpoints.ready(self.site.id, ask.job, ask.attempt, ask.earlier)
        except OSError as error:
            why = f"the checkpoint of {ask.earlier} could not be brought to {self.site.id}: {error}"
            raise Unreachable(why) from error

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        folder = await self.run(self.disk.stop, attempt, grace_ms)
        if attempt not in self.watched:
            self._watch(attempt, folder)

    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        return await self.run(self.disk.set_deadline, self.disk.attempt(attempt), attempt, deadline_at)

    async def copy(self, data_set: str) -> Instant:
        await self.run(self.disk.bring_data, data_set)
        return NEVER

    # --- what is there -----------------------------------------------------------------------------------------------

    async def look(self) -> SiteInventory:
        attempts = await self.run(self._seen_attempts)
        return SiteInventory(attempts, tuple([seen.node for seen in await self.capacity.list()]))

    def _seen_attempts(self) -> tuple[SeenAttempt, ...]:
        attempts = [self._seen_attempt(name, folder) for name, folder in self.disk.attempts().items()]
        return tuple([seen for seen in attempts if seen is not None])

    def _seen_attempt(self, attempt: str, folder: Path) -> SeenAttempt | None:
        order, began = self.disk.order_of(folder), os.path.lexists(folder / "begun.json")
        if end := self._end_of(attempt, folder):
            return SeenAttempt(attempt, end["phase"], kept_ms(order, end["marks"]), 0, end["detail"])
        if began:
            marks = self.disk.marks(folder, attempt)
            return SeenAttempt(attempt, "running", kept_ms(order, marks), self._deadline(folder, order))
        return None  # not started: the `start` call still waits, or will be repeated

    def _end_of(self, attempt: str, folder: Path) -> Record:
        """How it ended; empty if it has not. If its end cannot be read, it is lost, and that is written."""
        end = self.disk.end_of(folder, attempt)
        if not end and self.disk.is_over(folder):
            self.disk.bury(folder, attempt)
            end = self.disk.end_of(folder, attempt)
        return end

    def _deadline(self, folder: Path, order: Record) -> Instant:
        return min(self.disk.deadline_at(Path(place)) for place in (folder, *order.get("nodes", ())))

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        if rank:
            raise Refused(f"{attempt} is one process, of rank 0")
        try:
            return await self.run(self._log_piece, attempt, after, most)
        except DamagedFile as damaged:
            self.disk.damages[attempt] = str(damaged)
            raise Refused(f"the log of {attempt} cannot be read: {damaged}") from None

    def _log_piece(self, attempt: str, after: int, most: int) -> tuple[bytes, bool]:
        folder = self.disk.attempt(attempt)
        over = self.disk.is_over(folder)  # asked before reading, so that lines written in between are not missed
        try:
            text, size = self.disk.log(folder, after, most)
        except FileNotFoundError:
            if folder != self.disk.attempt(attempt):  # it was just archived
                return self._log_piece(attempt, after, most)
            return b"", folder.exists() and not over
        return text, not over or after + len(text) < size

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        if command.rank:
            raise Refused(f"{attempt} is one process, of rank 0")
        folder = await self.run(self.disk.attempt, attempt)
        order = await self.run(self.disk.order_of, folder)
        if not order or not await self.run(self._runs, folder):
            raise Refused(f"{attempt} does not run now")
        return await attempt_exec.run(command, attempt_exec.ExecTarget(str(folder), order), typed, printed)

    def _runs(self, folder: Path) -> bool:
        return os.path.lexists(folder / "begun.json") and self.disk.is_kept(folder)

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        folder = self.disk.attempt(attempt)
        return progress.steps(self.disk.end_of(folder, attempt).get("marks") or self.disk.marks(folder, attempt))

    async def forget(self, attempt: str) -> None:
        await self.run(self.disk.forget, attempt)
        self._say_alarms()

    # --- news --------------------------------------------------------------------------------------------------------

    def _watch(self, attempt: str, folder: Path) -> Watched:
        self.something.set()
        return self.watched.setdefault(attempt, Watched(folder))

    async def _keep_looking(self) -> None:
        while True:
            if not self.watched and not self.nodes.nodes:
                self.something.clear()
            await self.something.wait()
            await asyncio.sleep(self.settings.tick_ms / 1000)
            with suppress(OSError):  # a full disk, for example: the next look retries
                await self._look_once()

    async def _look_once(self) -> None:
        watched, nodes = list(self.watched.items()), list(self.nodes.nodes.items())
        over = await self.run(self._look, watched, nodes)
        for attempt, seen in watched:
            if not seen.waiting:
                self._say_news(attempt, seen)
        self.nodes.say_over(over)
        self._say_alarms()
        async with self.looked:
            self.looked.notify_all()

    def _look(self, attempts: Iterable[tuple[str, Watched]], nodes: Iterable[tuple[str, Path]]) -> dict[str, str]:
        """Look at all of them; returns the nodes that are over, and how. Whatever one of them holds, the others are
        looked at.
        """
        for attempt, watched in attempts:
            try:
                self._look_at(attempt, watched)
            except (OSError, ValueError, TypeError, LookupError, DamagedFile) as error:
                self.disk.damages[attempt] = f"{watched.folder} cannot be read: {error!r}"[:300]
        return self.nodes.over(nodes)

    def _look_at(self, attempt: str, watched: Watched) -> None:
        folder = watched.folder
        if watched.order is None:
            watched.order = self.disk.order_of(folder)
            watched.reported.kept_ms = watched.order.get("resume_ms", 0)
        watched.began = watched.began or os.path.lexists(folder / "begun.json")
        watched.end = self._end_of(attempt, folder)
        if not watched.end:
            self._look_at_marks(attempt, watched)
            if watched.began and not self.disk.is_kept(folder):
                self.disk.bury(folder, attempt)

    def _look_at_marks(self, attempt: str, watched: Watched) -> None:
        try:
            stamp = os.lstat(watched.folder / "marks.json").st_mtime_ns
        except FileNotFoundError:
            return
        if stamp != watched.marks_stamp:
            watched.marks_stamp, watched.marks = stamp, self.disk.marks(watched.folder, attempt)

    def _say_news(self, attempt: str, watched: Watched) -> None:
        """Report its end, or its checkpoints and progress."""
        if watched.end:
            if self.watched.pop(attempt, None) is not None:
                self._say_end(attempt, watched)
            return
        kept = kept_ms(watched.order or {}, watched.marks)
        for fact in watched.reported.news(self.clock(), attempt, kept, watched.marks):
            self.say(fact)

    def _say_end(self, attempt: str, watched: Watched) -> None:
        end = watched.end
        kept = kept_ms(watched.order or {}, end["marks"])
        self.say(attempt_facts.ended(self.clock(), attempt, end["phase"], kept, end["detail"]))

    def _say_alarms(self) -> None:
        """The newest few; one that is forgotten is cleared."""
        damages = dict(list(self.disk.damages.items())[-MOST_ALARMS:])
        for attempt in [attempt for attempt in self.alarmed if attempt not in damages]:
            del self.alarmed[attempt]
            self.alarm("", f"local:{self.site.id}:{attempt}", "")
        for attempt, damage in damages.items():
            if self.alarmed.get(attempt) != damage:
                self.alarmed[attempt] = damage
                words = f"{attempt} at {self.site.id}: {damage}. Only this attempt is harmed; its job may have done it."
                self.alarm("damaged file", f"local:{self.site.id}:{attempt}", words)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until it is true, which is asked in a thread after each look."""
        while not await self.run(true):
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S), self.looked:
                    await self.looked.wait()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run in a thread: a slow disk must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, lambda: call(*args, **kwargs))


def _to_nobody(_: e.Fact) -> None:
    """`say` before `open` and after `close`."""


def _no_alarm(_kind: str, _about: str, _text: str) -> None:
    """`alarm` where nobody listens."""
