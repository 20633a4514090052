"""Routes about approvals: what waits for a person, and their answers. Nobody answers their own request."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from penstock.core.ids import array_of
from penstock.core.model.events import ApprovalAnswered, CapRaiseAsked, CapRaiseDenied, CapSet, StartPromised
from penstock.explain.sentences import role
from penstock.formatting import money
from penstock.journal.journal import Reader
from penstock.live.config_facts import in_words, raises
from penstock.live.plane import Plane
from penstock.live.view import OpenApproval, View
from penstock.web import deps, schemas
from penstock.web.access import own
from penstock.web.deps import MayApprove, MayRead, MaySubmit, PlaneHere, ReaderHere
from penstock.web.details import Details, details
from penstock.web.people import is_same_person
from penstock.web.problems import Problem, conflict, not_found
from penstock.web.routes.control import names_of
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["approvals"], responses=deps.PROBLEMS)


# --- what waits ------------------------------------------------------------------------------------------------------


@routes.get("/approvals", summary="What waits for a person, the oldest first")
def approvals(plane: PlaneHere, reader: ReaderHere, caller: MayRead) -> schemas.Approvals:
    view = plane.view
    seen = [approval for approval in view.approvals if caller.sees(approval.team)]
    names = names_of(reader, {approval.user for approval in seen if approval.user})
    return schemas.Approvals(
        currency=view.policy.currency,
        jobs=[job_shape(approval, view, names.get(approval.user, "")) for approval in seen],
        caps=[cap for cap in _caps(plane, reader, view) if not caller.team or cap.scope == f"team:{caller.team}"],
    )


def job_shape(approval: OpenApproval, view: View, user_name: str = "") -> schemas.Approval:
    asked, currency = approval.request, view.policy.currency
    ways = [schemas.CheaperWay(offer=offer, cost=cost, delay_ms=ms) for offer, cost, ms in asked.cheaper]
    says = (
        f"Bursting to {asked.offer} for about {money(asked.cost, currency)} needs approval by {role(asked.role)} "
        f"(rule {asked.rule}{f', {asked.source}' if asked.source else ''})."
    )
    return schemas.Approval.of(
        asked,
        name=approval.name,
        team=approval.team,
        user=approval.user,
        user_name=user_name,
        cheaper=ways,
        says=says,
    )


def _caps(plane: Plane, reader: Reader, view: View) -> list[schemas.CapRaise]:
    waiting = [raised.fact.asked_by for raised in plane.raised_caps.values()]
    names = names_of(reader, {name for name in (*waiting, *(asked.by for asked in view.raises)) if name})
    wishes = [_wish(asked, names.get(asked.by, ""), view.policy.currency) for asked in view.raises]
    asked = [wish.scope for wish in wishes]
    of_files = [
        schemas.CapRaise(
            scope=raised.fact.scope,
            at=None,
            by=raised.fact.asked_by,
            by_name=names.get(raised.fact.asked_by, ""),
            source=raised.fact.source,
            reason="",
            per_month=raised.fact.per_period,
            per_hour=raised.fact.per_hour,
            in_force_per_month=raised.in_force[0],
            in_force_per_hour=raised.in_force[1],
            says=raised.says,
        )
        for raised in plane.raised_caps.values()
        if raised.fact.scope not in asked
    ]
    return wishes + of_files


def _wish(asked: CapRaiseAsked, name: str, currency: str) -> schemas.CapRaise:
    before = (asked.before_per_period, asked.before_per_hour)
    wanted = in_words((asked.per_period, asked.per_hour), currency)
    return schemas.CapRaise(
        scope=asked.scope,
        at=asked.at,
        by=asked.by,
        by_name=name,
        reason=asked.reason,
        per_month=asked.per_period,
        per_hour=asked.per_hour,
        in_force_per_month=before[0],
        in_force_per_hour=before[1],
        says=f"{name or asked.by} asks for {wanted} for {asked.scope}, instead of {in_words(before, currency)}.",
    )


# --- jobs ------------------------------------------------------------------------------------------------------------


@routes.post(
    "/jobs/{job:job}/approval",
    openapi_extra=deps.shape_of_body(schemas.Answer),
    summary="Approve or deny that a job bursts",
)
async def answer(request: Request, job: str, plane: PlaneHere, reader: ReaderHere, caller: MayApprove) -> schemas.Asked:
    """Of an array: all of its jobs that ask. An approval names the amount that its author saw, and covers no more,
    whatever the job asks for by now.
    """
    reply = await deps.read_shape(request, schemas.Answer)
    if reply.approved and reply.amount is None:
        raise Problem(422, "bad-input", "Say which amount you approve: 'amount', as the request shows it.")
    pending = [
        approval for approval in plane.view.approvals if job in (approval.request.job, array_of(approval.request.job))
    ]
    if not pending:
        await run_in_threadpool(_must_exist, reader, caller, job)
        raise conflict(f"{job} asks for no approval now; `penstock why {job}` says what it does.")
    own(caller, pending[0].team, "job", job)
    await _second_person(reader, caller, pending[0].user, f"{job} is your own job")
    _must_have_role(caller, pending)
    _must_suffice(reply, pending, plane.view)
    known = details(request)
    facts = [_answered(approval, reply, caller, known.digest) for approval in pending]
    recorded = await plane.tell(*facts, blobs=known.blobs)
    (step,) = await run_in_threadpool(reader.steps, recorded.number - 1, 1)
    jobs = [fact.job for fact in facts]
    so = any(isinstance(event, StartPromised) and event.job in jobs for event in step.outputs)
    return schemas.Asked(job=job, so=so if reply.approved else True, says=_said(reply, pending, so, plane.view))


def _answered(approval: OpenApproval, reply: schemas.Answer, caller: Token, digest: str) -> ApprovalAnswered:
    asked = approval.request
    return ApprovalAnswered(
        at=0,
        job=asked.job,
        approved=reply.approved,
        by=caller.id,
        reason=reply.reason,
        details=digest,
        rule=asked.rule,
        amount=asked.amount if reply.amount is None else min(reply.amount, asked.amount),  # None: denied
    )


def _must_suffice(reply: schemas.Answer, pending: list[OpenApproval], view: View) -> None:
    """An approval of less than a burst costs would be a denial in other words."""
    if not reply.approved or reply.amount is None:
        return
    dear = next((approval.request for approval in pending if reply.amount < approval.request.cost), None)
    if dear is not None:
        currency = view.policy.currency
        raise conflict(
            f"Bursting {dear.job} costs about {money(dear.cost, currency)}, and {money(reply.amount, currency)} would"
            f" not let it start: approve {money(dear.amount, currency)}, which covers preemptions, or deny it."
        )


def _said(reply: schemas.Answer, pending: list[OpenApproval], so: bool, view: View) -> str:
    if not reply.approved:
        return "Denied: it does not burst."
    amounts = [
        approval.request.amount if reply.amount is None else min(reply.amount, approval.request.amount)
        for approval in pending
    ]
    upto = money(max(amounts), view.policy.currency)
    each = " each" if len(pending) > 1 else ""
    return f"Approved up to {upto}{each}" + ("; it starts now." if so else ".")


def _must_exist(reader: Reader, caller: Token, job: str) -> None:
    """An array has no row of its own: its first job stands for it, and is not named to another team."""
    row = reader.job(job) or reader.job(f"{job}/0")
    if row is None:
        raise not_found("job", job)
    own(caller, row.team, "job", job)


async def _second_person(reader: Reader, caller: Token, asker: str, whose: str) -> None:
    if await run_in_threadpool(is_same_person, reader, caller, asker):
        raise Problem(403, "forbidden", f"{whose}; another person must answer.")


def _must_have_role(caller: Token, pending: list[OpenApproval]) -> None:
    """Admins answer for everybody: they could make a token of any role."""
    wanted = {approval.request.role.removeprefix("role:") for approval in pending}
    if caller.role != "admin" and wanted != {caller.role}:
        names = " and ".join(role(name) for name in sorted(wanted))
        raise Problem(403, "forbidden", f"This needs {names}, and your token is of role {caller.role}.")


# --- caps ------------------------------------------------------------------------------------------------------------


@routes.post(
    "/budget/raise",
    openapi_extra=deps.shape_of_body(schemas.CapRequest),
    summary="Ask for a higher cap of one's own team",
)
async def ask_for_cap(request: Request, plane: PlaneHere, caller: MaySubmit) -> schemas.Done:
    """It holds once another person has approved it. Another team's cap is not found."""
    wish, known = await deps.read_shape(request, schemas.CapRequest), details(request)
    if caller.team and wish.scope != f"team:{caller.team}":
        raise not_found("budget", wish.scope)
    if not is_raise(plane, wish):
        raise conflict(f"This would not raise the cap of {wish.scope}; ask an operator to lower it.")
    deps.take_share(plane, caller)
    return await ask_a_second_person(plane, caller, wish, known)


