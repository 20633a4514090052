"""The local driver: attempts are processes on this machine, with slots for GPUs. `wiring` makes one for each local
site.

The driver writes orders and reads results; `supervisor.py` runs each attempt, `store.py` owns the folder. The driver
keeps no state that matters: a control plane that restarts reads everything from disk.

While anything runs, it polls every `tick_ms`, with a few `stat` calls for each attempt.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode, StartAttempt
from penstock.core.model.types import Site
from penstock.core.units import NEVER, Instant, Millis
from penstock.data.checkpoints import Store
from penstock.drivers import attempt_facts, progress
from penstock.drivers.attempt_facts import Reported
from penstock.drivers.driver import BaseDriver, Command, Refused, Say, SeenAttempt, SiteInventory, Unreachable, Work
from penstock.drivers.local import attempt_exec
from penstock.drivers.local.claim import FolderClaim
from penstock.drivers.local.store import LocalSettings, LocalStore, kept_ms
from penstock.drivers.records import Record, read
from penstock.kube.exec_protocol import Printed, Typed

P = ParamSpec("P")
T = TypeVar("T")


class Watched:
    """A running attempt, and what was reported of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.order = folder, read(f"{folder}/order.json")
        self.marks: Record = {}
        self.marks_stamp = 0
        self.reported = Reported(int(self.order.get("resume_ms", 0)))
        #: Its start was not seen yet. A waiting `start` call is answered one look before any other fact is reported.
        self.fresh = True


