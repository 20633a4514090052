"""Quotes: what each offer would cost a job. Rates are per shape and offer; a quote adds the job's own run time and
data.

Standing GPUs have two prices: the marginal one here, for choosing, and the full one for showback. Otherwise an idle
owned GPU would lose to a cheaper rented one.
"""

from dataclasses import replace
from math import isqrt
from typing import Final

from penstock.core.decide import limits
from penstock.core.decide.rules import preference_of, speed_on
from penstock.core.fold import clusters
from penstock.core.fold.learned import loss_ppm
from penstock.core.fold.state import Job, Shape, State
from penstock.core.ids import site_of
from penstock.core.model.types import Hold, NodeAsk, NodeShape, Offer, Terms, egress_cost, fill
from penstock.core.units import GB, HOUR, MICRO, PERMILLE, Instant, Millis, Money, ceil_div, cost_of
from penstock.core.values import value

#: What starts, restarts and redone work may add to the longest wait; together they bound the delay.
ON_TOP_MS: Final = HOUR


@value
class OfferRate:
    """The rate of a shape's nodes at an offer. `nodes` is empty where the site sells by the attempt."""

    nodes: tuple[int, ...]  # the GPUs of each node
    terms: tuple[Terms, ...]  # of each node, or of the attempt
    price_per_hour: Money  # the sum over all nodes
    once: Money  # fees, and egress at the end
    speed_permille: int
    endless: bool  # unlimited capacity


@value
class Quote:
    offer: Offer
    rate: OfferRate
    cost: Money  # expected: start, run, preemptions, fees, egress
    start_ms: Millis  # until it runs: the start, and the data's transfer
    run_ms: Millis
    total: Money  # the cost plus the cost of delay; offers are ranked by it
    node: str = ""  # a rented node that it would join; empty: its own nodes


def for_job(state: State, job: Job, expected_ms: Millis, now: Instant) -> list[Quote]:
    """Allowed rented offers that seem to have capacity, cheapest first; ties by name."""
    priced = at_any_price(state, job, expected_ms, now)
    return within_limits(state, job, priced, now) if state.gated else priced


def within_limits(state: State, job: Job, quotes: list[Quote], now: Instant) -> list[Quote]:
    """Those that the policy's limits on one job's cost, and on what leaves rented sites, leave."""
    if limits.egress_spent(state, job, now) is not None:
        return []
    if not limits.limits_prices(state, job):
        return quotes
    return [quote for quote in quotes if limits.too_dear(state, job, quote.offer, quote.cost) is None]


def at_any_price(state: State, job: Job, expected_ms: Millis, now: Instant) -> list[Quote]:
    """The same, also of those that the policy's limits exclude at this moment."""
    shape, quotes = job.shape, []
    left_ms = expected_ms - job.kept_ms if job.kept_ms < expected_ms else 0
    ways = shape.ways or ways_of(shape, state)
    value = worth_of(state, job) if len(ways) > 1 or state.seats or state.warm.nodes else 0  # only needed for ranking
    calm = not (state.lost_sites or state.probing or state.closed or state.unproved or state.clusters.terms)
    for offer, rate in ways:
        if (calm and rate.endless) or available(state, offer, rate, job.spec.gpus, now):
            copy_ms = copying_ms(state, job, offer, now) if job.spec.data else 0
            loss = loss_of(state, offer)
            if state.clusters.terms:
                copy_ms = max(copy_ms, cluster_start_ms(state, offer.site, now))
            made = quote(shape, offer, rate, left_ms, loss=loss, value_per_hour=value, copy_ms=copy_ms)
            quotes.append(with_cluster(state, made, now) if state.clusters.terms else made)
    return ranked(state, job, quotes, now) if len(quotes) > 1 else quotes


def ranked(state: State, job: Job, quotes: list[Quote], now: Instant) -> list[Quote]:
    quotes.sort(key=lambda q: (q.total, q.offer.id))
    _spare_who_is_late(state, job, quotes, now)
    if job.spec.models_ordered:
        quotes.sort(key=lambda q: preference_of(job.spec, q.offer))
    return quotes


def worth_of(state: State, job: Job) -> Money:
    """The job's cost of delay per hour: its class's own, or the policy's value times its class's weight."""
    policy = state.policy
    if state.delay_costs and job.spec.job_class in state.delay_costs:
        return state.delay_costs[job.spec.job_class]
    value, weights = state.value_per_hour, policy.class_weights
    return value * dict(weights).get(job.spec.job_class, PERMILLE) // PERMILLE if weights else value


def loss_of(state: State, offer: Offer) -> int:
    return loss_ppm(state.losses, offer) if offer.term == "spot" else offer.loss_ppm_per_hour


