"""Parses a site's `cluster`: what a cluster costs that is made when it is needed, and when it goes. `clusters` reads
how it is made; docs/sites.md has the keys, and docs/clouds.md says what happens.
"""

import re
from dataclasses import replace
from typing import Final

from penstock.config.document import UNREAD, Document, shown
from penstock.config.offers import Exchange, check_price
from penstock.config.sections import OfferSection, SiteSection, TransientSection
from penstock.core.model.types import STANDING, NodeShape, Offer, TransientCluster
from penstock.core.units import DAY, MINUTE

NAME: Final = "cluster"  #: of its offer at the site
A_VERSION: Final = re.compile(r"v[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}([-+][0-9A-Za-z.+-]{1,60})?")
LEAST_KILL_MS: Final = MINUTE  #: the watchman looks every 10 s, and Cluster API ends machines before their cluster
MOST_MS: Final = 31 * DAY


def transient_of(row: SiteSection, exchange: Exchange, page: Document, place: str) -> TransientCluster | None:
    """What the engine knows of it; None: the site's cluster is there."""
    cluster, place = row.cluster, f"{place}.cluster"
    if cluster is None:
        return None
    _check(row, cluster, page, place)
    fee = exchange.ours(cluster.fee)
    check_price(fee, page, f"{place}.fee")
    offer = Offer(
        id=f"{row.name}/{NAME}",
        site=str(row.name),
        term="on_demand",
        shapes=(NodeShape(0, 1, fee),),
        start_ms=int(cluster.start),
        billing_step_ms=int(cluster.billing_step),
        kill_ms=int(cluster.kill),
        guarantee=cluster.guarantee,
        quoted=exchange.quoted,
    )
    budget = str(cluster.budget)
    return TransientCluster(
        offer=offer,
        scopes=("org",) if budget == "org" else ("org", budget),
        idle_ms=int(cluster.idle),
        most_ms=int(cluster.at_most),
        source=page.source(place),
    )


def _check(row: SiteSection, cluster: TransientSection, page: Document, place: str) -> None:
    if row.reached_by not in ("kubernetes", "rehearsal"):
        page.report(place, "this is for sites with 'driver: kubernetes'")
    if row.front_door:
        page.report(place, "people apply Jobs to a front door, so its cluster is always there")
    if cluster.fee == 0:
        page.report(f"{place}.fee", "a cluster costs something; its price is zero")
    if cluster.kill < LEAST_KILL_MS:
        page.report(f"{place}.kill", "a cluster may take longer to go; write at least 1m")
    if not MINUTE <= cluster.at_most <= MOST_MS:
        page.report(f"{place}.at_most", "write 1m to 31d; a cluster that stays belongs into the file as a site")
    if cluster.up_within < cluster.start:
        page.report(f"{place}.up_within", "this is shorter than 'start', so each start would fail")
    if cluster.version is not UNREAD and not A_VERSION.fullmatch(cluster.version):
        page.report(f"{place}.version", f"{shown(cluster.version)} is not a version of Kubernetes, like v1.35.0")
    section = row.kubernetes
    if section is not None and (
        section.kubeconfig or section.kubeconfig_secret or section.context or section.in_cluster
    ):
        page.report(
            place, "Cluster API says how a cluster is reached that it made; leave 'kubeconfig' and the like out"
        )
    for k, offer in enumerate(row.offers):
        page.attempt(_check_offer, offer, page, f"{place.removesuffix('.cluster')}.offers[{k}]")


def _check_offer(offer: OfferSection, page: Document, place: str) -> None:
    if offer.name == NAME:
        page.report(f"{place}.name", f"'{NAME}' is the site's transient cluster itself; give the offer another name")
    if offer.term in STANDING:
        page.report(f"{place}.term", "a cluster that comes and goes has nothing that is owned or reserved")
    if offer.rent is not None or offer.sold_by == "node":
        page.report(place, "in a transient cluster attempts are sold: leave 'rent' and 'sold_by: node' out")


def by_attempt(offers: tuple[Offer, ...], cluster: TransientCluster | None) -> tuple[Offer, ...]:
    """Offers of a site with a transient cluster: they are sold by the attempt, whoever plays the site."""
    if cluster is None:
        return offers
    return tuple(offer if offer is UNREAD else replace(offer, sold_by="attempt") for offer in offers)
