"""Patience: how long a job may wait for standing GPUs before it bursts, and when it may expect to start. `placement`
calls it.

The baselines' patience is a share of a job's size. Ours is money: a job waits while bursting costs more than the delay,
no longer than the policy's longest wait, and not so long that it would miss its deadline.
"""

from math import isqrt
from typing import Final

from penstock.core.decide import quotes
from penstock.core.decide.quotes import Quote
from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Attempt, Job, Lane, State
from penstock.core.model.reasons import Late, Paced
from penstock.core.model.types import Waiting
from penstock.core.units import HOUR, MINUTE, PERMILLE, Instant, Millis, Money, ceil_div, cost_of
from penstock.core.values import value


def patience(waiting: Waiting, gpus: int, run_ms: Millis) -> Millis:
    """The baselines': whole numbers, rounded down."""
    match waiting.kind:
        case "nowait":
            return 0
        case "constant":
            return waiting.numerator // waiting.denominator
        case "compute":
            return waiting.numerator * gpus * run_ms // waiting.denominator
        case "worth":
            return waiting.most_ms
        case "power":
            return waiting.numerator * isqrt((gpus * run_ms) ** 3) // waiting.denominator


@value
class DelayBudget:
    """The numbers of one weighing."""

    cost: Money  # what bursting is expected to cost
    value_per_hour: Money  # what an hour of this job's waiting is worth
    allowed_ms: Millis  # how long it may wait for that, from its submission
    leave_at: Instant  # the latest it can leave and still meet its deadline; 0 if it has none or it is missed anyway
    dearer_permille: int  # how much dearer money is, the more of the month's is used
    late: Late | None = None  # it misses its deadline there, even if it leaves now


def weigh(state: State, job: Job, quote: Quote) -> DelayBudget:
    waiting = state.policy.waiting
    per_hour = quotes.worth_of(state, job)
    dearer = how_dear(state, job, state.at) if state.policy.pace else PERMILLE
    allowed = quote.cost * dearer * HOUR // (PERMILLE * per_hour) if per_hour else waiting.most_ms
    leave_at, late = 0, None
    if job.spec.deadline_at is not None:
        leave_at = latest_leave_at(state, job, quote, job.spec.deadline_at)
        late = _late(job, job.spec.deadline_at, state.at - leave_at)
        allowed = _in_time(job, quote.cost, per_hour, allowed, leave_at - job.submitted_at)
        leave_at = max(0, leave_at)
    allowed = min(allowed, _longest(state, job, quote, allowed))
    return DelayBudget(quote.cost, per_hour, allowed, leave_at, dearer, late)


def _late(job: Job, deadline_at: Instant, by_ms: Millis) -> Late | None:
    return Late(deadline_at, by_ms, cost_of(job.spec.penalty_per_hour, by_ms)) if by_ms > 0 else None


