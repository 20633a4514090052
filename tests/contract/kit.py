"""Ground for drivers to stand on: one kind of site with things to do on it, for each driver that there is.

A `Ground` makes drivers of the same site again and again, as a control plane does that is killed and comes back. The
jobs have names that say what they do; a local site runs a real program for each, a rehearsal knows how long it takes.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from penstock.core import events as e
from penstock.core.actions import LaunchNode, StartAttempt
from penstock.core.model import JobSpec, NodeShape, Offer, Site
from penstock.core.units import NEVER, SECOND, Instant, Millis
from penstock.data.checkpoints import FolderStore, Store
from penstock.drivers.disk import LocalSettings
from penstock.drivers.driver import Driver, SeenAttempt, Work
from penstock.drivers.local import LocalDriver
from penstock.sim.rehearsal import Rehearsal, Stage
from penstock.sim.world import Truth, World

#: How often spot nodes are lost: at once, nearly. A rehearsal has no other way to say so.
LOSS_PPM = 3_600_000 * 1_000_000 // 300

RUN_MS = {"quick": 200, "long": 600 * SECOND}
PROGRAMS = {
    "quick": "import time; print('ran', flush=True); time.sleep(0.2)",
    "long": "import time; print('ran', flush=True); time.sleep(600)",
}

Fact = TypeVar("Fact", bound=e.Fact)


def site(*, losses: bool = False) -> Site:
    return Site(
        "lab",
        (
            Offer("lab/owned", "lab", "owned", (NodeShape(2, 2),)),
            Offer("lab/nodes", "lab", "on_demand", (NodeShape(2, 1),), start_ms=150, kill_ms=2 * SECOND),
            Offer("lab/slow", "lab", "on_demand", (NodeShape(2, 1),), start_ms=600 * SECOND),
            Offer(
                "lab/spot", "lab", "spot", (NodeShape(1, 4),), loss_ppm_per_hour=LOSS_PPM if losses else 0, kill_ms=500
            ),
            Offer("lab/pods", "lab", "on_demand", (NodeShape(2, 2),), sold_by="attempt", start_ms=150, kill_ms=500),
        ),
    )


class Watch:
    """A driver that is open, and all that it said."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.said: list[e.Fact] = []
        self.news = asyncio.Event()

    def hear(self, fact: e.Fact) -> None:
        self.said.append(fact)
        self.news.set()

    async def hears(self, kind: type[Fact], about: str) -> Fact:
        """The next such fact, or the one that was said already."""
        while True:
            self.news.clear()
            for fact in self.said:
                if isinstance(fact, kind) and about in (getattr(fact, "attempt", None), getattr(fact, "node", None)):
                    return fact
            await self.news.wait()

    async def start(self, job: str, number: int = 1, **more: Any) -> str:
        ask = start(job, number, **more)
        await self.driver.start(ask, work(job), "")
        return ask.attempt

    async def sees(self, attempt: str) -> SeenAttempt | None:
        return next((one for one in (await self.driver.look()).attempts if one.attempt == attempt), None)


class Ground(Protocol):
    kind: str

    def driver(self) -> Driver: ...

    def clock(self) -> Instant: ...


class LocalGround:
    kind = "local"

    def __init__(self, folder: Path, store: Store | None = None, **settings: Any) -> None:
        self.folder, self.site = folder, site()
        self.store = store or FolderStore({"lab": folder / "checkpoints"})
        self.settings = LocalSettings(**{"tick_ms": 20, "devices": (), "notice_ms": 300, "seed": 1, **settings})
        self.zero = time.monotonic()

    def clock(self) -> Instant:
        return int((time.monotonic() - self.zero) * 1000)

    def driver(self) -> LocalDriver:
        return LocalDriver(self.site, self.folder, "home", self.store, self.clock, self.settings)


class RehearsalGround:
    kind = "rehearsal"

    def __init__(self, site: Site) -> None:
        truths = {name: Truth(run_ms, JobSpec(1, checkpoint_every_ms=100)) for name, run_ms in RUN_MS.items()}
        self.zero = time.monotonic()
        self.stage = Stage(World([site], truths, seed=1), self.clock)

    def clock(self) -> Instant:
        return int((time.monotonic() - self.zero) * 1000)

    def driver(self) -> Rehearsal:
        return Rehearsal("lab", self.stage)


@asynccontextmanager
async def opened(ground: Ground) -> AsyncIterator[Watch]:
    watch = Watch(ground.driver())
    await watch.driver.open(watch.hear)
    try:
        yield watch
    finally:
        await watch.driver.close()


def start(
    job: str,
    number: int = 1,
    offer: str = "lab/owned",
    slots: tuple[tuple[int, int], ...] = ((0, 1),),
    nodes: tuple[str, ...] = (),
    deadline_at: Instant = NEVER,
    resume_ms: Millis = 0,
    speed_permille: int = 1000,
    width: int = 1,
) -> StartAttempt:
    slots = slots if offer == "lab/owned" else ()
    attempt = f"{job}.{number}"
    return StartAttempt(attempt, job, offer, width, speed_permille, resume_ms, slots, nodes, deadline_at)


def launch(node: str, offer: str = "lab/nodes", gpus: int = 2, deadline_at: Instant = NEVER) -> LaunchNode:
    return LaunchNode(node, offer, gpus, node.partition("/")[0], deadline_at)


def work(job: str) -> Work:
    return python(PROGRAMS.get(job, PROGRAMS["long"]))


def python(program: str, **env: str) -> Work:
    return Work((sys.executable, "-c", program), tuple(env.items()))
