"""Guards of a burst: what a policy keeps a job from, although there are offers for it. `placement` asks them.

Before any money is asked for, in this order: the team's limit of GPUs, quiet hours, egress and prices (`held_back`);
triggers; the pace of spending. Then, of each offer that can be paid for: a person's approval. What keeps the job is
recorded with the instant at which it is asked again. Where `queue_cap` is set, the queue is too long and the job was
only tried: it keeps the answer that it has.
"""

from penstock.core.decide import approvals, limits, quotes, triggers, waiting
from penstock.core.decide.approvals import Barrier
from penstock.core.decide.choices import Choices
from penstock.core.decide.quotes import Quote
from penstock.core.decide.reservations import patience_over_at, reserve
from penstock.core.fold.governed import EGRESS, GPUS, HELD, open_until
from penstock.core.fold.state import Job
from penstock.core.model.events import JobRefused, WaitPromised
from penstock.core.model.reasons import (
    Burst,
    BurstAllowed,
    HeadroomKept,
    NoTriggerHolds,
    OnlyOwned,
    Reason,
    TeamAtLimit,
    TooDear,
    WaitsForOwned,
    WaitWorth,
)
from penstock.core.units import MINUTE, NEVER, Millis


def held_back(choices: Choices, job: Job, ranked: list[Quote], expected: Millis, queue_cap: int | None) -> bool:
    """A limit of the policy keeps it from bursting now: record which, and until when."""
    state, now = choices.state, choices.now
    at_limit = limits.team_at_limit(state, job)
    if at_limit is not None:
        if queue_cap is None and job.short_of != GPUS + at_limit.team:  # otherwise recorded already
            wait_for_team(choices, job, at_limit)
        return True
    quiet = limits.quiet_hours(state, now)
    if quiet is not None:
        if queue_cap is None:
            choices.record(WaitPromised(now, job.id, quiet.ends_at, quiet))
        return True
    spent = limits.egress_spent(state, job, now)
    dear = [] if ranked or spent is not None else _too_dear(choices, job, expected)
    if spent is None and not dear:
        return False
    if queue_cap is None:
        scope = EGRESS + job.spec.team if spent is not None else "job:" + job.id
        until = patience_over_at(choices, job)
        if (job.short_of != scope or job.until_at != until) and not reserve(choices, job):  # otherwise recorded already
            choices.record(WaitPromised(now, job.id, until, spent or dear[0], scope=scope))
    return True


def wait_for_team(choices: Choices, job: Job, because: TeamAtLimit) -> None:
    """Its team has as many GPUs as it may: it is asked again when some of them are free."""
    choices.record(WaitPromised(choices.now, job.id, NEVER, because, scope=GPUS + because.team))


def _too_dear(choices: Choices, job: Job, expected: Millis) -> list[TooDear]:
    """Offers that the policy's limits on one job's cost exclude, the cheapest first."""
    state, now = choices.state, choices.now
    if not limits.limits_prices(state, job):
        return []
    ranked = quotes.at_any_price(state, job, expected, now)
    verdicts = [limits.too_dear(state, job, quote.offer, quote.cost) for quote in ranked]
    return sorted([dear for dear in verdicts if dear is not None], key=lambda dear: (dear.cost, dear.offer))


def wait_for_trigger(choices: Choices, job: Job, quote: Quote, asked: triggers.Asked) -> None:
    """No trigger holds. It is asked again when one may: at an instant of its own, or with all others of its scope."""
    now = choices.now
    if (job.short_of == HELD and job.until_at > now) or reserve(choices, job):  # recorded already
        return
    because = NoTriggerHolds(waited_ms=now - job.submitted_at, offer=quote.offer.id, cost=quote.cost, seen=asked.seen)
    until = min(asked.again_at, patience_over_at(choices, job))
    choices.record(WaitPromised(now, job.id, until, because, scope=HELD))


def paced(choices: Choices, job: Job, quote: Quote, queue_cap: int | None) -> bool:
    """The money released so far this period is used up: wait for more, or for standing GPUs."""
    pace = waiting.pace(choices.state, job, quote.cost, choices.now)
    if pace is None:
        return False
    because, enough_at = pace
    recorded = job.short_of == because.scope and choices.now < job.until_at <= enough_at  # already: it is decided again
    if queue_cap is None and not recorded and not reserve(choices, job):
        choices.record(WaitPromised(choices.now, job.id, enough_at, because, scope=because.scope))
    return True


def as_allowed(
    choices: Choices, job: Job, because: Burst, asked: triggers.Asked | None, expected: Millis
) -> Burst | BurstAllowed:
    """With the trigger that held, and the offers that were passed over."""
    passed_over = tuple(_too_dear(choices, job, expected))
    trigger = asked.holds if asked is not None else None
    return BurstAllowed(because, trigger, passed_over) if trigger is not None or passed_over else because


def without_approval(choices: Choices, job: Job, barrier: Barrier, ranked: list[Quote]) -> None:
    """Ask a person, or wait for their answer. If that is no, it waits for owned GPUs or an offer that is closed now;
    where there are none, it is refused.
    """
    state, now = choices.state, choices.now
    if not barrier.refuses:
        asked = barrier.asked if barrier.standing == "open" else None
        if asked is None:
            asked = approvals.request(state, job, barrier, ranked, now)
            choices.record(asked)
        if job.until_at != asked.until_at:  # otherwise recorded already
            choices.record(WaitPromised(now, job.id, asked.until_at, approvals.awaits(asked)))
        return
    because = approvals.denial(barrier)
    quoted = [quote.offer.id for quote in ranked]
    others = [max(state.closed.get(name, 0), now + MINUTE) for name in job.shape.rented if name not in quoted]
    stays = job.shape.standing or (job.shape.base is not None and job.shape.base.standing)
    if others or stays:
        if not reserve(choices, job):
            until = min([patience_over_at(choices, job), *others])
            choices.record(WaitPromised(now, job.id, until, because))
    else:
        choices.record(JobRefused(now, job.id, because))


def needs_approval(choices: Choices, job: Job, quote: Quote) -> bool:
    """True if a person must approve that it goes there, and none has. For moves, which nobody is asked for."""
    state = choices.state
    asks = state.policy.governance.approvals
    return bool(asks) and approvals.barrier(state, choices.rules, job, quote, choices.now) is not None


def behind_headroom(choices: Choices, job: Job, because: WaitsForOwned | WaitWorth | OnlyOwned) -> Reason:
    """With the headroom that keeps the job from GPUs on which it would fit, if there is any."""
    state, lane = choices.state, job.shape.lane
    if lane is None or not lane.limited or not state.policy.governance.headroom or not lane.fits():
        return because
    for rule in limits.open_headroom(state, lane.job_class, choices.now):
        if any(state.offers[offer].site == rule.site for offer, pool in lane.pools if pool.fits(lane.width)):
            return HeadroomKept(
                site=rule.site,
                gpus=rule.gpus,
                for_class=rule.job_class,
                ends_at=open_until(state, rule.id, choices.now) or choices.now,
                source=rule.source,
                wait=because,
            )
    return because
