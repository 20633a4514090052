"""Applies what is promised and asked about transient clusters. Part of `apply`; `sites` applies how one comes and goes,
as for any rented node, and `decide/clusters` makes the promises.
"""

from penstock.core.fold import money
from penstock.core.fold.state import Attempt, Node, State, launch_action
from penstock.core.fold.transitions import touch_node
from penstock.core.ids import is_cluster
from penstock.core.model import events as e
from penstock.core.model.types import Offer
from penstock.core.units import Instant


def note_sites(state: State) -> None:
    """Call when sites have changed. A cluster that is up stays what it is, whatever its site says now."""
    state.clusters.terms = {site.id: site.cluster for site in state.sites.values() if site.cluster is not None}


def offer_of(state: State, offer_id: str) -> Offer | None:
    """The offer of this name: of GPUs, or of a site's cluster."""
    clusters = [terms.offer for terms in state.clusters.terms.values() if terms.offer.id == offer_id]
    return state.offers.get(offer_id) or next(iter(clusters), None)


def cluster_at(state: State, site: str) -> Node | None:
    """The cluster that a site has or that was asked for; None: it has none, or its cluster is always there."""
    name = state.clusters.live.get(site)
    return None if name is None else state.nodes[name]


def attempts_on(state: State, node: Node) -> list[Attempt]:
    """Attempts on a rented node; on a cluster, all that are at its site."""
    names = state.clusters.used_by.get(node.offer.site, {}) if is_cluster(node.id) else node.on
    return [state.attempts[name] for name in names]


# --- what is promised and asked --------------------------------------------------------------------------------------


def cluster_promised(state: State, event: e.ClusterPromised) -> None:
    clusters, ask = state.clusters, event.ask
    offer = clusters.terms[event.site].offer
    node = Node(ask.node, offer, 0, attempt="", asked_at=event.at, payer=ask.hold.scopes)
    node.open, node.because = False, event.because
    state.nodes[node.id] = node
    clusters.numbered += 1
    clusters.live[event.site] = node.id
    clusters.unused_at[event.site] = event.at
    clusters.short.pop(event.site, None)
    state.in_use[offer.id, 0] = state.in_use.get((offer.id, 0), 0) + 1
    money.open_lease(state, ask.hold, None, 0, offer.id)
    state.changes.actions.append(launch_action(state, node))
    touch_node(state, node)


def cluster_short(state: State, event: e.ClusterShort) -> None:
    state.clusters.short[event.site] = (event.until_at, event.because)


def cluster_asked(state: State, event: e.ClusterAsked) -> None:
    clusters = state.clusters
    if event.site in clusters.terms:
        clusters.kept[event.site] = event.until_at
        clusters.leaving.pop(event.site, None)
        clusters.short.pop(event.site, None)


def cluster_dismissed(state: State, event: e.ClusterDismissed) -> None:
    clusters = state.clusters
    clusters.kept.pop(event.site, None)
    clusters.short.pop(event.site, None)
    if event.site in clusters.live:
        clusters.leaving[event.site] = None


def ask_again(state: State) -> None:
    """A cap has risen, or a month began: there may be money for what people want."""
    state.clusters.short.clear()


# --- who uses it -----------------------------------------------------------------------------------------------------


def joins(state: State, attempt: Attempt) -> None:
    """An attempt is promised at a site with a transient cluster. It begins when the cluster is up."""
    clusters, site = state.clusters, attempt.offer.site
    node = cluster_at(state, site)
    if node is None:
        return
    clusters.used_by.setdefault(site, {})[attempt.id] = None
    clusters.unused_at.pop(site, None)
    if node.phase == "asked":
        attempt.missing = (*attempt.missing, node.id)


def leaves(state: State, attempt: Attempt) -> None:
    """An attempt is over."""
    clusters, site = state.clusters, attempt.offer.site
    users = clusters.used_by.get(site)
    if users is None or attempt.id not in users:
        return
    del users[attempt.id]
    if not users:
        del clusters.used_by[site]
        if site in clusters.live:
            clusters.unused_at[site] = state.at


def went(state: State, node: Node) -> None:
    """It is gone, or never came. A person who wants it still wants it."""
    clusters, site = state.clusters, node.offer.site
    if clusters.live.get(site) == node.id:
        del clusters.live[site]
        clusters.unused_at.pop(site, None)
        clusters.leaving.pop(site, None)


# --- whether it can be used ------------------------------------------------------------------------------------------


def is_shut(state: State, offer: Offer, now: Instant) -> bool:
    """No attempt can start at this offer, because its site has no cluster that it could use, and cannot get one."""
    terms = state.clusters.terms.get(offer.site)
    if terms is None:
        return False
    node = cluster_at(state, offer.site)
    if node is not None:
        return _is_ending(state, node) or (node.phase == "asked" and offer.sold_by != "attempt")
    if state.policy.require_hard_caps and (terms.offer.guarantee == "none" or terms.offer.id in state.unproved):
        return True
    return offer.sold_by != "attempt" or state.closed.get(terms.offer.id, now) > now


def _is_ending(state: State, node: Node) -> bool:
    leaving = node.offer.site in state.clusters.leaving or node.phase == "returning"
    return leaving or state.ledger.leases[node.id].is_ending
