"""`make bench-journal`: how fast a journal is written, listed and started from, in SQLite and in PostgreSQL.

    python -m bench.journal [--jobs 1000,10000] [--events 100000] [--only write|read|start] [--kind sqlite|postgres]

Written: durable submissions a second, with all tables, one by one and by 64 clients whose submissions share commits.
Listed: milliseconds for a page, a job, a search that finds nothing, a story. Started: seconds until an engine is back,
by folding everything and by snapshot and tail. PostgreSQL is a server of its own, in a folder that is thrown away.
"""

import argparse
import gc
import platform
import queue
import resource
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from penstock.core.engine import Engine, Step, replay
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site, Waiting
from penstock.core.units import DAY, HOUR, SECOND
from penstock.journal.open import open_journal, open_reader
from penstock.journal.projection import project
from penstock.journal.rows import Filter
from penstock.journal.schema import Changes
from penstock.journal.writer import JournalWriter
from penstock.live import snapshot
from tests.postgres import Server
from tests.postgres import found as postgres_programs

CLIENTS = 64
TAIL = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="1000,10000,100000")
    parser.add_argument("--events", default="100000,1000000")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", choices=["write", "read", "start"])
    parser.add_argument("--kind", choices=["sqlite", "postgres"])
    args = parser.parse_args()
    print(
        f"Python {platform.python_version()} ({platform.python_build()[0]}), SQLite {sqlite3.sqlite_version}",
        flush=True,
    )
    with ExitStack() as stack:
        for kind, place in places(stack):
            if args.kind in (None, kind):
                run(kind, place, args)


