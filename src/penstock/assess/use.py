"""The report's first part: GPUs allocated against GPUs used, by hour, day and team, and allocations that stood idle."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from penstock.assess.history import IDLE_PERMILLE, HourOfUse, JobRecord, MonthHistory
from penstock.assess.owned import OwnedSteps
from penstock.core.units import HOUR, PERMILLE, Instant, Millis, Money, cost_of
from penstock.core.values import value

LEAST_IDLE: Final[Millis] = HOUR  #: of GPU time, to be named
MOST_NAMED: Final = 100


@value
class UseRow:
    """GPU-hours of a team, a day or an hour. `used` is what was measured, over `measured` of the allocated ones."""

    label: str
    allocated: float
    measured: float
    used: float

    @property
    def used_share(self) -> float | None:
        """Of the measured GPU time; None: nothing was measured."""
        return self.used / self.measured if self.measured else None


@value
class IdleAllocation:
    """A job whose GPUs did nothing for whole hours, and what those hours cost."""

    job: str
    team: str
    gpus: int
    idle_gpu_hours: float
    allocated_gpu_hours: float
    cost: Money
    memory_permille: int | None


@value
class UseReport:
    total: UseRow
    owned_gpu_hours: float | None  # None: not known how many are owned
    by_team: tuple[UseRow, ...]
    by_day: tuple[UseRow, ...]
    by_hour: tuple[UseRow, ...]  # every hour of the month, labelled by its instant
    by_hour_of_day: tuple[UseRow, ...]
    idle: tuple[IdleAllocation, ...]  # the dearest first
    idle_jobs: int
    idle_gpu_hours: float
    idle_cost: Money


def use_of(
    history: MonthHistory, gpu_hour: Money, day: Callable[[Instant], str], hour: Callable[[Instant], str]
) -> UseReport:
    """`gpu_hour`: what an hour of an owned GPU costs. `day`, `hour`: of an instant, as people name them."""
    idle = sorted(_idle(history.jobs, gpu_hour), key=lambda row: (-row.cost, row.job))
    return UseReport(
        total=_rows(history.use, lambda _: "all")[0] if history.use else UseRow("all", 0, 0, 0),
        owned_gpu_hours=_owned_hours(history) if history.owned else None,
        by_team=tuple(sorted(_rows(history.use, lambda row: row.team), key=lambda row: -row.allocated)),
        by_day=tuple(_rows(history.use, lambda row: day(row.at))),
        by_hour=tuple(_rows(history.use, lambda row: str(row.at))),
        by_hour_of_day=tuple(sorted(_rows(history.use, lambda row: hour(row.at)), key=lambda row: row.label)),
        idle=tuple(idle[:MOST_NAMED]),
        idle_jobs=len(idle),
        idle_gpu_hours=sum(row.idle_gpu_hours for row in idle),
        idle_cost=sum(row.cost for row in idle),
    )


def _rows(use: Iterable[HourOfUse], label: Callable[[HourOfUse], str]) -> list[UseRow]:
    sums: dict[str, list[Millis]] = defaultdict(lambda: [0, 0, 0])
    for row in use:
        gpu_ms = sums[label(row)]
        gpu_ms[0] += row.allocated_gpu_ms
        gpu_ms[1] += row.measured_gpu_ms
        gpu_ms[2] += row.used_gpu_ms
    return [UseRow(name, *(ms / HOUR for ms in gpu_ms)) for name, gpu_ms in sums.items()]


def _owned_hours(history: MonthHistory) -> float:
    owned = OwnedSteps(history.owned)
    turns = [history.from_at, *owned.changes(history.from_at, history.to_at)]
    ends = [*turns[1:], history.to_at]
    return sum(owned.at(at) * (end - at) for at, end in zip(turns, ends, strict=True)) / HOUR


def _idle(jobs: Iterable[JobRecord], gpu_hour: Money) -> Iterable[IdleAllocation]:
    for job in jobs:
        if job.idle_gpu_ms >= LEAST_IDLE:
            yield IdleAllocation(
                job=job.id,
                team=job.team,
                gpus=job.gpus,
                idle_gpu_hours=job.idle_gpu_ms / HOUR,
                allocated_gpu_hours=(job.run_ms or 0) * job.gpus / HOUR,
                cost=cost_of(gpu_hour, job.idle_gpu_ms),
                memory_permille=job.memory_permille,
            )


IDLE_WORDS: Final = f"under {IDLE_PERMILLE * 100 // PERMILLE} % of use for a whole hour"
