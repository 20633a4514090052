"""Reserved nodes: a job that does not burst and has waited for the longest allowed time gets the nodes that will be
free soonest. `placement` and `guards` ask for them before they promise another wait; `cycle` starts jobs whose nodes
are free.
"""

from penstock.core.decide import limits, quotes
from penstock.core.decide.choices import Choices, promise_start
from penstock.core.fold.state import Job, State
from penstock.core.model.events import ReservePromised
from penstock.core.model.reasons import OwnedFree, WaitedLongest
from penstock.core.units import HOUR, NEVER, Instant, Millis, ceil_div


def reserve(choices: Choices, job: Job) -> bool:
    """Reserve the nodes that will be free soonest for the job that waited longest; one job per offer at a time."""
    state, now = choices.state, choices.now
    most = state.policy.waiting.most_ms
    if not state.policy.reserve or job.reserved is not None or now - job.queued_at < most:
        return False
    taken = [other.reserved[0] for other in state.reserved.values() if other.reserved is not None]
    for offer_id in job.shape.standing:
        pool = state.pools[offer_id]
        if offer_id in taken or not pool.open:  # asked first: what follows looks at every node
            continue
        wanted, spare = ceil_div(job.spec.gpus, pool.per_node), max(0, pool.per_node - job.spec.gpus)
        soonest = sorted(
            (_free_in(state, offer_id, node, now), node)
            for node in range(pool.size)
            if pool.usable >> node & 1 and pool.others.get(node, 0) <= spare
        )
        if len(soonest) < wanted:
            continue
        because = WaitedLongest(now - job.queued_at, most, soonest[wanted - 1][0])
        nodes = tuple(sorted(node for _, node in soonest[:wanted]))
        choices.record(ReservePromised(now, job.id, offer_id, nodes, because))
        return True
    return False


def _free_in(state: State, offer_id: str, node: int, now: Instant) -> Millis:
    there = state.on_node[offer_id][node].values()
    return max((state.remaining(attempt.job, attempt.done_ms(now)) for attempt in there), default=0)


def patience_over_at(choices: Choices, job: Job) -> Instant:
    """When a job that cannot leave has waited for the longest allowed time, and nodes are reserved for it."""
    policy = choices.state.policy
    if not policy.reserve or job.reserved is not None or not job.shape.standing:
        return NEVER
    over = job.queued_at + policy.waiting.most_ms
    return over if over > choices.now else choices.now + HOUR


def start_reserved(choices: Choices) -> None:
    """Start jobs whose reserved nodes are free."""
    state = choices.state
    for job in list(state.reserved.values()):
        assert job.reserved is not None
        offer_id, nodes = job.reserved
        pool = state.pools[offer_id]
        slots = pool.slots_on(nodes, job.spec.gpus) if pool.open else ()
        if slots and not (state.governed and _kept_from_reserved(choices, job, offer_id)):
            offer = state.offers[offer_id]
            speed = quotes.rate_of(job.shape, state, offer).speed_permille
            because = OwnedFree(choices.now - job.submitted_at, sum(pool.free[node] for node in nodes))
            width = job.spec.gpus
            choices.record(promise_start(choices, job, offer, because, width, speed, (), slots))


def _kept_from_reserved(choices: Choices, job: Job, offer_id: str) -> bool:
    """Its team is at its limit, or headroom needs the GPUs that are reserved for it, too."""
    state, site = choices.state, choices.state.offers[offer_id].site
    rules = limits.open_headroom(state, job.spec.job_class, choices.now)
    kept = sum([rule.gpus for rule in rules if rule.site == site])
    offers = state.offers.values() if kept else ()  # a pool may be left of an offer that no file has any more
    free = sum([state.pools[offer.id].free_gpus for offer in offers if offer.site == site and offer.id in state.pools])
    return limits.team_at_limit(state, job) is not None or free < kept
