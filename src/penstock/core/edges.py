"""The only ways in which jobs, attempts and nodes change phase: the edges of `lifecycle`. The parts of `fold` call."""

from penstock.core.lifecycle import ATTEMPT, JOB, NODE, AttemptPhase, Broken, JobPhase, NodePhase
from penstock.core.state import (
    Attempt,
    Job,
    Node,
)


def move_job(job: Job, to: JobPhase) -> None:
    if to not in JOB[job.phase]:
        raise Broken(f"job {job.id} cannot go from {job.phase} to {to}")
    job.phase = to


def move_attempt(attempt: Attempt, to: AttemptPhase) -> None:
    if to not in ATTEMPT[attempt.phase]:
        raise Broken(f"attempt {attempt.id} cannot go from {attempt.phase} to {to}")
    attempt.phase = to


def move_node(node: Node, to: NodePhase) -> None:
    if to not in NODE[node.phase]:
        raise Broken(f"node {node.id} cannot go from {node.phase} to {to}")
    node.phase = to
