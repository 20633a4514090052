"""Routes about sites and their offers, from the view of the last step."""

from typing import Final

from fastapi import APIRouter, Request

from penstock.live.site_changes import SiteChanges
from penstock.live.view import OfferView
from penstock.web import deps, schemas
from penstock.web.deps import MayOperate, MayRead, PlaneHere
from penstock.web.details import details
from penstock.web.limits import MOST_BYTES, room_for_body
from penstock.web.problems import conflict

routes: Final = APIRouter(prefix="/v1", tags=["places"], responses=deps.PROBLEMS)


@routes.get("/sites", summary="Sites with their offers and GPUs")
async def sites(plane: PlaneHere, caller: MayRead) -> schemas.Sites:  # noqa: ARG001 - declares the permission
    view = plane.view
    shapes = [
        schemas.Site.of(site, offers=[_offer(offer) for offer in site.offers], says=deps.trouble(plane, site.id))
        for site in view.sites
    ]
    return schemas.Sites(at=view.at, currency=view.policy.currency, sites=shapes)


@routes.post("/sites", openapi_extra=deps.shape_of_body(schemas.SitesText), summary="Apply a sites file")
async def apply_sites(request: Request, caller: MayOperate) -> schemas.SitesApplied:
    """All of it or nothing. If running jobs would be stranded, nothing is done unless `yes`; what runs stays until it
    ends. A raised cap waits for approval.
    """
    changes: SiteChanges | None = request.app.state.sites
    if changes is None:
        raise conflict("This Penstock takes no sites file.")
    with room_for_body(request, caller.id):
        text, known = await deps.read_shape(request, schemas.SitesText, MOST_BYTES), details(request)
    request.app.state.guard.tokens.demand(caller)  # a body may take long to arrive
    done = await changes.apply(
        text.text.encode(),
        text.name,
        by=caller.id,
        reason=text.reason,
        details=known.digest,
        blobs=known.blobs,
        strand=text.yes,
    )
    stranded = [schemas.StrandedJob.of(job) for job in done.stranded]
    return schemas.SitesApplied.of(done, changes=list(done.changes), raised=list(done.raised), stranded=stranded)


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
        says=view.says,
    )
