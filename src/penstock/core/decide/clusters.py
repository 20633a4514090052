"""Transient clusters: asked for when a start needs one or a person wants it, and given back when nothing does. `cycle`,
`placement` and `quotes` call it.

A cluster is a rented node without GPUs: it has a hold on the budget that its site names, a lease that is renewed, and a
deadline. Attempts at its site are promised at once, with holds of their own, and begin when it is up: until then
nothing is billed for them.
"""

from typing import Final, Literal

from penstock.core.decide import limits, quotes
from penstock.core.decide.ahead import paid_until
from penstock.core.decide.choices import Choices
from penstock.core.fold import clusters as fold
from penstock.core.fold.ledger import Ledger
from penstock.core.fold.state import Node, State
from penstock.core.ids import cluster_id
from penstock.core.model.events import ClusterPromised, ClusterShort, ReleasePromised
from penstock.core.model.reasons import CapBinds, ClusterEnds, ClusterNeeded, ClusterWanted, Denial, RateBinds
from penstock.core.model.types import Hold, Offer, TransientCluster
from penstock.core.units import HOUR, NEVER, Instant, Money

LEASE_MS: Final = HOUR  #: of a cluster; renewed while it is used or wanted
PAUSE_MS: Final = HOUR  #: how long a person's wish rests for which there is no money, unless a cap rises

Cause = Literal["idle", "asked", "lease", "site"]


# --- asking ----------------------------------------------------------------------------------------------------------


def authorise(state: State, offer: Offer, holds: tuple[Hold, ...], now: Instant) -> tuple[Hold, ...] | Denial:
    """The hold of the cluster that a start at this offer needs, beside the start's own; none: it has one."""
    terms = state.clusters.terms.get(offer.site)
    if terms is None or fold.cluster_at(state, offer.site) is not None:
        return ()
    granted = _hold(state, terms, now)
    if not isinstance(granted, tuple):
        return granted
    return _denied_together(state, granted[0], holds) or granted


def _hold(state: State, terms: TransientCluster, now: Instant) -> tuple[Hold, ...] | Denial:
    name = cluster_id(terms.offer.site, state.clusters.numbered + 1)
    longest_ms = min(LEASE_MS, terms.most_ms)
    costs = quotes.node_terms(terms.offer, terms.offer.shapes[0], grace_ms=0, lease_max_ms=longest_ms)
    least_ms = min(state.policy.least_lease_ms, terms.most_ms)
    return state.ledger.authorise(terms.scopes, [(name, costs)], now, least_ms)


def _denied_together(state: State, cluster: Hold, holds: tuple[Hold, ...]) -> CapBinds | RateBinds | None:
    """Each alone has room; in scopes that pay for both, they must have it together: in a month, and in an hour."""
    for scope in cluster.scopes:
        together = [cluster, *[hold for hold in holds if scope in hold.scopes]]
        denied = _month_denies(state.ledger, scope, together) or _hour_denies(state.ledger, scope, together)
        if denied is not None:
            return denied
    return None


def _hour_denies(ledger: Ledger, scope: str, holds: list[Hold]) -> RateBinds | None:
    cap, running = ledger.rate_caps.get(scope), ledger.rates.get(scope, 0)
    more = sum(hold.terms.most_per_hour for hold in holds)
    return RateBinds(scope, cap, running, more) if cap is not None and running + more > cap else None


def _month_denies(ledger: Ledger, scope: str, holds: list[Hold]) -> CapBinds | None:
    cap = ledger.caps.get(scope)
    if cap is None:
        return None
    needs: dict[str, Money] = {}
    for hold in holds:
        for part in hold.parts:
            needs[part.period] = needs.get(part.period, 0) + part.amount
    for period, needed in needs.items():
        account = ledger.accounts.get((scope, period))
        held, spent = (account.held, account.spent) if account is not None else (0, 0)
        if held + spent + needed > cap:
            return CapBinds(scope=scope, period=period, cap=cap, spent=spent, held=held, needed=needed, kept_free=0)
    return None


