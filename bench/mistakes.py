"""`penstock up` in a bad world, with at most one mistake in it. `bench.kill` starts it; the product has none of it.

    python -m bench.mistakes up --home ...

    PENSTOCK_BENCH_POINTS=17     die by SIGKILL at the 17th point of the protocol: around appends and driver calls
    PENSTOCK_BENCH_WORLD=7       the seed of the world's luck: sites that answer late, or whose answer is lost
    PENSTOCK_BENCH_MISTAKE=NAME  one of MISTAKES, each a protocol bug that somebody could make

The world is as bad without a mistake: what the harness finds then is a bug of ours.
"""

import asyncio
import functools
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.core.engine import Engine, Step
from penstock.core.fold.state import State
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.drivers.driver import Unreachable
from penstock.drivers.local import driver, nodes, store
from penstock.journal.projection import project
from penstock.journal.writer import JournalWriter
from penstock.live import background_snapshot, dispatch, plane, sequencer

SLOW_S: Final = 0.6  #: the longest that a call is late
CALLS: Final = ("start", "stop", "set_deadline")
NODE_CALLS: Final = ("ask", "release", "extend")
SNAPSHOT_EVENTS: Final = 40  #: so that most starts are by snapshot and tail
MANY_JOBS: Final = 4  #: so that about half of them are written by a copy of the process, which is then orphaned, too


def main() -> int:
    from penstock.cli.main import main as penstock

    points = Points(int(os.environ.get("PENSTOCK_BENCH_POINTS", "0")))
    worsen_the_world(points, random.Random(int(os.environ.get("PENSTOCK_BENCH_WORLD", "0"))))
    if name := os.environ.get("PENSTOCK_BENCH_MISTAKE"):
        MISTAKES[name](points)
    return penstock(sys.argv[1:])


class Points:
    """Where the protocol could be cut. The one that was drawn is the last; of all, or of those with this name."""

    def __init__(self, last: int, only: str = "", by: int = signal.SIGKILL) -> None:
        self.last, self.only, self.by, self.passed = last, only, by, 0

    def __call__(self, name: str = "") -> None:
        if self.only in ("", name):
            self.passed += 1
            if self.passed == self.last:
                os.kill(os.getpid(), self.by)


def worsen_the_world(points: Points, luck: random.Random) -> None:
    sequencer.SNAPSHOT_EVENTS = SNAPSHOT_EVENTS  # type: ignore[misc]  # a constant of the product, not of its bench
    background_snapshot.MANY_JOBS = MANY_JOBS  # type: ignore[misc]  # as above
    around(JournalWriter, "append", points)
    for call in CALLS:
        _unsteady(LocalDriver, call, points, luck)
    for call in NODE_CALLS:
        _unsteady(LocalNodes, call, points, luck)
    _late(store.LocalStore, "begin", luck)


def around(owner: type, name: str, points: Points, label: str = "") -> None:
    right, label = getattr(owner, name), label or name

    @functools.wraps(right)
    def cut(*args: Any, **kwargs: Any) -> Any:
        points(f"before {label}")
        answer = right(*args, **kwargs)
        points(f"after {label}")
        return answer

    setattr(owner, name, cut)


def _unsteady(owner: type, name: str, points: Points, luck: random.Random) -> None:
    """One call in ten never arrives, one in ten is done and its answer lost, one in five is late."""
    right = getattr(owner, name)

    async def call(self: Any, *args: Any) -> Any:
        points()
        fate = luck.random()
        if fate < 0.1:
            raise Unreachable("the bench lost the question")
        if fate < 0.3:
            await asyncio.sleep(SLOW_S * luck.random())
        answer = await right(self, *args)
        points()
        if fate > 0.9:
            raise Unreachable("the bench lost the answer")
        return answer

    setattr(owner, name, call)


def _late(owner: type, name: str, luck: random.Random) -> None:
    """In its thread, where nobody can call it back: the provider took the order and is slow about it."""
    right = getattr(owner, name)

    def late(*args: Any) -> Any:
        if luck.random() < 0.3:
            time.sleep(SLOW_S * luck.random())
        return right(*args)

    setattr(owner, name, late)


