"""Routes about money: budgets and caps, exposure, costs. A team's token sees only its own team."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request

from penstock.core.errors import BadInput
from penstock.core.ids import site_of
from penstock.core.model.events import CapSet
from penstock.core.model.types import STANDING
from penstock.live.view import ExposureShare, View
from penstock.web import deps, schemas
from penstock.web.deps import MayOperate, MayRead, PlaneHere, ReaderHere
from penstock.web.details import details
from penstock.web.routes.approvals import ask_a_second_person, is_raise
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["money"], responses=deps.PROBLEMS)
EPOCH: Final = date(1970, 1, 1)
MONTH: Final = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


@routes.get("/budget", summary="Caps, what is spent and what is held")
def budget(
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    period: Annotated[str, Query(max_length=50, description="A month of the books; empty: this one.")] = "",
) -> schemas.Budget:
    view = plane.view
    if period and not MONTH.fullmatch(period):
        raise BadInput(f"A period is a month like 2026-10, not {period!r}.")
    wanted = period or view.period
    running = {rate.scope: rate.running for rate in view.rates}
    short = dict(view.short) if wanted == view.period else {}
    rows = [row for row in reader.spend() if row.period == wanted and _sees_scope(caller, row.scope)]
    scopes = [
        schemas.Scope.of(
            row,
            free=None if row.cap is None else row.cap - row.spent - row.held,
            cap_per_hour=row.per_hour,
            running_per_hour=running.get(row.scope, 0),
            waiting=short.get(row.scope, 0),
        )
        for row in rows
    ]
    return schemas.Budget(at=view.at, currency=view.policy.currency, period=wanted, scopes=scopes)


def _sees_scope(caller: Token, scope: str) -> bool:
    """Jobs' own caps are in the jobs. Projects may span teams, so only a token for all teams sees them."""
    return not scope.startswith("job:") and (not caller.team or scope == f"team:{caller.team}")


@routes.put("/budget", openapi_extra=deps.shape_of_body(schemas.Cap), summary="Set or take away a cap")
async def set_cap(request: Request, plane: PlaneHere, caller: MayOperate) -> schemas.Done:
    """A raise waits for another person where the policy says so. Lowered below what is committed: no new holds, no
    renewals, long leases called back; running jobs drain.
    """
    cap, known = await deps.read_shape(request, schemas.Cap), details(request)
    if plane.view.policy.governance.caps_take_two and is_raise(plane, cap):
        return await ask_a_second_person(plane, caller, cap, known)
    fact = CapSet(0, cap.scope, cap.per_month, cap.per_hour, by=caller.id, details=known.digest, reason=cap.reason)
    recorded = await plane.tell(fact, blobs=known.blobs)
    gone = cap.per_month is None and cap.per_hour is None
    says = f"{cap.scope} has no cap any more." if gone else f"The cap of {cap.scope} is set."
    return schemas.Done(number=recorded.number, says=says)


@routes.get("/exposure", summary="What would still be spent if Penstock died now")
def exposure(plane: PlaneHere, caller: MayRead) -> schemas.Exposure:
    """From all holds: also of nodes that are being returned, warm pools and clusters. The rows add up to `most`."""
    view = plane.view
    held = [row for row in view.exposed if row.most and (not caller.team or row.team == caller.team)]
    return schemas.Exposure(
        at=view.at,
        currency=view.policy.currency,
        most=sum(row.most for row in held),
        until_at=deps.moment(max((row.until_at for row in held), default=0) or None),
        soft=sum(row.most for row in held if row.soft),
        teams=_shares(held, lambda row: row.team),
        sites=_shares(held, lambda row: site_of(row.offer)),
    )


def _shares(held: Iterable[ExposureShare], by: Callable[[ExposureShare], str]) -> list[schemas.Share]:
    groups: dict[str, list[ExposureShare]] = {}
    for row in held:
        groups.setdefault(by(row), []).append(row)
    return [
        schemas.Share(
            name=name,
            most=sum(row.most for row in group),
            until_at=deps.moment(max(row.until_at for row in group) or None),
        )
        for name, group in sorted(groups.items())
    ]


@routes.get("/costs", summary="GPU time and money by day, offer and team")
def costs(
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    days: Annotated[int, Query(ge=1, le=3660, description="The last so many days.")] = 31,
    team: Annotated[str, Query(max_length=200)] = "",
) -> schemas.Costs:
    view = plane.view
    today = (datetime.fromtimestamp(view.at / 1000, UTC).date() - EPOCH).days
    terms = _terms(view)
    rows = [
        schemas.Cost.of(
            used,
            day=str(EPOCH + timedelta(days=used.day)),
            site=site_of(used.offer),
            term=terms.get(used.offer, "gone"),
        )
        for used in reader.used(today - days + 1)
        if caller.sees(used.team) and team in ("", used.team)
    ]
    spent, gpu_ms = sum(row.spent for row in rows), sum(row.gpu_ms for row in rows)
    return schemas.Costs(at=view.at, currency=view.policy.currency, spent=spent, gpu_ms=gpu_ms, rows=rows)


def _terms(view: View) -> dict[str, str]:
    """Owned and reserved GPUs are paid for whether used or not: use is not charged."""
    offers = [shown.offer for site in view.sites for shown in site.offers]
    return {offer.id: f"{offer.term} (paid for anyway)" if offer.term in STANDING else offer.term for offer in offers}
