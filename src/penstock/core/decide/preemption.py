"""Making room on standing GPUs: preempt jobs of lower priority, or of classes that the policy names, or displace jobs
that may rent. `cycle` calls it.

Whoever gives way is chosen so that as few as possible do, the least important and the latest started first.
"""

from collections.abc import Callable

from penstock.core.decide import lookahead, placement, quotes, shares
from penstock.core.decide.governance import class_rule, stoppable
from penstock.core.decide.placement import Choices
from penstock.core.decide.quotes import Quote
from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Attempt, Job, State
from penstock.core.model.events import StopPromised
from penstock.core.model.reasons import ClassPreempted, Displaced, OwnedFree, Preempted, RoomMade


def preempt(choices: Choices, job: Job) -> bool:
    """Stop interruptible jobs of lower priority, as few as possible, and start this one on their GPUs."""

    def eligible(attempt: Attempt) -> bool:
        spec = attempt.job.spec
        return spec.interruptible and spec.priority < job.spec.priority and attempt.job.phase == "placed"

    def give_way(victims: list[Attempt]) -> bool:
        for victim in victims:
            because = Preempted(job.id, job.spec.priority, victim.job.spec.priority)
            choices.record(StopPromised(choices.now, victim.id, "wait", yields=True, because=because))
        return True

    return _make_room(choices, job, eligible, give_way)


def preempt_classes(choices: Choices, job: Job) -> bool:
    """Stop interruptible jobs of the classes that the policy lets this job's class stop, whatever their priority."""
    governance = choices.state.policy.governance
    rule = class_rule(governance, job.spec.job_class)
    if rule is None or not rule.preempts:
        return False
    stops = stoppable(governance, rule)

    def eligible(attempt: Attempt) -> bool:
        spec = attempt.job.spec
        return spec.interruptible and spec.job_class in stops and attempt.job.phase == "placed"

    def give_way(victims: list[Attempt]) -> bool:
        for victim in victims:
            because = ClassPreempted(job.id, rule.name, victim.job.spec.job_class, rule.source)
            choices.record(StopPromised(choices.now, victim.id, "wait", yields=True, because=because))
        return True

    return bool(stops) and _make_room(choices, job, eligible, give_way)


def return_shares(choices: Choices, job: Job) -> bool:
    """Jobs of teams above their share move to rented offers, each at its own cost, for a job of a team within its own,
    or for one that may not leave. No team is brought below its share.
    """
    state, now = choices.state, choices.now
    if not shares.is_within(state, job) and (job.shape.rented or not state.policy.displace):
        return False
    ways: dict[str, Quote] = {}
    spare = shares.spare(state)

    def eligible(attempt: Attempt) -> bool:
        other = attempt.job
        if spare.get(other.spec.team, 0) < attempt.width or other.spec.team == job.spec.team:
            return False
        if not other.shape.rented or not placement.may_move(state, other, now):
            return False
        ranked = quotes.for_job(state, other, state.expect(other), now)
        if not ranked or placement.needs_approval(choices, other, ranked[0]):
            return False
        ways[attempt.id] = ranked[0]
        return True

    def give_way(victims: list[Attempt]) -> bool:
        starts = [(victim.job, ways[victim.id]) for victim in victims]
        limited = [way.offer.id for _, way in starts if not way.rate.endless]
        payers = dict.fromkeys([placement.scopes_of(state, other) for other, _ in starts])
        if len(payers) > 1 or len(limited) > len(dict.fromkeys(limited)):  # each was placed as if it moved alone
            return False
        if victims and sum([victim.width for victim in victims]) > spare[victims[0].job.spec.team]:
            return False
        funded = placement.fund_all(choices, starts, victims[0].job) if starts else []
        if not isinstance(funded, list):
            return False
        for victim, (other, way), money in zip(victims, starts, funded, strict=True):
            because = shares.return_reason(state, job, other, way.cost)
            choices.record(placement.promise_rented(choices, other, way, money, (victim.id,), because))
            choices.record(StopPromised(now, victim.id, "move", yields=True, because=because))
        return True

    return _make_room(choices, job, eligible, give_way)


def displace(choices: Choices, job: Job) -> bool:
    """For a job that may not leave: move jobs that may to rented offers, on this job's account."""
    state, now = choices.state, choices.now
    ways: dict[str, Quote] = {}

    def eligible(attempt: Attempt) -> bool:
        other = attempt.job
        if other.spec.priority > job.spec.priority or not other.shape.rented:
            return False
        if not placement.may_move(state, other, now):
            return False
        ranked = quotes.for_job(state, other, state.expect(other), now)
        if not ranked or placement.needs_approval(choices, other, ranked[0]):
            return False
        ways[attempt.id] = ranked[0]
        return True

    def give_way(victims: list[Attempt]) -> bool:
        starts = [(victim.job, ways[victim.id]) for victim in victims]
        limited = [way.offer.id for _, way in starts if not way.rate.endless]
        if len(limited) > len(dict.fromkeys(limited)):  # each was placed as if it moved alone
            return False
        funded = placement.fund_all(choices, starts, job) if starts else []
        if not isinstance(funded, list):
            return False
        for victim, (other, way), money in zip(victims, starts, funded, strict=True):
            because = Displaced(job.id, job.spec.gpus, way.cost)
            choices.record(placement.promise_rented(choices, other, way, money, (victim.id,), because))
            choices.record(StopPromised(now, victim.id, "move", yields=True, because=because))
        return True

    return _make_room(choices, job, eligible, give_way)


def _make_room(
    choices: Choices, job: Job, eligible: Callable[[Attempt], bool], give_way: Callable[[list[Attempt]], bool]
) -> bool:
    state = choices.state
    for offer_id in job.shape.standing:
        offer, pool = state.offers[offer_id], state.pools[offer_id]
        victims, free = _victims(state, offer_id, job.spec.gpus, eligible), pool.free_gpus
        if victims is None or not pool.open or not give_way(victims):
            continue
        speed = quotes.rate_of(job.shape, state, offer).speed_permille
        waited, left_by = choices.now - job.submitted_at, tuple([victim.job.id for victim in victims])
        because = RoomMade(waited_ms=waited, free_gpus=free, left_by=left_by) if left_by else OwnedFree(waited, free)
        slots = pool.choose(job.spec.gpus, lookahead.plain(state.policy))
        after = tuple(victim.id for victim in victims if victim.phase != "over")
        width = job.spec.gpus
        choices.record(placement.promise_start(choices, job, offer, because, width, speed, after, slots))
        return True
    return False


def _victims(state: State, offer_id: str, width: int, eligible: Callable[[Attempt], bool]) -> list[Attempt] | None:
    """The fewest attempts, lowest in priority and latest started, whose GPUs suffice together with the free ones."""
    pool = state.pools[offer_id]
    running = [a for a in state.attempts.values() if a.offer.id == offer_id and a.slots and eligible(a)]
    running = [
        a for a in running if not any(node in pool.owed for node, _ in a.slots)
    ]  # their GPUs are promised to others
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