# --- mistakes --------------------------------------------------------------------------------------------------------

Scribe, Plane, LocalDriver, LocalDisk = sequencer.Sequencer, plane.Plane, driver.LocalDriver, store.LocalStore
LocalNodes = nodes.LocalNodes


def release_on_unknown(_: Points) -> None:
    """A site that cannot be asked is taken to have nothing."""
    right = dispatch.Dispatch._call

    async def wrong(self: Any, order: Any) -> e.Fact | None:
        try:
            return await right(self, order)
        except Unreachable:
            match order.action:
                case a.StartAttempt(attempt=attempt):
                    return e.AttemptLost(0, attempt, 0)
                case a.LaunchNode(node=node) | a.ReleaseNode(node):
                    return e.NodeGone(0, node)
            raise

    dispatch.Dispatch._call = wrong  # type: ignore[method-assign]


def bind_after_create(points: Points) -> None:
    """The thing is made first, and gets its name afterwards."""
    right_order, right_begin = LocalDisk.order, LocalDisk.begin

    def order(self: Any, ask: Any, work: Any, env: Any) -> Path:
        folder: Path = right_order(self, ask, work, env)
        if (folder / "begun.json").exists() or self.is_kept(folder) or self.is_over(folder):
            return folder
        nameless: Path = self.folder / "data" / f"{folder.name}-{time.monotonic_ns()}"
        folder.rename(nameless)
        return nameless

    def begin(self: Any, folder: Path) -> None:
        right_begin(self, folder)
        if folder.parent.name == "data":
            points()
            time.sleep(0.05)
            points()
            folder.rename(self.folder / "attempts" / folder.name.rpartition("-")[0])

    async def start(self: Any, ask: Any, work: Any) -> None:
        if not self.disk.is_over(self.disk.attempt(ask.attempt)):
            env = await self.run(self._checkpoints, ask)
            await self.run(self.disk.begin, await self.run(self.disk.order, ask, work, env))
        await right_start(self, ask, work)

    right_start = LocalDriver.start
    LocalDisk.order, LocalDisk.begin, LocalDriver.start = order, begin, start  # type: ignore[method-assign]


def tombstone_too_early(_: Points) -> None:
    """The site forgets an end when it is said, which is before it is on record."""
    right = LocalDriver._say_end

    def wrong(self: Any, attempt: str, watched: Any) -> None:
        right(self, attempt, watched)
        shutil.rmtree(watched.folder, ignore_errors=True)

    LocalDriver._say_end = wrong  # type: ignore[method-assign]


def late_create(_: Points) -> None:
    """A stop of what has not begun leaves no tombstone, so an order that is late is carried out after it."""

    def wrong(self: Any, attempt: str, grace_ms: int) -> Path:
        folder: Path = self.attempt(attempt)
        if self.is_kept(folder) or self.is_over(folder):
            return right(self, attempt, grace_ms)
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    async def stop(self: Any, attempt: str, grace_ms: int) -> None:
        folder = await self.run(self.disk.stop, attempt, grace_ms)
        if not self.disk.is_kept(folder) and not self.disk.is_over(folder):
            self.watched.pop(attempt, None)
            self.say(e.AttemptStopped(self.clock(), attempt, 0))

    right = LocalDisk.stop
    LocalDisk.stop, LocalDriver.stop = wrong, stop  # type: ignore[method-assign]


def charge_twice_on_replay(_: Points) -> None:
    """The last row's charges are booked by the snapshot, and by the tail once more."""
    right = Scribe.rebuild

    def wrong(self: Any) -> None:
        right(self)
        state = self.engine.state
        for row in self.journal.read(max(0, state.steps - 5)):
            for event in row.outputs:
                if isinstance(event, e.Settled | e.LeaseRenewed):
                    for part in event.charged:
                        state.ledger._account("org", part.period).spent += part.amount

    Scribe.rebuild = wrong  # type: ignore[method-assign]


def renewal_counted_from_the_answer(_: Points) -> None:
    """The deadline moves as far as the lease is long, from when the site gets round to it."""
    for owner, name in ((LocalDriver, "set_deadline"), (LocalNodes, "extend")):
        setattr(owner, name, _counted_late(getattr(owner, name)))


