"""Nodes that are rented before a job asks for them: warm pools, by hours or by forecast. `cycle`, `giveback`,
`colocation` and `placement` call it.

A pool is part of an offer. Its nodes are ordinary rented nodes with ordinary holds, on the pool's own budget, until a
job takes one: from that instant on the job pays, and the pool asks for another. When the last job has left a node, a
pool that has too few keeps it instead of renting one. A pool without money shrinks; caps hold always.
"""

from dataclasses import replace
from typing import Final, Literal, TypeAlias

from penstock.core.decide import governance, limits, quotes
from penstock.core.decide.choices import Choices
from penstock.core.decide.quotes import Quote
from penstock.core.decide.rules import Candidate
from penstock.core.fold.governed import open_until
from penstock.core.fold.lease import Lease
from penstock.core.fold.state import Job, Node, State
from penstock.core.fold.suited import for_anybody
from penstock.core.ids import ahead_node_id
from penstock.core.model.events import PayerChanged, ReleasePromised, WarmPromised, WarmShort
from penstock.core.model.reasons import Denial, KeptWarm, NothingAllowed, Reason, TakesWarmNode, WantedSoon, WarmEnds
from penstock.core.model.types import Hold, JobSpec, NodeAsk, Offer, Terms, WarmPool
from penstock.core.units import HOUR, NEVER, PERMILLE, Instant, Millis, step_up
from penstock.core.values import value

#: A warm node's lease. Short, because whoever takes it must be able to hold as much; renewed while it is warm.
LEASE_MS: Final = HOUR
#: Where a node's deadline is fixed when it is rented: its whole life.
LIFE_MS: Final = 12 * HOUR
#: How long a pool without money rests, unless a cap rises or a month begins.
PAUSE_MS: Final = HOUR

Cause: TypeAlias = Literal["hours", "forecast", "pool"]


@value
class PoolSize:
    """How many nodes a pool should have now, and what that follows from."""

    wanted: int
    cause: Cause  # why it is not larger
    ends_at: Instant = NEVER  # of its hours
    seen: WantedSoon | None = None  # the numbers of a forecast


def tend(choices: Choices) -> None:
    """Bring every pool to its size: give back what is too many, and ask for what is missing."""
    state = choices.state
    for offer in dict.fromkeys((*state.warm.offers, *[node.offer.id for node in _nodes(state)])):
        size, pool = size_of(state, offer, choices.now), _pool(state, offer)
        if pool is not None and size.wanted and _denied_by_rule(choices, state.offers[offer], pool):
            size = size_of(state, offer, choices.now)
        _give_back(choices, offer, size)
        while pool is not None and len(nodes_of(state, offer)) < size.wanted:
            if not _ask(choices, state.offers[offer], pool, size):
                break


def nodes_of(state: State, offer: str) -> list[Node]:
    """A pool's nodes, those first that it has longest."""
    return [node for node in _nodes(state) if node.offer.id == offer]


def _nodes(state: State) -> list[Node]:
    return [state.nodes[name] for name in state.warm.nodes]


def _pool(state: State, offer: str) -> WarmPool | None:
    return state.offers[offer].warm if offer in state.offers else None


def size_of(state: State, offer_id: str, now: Instant) -> PoolSize:
    pool = _pool(state, offer_id)
    if pool is None or not state.policy.burst or not _may_rent(state, state.offers[offer_id], pool):
        return PoolSize(0, "pool")
    ends_at = open_until(state, pool.hours.id, now) if pool.hours is not None else NEVER
    if ends_at is None:
        return PoolSize(0, "hours")
    if not pool.forecast:
        return PoolSize(pool.nodes, "pool", ends_at)
    seen = foresee(state, state.offers[offer_id], pool, now)
    return PoolSize(seen.wanted if seen is not None else 0, "forecast", ends_at, seen)


def _may_rent(state: State, offer: Offer, pool: WarmPool) -> bool:
    """What a policy says of renting there at all; who may use the node is asked of each job that would take it."""
    is_sold = any(shape.gpus == pool.gpus for shape in offer.shapes) and offer.sold_by == "node"
    if quotes.unguarded(state, offer) or _is_forbidden(state, offer):
        return False
    return is_sold and governance.may_rent(_candidate(state, offer, pool))


def _is_forbidden(state: State, offer: Offer) -> bool:
    """By a rule, on record."""
    return offer.id in state.warm.short and isinstance(state.warm.short[offer.id][1], NothingAllowed)


def _candidate(state: State, offer: Offer, pool: WarmPool) -> Candidate:
    """What the rules are asked about: a plain job of the pool's payer with the GPUs of a node."""
    payer = dict(scope.split(":", 1) for scope in pool.scopes if ":" in scope)
    spec = JobSpec(
        pool.gpus,
        team=payer.get("team", ""),
        project=payer.get("project", ""),
        mig_profile=offer.mig_profile,
    )
    return Candidate(spec, state.sites[offer.site], offer, (), state.policy)


