"""What to do next with a Workload so that an attempt runs, and only within its hold. Pure. `kueue_driver` does it, step
by step, and asks again after each change.

The order is the promise: its time is bounded before it is let in. Kueue compares a Workload's bound with a label of its
owner and makes the Workload anew if they differ, so both are written; a new Workload begins at the first step again.
"""

from typing import Final, TypeAlias

from penstock.core.ids import attempt_number, job_of
from penstock.core.units import SECOND, Instant
from penstock.core.values import value
from penstock.front.kueue import workload as w
from penstock.kube import annotations
from penstock.kube.references import Json

#: This part of a lease is left unused, and at least so many seconds: Kueue may make the Workload anew when its bound
#: is written, and whoever waits for quota meanwhile has less time left than was written.
SLACK_PART: Final = 20
SLACK_SECONDS: Final = 10


@value
class AdmissionTerms:
    """What lets an attempt in."""

    attempt: str
    offer: str
    check: str
    uid: str  # the owner's
    seconds: int | None  # left of its hold now; None: nothing is held, because the GPUs are owned
    own_seconds: int = 0  # the bound that its author wrote; 0: none
    cluster: str = ""  # the worker to name; empty: the manager's own cluster


@value
class Wait:
    """Nothing to do until it changes. `queued`: why it waits, in words for people; empty: it takes a moment."""

    queued: str = ""


@value
class BoundTime:
    """Write its bound, and whose attempt it is."""

    seconds: int | None  # `maximumExecutionTimeSeconds`; None: as it is


@value
class Open:
    """Money is held and its time is bounded: let it in."""


@value
class Reactivate:
    """Kueue ended it at an earlier hold's end; this attempt has a hold of its own."""


@value
class Evict:
    """It runs for an earlier attempt, whose end is on record."""


@value
class Runs:
    """It is admitted."""


@value
class Over:
    """This attempt is over, or can never be let in."""

    words: str = ""


Step: TypeAlias = Wait | BoundTime | Open | Reactivate | Evict | Runs | Over


def next_step(workload: Json | None, entry: AdmissionTerms) -> Step:
    if workload is None:
        return Wait("Kueue has not made its Workload yet")
    if w.origin_uid(workload) != entry.uid:
        return Over("another object has its name now")
    if w.is_finished(workload) or _is_past(workload, entry):
        return Over()
    if w.lease_is_up(workload):
        return Reactivate() if w.is_off(workload) else Wait("Kueue is still ending what ran before")
    if not w.has_quota(workload):
        return Wait("its queue there holds it back until there is quota for it")
    match w.check_state(workload, entry.check):
        case w.READY:
            return _let_in(workload, entry)
        case w.PENDING:
            return _at_the_gate(workload, entry)
        case _:
            return Wait()  # Kueue is about to evict it, or its queue has lost the check


def _is_past(workload: Json, entry: AdmissionTerms) -> bool:
    """A stop of this attempt came first, or a later attempt is bound."""
    bound = w.attempt_of(workload)
    if bound == entry.attempt:
        return bool(w.annotation_of(workload, annotations.ENDING))
    same_job = job_of(bound) == job_of(entry.attempt)
    return same_job and attempt_number(bound) > attempt_number(entry.attempt)


def _let_in(workload: Json, entry: AdmissionTerms) -> Step:
    if w.attempt_of(workload) != entry.attempt:
        return Evict()
    if w.is_admitted(workload):
        return Runs()
    return Wait("its worker has not admitted it yet")


def _at_the_gate(workload: Json, entry: AdmissionTerms) -> Step:
    if entry.seconds is not None and entry.seconds < 1:
        return Wait()  # its lease ends: the engine is about to stop it
    if 0 < entry.own_seconds <= w.used_seconds(workload):
        return Wait()  # its author's bound is used up: Kueue is about to end it
    if not fits(workload, entry):
        return BoundTime(wanted_seconds(workload, entry))
    return Open() if w.attempt_of(workload) == entry.attempt else BoundTime(None)


def fits(workload: Json, entry: AdmissionTerms) -> bool:
    """Whether its bound keeps it within what is held, and does not waste most of it."""
    if entry.seconds is None:
        return True
    most = w.most_seconds(workload)
    if most is None:
        return False
    left = most - w.used_seconds(workload)
    wasted = left < entry.seconds - 2 * slack(entry.seconds) and most != entry.own_seconds
    return 0 < left <= entry.seconds and not wasted


def wanted_seconds(workload: Json, entry: AdmissionTerms) -> int:
    assert entry.seconds is not None
    seconds = max(1, w.used_seconds(workload) + entry.seconds - slack(entry.seconds))
    return min(seconds, entry.own_seconds) if entry.own_seconds else seconds


def slack(seconds: int) -> int:
    return min(seconds // 2, max(SLACK_SECONDS, seconds // SLACK_PART))


def lease_for(seconds: int) -> int:
    """A lease that is long enough for so many seconds."""
    return seconds + max(SLACK_SECONDS, seconds // (SLACK_PART - 1) + 1)


def seconds_left(deadline_at: Instant, now: Instant) -> int:
    return max(0, (deadline_at - now) // SECOND)
