"""Routes about front doors: the home clusters whose Jobs Penstock places, and leaving them again."""

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request

from penstock.api import desk, schemas
from penstock.api.desk import MayOperate, MayRead
from penstock.api.problems import not_found

if TYPE_CHECKING:  # they need the extra `kubernetes`; without it there is no hall, and these routes find no door
    from penstock.front.door import Door
    from penstock.front.hall import Hall

routes: Final = APIRouter(prefix="/v1", tags=["doors"], responses=desk.PROBLEMS)


@routes.get("/doors", summary="Home clusters, and how many of their Jobs are ours")
async def doors(request: Request, caller: MayRead) -> schemas.Doors:  # noqa: ARG001 - declares the permission
    hall: Hall | None = request.app.state.hall
    return schemas.Doors(doors=[_shape(door) for door in hall.doors.values()] if hall else [])


@routes.post("/doors/{site}/leave", summary="Give every Job of a home cluster back")
async def leave(site: str, request: Request, caller: MayOperate) -> schemas.Door:  # noqa: ARG001 - as above
    """What waits becomes an ordinary Job, what runs is shown to its end; then nothing of ours is left there."""
    hall: Hall | None = request.app.state.hall
    if hall is None or site not in hall.doors:
        raise not_found("front door", site)
    hall.leave(site)
    return _shape(hall.doors[site])


def _shape(door: "Door") -> schemas.Door:
    return schemas.Door(site=door.site, jobs=door.jobs_here, leaving=door.leaving.is_set(), left=door.left.is_set())