def _denied_by_rule(choices: Choices, offer: Offer, pool: WarmPool) -> bool:
    """Whether a rule in CEL forbids it; then that is recorded, and stands until rules or offers change."""
    state = choices.state
    if not state.policy.governance.rules:
        return False
    known = choices.pools.get(offer.id)
    if known is None or known[0] is not offer or known[1] is not state.policy:
        verdict = choices.rules.for_pool(_candidate(state, offer, pool))
        known = choices.pools[offer.id] = offer, state.policy, verdict
    verdict = known[2]
    if not verdict.allowed:
        because = NothingAllowed(offer.id, verdict.rule, verdict.where)
        choices.record(WarmShort(choices.now, offer.id, NEVER, because))
    return not verdict.allowed


# --- by forecast -----------------------------------------------------------------------------------------------------


def foresee(state: State, offer: Offer, pool: WarmPool, now: Instant) -> WantedSoon | None:
    """How many nodes are very likely to be wanted once one that is asked for now has started; None: nobody knows.

    Demand at P10 of that hour, beyond what is wanted now, and what queued jobs will rent by then because their patience
    ends; less what is free on owned and reserved nodes, which are used first.
    """
    forecast, ready_at = state.warm.forecast, now + offer.start_ms
    hour = -1 if forecast is None else (ready_at - forecast.starts_at) // HOUR
    if forecast is None or not 0 <= hour < len(forecast.hours):
        return None
    p10, p50, p90 = forecast.hours[hour]
    wanted_now = state.demand.gpus * PERMILLE
    impatient = PERMILLE * sum(job.spec.gpus for job in _impatient(state, offer, pool, ready_at))
    free = PERMILLE * sum(for_anybody(standing).free_gpus for standing in state.pools.values() if standing.open)
    nodes = max(0, p10 - wanted_now + impatient - free) // (PERMILLE * pool.gpus)
    return WantedSoon(
        wanted=min(pool.nodes, nodes),
        has=0,
        budget=pool.scopes[-1],
        start_ms=offer.start_ms,
        p10=p10,
        p50=p50,
        p90=p90,
        now=wanted_now,
        impatient=impatient,
        free=free,
        source=pool.source,
    )


def _impatient(state: State, offer: Offer, pool: WarmPool, until: Instant) -> list[Job]:
    """Queued jobs that burst by then, unless owned GPUs come free, and that a node of this pool can hold."""
    jobs = [job for at, job in _due(state, until) if job.until_at == at]
    return [job for job in jobs if offer.id in job.shape.rented and job.spec.gpus <= pool.gpus]


def _due(state: State, until: Instant) -> list[tuple[Instant, Job]]:
    """Timers up to then. They are a heap: below a later one all are later."""
    timers, left, due = state.timers, [0], list[tuple[Instant, Job]]()
    while left:
        place = left.pop()
        if place < len(timers) and timers[place][0] <= until:
            due.append((timers[place][0], timers[place][2]))
            left += (2 * place + 1, 2 * place + 2)
    return due


def _next_due(state: State, after: Instant) -> Instant:
    """The first timer later than that."""
    timers, left, first = state.timers, [0], NEVER
    while left:
        place = left.pop()
        if place >= len(timers):
            continue
        if timers[place][0] > after:
            first = min(first, timers[place][0])
        else:
            left += (2 * place + 1, 2 * place + 2)
    return first


# --- fewer, and more -------------------------------------------------------------------------------------------------


def _give_back(choices: Choices, offer: str, size: PoolSize) -> None:
    """What no job can use any more; and what is too many, but not before the time ends that is paid for anyway."""
    state, now, pool = choices.state, choices.now, _pool(choices.state, offer)
    for node in nodes_of(state, offer):
        lease = state.ledger.leases[node.id]
        if _lacks_money(lease):
            _shrink(choices, node, lease)
        elif lease.is_ending:
            _release(choices, node, "lease")
        elif pool is None or node.gpus != pool.gpus:
            _release(choices, node, "pool")
    surplus = nodes_of(state, offer)[: max(0, len(nodes_of(state, offer)) - size.wanted)]
    for node in surplus:
        if paid_until(state.ledger.leases[node.id], now) <= now:
            _release(choices, node, size.cause)


def _lacks_money(lease: Lease) -> bool:
    return lease.denied or lease.wanted_at < lease.deadline_at


