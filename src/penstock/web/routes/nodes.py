"""Routes about what is rented: what the journal knows, and what sites have that it does not."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from penstock.live import rented
from penstock.web import deps, explain, schemas
from penstock.web.deps import MayOperate, MayRead, PlaneHere

routes: Final = APIRouter(prefix="/v1", tags=["places"], responses=deps.PROBLEMS)


@routes.get("/nodes", summary="What is rented now, by whom, until when, at what cost")
async def nodes(
    plane: PlaneHere,
    caller: MayRead,
    everything: Annotated[bool, Query(alias="all", description="Attempts that are billed themselves, too.")] = False,
) -> schemas.RentedNodes:
    rented_things = await plane.consider(lambda state, _: rented.rented(state, everything))
    currency = plane.view.policy.currency
    mine = [_shape(node, currency) for node in rented_things if caller.sees(node.team)]
    return schemas.RentedNodes(at=plane.view.at, currency=currency, nodes=mine)


def _shape(node: rented.RentedThing, currency: str) -> schemas.RentedNode:
    because = None if node.because is None else explain.reason_shape(node.because, None, currency)
    return schemas.RentedNode.of(node, on=list(node.on), because=because)


@routes.get("/leaks", summary="What sites have of ours that the journal does not know, or the other way round")
async def leaks(plane: PlaneHere, caller: MayOperate) -> schemas.Leaks:  # noqa: ARG001 - declares the permission
    """Asks every site now, which may take some seconds."""
    return schemas.Leaks(leaks=[schemas.Leak.of(leak) for leak in await rented.leaks(plane)])
