"""Failed starts: remembers how often a job failed in the same way at an offer, and keeps it from that offer meanwhile.
Part of `apply`; `decide/retries` decides how long.

A job that is kept from offers has a shape of its own kind, which lacks them: every decision about a job asks its shape,
so none of them can place it there. Other jobs keep theirs, and the offers stay open for them.
"""

from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from penstock.core.fold.queue import ask_all, change_shape, shape_without
from penstock.core.fold.state import Attempt, Job, Setback, State
from penstock.core.ids import site_of
from penstock.core.model import events as e
from penstock.core.model.events import RetryPromised
from penstock.core.units import MINUTE, NEVER, SECOND, Instant, Millis

#: An attempt that kept nothing and was over so soon after its start made no progress.
AT_ONCE_MS: Final[Millis] = 10 * MINUTE
#: The first pause of a start for which no site suggests one.
PAUSE_MS: Final[Millis] = 30 * SECOND
#: So many attempts in a row that were lost and had kept nothing may be bad luck. From then on each pause is longer.
BAD_LUCK: Final = 5
#: The first of these pauses.
IN_VAIN_MS: Final[Millis] = 15 * MINUTE
#: What a person must repair: it would be missing elsewhere, too, and rented GPUs would wait for it.
REPAIRED_BY_PEOPLE: Final = ("missing", "denied")


def failed(
    state: State,
    attempt: Attempt,
    cause: str,
    words: str = "",
    retry_ms: Millis = PAUSE_MS,
    nodes: tuple[str, ...] = (),
) -> None:
    """Note a start that failed, for `decide/retries`. Call it before the attempt is over; progress is no failure."""
    if attempt.kept_ms > attempt.resume_ms:
        progressed(state, attempt)
    elif _is_in_vain(state, attempt, cause):
        state.changes.note_rare().failed.append((attempt, "in_vain", words, IN_VAIN_MS, ()))
    elif attempt.started_at is None or state.at - attempt.started_at < AT_ONCE_MS:
        state.changes.note_rare().failed.append((attempt, cause, words, retry_ms, nodes))
    else:  # it ran, and nothing says that the next one will not come further
        _forget(state, attempt)


def kept_nothing(state: State, attempt: Attempt) -> None:
    """It was told to stop, because its lease ends or its money does: no failure, but its rent was for nothing."""
    if _is_in_vain(state, attempt, "stopped"):
        state.changes.note_rare().failed.append((attempt, "in_vain", "", IN_VAIN_MS, ()))


def _is_in_vain(state: State, attempt: Attempt, cause: str) -> bool:
    """Rented ones there have ended so often, one after the other, before they kept any work, that rent only burns."""
    if cause not in ("lost", "stopped") or state.standing(attempt.offer):
        return False
    job = attempt.job
    job.in_vain = {**(job.in_vain or {}), attempt.offer.id: (job.in_vain or {}).get(attempt.offer.id, 0) + 1}
    return job.in_vain[attempt.offer.id] > BAD_LUCK


def progressed(state: State, attempt: Attempt) -> None:
    """It works there: what failed before counts no more."""
    job = attempt.job
    if job.in_vain is not None:
        job.in_vain = {offer: count for offer, count in job.in_vain.items() if offer != attempt.offer.id} or None
    _forget(state, attempt)


def _forget(state: State, attempt: Attempt) -> None:
    job = attempt.job
    if job.setbacks is not None and attempt.offer.id in job.setbacks:
        setbacks = {offer: setback for offer, setback in job.setbacks.items() if offer != attempt.offer.id}
        job.setbacks = setbacks or None
        _reshape(state, job)
        drop_stale_retries(state)


def retry_promised(state: State, event: RetryPromised) -> None:
    job, why = state.jobs[event.job], event.because
    others = {offer: setback for offer, setback in (job.setbacks or {}).items() if offer != event.offer}
    setback = Setback(why.cause, why.failures, event.retry_at, why)
    if event.nodes:
        setback = replace(setback, retry_at=NEVER, nodes=event.nodes, not_before=event.retry_at)
    job.setbacks = {**others, event.offer: setback}  # the newest last
    if event.at < setback.retry_at < NEVER:
        heappush(state.retries, (setback.retry_at, job.seq, event.offer, job))
    _reshape(state, job)
    drop_stale_retries(state)


def nodes_changed(state: State, event: e.NodesChanged) -> None:
    """Jobs that these nodes could not take may be started there again, if not too soon after the last time."""
    changed, freed = set(event.nodes), []
    for job in state.jobs.values():
        setback = (job.setbacks or {}).get(event.offer)
        if setback is None or setback.retry_at < NEVER or changed.isdisjoint(setback.nodes):
            continue
        assert job.setbacks is not None
        retry_at = max(event.at, setback.not_before)
        job.setbacks = {**job.setbacks, event.offer: replace(setback, retry_at=retry_at)}
        if retry_at > event.at:
            heappush(state.retries, (retry_at, job.seq, event.offer, job))
        else:
            freed.append(job)
    _let_back(state, freed)


def reopen(state: State, at: Instant) -> None:
    """Pauses that are over by now: those jobs may be started there again, and are decided anew."""
    due: dict[Job, None] = {}
    while state.retries and state.retries[0][0] <= at:
        due[heappop(state.retries)[3]] = None
        drop_stale_retries(state)
    _let_back(state, list(due))


def _let_back(state: State, jobs: list[Job]) -> None:
    for job in jobs:
        _reshape(state, job)
    queued = [job for job in jobs if job.queued]
    if queued:
        ask_all(state, queued)
        state.changes.freed = True


def drop_stale_retries(state: State) -> None:
    """Call after each change of a setback, and when such a job ends: the heap's first entry must always be valid."""
    retries = state.retries
    while retries and not _is_valid(*retries[0]):
        heappop(retries)


def _is_valid(at: Instant, _: int, offer: str, job: Job) -> bool:
    setback = (job.setbacks or {}).get(offer)
    return job.ended_at is None and setback is not None and setback.retry_at == at


def _reshape(state: State, job: Job) -> None:
    """Give the job the shape that lacks the offers it is kept from now."""
    base = job.shape.base or job.shape
    kept = {offer: setback for offer, setback in (job.setbacks or {}).items() if setback.retry_at > state.at}
    home = job.spec.home
    stays = any(site_of(offer) == home and setback.cause in REPAIRED_BY_PEOPLE for offer, setback in kept.items())
    offers = tuple(sorted(offer for offer, setback in kept.items() if not setback.nodes))
    unfit = tuple(sorted((offer, setback.nodes) for offer, setback in kept.items() if setback.nodes))
    shape = shape_without(state, base, offers, stays, unfit) if kept else base
    if shape is not job.shape:
        change_shape(state, job, shape)
