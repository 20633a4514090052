"""Co-location: which jobs may join a rented node with spare GPUs, and what that costs. `placement` and `moves` call it.

A node is billed whole. So a seat costs nothing while the node's other jobs stay, and the whole node for as long as the
job outlives them. Ends are uncertain: of two jobs with mean remaining times x and y, the first outlives the second by x
* x / (x + y), if both may end at any moment. That is never zero, and small only if the others stay long.

Joining holds no money: the node's own hold covers it whole, and its lease is renewed or denied for all jobs on it.
"""

from penstock.core.decide import ahead, quotes
from penstock.core.decide.quotes import OfferRate, Quote
from penstock.core.fold.learned import loss_ppm
from penstock.core.fold.state import Attempt, Job, Node, State
from penstock.core.model.types import Offer
from penstock.core.units import PERMILLE, Instant, Millis, Money, ceil_div, cost_of

#: How many nodes of one offer with equally many spare GPUs are considered.
LOOKED_AT = 8


def for_job(state: State, job: Job, expected_ms: Millis, now: Instant, leaving: tuple[str, ...] = ()) -> list[Quote]:
    """All ways to rent, the cheapest first: nodes of its own at each offer, and the best seat on one that is there."""
    launched = quotes.for_job(state, job, expected_ms, now)
    joins = bool(state.seats) and (state.policy.share_nodes or bool(state.idle)) and _may_join(state, job)
    if not joins and not state.warm.nodes:
        return launched
    left_ms = max(0, expected_ms - job.kept_ms)
    seats = [
        _seat(state, job, offer, rate, node, left_ms, now)
        for offer, rate in job.shape.ways or quotes.ways_of(job.shape, state)
        if offer.site not in state.lost_sites and not quotes.unguarded(state, offer)
        for node in _open_to(state, job, offer, rate, joins, now)
        if node.id not in leaving
    ]
    if state.gated:
        seats = quotes.within_limits(state, job, seats, now)
    if not seats:
        return launched
    best = min(seats, key=lambda seat: (seat.total, state.nodes[seat.node].free, seat.node))
    return quotes.ranked(state, job, [best, *launched], now)


def _open_to(state: State, job: Job, offer: Offer, rate: OfferRate, joins: bool, now: Instant) -> list[Node]:
    """Rented nodes that it may share with others of its payer, and warm ones that it may take."""
    shared = _with_room(state, job, offer) if joins and _leaves_free(rate) else []
    warm = ahead.for_job(state, job, offer, now)[:LOOKED_AT] if state.warm.nodes and len(rate.nodes) == 1 else []
    return shared + warm


def _may_join(state: State, job: Job) -> bool:
    """A job with a cap of its own needs a hold of its own, and in scopes that froze nothing starts."""
    capped = job.spec.cap is not None or (state.team_rules and "job:" + job.id in state.ledger.caps)
    return not capped and not any(scope in state.ledger.frozen for scope in job.shape.scopes)


def _leaves_free(rate: OfferRate) -> bool:
    """The node's hold covers what leaves of the job that it was asked for, and of no other."""
    return not rate.terms[0].egress


def _with_room(state: State, job: Job, offer: Offer) -> list[Node]:
    """Of the same payer, wide enough, and on terms that hold for this job, too."""
    joinable: list[Node] = []
    for free in range(job.spec.gpus, offer.shapes[-1].gpus + 1):
        nodes = state.seats.get((offer.id, job.shape.scopes, free))
        if nodes:
            joinable += [node for node in list(nodes.values())[:LOOKED_AT] if _terms_hold(state, job, node)]
    return joinable if state.policy.share_nodes else [node for node in joinable if node.id in state.idle]


def _terms_hold(state: State, job: Job, node: Node) -> bool:
    """Its hold pays for as long a last checkpoint as the job may take, and its lease is not about to end."""
    lease, spec = state.ledger.leases[node.id], job.spec
    terms = lease.hold.terms
    return not lease.is_ending and terms.grace_ms >= spec.grace_ms and terms.lease_max_ms == spec.lease_max_ms


def _seat(state: State, job: Job, offer: Offer, rate: OfferRate, node: Node, left_ms: Millis, now: Instant) -> Quote:
    wait_ms = max(0, node.asked_at + offer.start_ms - now) if node.phase == "asked" else 0
    if job.spec.data:
        wait_ms = max(wait_ms, quotes.copying_ms(state, job, offer, now))
    if job.attempts:
        wait_ms += job.spec.restart_ms
    run_ms = ceil_div(left_ms * PERMILLE, rate.speed_permille)
    loss = loss_ppm(state.losses, offer)
    lost_ms = quotes.lost_ms(job.shape, offer, run_ms, loss) if loss else 0
    stays_ms = wait_ms + run_ms
    alone_ms = stays_ms * stays_ms // max(1, stays_ms + lasts_ms(state, node, now))
    leaving = rate.terms[0].egress  # none where it shares: see `_leaves_free`
    cost = cost_of(node_price(state, node), alone_ms) + cost_of(rate.price_per_hour, lost_ms) + leaving
    late = cost_of(quotes.worth_of(state, job), wait_ms + lost_ms)
    return Quote(offer=offer, rate=rate, cost=cost, start_ms=wait_ms, run_ms=run_ms, total=cost + late, node=node.id)


def lasts_ms(state: State, node: Node, now: Instant) -> Millis:
    """How long those who are on it are expected to stay, the longest of them."""
    return max((_left_ms(state, state.attempts[name], now) for name in node.on), default=0)


def _left_ms(state: State, attempt: Attempt, now: Instant) -> Millis:
    if attempt.phase == "stopping":
        return 0
    return ceil_div(state.remaining(attempt.job, attempt.done_ms(now)) * PERMILLE, attempt.speed_permille)


def node_price(state: State, node: Node) -> Money:
    return state.ledger.leases[node.id].hold.terms.price_per_hour


def rent_per_hour(state: State, attempt: Attempt) -> Money:
    """What its rented place costs an hour: of a node that it shares, its part by GPUs."""
    if not attempt.nodes:
        return quotes.rate_of(attempt.job.shape, state, attempt.offer).price_per_hour
    here = [state.nodes[name] for name in attempt.nodes if name in state.nodes]
    return sum([node_price(state, node) * node.on[attempt.id] // sum(node.on.values()) for node in here])
