"""Reasons that several queued jobs share, one line for each: a notice on the page, and below `penstock jobs`.

shared([(job.because.kind, job.because.numbers, job.gpus), ...], clock)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from penstock.core.units import Instant
from penstock.core.values import value
from penstock.formatting import count

LEAST: Final = 3  #: jobs; fewer are read as quickly one by one
Numbers: TypeAlias = Mapping[str, Any]
Clock: TypeAlias = Callable[[Instant], str]


@value
class SharedWait:
    kind: str
    what: str  #: what they wait for, the same for all of them
    jobs: int
    gpus: int

    @property
    def says(self) -> str:
        wait = "wait" if self.jobs > 1 else "waits"
        return f"{self.what}: {count(self.jobs, 'job')} with {count(self.gpus, 'GPU')} {wait}."


def shared(waits: Iterable[tuple[str, Numbers, int]], clock: Clock) -> list[SharedWait]:
    """Those that at least `LEAST` jobs have in common, most GPUs first. Each wait: its reason's kind and numbers, and
    the job's GPUs.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for kind, numbers, gpus in waits:
        if kind in WHAT:
            groups.setdefault((kind, WHAT[kind](numbers, clock)), []).append(gpus)
    made = [SharedWait(kind, what, len(sizes), sum(sizes)) for (kind, what), sizes in groups.items()]
    return sorted((wait for wait in made if wait.jobs >= LEAST), key=lambda wait: (-wait.gpus, wait.what))


def _source(numbers: Numbers) -> str:
    return f" ({numbers['source']})" if numbers.get("source") else ""


def _month(numbers: Numbers) -> str:
    return f" for {numbers['period']}" if numbers.get("period") else ""


#: Of a reason's numbers only those that are no job's own.
WHAT: Final[Mapping[str, Callable[[Numbers, Clock], str]]] = {
    "CapBinds": lambda n, _: f"The budget of {n['scope']}{_month(n)} is reached",
    "InQuietHours": lambda n, clock: f"Quiet hours until {clock(n['ends_at'])}{_source(n)}",
    "NoRoomThere": lambda n, clock: f"No rented offer has capacity, next try {clock(n['retry_at'])}",
    "PeriodUnknown": lambda _, __: "The month's budget is not open yet",
    "PlacementsPaused": lambda _, __: "All new starts are paused",
    "RateBinds": lambda n, _: f"The spending rate of {n['scope']} is reached",
    "TeamAtLimit": lambda n, _: f"Team {n['team']} has all of its {count(n['limit'], 'GPU')}{_source(n)}",
}