class LocalDriver(BaseDriver):
    def __init__(
        self,
        site: Site,
        folder: Path,
        installation: str,
        checkpoints: Store,
        clock: Callable[[], Instant],
        settings: LocalSettings = LocalSettings(),  # noqa: B008 - a value
    ) -> None:
        self.site, self.clock, self.settings, self.checkpoints = site, clock, settings, checkpoints
        self.disk = LocalStore(site, folder, installation, clock, settings)
        self.watched: dict[str, Watched] = {}
        self.nodes: dict[str, Path] = {}  #: rented nodes that are not over
        self.say: Say = _to_nobody
        self.looked = asyncio.Condition()  #: notified after each look at the disk
        self.something = asyncio.Event()  #: set while there is something to poll
        self.looking: asyncio.Task[None] | None = None
        self.threads = ThreadPoolExecutor(4, thread_name_prefix=f"site-{site.id}")
        self.claims = self.folder_claim = FolderClaim(folder, self.disk.claim, self.disk.locked)

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        await self._do(self.disk.claim)
        await self._do(self.disk.prune)
        self.say = say
        for attempt, folder in (await self._do(self.disk.attempts)).items():
            self._watch(attempt, folder).fresh = False
        self.nodes |= await self._do(self.disk.nodes)
        self.something.set()
        await self._look_once()
        self.looking = asyncio.create_task(self._keep_looking(), name=f"site {self.site.id}")

    async def close(self) -> None:
        self.say = _to_nobody
        if self.looking is not None:
            self.looking.cancel()
            with suppress(asyncio.CancelledError):
                await self.looking
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.folder_claim.close()

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def launch_node(self, ask: LaunchNode) -> None:
        folder = await self._do(self.disk.rent, ask)
        if (folder / "gone.json").exists():
            self._say_if_over(ask.node, folder)
            return
        self._watch_node(ask.node, folder)
        await self._until(lambda: self.disk.fate_of(folder) != "starting")
        if self.disk.fate_of(folder) != "ready":
            raise asyncio.CancelledError  # lost before it was ready, which is reported as a fact

    async def release_node(self, node: str) -> None:
        folder = await self._do(self.disk.release, node)
        if not (folder / "gone.json").exists():
            self._watch_node(node, folder)
            await self._until(lambda: self.disk.fate_of(folder) in ("lost", "gone"))

    def _watch_node(self, node: str, folder: Path) -> None:
        self.nodes[node] = folder
        self.something.set()

    def _say_if_over(self, node: str, folder: Path) -> None:
        match read(f"{folder}/gone.json").get("how"):
            case "lost":
                self.say(e.NodeLost(self.clock(), node))
            case "gone":
                self.say(e.NodeGone(self.clock(), node))

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def start(self, ask: StartAttempt, work: Work) -> None:
        folder = self.disk.attempt(ask.attempt)
        if not self.disk.is_over(folder):
            await self._do(self.folder_claim.check)
            env = await self._do(self._checkpoints, ask)
            folder = await self._do(self.disk.order, ask, work, env)
            await self._do(self.disk.begin, folder)
            self._watch(ask.attempt, folder)
            await self._until(lambda: _has_begun(folder) or not self.disk.is_kept(folder))
            if self.disk.never_began(folder):
                raise asyncio.CancelledError  # ended before it ran, which is reported as a fact
        elif ask.attempt not in self.watched:
            self._say_end(ask.attempt, Watched(folder))

    def _checkpoints(self, ask: StartAttempt) -> dict[str, str]:
        try:
            return self.checkpoints.ready(self.site.id, ask.job, ask.attempt, ask.earlier)
        except OSError as error:
            why = f"the checkpoint of {ask.earlier} could not be brought to {self.site.id}: {error}"
            raise Unreachable(why) from error

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        folder = await self._do(self.disk.stop, attempt, grace_ms)
        if attempt not in self.watched:
            self._watch(attempt, folder).fresh = False

    async def set_deadline(self, thing: str, deadline_at: Instant) -> Instant:
        return await self._do(self.disk.set_deadline, thing, deadline_at)

    async def copy(self, data_set: str) -> Instant:
        await self._do(self.disk.bring_data, data_set)
        return NEVER

    # --- what is there -----------------------------------------------------------------------------------------------

    async def look(self) -> SiteInventory:
        return await self._do(self._seen)

    def _seen(self) -> SiteInventory:
        attempts = [self._seen_attempt(name, folder) for name, folder in self.disk.attempts().items()]
        here = [
            name for name, folder in self.disk.nodes().items() if self.disk.fate_of(folder) in ("starting", "ready")
        ]
        return SiteInventory(tuple(seen for seen in attempts if seen is not None), tuple(here))

    def _seen_attempt(self, attempt: str, folder: Path) -> SeenAttempt | None:
        order, begun = read(f"{folder}/order.json"), (folder / "begun.json").exists()
        end = read(f"{folder}/ended.json")
        if end:
            return SeenAttempt(attempt, end["phase"], kept_ms(order, end["marks"]), 0, end["detail"])
        if begun:
            marks = read(f"{folder}/marks.json")
            return SeenAttempt(attempt, "running", kept_ms(order, marks), self._deadline(folder, order))
        return None  # not started: the `start` call still waits, or will be repeated

    def _deadline(self, folder: Path, order: Record) -> Instant:
        return min(self.disk.deadline_at(Path(place)) for place in (folder, *order["nodes"]))

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        if rank:
            raise Refused(f"{attempt} is one process, of rank 0")
        folder = self.disk.attempt(attempt)
        over = self.disk.is_over(folder)  # asked before reading, so that lines written in between are not missed
        try:
            with open(folder / "log", "rb") as file:
                text = os.pread(file.fileno(), most, after)
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            if folder != self.disk.attempt(attempt):  # it was just archived
                return await self.log(attempt, after, most, rank)
            return b"", folder.exists() and not over
        return text, not over or after + len(text) < size

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        folder = self.disk.attempt(attempt)
        if command.rank:
            raise Refused(f"{attempt} is one process, of rank 0")
        if self.disk.is_over(folder) or not (folder / "begun.json").exists():
            raise Refused(f"{attempt} does not run now")
        order = await self._do(read, f"{folder}/order.json")
        return await attempt_exec.run(command, order["folder"], order["env"], typed, printed)

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        folder = self.disk.attempt(attempt)
        marks = read(f"{folder}/ended.json").get("marks") or read(f"{folder}/marks.json")
        return progress.steps(marks)

    async def forget(self, attempt: str) -> None:
        await self._do(self.disk.forget, attempt)

    # --- news --------------------------------------------------------------------------------------------------------

    def _watch(self, attempt: str, folder: Path) -> Watched:
        self.something.set()
        return self.watched.setdefault(attempt, Watched(folder))

    async def _keep_looking(self) -> None:
        while True:
            if not self.watched and not self.nodes:
                self.something.clear()
            await self.something.wait()
            await asyncio.sleep(self.settings.tick_ms / 1000)
            with suppress(OSError):  # a full disk, for example: the next look retries
                await self._look_once()

    async def _look_once(self) -> None:
        for attempt, watched in list(self.watched.items()):
            if watched.fresh:
                watched.fresh = not _has_begun(watched.folder)
            else:
                await self._look_at(attempt, watched)
        for node, folder in list(self.nodes.items()):
            if self.disk.fate_of(folder) in ("lost", "gone"):
                del self.nodes[node]
                self._say_if_over(node, folder)
                self.disk.said(folder)
        async with self.looked:
            self.looked.notify_all()

    async def _look_at(self, attempt: str, watched: Watched) -> None:
        folder = watched.folder
        if self.disk.is_over(folder):
            del self.watched[attempt]
            self._say_end(attempt, watched)
            return
        self._say_marks(attempt, watched)
        if (folder / "begun.json").exists() and not self.disk.is_kept(folder):
            await self._do(self.disk.bury, folder, attempt)

    def _say_marks(self, attempt: str, watched: Watched) -> None:
        """Report checkpoints, and progress once per tenth."""
        try:
            stamp = os.stat(watched.folder / "marks.json").st_mtime_ns
        except FileNotFoundError:
            return
        if stamp != watched.marks_stamp:
            watched.marks_stamp, watched.marks = stamp, read(f"{watched.folder}/marks.json")
            kept = kept_ms(watched.order, watched.marks)
            for fact in watched.reported.news(self.clock(), attempt, kept, watched.marks):
                self.say(fact)

    def _say_end(self, attempt: str, watched: Watched) -> None:
        end = read(f"{watched.folder}/ended.json")
        kept = kept_ms(watched.order, end["marks"])
        self.say(attempt_facts.ended(self.clock(), attempt, end["phase"], kept, end["detail"]))

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _until(self, true: Callable[[], bool]) -> None:
        async with self.looked:
            await self.looked.wait_for(true)

    async def _do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run in a thread: a slow disk must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, lambda: call(*args, **kwargs))


def _has_begun(folder: Path) -> bool:
    return (folder / "begun.json").exists() or (folder / "ended.json").exists()


def _to_nobody(_: e.Fact) -> None:
    """`say` before `open` and after `close`."""
