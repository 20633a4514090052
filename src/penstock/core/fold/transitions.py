"""The only ways in which jobs, attempts and nodes change phase: the edges of `lifecycle`. The parts of `apply` call.

A promise about a job or attempt that is not in the phase it needs is a bug: it is refused here, where it would become
state, with the job's story. So no decision and no journal can start a job twice.
"""

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


# --- what a promise needs --------------------------------------------------------------------------------------------


def must_be_queued(job: Job, what: str) -> None:
    if not job.queued:
        raise Broken(f"{what} of job {job.id}, which is not queued: {story(job)}")


def must_be_moving(state: State, job: Job, next_id: str, after: tuple[str, ...]) -> None:
    """A next attempt beside the one that it has: only to follow it."""
    follows = job.attempt is not None and job.attempt.id in after and job.phase == "placed" and job.next is None
    if not follows or next_id in state.attempts:
        raise Broken(f"attempt {next_id} would run beside another of its job: {story(job)}")


def must_be_alone(attempt: Attempt) -> None:
    """It begins: its job's other attempts are over."""
    job = attempt.job
    before = job.attempt
    if before is not attempt and (job.next is not attempt or before is None or before.phase != "over"):
        raise Broken(f"attempt {attempt.id} would begin beside another of its job: {story(job)}")


def story(job: Job) -> str:
    """Where the job is, for whoever reads the error."""
    attempts = [attempt for attempt in (job.attempt, job.next) if attempt is not None]
    told = [f"{attempt.id} is {attempt.phase} at {attempt.offer.id}" for attempt in attempts]
    return f"job {job.id} is {job.phase}, {', '.join(told) or 'without an attempt'}, after {job.attempts} attempts"


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
