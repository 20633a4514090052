"""Who may stop whom for its GPUs: one strict order of all jobs, so that no two of them, and no circle, stop each other
for ever. `preemption` and `backfill` ask.

A job's rank is the height of its class, by whom the policy lets it stop, and then its priority. A job stops only jobs
of lower rank, so the ranks on owned GPUs, counted from the highest, only ever rise by a stop. Other ways to make room
(a share of the owned GPUs, a job that may not leave, reserved nodes) move nobody who could take the GPUs back; and
each job moves only so often.
"""

from typing import TypeAlias

from penstock.core.fold.state import Job, State

Rank: TypeAlias = tuple[int, int]


def rank(state: State, job: Job) -> Rank:
    return state.class_heights.get(job.spec.job_class, 0), job.spec.priority


def outranks(state: State, job: Job, other: Job) -> bool:
    """Whether the job may stop the other one."""
    return by_class(state, job, other) or by_priority(state, job, other)


def by_class(state: State, job: Job, other: Job) -> bool:
    """Whatever their priorities."""
    return other.spec.interruptible and other.spec.job_class in state.class_stops.get(job.spec.job_class, ())


def by_priority(state: State, job: Job, other: Job) -> bool:
    """Not of a class above its own, which could take the GPUs back."""
    if not state.policy.preempt or not other.spec.interruptible or other.spec.priority >= job.spec.priority:
        return False
    return rank(state, other) < rank(state, job)
