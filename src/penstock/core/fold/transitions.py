"""The only ways in which jobs, attempts and nodes change phase: the edges of `lifecycle`. The parts of `apply` call."""

from penstock.core.fold.state import Attempt, Job, Node, State
from penstock.core.model.lifecycle import ATTEMPT, JOB, NODE, AttemptPhase, Broken, JobPhase, NodePhase


def move_job(state: State, job: Job, to: JobPhase) -> None:
    if to not in JOB[job.phase]:
        raise Broken(f"job {job.id} cannot go from {job.phase} to {to}")
    if state.touched is not None:
        state.touched.jobs.setdefault(job, job.phase)
    job.phase = to


def move_attempt(state: State, attempt: Attempt, to: AttemptPhase) -> None:
    if to not in ATTEMPT[attempt.phase]:
        raise Broken(f"attempt {attempt.id} cannot go from {attempt.phase} to {to}")
    if state.touched is not None:
        state.touched.attempts.setdefault(attempt, attempt.phase)
    attempt.phase = to


def move_node(state: State, node: Node, to: NodePhase) -> None:
    if to not in NODE[node.phase]:
        raise Broken(f"node {node.id} cannot go from {node.phase} to {to}")
    if state.touched is not None:
        state.touched.nodes[node] = None
    node.phase = to


# --- noted for the journal's tables; a change of phase notes itself ---------------------------------------------------


def touch_job(state: State, job: Job) -> None:
    if state.touched is not None:
        state.touched.jobs.setdefault(job, job.phase)


def touch_attempt(state: State, attempt: Attempt) -> None:
    if state.touched is not None:
        state.touched.attempts.setdefault(attempt, attempt.phase)


def touch_node(state: State, node: Node) -> None:
    if state.touched is not None:
        state.touched.nodes[node] = None


def touch_offer(state: State, offer: str) -> None:
    if state.touched is not None:
        state.touched.offers[offer] = None
