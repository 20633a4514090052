"""Reserved nodes: a job that does not burst and has waited for the longest allowed time gets the nodes that will be
free soonest. `placement` and `guards` ask for them before they promise another wait; `cycle` starts jobs whose nodes
are free, and `backfill` lets others in meanwhile.
"""

from penstock.core.decide import limits, quotes, waiting
from penstock.core.decide.choices import Choices, promise_start
from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Job, State
from penstock.core.fold.suited import suited
from penstock.core.model.events import ReservePromised
from penstock.core.model.reasons import OwnedFree, WaitedLongest
from penstock.core.units import HOUR, NEVER, Instant, Millis


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
        soonest = _soonest(state, offer_id, job.spec.gpus, suited(state, job.shape, offer_id).usable)
        if soonest is None:
            continue
        free_in_ms, nodes = soonest
        because = WaitedLongest(now - job.queued_at, most, free_in_ms)
        choices.record(ReservePromised(now, job.id, offer_id, nodes, because))
        return True
    return False


def _soonest(state: State, offer_id: str, width: int, usable: int) -> tuple[Millis, tuple[int, ...]] | None:
    """The nodes that will have room for so many GPUs soonest, and in how long: whole nodes, and a part of one more."""
    pool = state.pools[offer_id]
    whole, rest = divmod(width, pool.per_node)
    up = [node for node in range(pool.size) if usable >> node & 1]
    chosen = _free_first(state, offer_id, pool, up, pool.per_node)[:whole]
    if rest:
        others = [node for node in up if node not in [taken for _, taken in chosen]]
        chosen += _free_first(state, offer_id, pool, others, rest)[:1]
    if len(chosen) < whole + (rest > 0):
        return None
    return max(ms for ms, _ in chosen), tuple(sorted(node for _, node in chosen))


def _free_first(state: State, offer_id: str, pool: Pool, nodes: list[int], part: int) -> list[tuple[Millis, int]]:
    """In how long each node has so many GPUs free, the soonest first; without those that never have."""
    on_node = state.on_node[offer_id]
    ours = [node for node in nodes if pool.per_node - pool.others.get(node, 0) >= part]
    free = [(waiting.part_free_in(state, on_node[node], node, pool.free[node], part), node) for node in ours]
    return sorted((ms, node) for ms, node in free if ms is not None)


def patience_over_at(choices: Choices, job: Job) -> Instant:
    """When a job that cannot leave has waited for the longest allowed time, and nodes are reserved for it."""
    policy = choices.state.policy
    if not policy.reserve or job.reserved is not None or not job.shape.standing:
        return NEVER
    over = job.queued_at + policy.waiting.most_ms
    return over if over > choices.now else choices.now + HOUR


def start_reserved(choices: Choices) -> None:
    """Start jobs whose reserved nodes are free."""
    for job in list(choices.state.reserved.values()):
        start_on_its_nodes(choices, job)


def start_on_its_nodes(choices: Choices, job: Job) -> None:
    state = choices.state
    assert job.reserved is not None
    offer_id, nodes = job.reserved
    pool = state.pools[offer_id]
    slots = pool.slots_on(nodes, job.spec.gpus) if pool.open else ()
    if slots and not (state.governed and kept_from(choices, job, offer_id)):
        offer = state.offers[offer_id]
        speed = quotes.rate_of(job.shape, state, offer).speed_permille
        because = OwnedFree(choices.now - job.submitted_at, sum(pool.free[node] for node in nodes))
        width = job.spec.gpus
        choices.record(promise_start(choices, job, offer, because, width, speed, (), slots))


def kept_from(choices: Choices, job: Job, offer_id: str) -> bool:
    """Its team is at its limit, or headroom needs reserved GPUs, too."""
    state, site = choices.state, choices.state.offers[offer_id].site
    rules = limits.open_headroom(state, job.spec.job_class, choices.now)
    kept = sum([rule.gpus for rule in rules if rule.site == site])
    offers = state.offers.values() if kept else ()  # a pool may be left of an offer that no file has any more
    free = sum([state.pools[offer.id].free_gpus for offer in offers if offer.site == site and offer.id in state.pools])
    return limits.team_at_limit(state, job) is not None or free < kept
