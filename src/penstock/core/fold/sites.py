"""Applies events to sites, offers and nodes: they join, are lost, and come back. Part of `apply`."""

from dataclasses import replace
from typing import Final

from penstock.core.fold import clusters, governed, retries, warm
from penstock.core.fold.attempts import (
    WANTS_A_PERSON,
    begin_if_ready,
    close_to_others,
    lose,
    saw,
    saw_capacity,
    set_open,
)
from penstock.core.fold.money import alarm, drop_stale_renewals
from penstock.core.fold.pool import Pool
from penstock.core.fold.queue import judge_anew, keep_no_longer
from penstock.core.fold.state import Node, State, without
from penstock.core.fold.suited import count_unsuited, needs_there
from penstock.core.fold.transitions import move_node, touch_offer
from penstock.core.ids import is_cluster, site_of, standing_node
from penstock.core.model import events as e
from penstock.core.model.actions import ReleaseNode
from penstock.core.model.lifecycle import Broken
from penstock.core.model.types import Offer
from penstock.core.units import NEVER

#: Needs that one pool remembers; then those that no job has any more are forgotten.
MOST_NEEDS: Final = 1_000


def site_joined(state: State, event: e.SiteJoined) -> None:
    site = event.site
    before = state.sites.get(site.id)
    state.sites[site.id] = site
    if not site.front_door:
        state.leaving.pop(site.id, None)
    if site.cluster is not None:
        known = before.cluster.offer if before is not None and before.cluster is not None else None
        _note_watchman(state, known, site.cluster.offer)
    for gone in [o.id for o in state.offers.values() if o.site == site.id and o.id not in {x.id for x in site.offers}]:
        state.offers.pop(gone)
        state.unproved.pop(gone, None)
    for offer in site.offers:
        _note_watchman(state, state.offers.get(offer.id), offer)
        state.offers[offer.id] = offer
        if state.standing(offer) and offer.id not in state.pools:
            state.pools[offer.id] = Pool(offer.shapes[-1].gpus, offer.shapes[-1].count or 0)
            state.on_node[offer.id] = [{} for _ in range(offer.shapes[-1].count or 0)]
        _count(state, offer)
    state.changes.freed = True
    set_open(state)
    warm.note_pools(state)
    clusters.note_sites(state)
    judge_anew(state)


def _note_watchman(state: State, before: Offer | None, offer: Offer) -> None:
    """A watchman that nobody has seen guards nothing."""
    if offer.guarantee != "watchman":
        state.unproved.pop(offer.id, None)
    elif before is None or before.guarantee != "watchman":
        state.unproved[offer.id] = None


def as_proved(state: State, offer: Offer) -> Offer:
    """As it was declared; a guarantee that nobody proves is none."""
    return replace(offer, guarantee="none") if offer.id in state.unproved else offer


def guarantee_changed(state: State, event: e.GuaranteeChanged) -> None:
    """Caps are hard or soft there from now on, and a policy that demands hard caps opens or closes it. What is rented
    already stays.
    """
    offer = clusters.offer_of(state, event.offer)
    if offer is None:
        return
    if event.guarantee == offer.guarantee:
        state.unproved.pop(offer.id, None)
    else:
        state.unproved[offer.id] = None
        alarm(state, "guarantee", f"{offer.id}: caps are soft there now. {event.words}")
    touch_offer(state, offer.id)
    state.changes.freed = True


def site_removed(state: State, event: e.SiteRemoved) -> None:
    """A site where something of ours is left stays: its end must find it."""
    if event.site not in state.sites or count_at(state, event.site):
        return
    judge_anew(state)  # first: nodes there may be reserved for a job
    del state.sites[event.site]
    state.lost_sites.pop(event.site, None)
    state.leaving.pop(event.site, None)
    for name in [n for n in (*state.offers, *state.pools, *state.unproved, *state.closed) if site_of(n) == event.site]:
        state.offers.pop(name, None)
        state.pools.pop(name, None)
        state.on_node.pop(name, None)
        state.unproved.pop(name, None)
        state.closed.pop(name, None)
        state.refusals.pop(name, None)
        state.probing.pop(name, None)
    warm.note_pools(state)
    clusters.note_sites(state)
    state.clusters.kept.pop(event.site, None)
    state.clusters.short.pop(event.site, None)
    if not state.offers:  # without offers nothing is judged: what the last verdicts allowed is not there
        for shape in state.shape_list:
            shape.standing, shape.rented, shape.excluded = (), (), ()


