"""Routes about sites and their offers, from the view of the last step."""

from typing import Final

from fastapi import APIRouter

from penstock.live.view import OfferView
from penstock.web import deps, schemas
from penstock.web.deps import MayRead, PlaneHere

routes: Final = APIRouter(prefix="/v1", tags=["places"], responses=deps.PROBLEMS)


@routes.get("/sites", summary="Sites with their offers and GPUs")
async def sites(plane: PlaneHere, caller: MayRead) -> schemas.Sites:  # noqa: ARG001 - declares the permission
    view = plane.view
    shapes = [
        schemas.Site.of(site, offers=[_offer(offer) for offer in site.offers], says=deps.trouble(plane, site.id))
        for site in view.sites
    ]
    return schemas.Sites(at=view.at, currency=view.policy.currency, sites=shapes)


@routes.get("/offers", summary="All offers: what there is, what it costs")
async def offers(plane: PlaneHere, caller: MayRead) -> schemas.Offers:  # noqa: ARG001 - as above
    view = plane.view
    shapes = [_offer(offer) for site in view.sites for offer in site.offers]
    return schemas.Offers(at=view.at, currency=view.policy.currency, offers=shapes)


def _offer(view: OfferView) -> schemas.Offer:
    offer = view.offer
    return schemas.Offer.of(
        offer,
        guarantee=deps.guarantee(offer),
        sizes=[schemas.NodeSize.of(shape) for shape in offer.shapes],
        gpus=view.gpus,
        busy=view.busy,
        starting=view.starting,
        idle=view.idle,
        lost=view.lost,
        free=list(view.free),
        closed_until_at=deps.moment(view.closed_until_at or None),
    )
