"""Making room on standing GPUs: preempt jobs of lower priority, or of classes that the policy names, or displace jobs
that may rent. `cycle` calls it.

Whoever gives way is chosen so that as few as possible do, the least important and the latest started first.
"""

from collections.abc import Callable

from penstock.core.decide import guards, lookahead, placement, quotes, ranks, shares
from penstock.core.decide.choices import Choices, promise_start
from penstock.core.decide.governance import class_rule
from penstock.core.decide.quotes import Quote
from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Attempt, Job, State
from penstock.core.fold.suited import suited
from penstock.core.model.events import StopPromised
from penstock.core.model.reasons import ClassPreempted, Displaced, OwnedFree, Preempted, Reason, RoomMade


def preempt(choices: Choices, job: Job) -> bool:
    """Stop interruptible jobs of lower priority, as few as possible, and start this one on their GPUs."""

    state = choices.state

    def eligible(attempt: Attempt) -> bool:
        return attempt.job.phase == "placed" and ranks.by_priority(state, job, attempt.job)

    def give_way(victims: list[Attempt]) -> bool:
        for victim in victims:
            because = Preempted(job.id, job.spec.priority, victim.job.spec.priority)
            choices.record(StopPromised(choices.now, victim.id, "wait", yields=True, because=because))
        return True

    return _make_room(choices, job, eligible, give_way)


def preempt_classes(choices: Choices, job: Job) -> bool:
    """Stop interruptible jobs of the classes that the policy lets this job's class stop, whatever their priority."""
    state = choices.state
    rule = class_rule(state.policy.governance, job.spec.job_class)
    if rule is None or rule.name not in state.class_stops:
        return False

    def eligible(attempt: Attempt) -> bool:
        return attempt.job.phase == "placed" and ranks.by_class(state, job, attempt.job)

    def give_way(victims: list[Attempt]) -> bool:
        for victim in victims:
            because = ClassPreempted(job.id, rule.name, victim.job.spec.job_class, rule.source)
            choices.record(StopPromised(choices.now, victim.id, "wait", yields=True, because=because))
        return True

    return _make_room(choices, job, eligible, give_way)


def return_shares(choices: Choices, job: Job) -> bool:
    """Jobs of teams above their share move to rented offers, each at its own cost, for a job of a team within its own,
    or for one that may not leave. No team is brought below its share.
    """
    state = choices.state
    if not shares.is_within(state, job) and (job.shape.rented or not state.policy.displace):
        return False
    quoted: dict[str, Quote] = {}
    spare = shares.spare(state)

    def eligible(attempt: Attempt) -> bool:
        team = attempt.job.spec.team
        above = team != job.spec.team and spare.get(team, 0) >= attempt.width
        return above and not ranks.outranks(state, attempt.job, job) and _can_rent(choices, attempt, quoted)

    def because(other: Job, quote: Quote) -> Reason:
        return shares.return_reason(state, job, other, quote.cost)

    def give_way(victims: list[Attempt]) -> bool:
        if not victims:
            return True
        payers = dict.fromkeys([placement.scopes_of(state, victim.job) for victim in victims])
        if len(payers) > 1 or sum([victim.width for victim in victims]) > spare[victims[0].job.spec.team]:
            return False
        return _move_out(choices, victims, quoted, victims[0].job, because)

    return _make_room(choices, job, eligible, give_way)


def displace(choices: Choices, job: Job) -> bool:
    """For a job that may not leave: move jobs that may to rented offers, on this job's account."""
    state = choices.state
    quoted: dict[str, Quote] = {}

    def eligible(attempt: Attempt) -> bool:
        above = attempt.job.spec.priority > job.spec.priority or ranks.outranks(state, attempt.job, job)
        return not above and _can_rent(choices, attempt, quoted)

    def because(_: Job, quote: Quote) -> Reason:
        return Displaced(job.id, job.spec.gpus, quote.cost)

    def give_way(victims: list[Attempt]) -> bool:
        return not victims or _move_out(choices, victims, quoted, job, because)

    return _make_room(choices, job, eligible, give_way)