def run(kind: str, place: Callable[[], str], args: argparse.Namespace) -> None:
    if args.only in (None, "write"):
        print(f"{kind}: {one_by_one(place(), args.seconds):,.0f} durable submissions a second, one by one", flush=True)
        print(f"{kind}: {together(place(), args.seconds):,.0f} a second from {CLIENTS} clients", flush=True)
    if args.only in (None, "read"):
        for jobs in numbers(args.jobs):
            print(f"{kind}, {jobs:,} jobs: {', '.join(listed(place(), jobs))}", flush=True)
    if args.only in (None, "start"):
        for events in numbers(args.events):
            print(f"{kind}, {events:,} events: {', '.join(started(place(), events))}", flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def places(stack: ExitStack) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each kind, and where a new journal of it may be."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    names = iter(range(1_000))
    yield "sqlite", lambda: str(folder / f"{next(names)}.journal")
    programs = postgres_programs()
    if programs is None:
        print("PostgreSQL is not installed: SQLite only.")
        return
    server = stack.enter_context(running(programs))
    yield "postgres", server.new_database


@contextmanager
def running(programs: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(programs, Path(folder))
        try:
            server.start()
            yield server
        finally:
            if server.runs:  # whoever is interrupted while it starts leaves nothing behind, either
                server.stop()


# --- written ---------------------------------------------------------------------------------------------------------


def one_by_one(where: str, seconds: float) -> float:
    with closing(open_journal(where)) as journal:
        epoch, engine, count = journal.claim("bench", 0, HOUR), opened(), 0
        journal.append(epoch, *engine.group(), {}, {})
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            engine.submit()
            journal.append(epoch, *engine.group(), {}, {f"key-{count}": "answer"})
            count += 1
        return count / (time.perf_counter() - began)


def together(where: str, seconds: float) -> float:
    """Each client waits for its answer before it submits again; the writer takes all who wait into one commit."""
    waiting: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
    over = threading.Event()

    def client() -> None:
        while not over.is_set():
            done = threading.Event()
            waiting.put(done)
            done.wait()

    clients = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    with closing(open_journal(where)) as journal:
        epoch, engine, count = journal.claim("bench", 0, HOUR), opened(), 0
        journal.append(epoch, *engine.group(), {}, {})
        for client_thread in clients:
            client_thread.start()
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            group = [waiting.get()]
            while not waiting.empty():
                group.append(waiting.get())
            keys = {f"key-{engine.submit().number}": "answer" for _ in group}
            journal.append(epoch, *engine.group(), {}, keys)
            count += len(group)
            for done in group:
                done.set()
        rate = count / (time.perf_counter() - began)
        over.set()
        while any(thread.is_alive() for thread in clients):
            while not waiting.empty():
                waiting.get().set()
        return rate


class opened:  # noqa: N801 - reads as a word
    """An engine with a lab of 64 GPUs, to which jobs are submitted; every other step one of them ends."""

    def __init__(self) -> None:
        lab = Site("lab", (Offer("lab/owned", "lab", "owned", (NodeShape(8, 8),)),), front_door=True)
        policy = Policy("bench", waiting=Waiting("constant", 10 * HOUR))
        self.engine, self.at, self.number = Engine(), 0, 0
        self.engine.state.watch()
        self.steps, self.changes = list[Step](), Changes()
        self.hears(e.PeriodOpened(0, "all", 0, 36_500 * DAY), e.SiteJoined(0, lab), e.PolicySet(0, 1, policy))

    def hears(self, *facts: e.Fact) -> Step:
        step = self.engine.handle(*facts)
        self.steps.append(step)
        project(self.engine.state, step, self.changes)
        return step

    def group(self) -> tuple[list[Step], Changes]:
        """What is to be appended, and what that changes."""
        group = self.steps, self.changes
        self.steps, self.changes = [], Changes()
        return group

    def submit(self) -> Step:
        self.at += SECOND
        self.number += 1
        team, user = f"team-{self.number % 20}", f"user-{self.number % 200}"
        spec = JobSpec(1 + self.number % 8, team=team, name=f"train-{self.number}", user=user, expected_run_ms=HOUR)
        return self.hears(e.JobSubmitted(self.at, self.number, f"job-{self.number:07}", spec))

    def end_oldest(self) -> Step:
        self.at += SECOND
        oldest = next(iter(self.engine.state.attempts))
        return self.hears(e.AttemptStarted(self.at, oldest), e.AttemptEnded(self.at, oldest, "done"))


# --- listed ----------------------------------------------------------------------------------------------------------


def listed(where: str, jobs: int) -> Iterator[str]:
    with closing(open_journal(where)) as journal:
        fill(journal, journal.claim("bench", 0, HOUR), jobs)
        if where.startswith("postgres"):
            journal.db.run("vacuum analyze")  # as the server does by itself, sooner or later
    with closing(open_reader(where)) as reader:
        newest = reader.jobs(Filter(), limit=1)[0]
        middle = f"job-{jobs // 2:07}"
        questions: dict[str, Callable[[], object]] = {
            "page": lambda: reader.jobs(Filter()),
            "deep page": lambda: reader.jobs(Filter(), after=newest.number // 2),
            "team and phase": lambda: reader.jobs(Filter(teams=("team-3",), phases=("waiting", "done"))),
            "search": lambda: reader.jobs(Filter(text="train-77")),
            "search in vain": lambda: reader.jobs(Filter(text="nobody")),
            "search in vain in a team": lambda: reader.jobs(Filter(teams=("team-3",), text="nobody")),
            "job": lambda: reader.job(middle),
            "story": lambda: reader.story(middle),
            "attempts": lambda: reader.attempts(middle),
            "counts": reader.counts,
            "feed": reader.feed,
        }
        for name, ask in questions.items():
            yield f"{name} {timed(ask)}"


def fill(journal: JournalWriter, epoch: int, jobs: int) -> None:
    """Two in three have ended."""
    life = opened()
    for number in range(jobs):
        life.submit()
        if number % 3 and life.engine.state.attempts:
            life.end_oldest()
        if len(life.steps) > 500:
            journal.append(epoch, *life.group(), {}, {})
    journal.append(epoch, *life.group(), {}, {})
    state = life.engine.state  # so that whoever starts on it need not fold it all
    journal.keep_snapshot(epoch, state.steps, snapshot.schema(), snapshot.pack(state))


def timed(ask: Callable[[], object], times: int = 60) -> str:
    """The middle one and the slowest of sixty, in milliseconds."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1000)
    return f"{statistics.median(took):.1f}/{max(took):.1f} ms"


# --- started ---------------------------------------------------------------------------------------------------------


def started(where: str, events: int) -> Iterator[str]:
    """The same engine twice; the snapshot is `TAIL` events old."""
    with closing(open_journal(where)) as journal:
        epoch = journal.claim("bench", 0, HOUR)
        live, kept = long_life(journal, epoch, events)
    with closing(open_journal(where)) as journal:
        epoch = journal.claim("bench", 0, HOUR)
        began = time.perf_counter()
        engine = from_snapshot(journal, kept)
        yield f"by snapshot and tail {time.perf_counter() - began:.1f} s"
        assert engine.state.digest() == live.state.digest()
        began = time.perf_counter()
        again = replay((row.at, row.inputs, row.outputs) for row in journal.read())
        yield f"by folding all {time.perf_counter() - began:.1f} s"
        assert again.state.digest() == live.state.digest()
    yield f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MB"


def long_life(journal: JournalWriter, epoch: int, events: int, tail: int = TAIL) -> tuple[Engine, int]:
    """Jobs come and go; the snapshot is `tail` events old. The engine, and the step that its snapshot is of."""
    life, seen, kept = opened(), 0, 0
    while seen < events:
        step = life.end_oldest() if len(life.engine.state.attempts) >= 12 else life.submit()
        seen += len(step.inputs) + len(step.outputs)
        if len(life.steps) >= 500:
            journal.append(epoch, *life.group(), {}, {})
            if not kept and seen > events - tail:
                kept = step.number
                journal.keep_snapshot(epoch, kept, snapshot.schema(), snapshot.pack(life.engine.state))
    journal.append(epoch, *life.group(), {}, {})
    return life.engine, kept


def from_snapshot(journal: JournalWriter, kept: int) -> Engine:
    stored = journal.snapshot(snapshot.schema())
    assert stored is not None
    number, state = stored
    assert number == kept
    engine = Engine()
    engine.state = snapshot.unpack(state)
    gc.collect()
    return replay(((row.at, row.inputs, row.outputs) for row in journal.read(after=number)), engine)


if __name__ == "__main__":
    main()