def _shrink(choices: Choices, node: Node, lease: Lease) -> None:
    """Its budget has no room for it any more. The pool rests: it would only lose the next one in the same way."""
    state, now = choices.state, choices.now
    renewal = state.ledger.renewal(lease, now, state.policy.least_lease_ms)
    if isinstance(renewal, tuple) and lease.wanted_at == lease.deadline_at and lease.renew_at < NEVER:
        return  # there is room again: it is renewed when that is tried next
    _release(choices, node, "money")
    if not isinstance(renewal, tuple):
        _rest(choices, node.offer, renewal)


def paid_until(lease: Lease, now: Instant) -> Instant:
    """When to return a node so that no further billing step begins: until then it costs nothing more."""
    terms = lease.hold.terms
    billed_ms = max(terms.minimum_ms, step_up(now - lease.opened_at, terms.step_ms))
    return lease.opened_at + billed_ms - terms.kill_ms


def _release(choices: Choices, node: Node, cause: Literal["hours", "forecast", "pool", "money", "lease"]) -> None:
    since = node.idle_at if node.idle_at is not None else choices.now
    choices.record(ReleasePromised(choices.now, node.id, WarmEnds(choices.now - since, cause)))


def _ask(choices: Choices, offer: Offer, pool: WarmPool, size: PoolSize) -> bool:
    state, now = choices.state, choices.now
    if not _may_grow(state, offer, pool, now):
        return False
    node, terms = ahead_node_id(offer.id, state.warm.numbered + 1), _terms(offer, pool)
    holds = state.ledger.authorise(pool.scopes, [(node, terms)], now, state.policy.least_lease_ms)
    if not isinstance(holds, tuple):
        _rest(choices, offer, holds)
        return False
    because = _why(state, offer, pool, size)
    choices.record(WarmPromised(now, offer.id, NodeAsk(node, pool.gpus, holds[0]), because))
    return True


def _may_grow(state: State, offer: Offer, pool: WarmPool, now: Instant) -> bool:
    """Not while people have paused placements, in quiet hours, where there is no capacity, or without money lately."""
    if state.paused or (state.gated and limits.quiet_hours(state, now) is not None):
        return False
    if offer.id in state.warm.short and now < state.warm.short[offer.id][0]:
        return False
    return quotes.available(state, offer, quotes.node_rate(offer, _terms(offer, pool), pool.gpus), pool.gpus, now)


def _terms(offer: Offer, pool: WarmPool) -> Terms:
    shape = next(shape for shape in offer.shapes if shape.gpus == pool.gpus)
    return quotes.node_terms(offer, shape, grace_ms=0, lease_max_ms=LEASE_MS if offer.renewable else LIFE_MS)


def _why(state: State, offer: Offer, pool: WarmPool, size: PoolSize) -> KeptWarm | WantedSoon:
    has = len(nodes_of(state, offer.id))
    if size.seen is not None:
        return replace(size.seen, has=has)
    return KeptWarm(wanted=size.wanted, has=has, budget=pool.scopes[-1], until_at=size.ends_at, source=pool.source)


def _rest(choices: Choices, offer: Offer, denied: Denial) -> None:
    choices.record(WarmShort(choices.now, offer.id, choices.now + PAUSE_MS, denied))


# --- from hand to hand -----------------------------------------------------------------------------------------------


def keeps(choices: Choices, node: Node) -> bool:
    """The last job has left a node: a pool that has too few pays for it from now on."""
    state, now, pool = choices.state, choices.now, _pool(choices.state, node.offer.id)
    if pool is None or not node.open or node.gpus != pool.gpus or state.paused or node.offer.site in state.lost_sites:
        return False
    size, lease = size_of(state, node.offer.id, now), state.ledger.leases[node.id]
    if len(nodes_of(state, node.offer.id)) >= size.wanted or not may_take(lease, now) or lease.hold.terms.egress:
        return False
    if state.gated and limits.quiet_hours(state, now) is not None:
        return False
    terms = replace(lease.hold.terms, grace_ms=0, lease_max_ms=LEASE_MS)
    hold = state.ledger.handover(lease, pool.scopes, terms, now, state.policy.least_lease_ms, NEVER)
    if not isinstance(hold, Hold):
        return False
    because = _why(state, node.offer, pool, size)
    charged = state.ledger.charge(lease, now)
    choices.record(PayerChanged(now, node.id, "", charged, hold, because))
    return True


def may_take(lease: Lease, now: Instant) -> bool:
    """It is not about to end. In its first instant nothing was charged, its fee included, so nobody takes it then. Of
    a lease that is never renewed, at least half is left.
    """
    young = lease.hold.terms.renewable or 2 * (now - lease.opened_at) <= lease.renew_at - lease.opened_at
    return not lease.is_ending and lease.opened_at < now and young