def _can_rent(choices: Choices, attempt: Attempt, quoted: dict[str, Quote]) -> bool:
    """Whether its job may move to a rented offer now without asking anybody; `quoted` then has the best quote."""
    state, now, job = choices.state, choices.now, attempt.job
    if not job.shape.rented or not placement.may_move(state, job, now):
        return False
    ranked = quotes.for_job(state, job, state.expect(job), now)
    if not ranked or guards.needs_approval(choices, job, ranked[0]):
        return False
    quoted[attempt.id] = ranked[0]
    return True


def _move_out(
    choices: Choices,
    victims: list[Attempt],
    quoted: dict[str, Quote],
    payer: Job,
    because: Callable[[Job, Quote], Reason],
) -> bool:
    """Move all of these attempts to the offers they were quoted, or none. Each next attempt is promised before the stop
    of the one it replaces.
    """
    starts = [(victim.job, quoted[victim.id]) for victim in victims]
    limited = [quote.offer.id for _, quote in starts if not quote.rate.endless]
    if len(limited) > len(dict.fromkeys(limited)):  # each was quoted as if it moved alone
        return False
    funded = placement.fund_all(choices, starts, payer)
    if not isinstance(funded, list):
        return False
    for victim, (job, quote), holds in zip(victims, starts, funded, strict=True):
        why = because(job, quote)
        choices.record(placement.promise_rented(choices, job, quote, holds, (victim.id,), why))
        choices.record(StopPromised(choices.now, victim.id, "move", yields=True, because=why))
    return True


def _make_room(
    choices: Choices, job: Job, eligible: Callable[[Attempt], bool], give_way: Callable[[list[Attempt]], bool]
) -> bool:
    state = choices.state
    for offer_id in job.shape.standing:
        offer, pool = state.offers[offer_id], state.pools[offer_id]
        victims, free = _victims(state, offer_id, job, eligible), pool.free_gpus
        if victims is None or not pool.open or not give_way(victims):
            continue
        speed = quotes.rate_of(job.shape, state, offer).speed_permille
        waited, left_by = choices.now - job.submitted_at, tuple([victim.job.id for victim in victims])
        because = RoomMade(waited_ms=waited, free_gpus=free, left_by=left_by) if left_by else OwnedFree(waited, free)
        slots = suited(state, job.shape, offer_id).choose(job.spec.gpus, lookahead.plain(state.policy))
        after = tuple(victim.id for victim in victims if victim.phase != "over")
        width = job.spec.gpus
        choices.record(promise_start(choices, job, offer, because, width, speed, after, slots))
        return True
    return False


def _victims(state: State, offer_id: str, job: Job, eligible: Callable[[Attempt], bool]) -> list[Attempt] | None:
    """The fewest attempts, lowest in priority and latest started, whose GPUs suffice together with the free ones."""
    pool, width = suited(state, job.shape, offer_id), job.spec.gpus
    running = [a for a in state.attempts.values() if a.offer.id == offer_id and a.slots and eligible(a)]
    # Not those whose GPUs are promised to others already.
    running = [a for a in running if not any(node in pool.owed for node, _ in a.slots)]
    running.sort(key=lambda a: (a.job.spec.priority, -a.promised_at, -a.job.seq))
    scratch = Pool(pool.per_node, pool.size)
    for node, free in enumerate(pool.free):
        scratch.take(((node, pool.per_node - free),))
        if not pool.usable >> node & 1:
            scratch.withdraw(node)
    chosen: list[Attempt] = []
    for attempt in running:
        if scratch.fits(width):
            break
        scratch.give(attempt.slots)
        chosen.append(attempt)
    if not scratch.fits(width):
        return None
    for attempt in reversed(chosen.copy()):  # drop those that are not needed
        scratch.take(attempt.slots)
        if scratch.fits(width):
            chosen.remove(attempt)
        else:
            scratch.give(attempt.slots)
    return chosen
