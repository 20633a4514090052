"""Transient clusters of sites as people see them: which site has one, who uses it, until when, and at what cost. Routes
call `transient_clusters` through `Plane.consider`.
"""

from penstock.core.fold.clusters import cluster_at
from penstock.core.fold.state import State
from penstock.core.model.reasons import Reason
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value


@value
class ClusterOfSite:
    """A site whose cluster comes and goes, and the cluster that it has now."""

    site: str
    cluster: str  # its id; empty: it has none
    state: str  # none, starting, up, draining or ending
    budget: str
    price_per_hour: Money
    used_by: tuple[str, ...] = ()  # attempts
    asked_at: Instant | None = None
    deadline_at: Instant | None = None  # it ends by itself then
    wanted_until: Instant | None = None  # by a person
    unused_since: Instant | None = None
    idle_ms: Millis = 0
    closed_until: Instant | None = None  # its provider refused; not asked again before
    spent: Money | None = 0  # None: not for whoever asks
    held: Money | None = 0
    soft: bool = False  # nobody ends it if Penstock dies
    because: Reason | None = None  # why it was asked for; without one, why there is no money for it


def transient_clusters(state: State) -> tuple[ClusterOfSite, ...]:
    return tuple([_of_site(state, site) for site in dict.fromkeys((*state.clusters.terms, *state.clusters.live))])


def _of_site(state: State, site: str) -> ClusterOfSite:
    clusters, node = state.clusters, cluster_at(state, site)
    terms = clusters.terms.get(site)
    offer = node.offer if node is not None else clusters.terms[site].offer
    lease = state.ledger.leases[node.id] if node is not None else None
    budget = lease.hold.scopes[-1] if lease is not None else terms.scopes[-1] if terms is not None else ""
    wanted, closed = clusters.kept.get(site, 0), state.closed.get(offer.id, 0)
    short = clusters.short.get(site)
    return ClusterOfSite(
        site=site,
        cluster="" if node is None else node.id,
        state=_state(state, site),
        budget=budget,
        price_per_hour=offer.shapes[0].price_per_hour + offer.extras.per_hour,
        used_by=tuple(clusters.used_by.get(site, ())),
        asked_at=None if node is None else node.asked_at,
        deadline_at=None if lease is None else lease.deadline_at,
        wanted_until=wanted if wanted > state.at else None,
        unused_since=clusters.unused_at.get(site),
        idle_ms=0 if terms is None else terms.idle_ms,
        closed_until=closed if closed > state.at else None,
        spent=0 if lease is None else lease.charged,
        held=0 if lease is None else lease.held,
        soft=offer.guarantee == "none" or offer.id in state.unproved,
        because=node.because if node is not None else short[1] if short is not None else None,
    )


def _state(state: State, site: str) -> str:
    node = cluster_at(state, site)
    if node is None:
        return "none"
    if node.phase == "returning":
        return "ending"
    if site in state.clusters.leaving or state.ledger.leases[node.id].is_ending:
        return "draining"
    return "starting" if node.phase == "asked" else "up"