def leave_requested(state: State, event: e.LeaveRequested) -> None:
    if event.bring_home is not None:
        state.leaving[event.site] = event.bring_home or state.leaving.get(event.site, False)


def count_at(state: State, site: str) -> int:
    """Attempts and rented nodes that a site has of ours."""
    attempts = [attempt for attempt in state.attempts.values() if attempt.offer.site == site]
    return len(attempts) + len([node for node in state.nodes.values() if node.offer.site == site])


def nodes_seen(state: State, event: e.NodesSeen) -> None:
    """A node keeps its number while anything of ours is on it; one that is not seen has no free GPUs."""
    pool, seen = state.pools.get(event.offer), dict(event.nodes)
    if pool is None:
        return
    before = pool.names.copy()
    for name in seen:
        if name not in pool.names:
            _call(state, event.offer, pool, name, seen)
    for node in range(pool.size):
        has = min(seen.get(pool.names[node], 0), pool.per_node) if node < len(pool.names) else 0
        _leave_to_others(state, event.offer, node, pool.per_node - has)
    state.changes.freed = True
    renamed = pool.names != before and _is_unequal(state, pool, event.offer)
    if _count(state, state.offers.get(event.offer)) or renamed:
        judge_anew(state)


def _is_unequal(state: State, pool: Pool, offer: str) -> bool:
    """Its nodes do not suit all jobs, and have other numbers now."""
    count_unsuited(pool)
    return bool(pool.unsuited) or any(offer in dict(shape.unfit) for shape in state.shapes.values())


def _call(state: State, offer: str, pool: Pool, name: str, seen: dict[str, int]) -> None:
    """A new node takes the number of a gone, empty one, or the next."""
    nodes = state.on_node[offer]
    gone = (node for node, other in enumerate(pool.names) if other not in seen and not nodes[node])
    node = next(gone, len(pool.names))
    if node == len(nodes):
        nodes.append({})
    pool.call(node, name)


def _leave_to_others(state: State, offer: str, node: int, gpus: int) -> None:
    pool = state.pools[offer]
    if gpus > pool.others.get(node, 0):
        keep_no_longer(state, offer, node)
    if gpus != pool.others.get(node, 0):
        pool.leave(node, gpus)


def _count(state: State, offer: Offer | None) -> bool:
    """An observed offer has as many nodes as were seen at once, whatever was declared. True if that changed."""
    pool = state.pools.get(offer.id) if offer is not None else None
    if offer is None or pool is None or not pool.names or offer.shapes[-1].count == pool.size:
        return False
    state.offers[offer.id] = replace(offer, shapes=(replace(offer.shapes[-1], count=pool.size),))
    return True


def nodes_unsuited(state: State, event: e.NodesUnsuited) -> None:
    pool = state.pools.get(event.offer)
    if pool is None or pool.unsuited.get(event.need) == (event.nodes, event.only):
        return
    if len(pool.unsuited) >= MOST_NEEDS:
        live = {need for job in state.jobs.values() for need in job.spec.needs}
        pool.unsuited = {need: known for need, known in pool.unsuited.items() if not need or need in live}
    pool.unsuited[event.need] = (event.nodes, event.only)
    count_unsuited(pool)
    if any(event.need in needs_there(shape, event.offer) for shape in state.shapes.values()):
        judge_anew(state)


def site_lost(state: State, event: e.SiteLost) -> None:
    state.lost_sites[event.site] = None
    set_open(state)


def site_back(state: State, event: e.SiteBack) -> None:
    state.lost_sites.pop(event.site, None)
    state.changes.freed = True
    set_open(state)


def node_ready(state: State, event: e.NodeReady) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        _standing_node(state, event.node, up=True)
        return
    if node.phase != "asked":
        return
    move_node(state, node, "idle")
    node.idle_at = event.at
    saw_capacity(state, node.offer)
    if not node.on and not is_cluster(node.id):
        state.changes.note_rare().idle.append(node)
        governed.rests(state, node)
    for attempt in clusters.attempts_on(state, node):
        attempt.missing = without(attempt.missing, node.id)
        begin_if_ready(state, attempt)


