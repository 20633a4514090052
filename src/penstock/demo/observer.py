"""What happened, read from the journal as it grows and from the jobs' own output. `script` asks it.

All figures of the demo come from here.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.ids import attempt_of
from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.model.types import Hold, JobSpec, Part
from penstock.core.units import Instant, Millis, Money, cost_of
from penstock.core.values import value
from penstock.demo.interrupts import again_if_lost
from penstock.journal.sqlite import SqliteDatabase
from penstock.journal.writer import steps_of

LOOK_S: Final = 0.1
#: How long to wait for one event of the script on a busy machine.
LIMIT_S: Final = 120


class AttemptTrail:
    """One attempt."""

    def __init__(self, promise: e.StartPromised) -> None:
        self.promise = promise
        self.started_at: Instant | None = None
        self.ended_at: Instant | None = None
        self.how = ""  #: `done`, `failed`, `stopped` or `lost`
        self.kept_ms: Millis = 0
        self.node_lost_at: Instant | None = None
        self.checkpoints = 0

    @property
    def id(self) -> str:
        return self.promise.attempt

    @property
    def rented(self) -> bool:
        return bool(holds_of(self.promise))


class JobTrail:
    """One job."""

    def __init__(self, job: str, spec: JobSpec, submitted_at: Instant) -> None:
        self.id, self.spec, self.submitted_at = job, spec, submitted_at
        self.tries: list[AttemptTrail] = []
        self.denied: r.CapBinds | None = None
        self.charged: Money = 0

    @property
    def name(self) -> str:
        return f"{self.spec.team}/{self.spec.name}"

    @property
    def done(self) -> bool:
        return bool(self.tries) and self.tries[-1].how == "done"


class Observer:
    """All that happened so far. `look` reads what is new in a journal, `until` waits for something to become true."""

    def __init__(
        self, journal: Path = Path(), tell: Callable[["Observer", Any], None] = lambda _seen, _event: None
    ) -> None:
        self.journal, self.tell = journal, tell
        self.number = 0
        self.jobs: dict[str, JobTrail] = {}
        self.tries: dict[str, AttemptTrail] = {}
        self.holds: dict[str, None] = {}  #: money held and not yet settled
        self.noticed: dict[str, None] = {}  #: rented nodes that were announced to be taken away
        self.warm: dict[str, str] = {}  #: nodes that were rented ahead: the job that pays for it; empty: the pool
        self.pool_charged: Money = 0

    def until(self, true: Callable[[], bool], awaited: str, limit_s: int = LIMIT_S) -> None:
        """Waits until the journal shows it; time alone never ends the wait."""
        end = time.monotonic() + limit_s
        while not true():
            if time.monotonic() > end:
                raise BadInput(f"The demo waited {limit_s} s in vain: {awaited}.")
            time.sleep(LOOK_S)
            again_if_lost()
            self.look()

    def look(self) -> None:
        with closing(SqliteDatabase(str(self.journal), readonly=True)) as db:
            rows = list(steps_of(db, self.number))
        for row in rows:
            self.number = row.number
            for event in (*row.inputs, *row.outputs):
                self.hear(event)
                self.tell(self, event)

    def hear(self, event: Any) -> None:
        match event:
            case e.JobSubmitted():
                self.jobs[event.job] = JobTrail(event.job, event.spec, event.at)
            case e.WaitPromised(because=r.CapBinds() as because):
                self.jobs[event.job].denied = because
            case e.StartPromised():
                self.tries[event.attempt] = AttemptTrail(event)
                self.jobs[event.job].tries.append(self.tries[event.attempt])
                self.holds |= dict.fromkeys(hold.id for hold in holds_of(event))
            case e.AttemptStarted():
                self.tries[event.attempt].started_at = event.at
            case e.AttemptCheckpointed():
                self.tries[event.attempt].checkpoints += 1
            case e.AttemptEnded(outcome=outcome):
                self._ended(event, outcome, 0)
            case e.AttemptStopped(kept_ms=kept):
                self._ended(event, "stopped", kept)
            case e.AttemptLost(kept_ms=kept):
                self._ended(event, "lost", kept)
            case e.NodeNotice():
                self.noticed[event.node] = None
            case e.NodeLost():
                for attempt in self._on(event.node):
                    attempt.node_lost_at = attempt.node_lost_at or event.at  # a site may say it twice
            case e.WarmPromised():
                self.warm[event.ask.node] = ""
                self.holds[event.ask.hold.id] = None
            case e.PayerChanged():
                self._charge(event.node, event.charged)
                self.warm[event.node] = event.job
            case e.LeaseRenewed() | e.Settled():
                self._charge(event.hold, event.charged)
                if isinstance(event, e.Settled):
                    del self.holds[event.hold]

    def _on(self, node: str) -> list[AttemptTrail]:
        """The attempts that it was rented for, or that joined it and have not ended."""
        own = self.tries.get(attempt_of(node)) if node not in self.warm else None
        joined = [attempt for attempt in self.tries.values() if attempt.promise.joins == node and not attempt.how]
        return [own, *joined] if own is not None else joined

    def _charge(self, hold: str, parts: Iterable[Part]) -> None:
        """To the job that it is held for; to nobody's if a pool of warm nodes pays."""
        amount = sum(part.amount for part in parts)
        payer = self.payer(hold)
        if payer is not None:
            payer.charged += amount
        else:
            self.pool_charged += amount

    def payer(self, hold: str) -> JobTrail | None:
        """The job that it is held for; None: a pool of warm nodes pays."""
        job = self.warm[hold] if hold in self.warm else self.tries[attempt_of(hold)].promise.job
        return self.jobs[job] if job else None

    def is_paid(self, trail: JobTrail) -> bool:
        """It has ended well, and all that was rented for it was charged for the last time."""
        return trail.done and all(self.payer(hold) is not trail for hold in self.holds)

    def _ended(self, event: Any, how: str, kept_ms: Millis) -> None:
        attempt = self.tries[event.attempt]
        attempt.ended_at, attempt.how, attempt.kept_ms = event.at, how, kept_ms

    # --- questions ---------------------------------------------------------------------------------------------------

    def named(self, name: str) -> JobTrail | None:
        return next((trail for trail in self.jobs.values() if trail.spec.name == name), None)

    def running(self) -> list[AttemptTrail]:
        return [attempt for attempt in self.tries.values() if attempt.started_at is not None and not attempt.how]

    def starting(self) -> list[AttemptTrail]:
        return [attempt for attempt in self.tries.values() if attempt.started_at is None and not attempt.how]

    def bursts(self) -> list[AttemptTrail]:
        """Attempts that burst by decision. A restart after a preemption does not count again."""
        return [
            attempt for attempt in self.tries.values() if attempt.rented and attempt.promise.because.kind != "LostNode"
        ]

    def lost(self) -> list[AttemptTrail]:
        return [attempt for attempt in self.tries.values() if attempt.how == "lost" and attempt.rented]

    def resumed(self) -> list[AttemptTrail]:
        """Attempts that resumed after a preemption and have started."""
        return [
            attempt
            for attempt in self.tries.values()
            if isinstance(attempt.promise.because, r.LostNode) and attempt.started_at
        ] + [after for before, after in self.pairs() if before.how == "lost" and not after.rented and after.started_at]

    def came_home(self) -> list[AttemptTrail]:
        return [
            attempt
            for attempt in self.tries.values()
            if attempt.promise.because.kind == "ComesHome" and attempt.started_at
        ]

    def refused(self) -> list[JobTrail]:
        return [trail for trail in self.jobs.values() if trail.denied is not None]

    def over(self) -> bool:
        """Every job has ended well, and everything rented was charged for the last time."""
        return all(trail.done for trail in self.jobs.values()) and not self.holds

    def charged(self) -> Money:
        return sum(trail.charged for trail in self.jobs.values()) + self.pool_charged

    def of(self, attempt: AttemptTrail) -> list[AttemptTrail]:
        """All attempts of its job."""
        return self.jobs[attempt.promise.job].tries

    def pairs(self) -> Iterator[tuple[AttemptTrail, AttemptTrail]]:
        """Each attempt with the next one of its job."""
        for trail in self.jobs.values():
            yield from pairwise(trail.tries)


