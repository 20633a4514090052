"""Sites as bars of GPUs: one row per offer, one mark per GPU, one size on the whole page."""

from typing import Final

from markupsafe import Markup

from penstock.core.model.types import STANDING
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.formatting import money
from penstock.web import schemas
from penstock.web.views import shapes
from penstock.web.views.formats import NBSP, TERMS, clock, listed
from penstock.web.views.shapes import BUSY, IDLE, LOST, STARTING

STATES: Final = ("busy", "starting", "idle", "lost")


@value
class OfferBars:
    term: str  # a CSS class
    model: str
    bar: Markup
    tally: tuple[tuple[int, str], ...]
    note: str  # instead of the tally, or beside it
    price: str


@value
class SiteBars:
    id: str
    place: str
    reachable: bool
    offers: tuple[OfferBars, ...]


@value
class UsageSummary:
    """Standing or rented GPUs over all sites, for the summary at the top."""

    gpus: int
    busy: int
    rest: str


def rows(sites: schemas.Sites) -> list[SiteBars]:
    cells = {offer.id: nodes(offer) for site in sites.sites for offer in site.offers}
    size = shapes.size_for(sum(len(node) for offer_nodes in cells.values() for node in offer_nodes))
    return [
        SiteBars(
            site.id,
            listed([site.location, site.operator, f"law{NBSP}{site.law}" if site.law else ""]),
            site.reachable,
            tuple(_row(offer, cells[offer.id], size, sites) for offer in site.offers),
        )
        for site in sorted(sites.sites, key=_rented_only)
    ]


def _rented_only(site: schemas.Site) -> bool:
    """Sorts sites with owned GPUs first."""
    return all(offer.term not in STANDING for offer in site.offers)


def _row(offer: schemas.Offer, cells: list[str], size: str, sites: schemas.Sites) -> OfferBars:
    term = TERMS[offer.term]
    tally = tuple((count, state) for state in STATES if (count := getattr(offer, state)))
    return OfferBars(
        term,
        listed([offer.gpu_model or "GPU", offer.mig_profile]),
        shapes.gpus(term, cells, size) if cells else Markup('<span class="none"></span>'),
        tally,
        _note(offer, tally, sites.at),
        _price(offer, sites.currency),
    )


def _note(offer: schemas.Offer, tally: tuple[tuple[int, str], ...], now: Instant) -> str:
    if offer.closed:
        return f"closed by {offer.closed}"
    if offer.closed_until_at and offer.closed_until_at > now:
        return f"{offer.says or 'no capacity'}; next try {clock(offer.closed_until_at, now)}"
    if tally:
        return ""
    return "none rented" + (f", up to {offer.gpus:,}" if offer.gpus else "")


def _price(offer: schemas.Offer, currency: str) -> str:
    """The price of one GPU-hour for choosing: a standing GPU costs only its margin."""
    node = offer.sizes[0]
    per_hour = node.marginal_per_hour if offer.term in STANDING else node.price_per_hour
    return money(per_hour // node.gpus, currency) if per_hour else ""


def nodes(offer: schemas.Offer) -> list[str]:
    """One letter per GPU, one string per node."""
    return _standing(offer) if offer.term in STANDING else _rented(offer)


def _standing(offer: schemas.Offer) -> list[str]:
    """Free GPUs are known by node, others only as counts: lost ones fill whole nodes, and starting ones are
    shown last.
    """
    width = offer.sizes[0].gpus
    taken = [width - free for free in offer.free]
    lost, starting = offer.lost, offer.starting
    made: list[str] = []
    for free, used in zip(reversed(offer.free), reversed(taken), strict=True):
        if lost >= width and used == width:
            lost -= width
            made.append(LOST * width)
        else:
            begins = min(starting, used)
            starting -= begins
            made.append(BUSY * (used - begins) + STARTING * begins + IDLE * free)
    return made[::-1]


def _rented(offer: schemas.Offer) -> list[str]:
    width = offer.sizes[0].gpus
    flat = BUSY * offer.busy + STARTING * offer.starting + IDLE * offer.idle + LOST * offer.lost
    return [flat[first : first + width] for first in range(0, len(flat), width)]


def used(sites: schemas.Sites, standing: bool) -> UsageSummary:
    offers = [offer for site in sites.sites for offer in site.offers if (offer.term in STANDING) == standing]
    sums = {state: sum(getattr(offer, state) for offer in offers) for state in STATES}
    return UsageSummary(
        sum(offer.gpus or 0 for offer in offers) if standing else sum(sums.values()),
        sums["busy"],
        listed([f"{sums[state]:,} {state}" for state in STATES[1:] if sums[state]]),
    )
