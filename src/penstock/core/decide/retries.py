"""Pauses after failed starts: what failed in the same way before, for the same job at the same offer, is tried again
only after a pause, longer each time. `cycle` calls it; `fold/retries` keeps the job from that offer until then.

Progress, or a failure of another kind, starts the count anew. Where one rented attempt after the other ends before it
has kept any work, each of the pauses is twice as long as the last, up to a day.
An offer without capacity is closed for all jobs by `cycle.close_offers`, by the same rule.
"""

from typing import Final

from penstock.core.decide.choices import Choices
from penstock.core.fold.ledger import sum_of
from penstock.core.fold.retries import BAD_LUCK
from penstock.core.fold.state import Attempt, Setback, Shape, State
from penstock.core.model.events import RetryPromised
from penstock.core.model.reasons import StartFailed
from penstock.core.model.types import STANDING, Offer
from penstock.core.units import DAY, HOUR, NEVER, Instant, Millis, Money

#: Who failed by itself may have been unlucky, so the second try comes at once; an obstacle is still there.
OBSTACLES: Final = ("unfit", "missing", "denied")
#: The rule that excludes an offer in the verdict on such a shape.
RULE: Final = "its start failed there, or needs a repair first"


def promise_retries(choices: Choices, failed: list[tuple[Attempt, str, str, Millis, tuple[str, ...]]]) -> None:
    """Record each failed start with what it cost, and when it is tried there again. Nodes with free GPUs that could not
    take it are not tried again before something changes there; the offer's others are, at once.
    """
    state, now = choices.state, choices.now
    for attempt, cause, words, retry_ms, tried in failed:
        job, offer = attempt.job, attempt.offer.id
        if state.jobs.get(job.id) is not job:  # cancelled meanwhile
            continue
        before = (job.setbacks or {}).get(offer)
        failures = before.failures + 1 if before is not None and before.cause == cause else 1
        wait_ms = pause(retry_ms, failures if cause in OBSTACLES else failures - 1)
        if cause == "in_vain":
            failures = (job.in_vain or {})[offer]
            wait_ms = min(retry_ms << min(failures - BAD_LUCK - 1, 10), DAY)
        retry_at = now + wait_ms
        nodes = tuple(sorted({*tried, *_still_barred(before)})) if tried else ()
        because = StartFailed(
            offer=offer,
            attempt=attempt.id,
            cause=cause,  # type: ignore[arg-type]  # one of its literals: `fold` names them
            words=words,
            failures=failures,
            took_ms=now - attempt.promised_at,
            gpus=attempt.width,
            cost=_cost(state, attempt, now),
            retry_at=retry_at if retry_at > now and not nodes else 0,
            nodes=len(nodes),
        )
        choices.record(RetryPromised(now, job.id, offer, retry_at, because, nodes))


def _still_barred(before: Setback | None) -> tuple[str, ...]:
    """Nodes that could not take it, unless something changed there since."""
    return before.nodes if before is not None and before.retry_at == NEVER else ()


def _cost(state: State, attempt: Attempt, now: Instant) -> Money:
    """What the attempt was charged, and what it owes so far of nodes that are still there."""
    cost = attempt.spent
    for name in attempt.nodes:
        lease, bill = state.ledger.leases.get(name), state.bills.get(name)
        share = bill.shares.get(attempt.id) if bill is not None else None
        if lease is not None and bill is not None and share is not None:
            used = sum([other.gpu_ms for other in bill.shares.values()])
            due = sum_of(state.ledger.charge(lease, now))
            cost += due * share.gpu_ms // used if used else due
    return cost


def is_kept_from(shape: Shape, offer: Offer) -> bool:
    """True if jobs of this shape are kept from the offer because their starts failed."""
    return offer.id in shape.without or (shape.stays and offer.term not in STANDING)


def pause(retry_ms: Millis, failures: int) -> Millis:
    """Doubled with each failure, up to sixteen times or an hour, unless the site asks for more."""
    return min(retry_ms << min(failures - 1, 4), max(retry_ms, HOUR)) if failures > 0 else 0
