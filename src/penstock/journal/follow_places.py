"""What there is, in the tables: policy, months, caps, sites, offers and rented nodes. `project` calls these."""

from penstock.core import events as e
from penstock.core.units import Instant
from penstock.journal import lines as t
from penstock.journal.follow_attempts import arrived, lost
from penstock.journal.follow_money import leave
from penstock.journal.tables import Tables, as_list


def policy_set(tables: Tables, event: e.PolicySet) -> None:
    if tables.notes.get("currency") != event.policy.currency:
        tables.note("currency", event.policy.currency)


def period_opened(tables: Tables, event: e.PeriodOpened) -> None:
    tables.changes.put(t.Period(event.period, event.starts_at, event.ends_at))


def cap_set(tables: Tables, event: e.CapSet) -> None:
    cap = t.Cap(event.scope, event.per_period, event.per_hour)
    if event.per_period is None and event.per_hour is None:
        tables.changes.drop(cap)
    else:
        tables.changes.put(cap)


def site_joined(tables: Tables, event: e.SiteJoined) -> None:
    for offer in event.site.offers:
        line = tables.offers[offer.id] = t.Offer(offer.id, offer.site, offer.term, offer.gpu_model)
        tables.changes.put(line)


def replica_landed(tables: Tables, event: e.ReplicaLanded) -> None:
    arrived(tables, f"copy:{event.site}:{event.data_set}")


# --- nodes and offers ------------------------------------------------------------------------------------------------


def node_ready(tables: Tables, event: e.NodeReady) -> None:
    node = tables.nodes.get(event.node)
    if node is None or node.phase != "asked":
        return
    node.phase = "idle"
    tables.changes.put(node)
    tables.found_room(node.offer)
    arrived(tables, f"node:{node.id}")


def node_refused(tables: Tables, event: e.NodeRefused) -> None:
    _gone(tables, event.node, event.at, "refused")


def node_lost(tables: Tables, event: e.NodeLost | e.NodeGone) -> None:
    _gone(tables, event.node, event.at, "lost")


def _gone(tables: Tables, node_id: str, at: Instant, outcome: str) -> None:
    node = tables.nodes.pop(node_id, None)
    if node is None:
        return
    tables.changes.drop(node)
    for attempt in [tables.attempts[name] for name in as_list(node.on)]:
        leave(tables, node.id, attempt, at)
        del tables.rented[attempt.id][node.id]
        if attempt.phase == "promised":
            lost(tables, attempt.id, at, attempt.resume_ms, outcome)


def release_promised(tables: Tables, event: e.ReleasePromised) -> None:
    node = tables.nodes[event.node]
    node.phase = "returning"
    tables.changes.put(node)


def offer_closed(tables: Tables, event: e.OfferClosed) -> None:
    line = tables.closed[event.offer] = t.Closed(event.offer, event.until_at, event.refusals)
    tables.changes.put(line)


def offer_opened(tables: Tables, event: e.OfferOpened) -> None:
    tables.found_room(event.offer)
