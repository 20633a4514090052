"""Routes about transient clusters: which there are, and a person's wish to have one up or to send it away."""

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request

from penstock.core.fold.state import State
from penstock.core.model.events import ClusterAsked, ClusterDismissed
from penstock.core.units import HOUR
from penstock.live.plane import Plane
from penstock.live.transient import ClusterOfSite, transient_clusters
from penstock.web import deps, explain, schemas
from penstock.web.deps import MayOperate, MayRead, PlaneHere
from penstock.web.details import details
from penstock.web.problems import Problem

MOST_HOURS: Final = 744  #: 31 days
routes: Final = APIRouter(prefix="/v1", tags=["places"], responses=deps.PROBLEMS)


@routes.get("/clusters", summary="Clusters that come and go: which are up, for whom, until when, at what cost")
async def clusters(plane: PlaneHere, caller: MayRead) -> schemas.TransientClusters:
    """A team sees its own attempts there, and money only where its own budget pays."""
    listed = await plane.consider(lambda state, _: _seen_by(caller.team, state))
    currency = plane.view.policy.currency
    shapes = [_shape(cluster, currency) for cluster in listed]
    return schemas.TransientClusters(at=plane.view.at, currency=currency, clusters=shapes)


def _seen_by(team: str, state: State) -> list[ClusterOfSite]:
    listed = list(transient_clusters(state))
    return [_part_of(team, cluster, state) for cluster in listed] if team else listed


def _part_of(team: str, cluster: ClusterOfSite, state: State) -> ClusterOfSite:
    jobs = {name: attempt.job.spec.team for name in cluster.used_by if (attempt := state.attempts.get(name))}
    own = replace(cluster, used_by=tuple(name for name, owner in jobs.items() if owner == team))
    return own if cluster.budget == f"team:{team}" else replace(own, budget="", spent=None, held=None, because=None)


def _shape(cluster: ClusterOfSite, currency: str) -> schemas.TransientClusterShape:
    because = None if cluster.because is None else explain.reason_shape(cluster.because, None, currency)
    return schemas.TransientClusterShape.of(cluster, used_by=list(cluster.used_by), because=because)


@routes.post(
    "/clusters/{site}/up",
    openapi_extra=deps.shape_of_body(schemas.ClusterRequest),
    summary="Have the cluster of a site up for some time, whether jobs need it or not",
)
async def up(site: str, request: Request, plane: PlaneHere, caller: MayOperate) -> schemas.TransientClusterShape:
    wanted = await deps.read_shape(request, schemas.ClusterRequest)
    await _known(plane, site)
    if not 0 < wanted.hours <= MOST_HOURS:
        raise Problem(422, "invalid", f"A cluster is wanted for more than 0 and at most {MOST_HOURS} hours.")
    known, until = details(request), plane.view.at + round(wanted.hours * HOUR)
    await plane.tell(ClusterAsked(0, site, until, caller.id, known.digest), blobs=known.blobs)
    return _shape(await _known(plane, site), plane.view.policy.currency)


@routes.post("/clusters/{site}/down", summary="Let it go after its last attempt; nothing starts there any more")
async def down(site: str, request: Request, plane: PlaneHere, caller: MayOperate) -> schemas.TransientClusterShape:
    await _known(plane, site)
    known = details(request)
    await plane.tell(ClusterDismissed(0, site, caller.id, known.digest), blobs=known.blobs)
    return _shape(await _known(plane, site), plane.view.policy.currency)


async def _known(plane: Plane, site: str) -> ClusterOfSite:
    listed = await plane.consider(lambda state, _: transient_clusters(state))
    cluster = next((cluster for cluster in listed if cluster.site == site), None)
    if cluster is None:
        sites = ", ".join(cluster.site for cluster in listed) or "none"
        raise Problem(404, "not-found", f"There is no site {site!r} with a transient cluster; with one: {sites}.")
    return cluster