def is_raise(plane: Plane, cap: schemas.Cap) -> bool:
    in_force = {scope: (per_month, per_hour) for scope, per_month, per_hour in plane.view.caps}
    return raises(in_force.get(cap.scope, (None, None)), (cap.per_month, cap.per_hour))


async def ask_a_second_person(plane: Plane, caller: Token, wish: schemas.Cap, known: Details) -> schemas.Done:
    fact = CapRaiseAsked(
        at=0,
        scope=wish.scope,
        per_period=wish.per_month,
        per_hour=wish.per_hour,
        by=caller.id,
        reason=wish.reason,
        details=known.digest,
    )
    recorded = await plane.tell(fact, blobs=known.blobs)
    says = f"Asked: the cap of {wish.scope} stays as it is until another person approves (penstock approvals)."
    return schemas.Done(number=recorded.number, says=says)


@routes.post(
    "/budget/approval",
    openapi_extra=deps.shape_of_body(schemas.CapAnswer),
    summary="Approve or deny a higher cap that another person or a file asks for",
)
async def answer_cap(request: Request, plane: PlaneHere, reader: ReaderHere, caller: MayApprove) -> schemas.Done:
    reply, known = await deps.read_shape(request, schemas.CapAnswer), details(request)
    if caller.team and reply.scope != f"team:{caller.team}":
        raise not_found("budget", reply.scope)
    wish = next((asked for asked in plane.view.raises if asked.scope == reply.scope), None)
    raised = plane.raised_caps.get(reply.scope)
    if wish is None and (raised is None or not reply.approved):
        raise conflict(f"Nobody asks for a higher cap of {reply.scope}.")
    if wish is not None:
        await _second_person(reader, caller, wish.by, f"You asked for this cap of {reply.scope} yourself")
    elif raised is not None:
        await _second_person(reader, caller, raised.fact.asked_by, f"You applied {raised.fact.source or 'this file'}")
    if not reply.approved:
        denied = CapRaiseDenied(0, reply.scope, by=caller.id, reason=reply.reason, details=known.digest)
        recorded = await plane.tell(denied, blobs=known.blobs)
        return schemas.Done(number=recorded.number, says=f"Denied: the cap of {reply.scope} stays as it is.")
    _must_be_as_seen(reply, wish, None if raised is None else raised.fact, plane.view.policy.currency)
    fact = _granted(wish, None if raised is None else raised.fact, caller, reply.reason, known.digest)
    recorded = await plane.tell(fact, blobs=known.blobs)
    return schemas.Done(number=recorded.number, says=f"Approved: the cap of {reply.scope} is raised.")


def _must_be_as_seen(
    reply: schemas.CapAnswer, wish: CapRaiseAsked | None, raised: CapSet | None, currency: str
) -> None:
    """Whoever asks may have changed the figures since."""
    wanted = wish or raised
    assert wanted is not None
    seen, now = (reply.per_month, reply.per_hour), (wanted.per_period, wanted.per_hour)
    if seen != now:
        raise conflict(
            f"You approve {in_words(seen, currency)} for {reply.scope}, and the request is for "
            f"{in_words(now, currency)} now; look at it again (penstock approvals ls)."
        )


def _granted(wish: CapRaiseAsked | None, raised: CapSet | None, caller: Token, reason: str, digest: str) -> CapSet:
    """What a person asked for goes before what a file says."""
    wanted = wish or raised
    assert wanted is not None
    return CapSet(
        at=0,
        scope=wanted.scope,
        per_period=wanted.per_period,
        per_hour=wanted.per_hour,
        by=caller.id,
        details=digest,
        asked_by=wanted.by if isinstance(wanted, CapRaiseAsked) else wanted.asked_by or wanted.source or "a file",
        from_file=wish is None,
        reason=reason,
        source="" if isinstance(wanted, CapRaiseAsked) else wanted.source,
    )
