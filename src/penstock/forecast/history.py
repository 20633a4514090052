"""Demand by hour from jobs. `demand.forecast` takes it; reports and benchmarks make it here.

Demand is what people want, not what runs: a job counts from its submission, queued or not, for as long as it runs.
"""

from collections.abc import Iterable
from itertools import accumulate

from penstock.core.units import HOUR, Instant


def demand_by_hour(jobs: Iterable[tuple[Instant, Instant, int]], from_at: Instant, until_at: Instant) -> list[float]:
    """Mean GPUs wanted in each whole hour of [from_at, until_at). A job is (wanted from, wanted until, GPUs).

    Only what lies inside counts, so a job that still runs at `until_at` may say any later end.
    """
    hours = max(0, (until_at - from_at) // HOUR)
    changes = [0] * (hours + 1)  #: GPUs more than in the hour before, for jobs that fill whole hours
    partial = [0] * (hours + 1)  #: GPU-milliseconds in the hours in which a job begins or ends
    for begin, end, gpus in jobs:
        begin, end = max(0, begin - from_at), min(hours * HOUR, end - from_at)
        if begin >= end:
            continue
        (first, since), (last, rest) = divmod(begin, HOUR), divmod(end, HOUR)
        # Counted as if it filled the hour it begins in and not the one it ends in; then put right.
        changes[first] += gpus
        changes[last] -= gpus
        partial[first] -= gpus * since
        partial[last] += gpus * rest
    whole = accumulate(changes)
    return [gpus + extra / HOUR for gpus, extra in zip(whole, partial, strict=True)][:hours]