def for_job(state: State, job: Job, offer: Offer, now: Instant) -> list[Node]:
    """Warm nodes of this offer that a queued job may take: those that are ready first, then the smallest."""
    nodes = [node for node in nodes_of(state, offer.id) if node.gpus >= job.spec.gpus] if job.queued else []
    nodes = [node for node in nodes if may_take(state.ledger.leases[node.id], now)]
    return sorted(nodes, key=lambda node: (node.phase == "asked", node.gpus))


def fund(
    state: State, job: Job, quote: Quote, scopes: tuple[str, ...], most_ms: Millis, now: Instant
) -> tuple[Hold, ...] | Denial:
    """With which the job pays for a warm node. Any other node that it joins has its own hold already."""
    if quote.node not in state.warm.nodes:
        return ()
    lease, spec = state.ledger.leases[quote.node], job.spec
    terms = replace(
        lease.hold.terms,
        egress=quote.rate.terms[0].egress,
        grace_ms=spec.grace_ms,
        lease_max_ms=spec.lease_max_ms,
    )
    hold = state.ledger.handover(lease, scopes, terms, now, state.policy.least_lease_ms, most_ms)
    return (hold,) if isinstance(hold, Hold) else hold


def take(choices: Choices, job: Job, hold: Hold, because: Reason) -> None:
    """From now on the job pays. Its start is promised next."""
    ledger = choices.state.ledger
    charged = ledger.charge(ledger.leases[hold.id], choices.now)
    choices.record(PayerChanged(choices.now, hold.id, job.id, charged, hold, because))


def why_taken(choices: Choices, job: Job, quote: Quote, expected: Millis, after: Quote | None) -> TakesWarmNode:
    node = choices.state.nodes[quote.node]
    return TakesWarmNode(
        waited_ms=choices.now - job.submitted_at,
        start_ms=quote.start_ms,
        idle_ms=choices.now - (node.idle_at if node.idle_at is not None else choices.now),
        expected_run_ms=expected,
        cost=quote.cost,
        next_offer=after.offer.id if after is not None else "",
        next_cost=after.cost if after is not None else 0,
    )


# --- time ------------------------------------------------------------------------------------------------------------


def next_at(state: State) -> Instant:
    """When a pool is to be looked at even if nothing happens."""
    soonest = NEVER
    for name, offer in state.warm.offers.items():
        pool = offer.warm
        if pool is None:
            continue
        size, has = size_of(state, name, state.at), len(nodes_of(state, name))
        if pool.hours is not None:
            soonest = min([soonest, *_edges(state, pool.hours.id)])
        if pool.forecast:
            soonest = min(soonest, _forecast_changes_at(state, offer))
        if has < size.wanted:
            soonest = min(soonest, _may_grow_at(state, name))
    for node in _nodes(state):
        soonest = min(soonest, _may_end_at(state, node))
    return soonest


def _edges(state: State, window: str) -> list[Instant]:
    """When its hours begin and end, not past ones."""
    return [edge for hours in state.hours.get(window, ()) for edge in hours if edge > state.at]


def _forecast_changes_at(state: State, offer: Offer) -> Instant:
    """At the next whole hour there is another; a node asked for then is ready in the next of its hours; and a job's
    patience ends within a node's start.
    """
    ready_at = state.at + offer.start_ms
    due, hour = _next_due(state, ready_at), (state.at // HOUR + 1) * HOUR
    forecast, next_hour = state.warm.forecast, (ready_at // HOUR + 1) * HOUR
    ahead = -1 if forecast is None else (next_hour - forecast.starts_at) // HOUR
    told = forecast is not None and 0 <= ahead <= len(forecast.hours)
    soonest = min(hour, next_hour - offer.start_ms) if told else hour
    return soonest if due == NEVER else min(soonest, due - offer.start_ms)


def _may_grow_at(state: State, offer: str) -> Instant:
    """When an offer that is closed opens, quiet hours end, or a pool without money asks again, as `_may_grow` does."""
    quiet = limits.quiet_hours(state, state.at) if state.gated else None
    rests_until = state.warm.short[offer][0] if offer in state.warm.short else NEVER
    opens_at = state.closed.get(offer, NEVER)
    period_at = state.ledger.next_period_at(state.at) if offer in state.warm.short else NEVER
    quiet_until = NEVER if quiet is None else quiet.ends_at
    return min(at if at > state.at else NEVER for at in (rests_until, opens_at, period_at, quiet_until))


def _may_end_at(state: State, node: Node) -> Instant:
    """Of nodes that are too many: when what is paid for ends."""
    size = size_of(state, node.offer.id, state.at)
    if len(nodes_of(state, node.offer.id)) <= size.wanted:
        return NEVER
    at = paid_until(state.ledger.leases[node.id], state.at)
    return at if at > state.at else NEVER
