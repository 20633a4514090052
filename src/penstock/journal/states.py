"""The states of jobs and attempts in the words that users know from kubectl and Slurm.

The core's phases (`core.model.lifecycle`) stay in journals and tables; API, command line, pages and metrics show these
words.

    job_state("placed", "running")       # running
    attempt_state("over", "lost")        # preempted
"""

from typing import Final, Literal, TypeAlias, get_args

from penstock.core.values import value

JobState: TypeAlias = Literal[
    "queued", "starting", "running", "stopping", "paused", "succeeded", "failed", "cancelled", "refused"
]
AttemptState: TypeAlias = Literal[
    "starting", "running", "stopping", "succeeded", "failed", "preempted", "stopped", "no_capacity", "withdrawn"
]
OldState: TypeAlias = Literal["waiting", "placed", "leaving", "done"]
JOB_STATES: Final[tuple[JobState, ...]] = get_args(JobState)
#: States in which a job has ended.
ENDED: Final[tuple[JobState, ...]] = ("succeeded", "failed", "refused", "cancelled")
#: States in which a job has GPUs, or is about to get them.
ACTIVE: Final[tuple[JobState, ...]] = ("starting", "running", "stopping")
QUEUED: Final[tuple[JobState, ...]] = ("queued", "paused")

_PHASE_OF: Final[dict[str, str]] = {
    "queued": "waiting",
    "starting": "placed",
    "running": "placed",
    "stopping": "leaving",
    "paused": "paused",
    "succeeded": "done",
    "failed": "failed",
    "refused": "refused",
    "cancelled": "cancelled",
}
_STATE_OF: Final[dict[str, JobState]] = {_PHASE_OF[state]: state for state in JOB_STATES}
_OVER: Final[dict[str, AttemptState]] = {
    "done": "succeeded",
    "failed": "failed",
    "lost": "preempted",
    "stopped": "stopped",
    "refused": "no_capacity",
    "dropped": "withdrawn",
}
#: States' names in earlier versions. Filters of the API and the CLI still accept them.
OLD: Final[dict[str, tuple[JobState, ...]]] = {
    "waiting": ("queued",),
    "placed": ("starting", "running"),
    "leaving": ("stopping",),
    "done": ("succeeded",),
}


@value
class Match:
    """Which job rows are in a state. `attempt_runs`: None if it does not matter."""

    phase: str  # core.lifecycle.JobPhase
    attempt_runs: bool | None = None


def job_state(phase: str, attempt_phase: str = "") -> JobState:
    """`attempt_phase`: the phase of the job's live attempt; empty if it has none."""
    if phase == "placed":
        return "running" if attempt_phase == "running" else "starting"
    return _STATE_OF[phase]


def attempt_state(phase: str, outcome: str) -> AttemptState:
    if phase == "over":
        return _OVER[outcome]
    return "running" if phase == "running" else "stopping" if phase == "stopping" else "starting"


def is_preempted(phase: str, last_outcome: str, reason: str) -> bool:
    """True if the job is queued because its node was reclaimed, or because another job took its GPUs."""
    return phase == "waiting" and (last_outcome == "lost" or reason in ("Preempted", "ClassPreempted", "GivesWay"))


def match(state: str) -> Match:
    """The inverse of `job_state`."""
    return Match(_PHASE_OF[state], attempt_runs=state == "running" if _PHASE_OF[state] == "placed" else None)


def from_old(words: tuple[str, ...]) -> tuple[str, ...]:
    """Filters as typed, with names of earlier versions translated."""
    return tuple(dict.fromkeys(state for word in words for state in OLD.get(word, (word,))))