def _longest(state: State, job: Job, quote: Quote, allowed_ms: Millis) -> Millis:
    """Nobody waits so long that losses and copies afterwards could make it later than anybody may be."""
    most = state.policy.waiting.most_ms
    if 2 * allowed_ms <= most:
        return most
    return max(most // 2, min(most, most + quotes.ON_TOP_MS - quotes.late_at_worst(state, job, quote)))


def latest_leave_at(state: State, job: Job, quote: Quote, deadline_at: Instant) -> Instant:
    """When it must be asked for there so that four of five such jobs would be done in time."""
    left_ms = max(0, max(state.expect(job), state.history.at_worst(job.spec)) - job.kept_ms)
    return deadline_at - quote.start_ms - ceil_div(left_ms * PERMILLE, quote.rate.speed_permille)


def _in_time(job: Job, cost: Money, per_hour: Money, allowed_ms: Millis, in_time_ms: Millis) -> Millis:
    """Without a penalty a deadline is kept if it can be; with one, each hour late adds it to what waiting is worth."""
    penalty = job.spec.penalty_per_hour
    if in_time_ms < 0 and not penalty:  # it is late whatever we do
        return allowed_ms
    in_time_ms = max(0, in_time_ms)
    if allowed_ms <= in_time_ms or not penalty:
        return min(allowed_ms, in_time_ms)
    return in_time_ms + max(0, cost * HOUR - per_hour * in_time_ms) // (per_hour + penalty)


# --- a month's money -------------------------------------------------------------------------------------------------

#: So much of a period's money is released on its first day; the rest evenly, all of it by that much before the end.
AHEAD_PERMILLE: Final = 150


def released(state: State, scope: str, now: Instant) -> tuple[Money, Money]:
    """Of the scope's cap in this period: how much may be used by now, and how much is."""
    cap = state.ledger.caps[scope]
    start, end = state.ledger.bounds_at(now)
    share = min(PERMILLE, AHEAD_PERMILLE + (now - start) * PERMILLE // max(1, end - start))
    account = state.ledger.accounts.get((scope, state.ledger.period_at(now)))
    return cap * share // PERMILLE, account.held + account.spent if account else 0


def _paced_scopes(state: State, job: Job) -> list[str]:
    """A job's own cap is for its life, and not paced."""
    return [scope for scope in job.shape.scopes if scope in state.ledger.caps]


def how_dear(state: State, job: Job, now: Instant) -> int:
    """Money in thousandths of itself: the usual while nothing is used, four times that where all released is."""
    most = PERMILLE
    for scope in _paced_scopes(state, job):
        allowed, used = released(state, scope, now)
        most = max(most, PERMILLE + 3 * min(PERMILLE, used * PERMILLE // max(1, allowed)))
    return most


def pace(state: State, job: Job, cost: Money, now: Instant) -> tuple[Paced, Instant] | None:
    """The scope whose money for now is used up, and when there will be enough; nothing if there is."""
    for scope in _paced_scopes(state, job):
        cap = state.ledger.caps[scope]
        allowed, used = released(state, scope, now)
        start, end = state.ledger.bounds_at(now)
        need = used + min(cost, cap * AHEAD_PERMILLE // PERMILLE)  # dearer than that, it may begin with the month
        if need > allowed:
            share = ceil_div(need * PERMILLE, max(1, cap)) - AHEAD_PERMILLE
            enough_at = end if need > cap else start + ceil_div(share * (end - start), PERMILLE)
            period = state.ledger.period_at(now)
            paced = Paced(scope=scope, period=period, cap=cap, released=allowed, used=used, needed=cost)
            return paced, max(now + MINUTE, enough_at)
    return None


# --- when it may expect to start -------------------------------------------------------------------------------------


def soonest_start(job: Job) -> Millis:
    """Optimistic: half the usual gap between such starts, for it and for each other job that waits for one.

    Those behind it count, too: they tell how busy it is. Counting only those ahead makes mean delays a tenth longer.
    """
    lane = job.shape.lane
    assert lane is not None
    return lane.starts.soonest(_others(lane))


def _others(lane: Lane) -> int:
    return max(0, lane.starts.waiting - 1)


def foretell(state: State, job: Job, soonest_ms: Millis) -> tuple[Millis, Millis]:
    """In how long it starts on standing GPUs: about, and at worst; never before its soonest start."""
    lane = job.shape.lane
    assert lane is not None
    others = _others(lane)
    gaps = lane.starts.gap_ms * (others + 1)
    if gaps < MINUTE:  # so far nobody had to wait, which says nothing of those who do now
        gaps = max(MINUTE, comes_free(state, lane, others))
    about, worst = lane.starts.foretell(gaps)
    return max(about, soonest_ms), max(worst, soonest_ms)


def comes_free(state: State, lane: Lane, others: int) -> Millis:
    """By what is expected of those who run there: in how long it fits, and GPUs for the others have come free, too."""
    pools = [(offer, pool) for offer, pool in lane.pools if pool.open]
    fits = [_fits_in(state, offer, pool, lane.width) for offer, pool in pools]
    soonest = min((ms for ms in fits if ms is not None), default=0)
    wanted = lane.width * (others + 1) - sum([pool.free_gpus for _, pool in pools])
    ends = sorted(
        (state.remaining(attempt.job, attempt.done_ms(state.at)), attempt.width)
        for attempt in state.attempts.values()
        if attempt.slots and any(attempt.offer.id == offer for offer, _ in pools)
    )
    for ms, gpus in ends:
        wanted -= gpus
        if wanted <= 0:
            return max(ms, soonest)
    return soonest


def _fits_in(state: State, offer: str, pool: Pool, width: int) -> Millis | None:
    wanted, part = (1, width) if width < pool.per_node else (ceil_div(width, pool.per_node), pool.per_node)
    nodes = [
        part_free_in(state, state.on_node[offer][node], node, pool.free[node], part)
        for node in range(pool.size)
        if pool.usable >> node & 1
    ]
    known = sorted(ms for ms in nodes if ms is not None)
    return known[wanted - 1] if len(known) >= wanted else None


def part_free_in(state: State, attempts: dict[str, Attempt], node: int, free: int, part: int) -> Millis | None:
    """When so many GPUs of one node will be free; None: never, while others have theirs."""
    ends = sorted(
        (state.remaining(attempt.job, attempt.done_ms(state.at)), attempt.id) for attempt in attempts.values()
    )
    for ms, attempt in ends if free < part else ():
        free += sum([gpus for number, gpus in attempts[attempt].slots if number == node])
        if free >= part:
            return ms
    return 0 if free >= part else None
