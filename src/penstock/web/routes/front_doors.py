"""Routes about front doors: the home clusters whose Jobs Penstock runs, and `penstock leave`."""

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Query, Request

from penstock.web import deps, schemas
from penstock.web.deps import MayOperate, MayRead
from penstock.web.details import details
from penstock.web.problems import not_found

if TYPE_CHECKING:  # they need the extra `kubernetes`; without it these routes find no controller
    from penstock.front.job_controller import JobController
    from penstock.front.manager import Manager

routes: Final = APIRouter(prefix="/v1", tags=["doors"], responses=deps.PROBLEMS)


@routes.get("/doors", summary="Home clusters, and how many of their Jobs are ours")
async def doors(request: Request, caller: MayRead) -> schemas.FrontDoors:  # noqa: ARG001 - declares the permission
    manager: Manager | None = request.app.state.manager
    if manager is None:
        return schemas.FrontDoors(doors=[], clusters=[])
    others = [
        schemas.LeftCluster(site=sweep.site, left=sweep.left.is_set(), remains=sweep.remains, unreached=sweep.unreached)
        for sweep in manager.elsewhere.values()
    ]
    return schemas.FrontDoors(
        doors=[_shape(manager, controller) for controller in manager.controllers.values()], clusters=others
    )


@routes.post("/doors/{site}/leave", summary="Give every Job of a home cluster back")
async def leave(
    site: str,
    request: Request,
    caller: MayOperate,
    bring_home: Annotated[
        bool, Query(description="Move home first what runs elsewhere and keeps checkpoints.")
    ] = False,
) -> schemas.FrontDoor:
    """What waits becomes an ordinary Job, what runs is shown to its end; then nothing of ours is left there."""
    manager: Manager | None = request.app.state.manager
    if manager is None or site not in manager.controllers:
        raise not_found("front door", site)
    known = details(request)
    await manager.leave(site, bring_home, by=caller.id, details=known.digest, blobs=known.blobs)
    return _shape(manager, manager.controllers[site])


def _shape(manager: "Manager", controller: "JobController") -> schemas.FrontDoor:
    leaving = controller.leaving.is_set()
    return schemas.FrontDoor(
        site=controller.site,
        jobs=controller.jobs_here,
        leaving=leaving,
        left=manager.has_left(controller.site),
        remains=controller.sweep.remains,
        unreached=manager.unreached(controller.site) if leaving else "",
    )
