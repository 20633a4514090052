"""Guesses when a job was submitted or started, from the jobs next to it in time. `replay` and `waits` ask it.

Queues are nearly in order: a job that was submitted between two others started between them, or nearly so. Where these
two did not wait, it did not either. Both ends of what may be are for the report's ranges.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from penstock.assess.history import VAGUE_START, JobRecord
from penstock.core.units import MINUTE, SECOND, Instant, Millis

#: Which end of what may be: the job waited as little, as much, or as is to be expected.
Waited: TypeAlias = Literal["least", "expected", "most"]
NO_WAIT_MS: Final[Millis] = 5 * MINUTE  #: the time that any start takes; shorter waits are none


class Neighbours:
    """Of jobs whose submission and start are both known."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        known = [(job.submitted_at or 0, job.started_at or 0) for job in jobs if job.wait_ms is not None]
        self.by_submission = sorted(known)
        self.by_start = sorted((started_at, submitted_at) for submitted_at, started_at in known)
        runs: dict[tuple[str, int], list[Millis]] = {}
        for job in jobs:
            if job.wait_ms is not None and not job.cut and job.run_ms:
                runs.setdefault(kind_of(job), []).append(job.run_ms)
        self.usual_ms = {kind: sorted(times)[len(times) // 2] for kind, times in runs.items()}

    def submission(self, started_at: Instant, waited: Waited = "expected") -> Instant:
        """Of a job that started then. Where the jobs next to it did not wait, neither did it."""
        near = _near(self.by_start, started_at)
        nobody_waited = all(start - submission <= NO_WAIT_MS for start, submission in near)
        low, high = (pick([submission for _, submission in near], default=started_at) for pick in (min, max))
        if waited == "least" or (nobody_waited and waited == "expected"):
            return started_at if nobody_waited else min(started_at, high)
        return min(started_at, low if waited == "most" else (low + high) // 2)

    def start(self, job: JobRecord, waited: Waited = "expected") -> Instant:
        """Of a job whose submission and end are known. Where the jobs next to it did not wait, neither did it;
        otherwise it ran as long as its namesakes, as far as its neighbours' starts allow.
        """
        at, ended_at = job.submitted_at or 0, job.ended_at or 0
        near = _near(self.by_submission, at)
        nobody_waited = all(start - submission <= NO_WAIT_MS for submission, start in near)
        latest = max(at, ended_at - SECOND)
        low, high = (min(latest, max(at, pick([start for _, start in near], default=at))) for pick in (min, max))
        if waited == "least" or (nobody_waited and waited == "expected"):
            return at if nobody_waited else low
        usual_ms = self.usual_ms.get(kind_of(job))
        if waited == "most":
            return high
        return (low + high) // 2 if usual_ms is None else max(low, min(high, ended_at - usual_ms))


def hides_its_wait(job: JobRecord) -> bool:
    """Whether what looks like its run begins with its submission: the Job's status, or the first sample of its pod."""
    if job.counts_from_submission:  # how long it ran is known
        return False
    return job.started_by in VAGUE_START and job.submitted_at is not None and bool(job.run_ms) and not job.cut


def kind_of(job: JobRecord) -> tuple[str, int]:
    """Runs of one script, at one width."""
    return job.key or job.team, job.gpus


def _near(known: list[tuple[Instant, Instant]], at: Instant) -> list[tuple[Instant, Instant]]:
    """The one before and the one after, as far as they are there; and all of that instant, like an array's tasks."""
    return known[max(0, bisect_left(known, (at, 0)) - 1) : bisect_left(known, (at + 1, 0)) + 1]
