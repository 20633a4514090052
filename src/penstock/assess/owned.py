"""How many GPUs are owned at an instant, and of which model. `join` and the report's parts ask it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate

from penstock.assess.gpus import model_of
from penstock.assess.history import JobRecord, MonthHistory, OwnedGpus
from penstock.core.units import Instant


class OwnedSteps:
    """All models together. Before the first row of a model, as many as in it."""

    def __init__(self, rows: Iterable[OwnedGpus]) -> None:
        by_time = sorted(rows, key=lambda row: row.at)
        counts: dict[str, int] = {}
        for row in reversed(by_time):
            counts[row.model] = row.gpus
        self.instants: list[Instant] = []
        self.totals: list[int] = [sum(counts.values())]
        for row in by_time:
            counts[row.model] = row.gpus
            self.instants.append(row.at)
            self.totals.append(sum(counts.values()))

    def at(self, instant: Instant) -> int:
        return self.totals[bisect_right(self.instants, instant)]

    @property
    def last(self) -> int:
        return self.totals[-1]

    def changes(self, from_at: Instant, to_at: Instant) -> list[Instant]:
        """Instants within the span at which the number may change."""
        return [at for at in self.instants if from_at < at < to_at]


def owned_model(history: MonthHistory) -> str:
    """The model of most GPU time. Empty: nobody says, or the tables do not know it."""
    sums: dict[str, int] = defaultdict(int)
    for job in history.jobs:
        sums[model_of(job.gpu_model)] += job.gpus * (job.run_ms or 0)
    for row in history.owned:
        sums[model_of(row.model)] += row.gpus
    sums.pop("", None)
    return max(sums, key=lambda model: (sums[model], model), default="")


def most_at_once(jobs: Iterable[JobRecord]) -> int:
    """The most GPUs held at once by jobs that ran at home: stands in for what is owned where nobody says."""
    turns: Counter[Instant] = Counter()
    for job in jobs:
        if job.started_at is not None and job.ended_at is not None and job.run_ms and not job.rented:
            turns[job.started_at] += job.gpus
            turns[job.ended_at] -= job.gpus
    return max(accumulate((change for _, change in sorted(turns.items())), initial=0))