def _counted_late(right: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    async def wrong(self: Any, thing: str, deadline_at: int) -> int:
        length = deadline_at - self.disk.clock()
        await asyncio.sleep(SLOW_S)
        return await right(self, thing, self.disk.clock() + length)

    return wrong


def act_before_append(_: Points) -> None:
    """What was decided is done, and then written."""
    right_init, planes = Plane.__init__, []

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        right_init(self, *args, **kwargs)
        planes.append((self, asyncio.get_running_loop()))

    def record(self: Any, facts: Any, blobs: Any, keys: Any) -> Step:
        engine: Engine = self.engine
        step = engine.handle(*facts)
        here, loop = planes[-1]
        works = {digest: sequencer.unpack_work(digest, blob) for digest, blob in blobs.items()}
        for order in self.orders(engine.state, step.actions):
            ready = order
            if isinstance(order.action, a.StartAttempt) and order.work is None:
                digest = engine.state.attempts[order.action.attempt].job.spec.work
                ready = replace(order, work=works.get(digest))
            loop.call_soon_threadsafe(here.dispatch.do, ready)
        time.sleep(0.15)
        engine.dead = True
        self.journal.append(self.epoch, (step,), project(engine.state, step), blobs, keys)
        engine.dead = False
        self.unsaved += len(step.inputs) + len(step.outputs)
        return step

    Plane.__init__, Scribe.record = init, record  # type: ignore[method-assign]


def forget_an_outstanding_action(_: Points) -> None:
    """One thing is not said again after a crash."""
    right = State.outstanding
    State.outstanding = lambda self: iter(list(right(self))[1:])  # type: ignore[method-assign]


def answer_before_append(points: Points) -> None:
    """Whoever submits is told yes, and then it is written."""
    right = Plane.submit

    async def wrong(self: Any, spec: Any, work: Any, **more: Any) -> Any:
        task = asyncio.ensure_future(right(self, spec, work, **more))
        await asyncio.sleep(0)
        number = self.sequencer.state_now().numbered + 1
        kept.append(task)
        points()
        return sequencer.Told(self.number, f"j{number}", again=False)

    kept: list[Any] = []
    Plane.submit = wrong  # type: ignore[method-assign]


def keys_forgotten(_: Points) -> None:
    """An idempotency key is known as long as the process lives."""
    right, mine = JournalWriter.answer, dict[str, str]()
    append = JournalWriter.append

    def wrong_append(self: Any, epoch: int, steps: Any, changes: Any, blobs: Any, keys: Any) -> None:
        append(self, epoch, steps, changes, blobs, {})
        mine.update(keys)

    JournalWriter.append, JournalWriter.answer = wrong_append, lambda self, key: mine.get(key) or right(self, key)  # type: ignore[method-assign]


def holds_forgotten_by_a_restart(_: Points) -> None:
    """What is held is counted anew from nothing."""
    right = Scribe.rebuild

    def wrong(self: Any) -> None:
        right(self)
        for account in self.engine.state.ledger.accounts.values():
            account.held = 0

    Scribe.rebuild = wrong  # type: ignore[method-assign]


def logs_begun_anew(_: Points) -> None:
    """Who takes over an attempt opens its log as if it were a new one."""
    right = LocalDriver._watch

    def wrong(self: Any, attempt: str, folder: Path) -> Any:
        with suppress(OSError):
            os.truncate(folder / "log", 0)
        return right(self, attempt, folder)

    LocalDriver._watch = wrong  # type: ignore[method-assign]


def named(mistakes: Iterable[Callable[[Points], None]]) -> dict[str, Callable[[Points], None]]:
    return {mistake.__name__: mistake for mistake in mistakes}


MISTAKES: Final = named(
    (
        release_on_unknown,
        bind_after_create,
        tombstone_too_early,
        late_create,
        charge_twice_on_replay,
        renewal_counted_from_the_answer,
        act_before_append,
        forget_an_outstanding_action,
        answer_before_append,
        keys_forgotten,
        holds_forgotten_by_a_restart,
        logs_begun_anew,
    )
)


if __name__ == "__main__":
    sys.exit(main())