def node_refused(state: State, event: e.NodeRefused) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        return
    state.changes.note_rare().refused.append((node.offer, event.retry_ms))
    if event.shortage in WANTS_A_PERSON:
        alarm(state, event.shortage, f"{node.offer.id}: {event.words}")
    for attempt in clusters.attempts_on(state, node):
        if attempt.phase == "promised":
            retries.failed(state, attempt, "full", event.words, event.retry_ms)
    _gone(state, node, billed=event.billed, refused=True)


def node_notice(state: State, event: e.NodeNotice) -> None:
    node, attempt = state.nodes.get(event.node), state.attempts.get(event.node)
    if node is not None and node.phase in ("idle", "busy"):
        close_to_others(state, node)
        state.changes.note_rare().noticed.append((node, event.words))
        if node.id in state.warm.nodes:
            del state.warm.nodes[node.id]  # no job shall take it
            state.changes.note_rare().idle.append(node)
    elif attempt is not None:
        state.changes.note_rare().noticed.append((attempt, event.words))


def node_lost(state: State, event: e.NodeLost) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        _standing_node(state, event.node, up=False)
    else:
        _gone(state, node, billed=True, lost=True)


def node_gone(state: State, event: e.NodeGone) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        _gone(state, node, billed=True)


def _gone(state: State, node: Node, billed: bool, lost: bool = False, refused: bool = False) -> None:
    leaves = node.leaves or node.phase == "returning"
    move_node(state, node, "gone")
    del state.nodes[node.id]
    state.idle.pop(node.id, None)
    state.warm.nodes.pop(node.id, None)
    if state.probing and state.probing.get(node.offer.id) == node.id:
        del state.probing[node.offer.id]
    close_to_others(state, node)
    state.in_use[node.offer.id, node.gpus] -= 1
    if billed:
        saw(state, node.offer, state.at - node.asked_at, lost)
    state.changes.closing.append((state.ledger.leases[node.id], billed, leaves))
    # Running attempts get their own AttemptLost, with the work they kept; those waiting for it cannot start. Of a
    # cluster nobody is left who could say it: what ran there went with it.
    attempts = clusters.attempts_on(state, node)
    if is_cluster(node.id):
        clusters.went(state, node)
    for attempt in attempts:
        if attempt.phase == "promised":
            lose(state, attempt.id, attempt.resume_ms, billed and not refused)
        elif is_cluster(node.id):
            lose(state, attempt.id, attempt.kept_ms, billed=True)


def _standing_node(state: State, node_id: str, up: bool) -> None:
    offer, number = standing_node(node_id)
    pool = state.pools.get(offer)
    if pool is None or number is None or number >= pool.size:
        return
    if up:
        pool.restore(number)
        state.changes.freed = True
    else:
        pool.withdraw(number)
        keep_no_longer(state, offer, number)


def release_promised(state: State, event: e.ReleasePromised) -> None:
    node = state.nodes[event.node]
    if node.on:
        raise Broken(f"node {node.id} would be given back with {node.on} on it")
    move_node(state, node, "returning")
    state.idle.pop(node.id, None)
    state.warm.nodes.pop(node.id, None)
    if state.probing and state.probing.get(node.offer.id) == node.id:
        del state.probing[node.offer.id]
    close_to_others(state, node)
    # Never renewed again: if the release fails for good, its deadline ends it.
    state.ledger.leases[node.id].renew_at = NEVER
    drop_stale_renewals(state)
    state.changes.actions.append(ReleaseNode(node.id))


def offer_closed(state: State, event: e.OfferClosed) -> None:
    state.closed[event.offer] = event.until_at
    state.refusals[event.offer] = event.refusals
    touch_offer(state, event.offer)
    set_open(state)


def offer_opened(state: State, event: e.OfferOpened) -> None:
    state.closed.pop(event.offer, None)
    touch_offer(state, event.offer)
    if event.offer in state.pools:
        state.changes.freed = True
    elif state.on_demand:
        state.changes.note_rare().open_spot[event.offer] = None
    set_open(state)
