"""The lines that can still change, and what a step changes in them. `project` and the `follow` files work on these.

`Tables` holds lines as they are in the database; `Changes` is what to put there, drop there and add to.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.core.lifecycle import ENDED
from penstock.journal import lines as t


class Changes:
    """By table: lines to put by key, keys to drop, amounts to add by key."""

    def __init__(self) -> None:
        self.puts: dict[type[Any], dict[tuple[Any, ...], t.Line]] = {}
        self.drops: dict[type[Any], dict[tuple[Any, ...], None]] = {}

    def put(self, line: t.Line) -> None:
        kind, key = type(line), _key(line)
        self.puts.setdefault(kind, {})[key] = line
        self.drops.get(kind, {}).pop(key, None)

    def drop(self, line: t.Line) -> None:
        kind, key = type(line), _key(line)
        self.puts.get(kind, {}).pop(key, None)
        self.drops.setdefault(kind, {})[key] = None

    def add(self, line: t.Spend | t.Used | t.Count) -> None:
        known: Any = self.puts.setdefault(type(line), {}).setdefault(_key(line), line)
        if known is not line:
            for name in t.TABLES[type(line)].adds:
                setattr(known, name, getattr(known, name) + getattr(line, name))


def _key(line: t.Line) -> tuple[Any, ...]:
    return t.TABLES[type(line)].key_of(line)


class Tables:
    """The lines that can still change: of jobs that have not ended or for which money is still held."""

    def __init__(self, loaded: Iterable[t.Line] = ()) -> None:
        self.jobs: dict[str, t.Job] = {}
        self.attempts: dict[str, t.Attempt] = {}
        self.nodes: dict[str, t.Node] = {}
        self.rented: dict[str, dict[str, t.Node]] = {}  #: attempt -> its nodes
        self.holds: dict[str, t.Hold] = {}
        self.offers: dict[str, t.Offer] = {}
        self.closed: dict[str, t.Closed] = {}
        self.notes: dict[str, str] = {}
        self.awaited: dict[str, dict[str, None]] = {}  #: what an attempt needs -> who needs it
        self.over: list[t.Job | t.Attempt] = []
        self.changes = Changes()
        for line in loaded:
            self._take(line)

    def _take(self, line: t.Line) -> None:
        match line:
            case t.Job():
                self.jobs[line.id] = line
            case t.Attempt():
                self.attempts[line.id] = line
                for need in as_list(line.needs):
                    self.awaited.setdefault(need, {})[line.id] = None
            case t.Node():
                self.take_node(line)
            case t.Hold():
                self.holds[line.id] = line
            case t.Offer():
                self.offers[line.id] = line
            case t.Closed():
                self.closed[line.offer] = line
            case t.Note():
                self.notes[line.name] = line.text
            case _:
                pass  # the rest is only ever put or added to

    def take_node(self, node: t.Node) -> None:
        self.nodes[node.id] = node
        for attempt in as_list(node.on):
            self.rented.setdefault(attempt, {})[node.id] = node

    def sit(self, node: t.Node, attempt: str) -> None:
        node.on = as_json([*as_list(node.on), attempt])
        self.take_node(node)
        self.changes.put(node)

    def rise(self, node: t.Node, attempt: str) -> None:
        """It is idle when nobody who has begun is on it."""
        left = [other for other in as_list(node.on) if other != attempt]
        node.on = as_json(left)
        if node.phase == "busy" and all(self.attempts[other].phase == "promised" for other in left):
            node.phase = "idle"
        self.changes.put(node)

    @property
    def numbered(self) -> int:
        """The last submission's number."""
        return int(self.notes.get("numbered", "-1"))

    def live_job(self, job: str) -> t.Job | None:
        found = self.jobs.get(job)
        return found if found is not None and found.phase not in ENDED else None

    def live_attempt(self, attempt: str) -> t.Attempt | None:
        found = self.attempts.get(attempt)
        return found if found is not None and found.phase != "over" else None

    def job_of(self, attempt: t.Attempt) -> t.Job:
        return self.jobs[attempt.job]

    def enter(self, job: t.Job, phase: str) -> None:
        """A job's phase changes only here, so that jobs are counted by it."""
        self.counted(job, -1)
        job.phase = phase
        self.counted(job, 1)

    def counted(self, job: t.Job, by: int) -> None:
        self.changes.add(t.Count(job.phase, job.team, by, by * job.gpus))

    def found_room(self, offer: str) -> None:
        line = self.closed.pop(offer, None)
        if line is not None:
            self.changes.drop(line)

    def count(self, name: str) -> int:
        """The next number of this name."""
        number = int(self.notes.get(name, "0"))
        self.note(name, str(number + 1))
        return number

    def note(self, name: str, text: str) -> None:
        self.notes[name] = text
        self.changes.put(t.Note(name, text))

    def forget_ended(self) -> None:
        """They are in the database, and nothing can change them any more."""
        for line in self.over:
            known: Any = self.jobs if isinstance(line, t.Job) else self.attempts
            if line.holds == 0 and known.get(line.id) is line:
                del known[line.id]
        self.over = []  # for which money is still held: `settled` names them again


def as_json(found: object) -> str:
    return msgspec.json.encode(found).decode()


def as_list(text: str) -> list[Any]:
    found: list[Any] = msgspec.json.decode(text) if text != "[]" else []
    return found