def price_of(attempt: AttemptTrail, ms: Millis) -> Money:
    """What that much time cost at the attempt's offer."""
    return sum(cost_of(hold.terms.price_per_hour, ms) for hold in holds_of(attempt.promise))


def holds_of(promise: e.StartPromised) -> list[Hold]:
    """The holds of a start: one for each node, or one for the attempt if the site sells attempts."""
    return [ask.hold for ask in promise.nodes] + ([promise.hold] if promise.hold is not None else [])


# --- what the jobs printed -------------------------------------------------------------------------------------------

STEP: Final = re.compile(r"^step (\d+) of (\d+) loss (\S+) at (\S+)$", re.MULTILINE)
BEGIN: Final = re.compile(r"^begins at step (\d+) of (\d+)", re.MULTILINE)


@value
class Printed:
    """One attempt's own account."""

    began_with: int  # the step its checkpoint held; -1: it did not get so far as to say
    steps: tuple[tuple[int, float, float], ...]  # step, loss, when


def printed(log: str) -> Printed:
    begun = BEGIN.search(log)
    steps = tuple((int(step), float(loss), float(at)) for step, _, loss, at in STEP.findall(log))
    return Printed(int(begun[1]) if begun else -1, steps)


def doubled(tries: list[Printed]) -> int:
    """Steps that an attempt did after a later one had begun: two ran at once."""
    at_once = 0
    for k, attempt in enumerate(tries):
        later = [other.steps[0][2] for other in tries[k + 1 :] if other.steps]
        at_once += sum(at > min(later) for _, _, at in attempt.steps) if later else 0
    return at_once


def missing(tries: list[Printed], steps: int) -> int:
    """Steps that nobody ever did."""
    return steps - len({step for attempt in tries for step, _, _ in attempt.steps})