def call(choices: Choices, offer: Offer, job: str) -> None:
    """Ask for the cluster that this start needs, unless it has one. `authorise` has said that there is money."""
    state, now = choices.state, choices.now
    terms = state.clusters.terms.get(offer.site)
    if terms is None or fold.cluster_at(state, offer.site) is not None:
        return
    granted = _hold(state, terms, now)
    assert isinstance(granted, tuple), f"{offer.site}: its cluster was promised without money"
    because = ClusterNeeded(terms.scopes[-1], _per_hour(terms), terms.offer.start_ms, terms.source)
    choices.record(ClusterPromised(now, offer.site, quotes.whole_node(granted[0], 0), because, job))


def _per_hour(terms: TransientCluster) -> Money:
    return terms.offer.shapes[0].price_per_hour + terms.offer.extras.per_hour


# --- coming for people, and going ------------------------------------------------------------------------------------


def tend(choices: Choices) -> None:
    """Ask for clusters that people want, and give back those that nothing needs."""
    state, now = choices.state, choices.now
    for site in dict.fromkeys((*state.clusters.live, *state.clusters.kept)):
        node = fold.cluster_at(state, site)
        if node is None:
            if state.clusters.kept.get(site, 0) > now:
                _ask_for_person(choices, state.clusters.terms[site])
        elif node.phase in ("asked", "idle") and (cause := _why_it_goes(state, node, now)) is not None:
            unused_ms = now - state.clusters.unused_at[site]
            choices.record(ReleasePromised(now, node.id, ClusterEnds(unused_ms, cause)))


def _ask_for_person(choices: Choices, terms: TransientCluster) -> None:
    state, now = choices.state, choices.now
    site, short = terms.offer.site, state.clusters.short.get(terms.offer.site)
    resting = short is not None and now < short[0]
    quiet = state.gated and limits.quiet_hours(state, now) is not None
    shut = site in state.lost_sites or state.closed.get(terms.offer.id, now) > now or not state.policy.burst
    if resting or quiet or shut or state.paused or _unguarded(state, terms):
        return
    granted = _hold(state, terms, now)
    if isinstance(granted, tuple):
        because = ClusterWanted(terms.scopes[-1], _per_hour(terms), state.clusters.kept[site])
        choices.record(ClusterPromised(now, site, quotes.whole_node(granted[0], 0), because))
    else:
        choices.record(ClusterShort(now, site, now + PAUSE_MS, granted))


def _unguarded(state: State, terms: TransientCluster) -> bool:
    soft = terms.offer.guarantee == "none" or terms.offer.id in state.unproved
    return state.policy.require_hard_caps and soft


def _why_it_goes(state: State, node: Node, now: Instant) -> Cause | None:
    """None: it stays. What is paid for anyway is used up first."""
    clusters, site = state.clusters, node.offer.site
    unused_at = clusters.unused_at.get(site)
    if unused_at is None:
        return None
    lease = state.ledger.leases[node.id]
    if lease.is_ending:
        return "lease"
    if site in clusters.leaving:
        return "asked"
    terms = clusters.terms.get(site)
    if terms is None:
        return "site"
    over = max(unused_at + terms.idle_ms, clusters.kept.get(site, 0), paid_until(lease, now)) <= now
    return "idle" if over else None


def next_at(state: State) -> Instant:
    """When a cluster is to be looked at even if nothing happens."""
    clusters, soonest = state.clusters, NEVER
    for site, since in clusters.unused_at.items():
        node, terms = fold.cluster_at(state, site), clusters.terms.get(site)
        if node is not None and terms is not None and node.phase in ("asked", "idle"):
            lease = state.ledger.leases[node.id]
            goes_at = max(since + terms.idle_ms, clusters.kept.get(site, 0), paid_until(lease, state.at))
            soonest = min(soonest, goes_at) if goes_at > state.at else soonest
    for site in [site for site, until in clusters.kept.items() if until > state.at and site not in clusters.live]:
        waits = [clusters.short[site][0]] if site in clusters.short else []
        if site in clusters.terms:
            waits.append(state.closed.get(clusters.terms[site].offer.id, NEVER))
        soonest = min([soonest, *[at for at in waits if at > state.at]])
    return soonest