def quote(
    shape: Shape,
    offer: Offer,
    rate: OfferRate,
    left_ms: Millis,
    loss: int = 0,
    value_per_hour: Money = 0,
    copy_ms: Millis = 0,
) -> Quote:
    """Nodes are launched, and billed, while the data is copied; where attempts are sold, the data comes first."""
    speed = rate.speed_permille
    run_ms = left_ms if speed == PERMILLE else ceil_div(left_ms * PERMILLE, speed)
    unbilled_ms = 0 if rate.nodes else copy_ms
    billed_ms = (max(offer.start_ms, copy_ms) if rate.nodes else offer.start_ms) + run_ms
    start_ms = unbilled_ms + billed_ms - run_ms
    if loss:
        billed_ms += lost_ms(shape, offer, run_ms, loss)
    cost = rate.once - (-rate.price_per_hour * billed_ms // HOUR)
    late = cost_of(value_per_hour, unbilled_ms + billed_ms - run_ms) if value_per_hour else 0
    return Quote(offer, rate, cost, start_ms, run_ms, cost + late)


def cluster_start_ms(state: State, site: str, now: Instant) -> Millis:
    """How long until its transient cluster is up; 0: it is, or the site's cluster is always there."""
    terms, node = state.clusters.terms.get(site), clusters.cluster_at(state, site)
    if terms is None or (node is not None and node.phase != "asked"):
        return 0
    return max(0, (now if node is None else node.asked_at) + terms.offer.start_ms - now)


def with_cluster(state: State, quote: Quote, now: Instant) -> Quote:
    """With the fee of a transient cluster for as long as this job would be the only one there: until it is up, and by
    how much it is expected to outlive the others. `colocation` has the same rule for nodes.
    """
    terms = state.clusters.terms.get(quote.offer.site)
    if terms is None:
        return quote
    attempts = [state.attempts[name] for name in state.clusters.used_by.get(quote.offer.site, ())]
    lasts_ms = max([state.remaining(attempt.job, attempt.done_ms(now)) for attempt in attempts], default=0)
    stays_ms = quote.start_ms + quote.run_ms
    alone_ms = stays_ms * stays_ms // max(1, stays_ms + lasts_ms)
    once = terms.offer.extras.launch_fee if clusters.cluster_at(state, quote.offer.site) is None else 0
    fee = once + cost_of(terms.offer.shapes[0].price_per_hour + terms.offer.extras.per_hour, alone_ms)
    return replace(quote, cost=quote.cost + fee, total=quote.total + fee)


def _spare_who_is_late(state: State, job: Job, quotes: list[Quote], now: Instant) -> None:
    """Protect a job that waited long: offers whose p95 delay would exceed the longest allowed delay come last."""
    most = state.policy.waiting.most_ms + ON_TOP_MS
    late_ms = now - job.submitted_at - job.kept_ms
    if state.policy.waiting.kind == "worth" and 2 * late_ms > most:
        quotes.sort(key=lambda q: late_ms + late_at_worst(state, job, q) > most)


def late_at_worst(state: State, job: Job, quote: Quote) -> Millis:
    """p95 delay: start + p95 preemptions x (restart + lost work + copy)."""
    shape, offer, run_ms = job.shape, quote.offer, quote.run_ms
    losses = run_ms * loss_of(state, offer) * PERMILLE // (MICRO * HOUR)
    if not losses:
        return quote.start_ms
    losses += 2 * isqrt(losses * PERMILLE)
    every = shape.spec.checkpoint_every_ms
    redone = run_ms if every is None else min(run_ms, every)
    data_ms = state.line.takes(sum([state.data[name].size_bytes for name in job.spec.data]))
    return quote.start_ms + losses * (max(offer.start_ms, data_ms) + shape.spec.restart_ms + redone) // PERMILLE


def cost_at_worst(state: State, job: Job, quote: Quote) -> Money:
    """The cost with as many preemptions as one in twenty such jobs has (p95), or more."""
    more_ms = late_at_worst(state, job, quote) - quote.start_ms
    more_ms -= lost_ms(job.shape, quote.offer, quote.run_ms, loss_of(state, quote.offer))
    return quote.cost + (cost_of(quote.rate.price_per_hour, more_ms) if more_ms > 0 else 0)


def copying_ms(state: State, job: Job, offer: Offer, now: Instant) -> Millis:
    return state.line.takes(sum([state.data[name].size_bytes for name in missing_data(state, job, offer, now)]))


def lost_ms(shape: Shape, offer: Offer, run_ms: Millis, loss: int) -> Millis:
    """Expected preemptions times the cost of one: another start, and half a checkpoint interval of redone work."""
    spec = shape.spec
    redone = run_ms // 2 if spec.checkpoint_every_ms is None else min(run_ms, spec.checkpoint_every_ms) // 2
    return run_ms * loss * (offer.start_ms + spec.restart_ms + redone) // (MICRO * HOUR)


def ways_of(shape: Shape, state: State) -> tuple[tuple[Offer, OfferRate], ...]:
    """The rented offers that the shape's verdict allows, each with its rate; new verdicts void this cache."""
    offers = [state.offers[name] for name in shape.rented]
    shape.ways = tuple([(offer, rate_of(shape, state, offer)) for offer in offers])
    return shape.ways


def rate_of(shape: Shape, state: State, offer: Offer) -> OfferRate:
    known: OfferRate | None = shape.rates.get(offer.id)
    if known is None:
        known = shape.rates[offer.id] = _rate(shape, state, offer)
    return known


def _rate(shape: Shape, state: State, offer: Offer) -> OfferRate:
    spec, extras = shape.spec, offer.extras
    sizes = [size for size, count in fill(offer.shapes, spec.gpus) for _ in range(count)]
    prices = [(size.price_per_hour + extras.per_hour, _ceiling(size) + extras.per_hour) for size in sizes]
    if offer.sold_by == "attempt":
        prices = [(sum(price for price, _ in prices), sum(most for _, most in prices))]
    leaving = egress_cost(state.sites[offer.site].egress, spec.output_bytes)
    leaving += ceil_div(extras.nat_per_gb * spec.output_bytes, GB)
    terms = tuple(
        Terms(
            price_per_hour=price,
            most_per_hour=most,
            fees=extras.launch_fee,
            egress=leaving if k == 0 else 0,  # a gang's whole output leaves from its first node
            step_ms=offer.billing_step_ms,
            minimum_ms=offer.billing_minimum_ms,
            grace_ms=spec.grace_ms,
            kill_ms=offer.kill_ms,
            lease_max_ms=spec.lease_max_ms,
            renewable=offer.renewable,
        )
        for k, (price, most) in enumerate(prices)
    )
    return OfferRate(
        nodes=tuple(size.gpus for size in sizes) if offer.sold_by == "node" else (),
        terms=terms,
        price_per_hour=sum(node.price_per_hour for node in terms),
        once=sum(node.fees + node.egress for node in terms),
        speed_permille=speed_on(spec, offer),
        endless=_is_endless(offer),
    )


def node_terms(offer: Offer, shape: NodeShape, grace_ms: Millis, lease_max_ms: Millis) -> Terms:
    """Of a node that is rented for nobody in particular."""
    return Terms(
        price_per_hour=shape.price_per_hour + offer.extras.per_hour,
        most_per_hour=_ceiling(shape) + offer.extras.per_hour,
        fees=offer.extras.launch_fee,
        egress=0,
        step_ms=offer.billing_step_ms,
        minimum_ms=offer.billing_minimum_ms,
        grace_ms=grace_ms,
        kill_ms=offer.kill_ms,
        lease_max_ms=lease_max_ms,
        renewable=offer.renewable,
    )


def whole_node(hold: Hold, gpus: int) -> NodeAsk:
    return NodeAsk(hold.id, gpus, hold)


def node_rate(offer: Offer, terms: Terms, gpus: int) -> OfferRate:
    return OfferRate((gpus,), (terms,), terms.price_per_hour, terms.fees, PERMILLE, _is_endless(offer))


def _is_endless(offer: Offer) -> bool:
    return offer.limit_gpus is None and all(size.count is None for size in offer.shapes)


def _ceiling(size: NodeShape) -> Money:
    price = size.price_per_hour
    return price if size.most_per_hour is None else max(size.most_per_hour, price)


def available(state: State, offer: Offer, rate: OfferRate, width: int, now: Instant) -> bool:
    if (state.lost_sites or state.probing or state.closed or state.unproved) and _shut(state, offer, now):
        return False
    if state.clusters.terms and clusters.is_shut(state, offer, now):
        return False
    return rate.endless or _within_limits(state, offer, rate, width)


def closed_until(state: State, offer: str) -> Instant:
    """By the refusals of its provider, or of that of its site's transient cluster."""
    terms = state.clusters.terms.get(site_of(offer))
    return max(state.closed.get(offer, 0), state.closed.get(terms.offer.id, 0) if terms is not None else 0)


def _shut(state: State, offer: Offer, now: Instant) -> bool:
    """Unreachable, unguarded, being probed by another job, or known to have no capacity."""
    if offer.site in state.lost_sites or unguarded(state, offer):
        return True
    return offer.id in state.probing or state.closed.get(offer.id, now) > now


def unguarded(state: State, offer: Offer) -> bool:
    """The policy demands hard caps, and nobody proves at this moment that anything there ends without us."""
    return offer.id in state.unproved and state.policy.require_hard_caps


def _within_limits(state: State, offer: Offer, rate: OfferRate, width: int) -> bool:
    used = sum(count * (gpus or 1) for (name, gpus), count in state.in_use.items() if name == offer.id)
    billed = sum(rate.nodes) or width
    if offer.limit_gpus is not None and used + billed > offer.limit_gpus:
        return False
    if not rate.nodes:
        counts = [size.count for size in offer.shapes]
        return None in counts or used + width <= sum(size.gpus * (size.count or 0) for size in offer.shapes)
    for size in offer.shapes:
        wanted = rate.nodes.count(size.gpus)
        if size.count is not None and state.in_use.get((offer.id, size.gpus), 0) + wanted > size.count and wanted:
            return False
    return True


def missing_data(state: State, job: Job, offer: Offer, now: Instant) -> tuple[str, ...]:
    """Data sets to copy to the offer's site before the job can start there."""
    return tuple(
        name
        for name in job.spec.data
        if state.data[name].site != offer.site and state.replicas.get((name, offer.site), -1) <= now
    )
