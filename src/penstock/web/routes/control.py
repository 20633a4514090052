"""Routes about Penstock itself: health, status, pause, resume, tokens, metrics, OpenAPI."""

from collections.abc import Iterable
from time import time
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from penstock import __version__
from penstock.core.model.events import Paused, Resumed
from penstock.journal import states
from penstock.journal.journal import Reader
from penstock.live.plane import Plane
from penstock.web import deps, schemas
from penstock.web.deps import Anybody, GuardHere, MayGiveTokens, MayOperate, MayRead, PlaneHere, ReaderHere
from penstock.web.details import details, name_in, named
from penstock.web.fast_route import FastRoute, JsonAnswer, answered
from penstock.web.problems import Problem, not_found
from penstock.web.tokens import MOST_DEEP

routes: Final = APIRouter(responses=deps.PROBLEMS)
quick: Final = APIRouter(responses=deps.PROBLEMS, route_class=FastRoute)
HEALTHY: Final = schemas.Health(ok=True, says="").model_dump_json().encode()
DAY_SECONDS: Final = 86_400


@quick.get("/healthz", tags=["health"], response_model=schemas.Health, summary="Does the process answer?")
async def healthz(request: Request, caller: Anybody) -> Response:  # noqa: ARG001 - declares the permission
    return JsonAnswer(HEALTHY)


@quick.get("/readyz", tags=["health"], response_model=schemas.Health, summary="Are submissions taken?")
async def readyz(request: Request, caller: Anybody) -> Response:  # noqa: ARG001 - as above
    plane: Plane = request.app.state.plane
    says = plane.ready
    return answered(schemas.Health(ok=not says, says=says), 503 if says else 200)


@routes.get("/metrics", tags=["health"], response_class=Response, summary="Numbers for Prometheus")
def metrics(request: Request, caller: MayRead) -> Response:
    """Of all teams, so a team's token does not do. docs/operations.md lists the names."""
    if caller.team:
        raise Problem(403, "forbidden", "Metrics are about all teams; use a token that is not for one team.")
    text, media_type = request.app.state.metrics.text()
    return Response(text, media_type=media_type)


@routes.get("/v1/status", tags=["plane"], summary="What Penstock is doing")
async def status(plane: PlaneHere, caller: MayRead) -> schemas.Status:
    view, says = plane.view, plane.ready
    return schemas.Status.of(
        view,
        installation=plane.installation,
        version=__version__,
        policy=view.policy.name,
        currency=view.policy.currency,
        ready=not says,
        says=says,
        queued=view.waiting,
        ended={states.job_state(phase): count for phase, count in view.ended},
        # An alarm may name anybody's job.
        alarms=[] if caller.team else [schemas.Alarm.of(alarm) for alarm in view.alarms],
        durability="" if caller.team else plane.durability.says,
        failover_loses=plane.durability.loses and not caller.team,
    )


@routes.post("/v1/pause", tags=["plane"], summary="Start nothing new")
async def pause(request: Request, plane: PlaneHere, caller: MayOperate) -> schemas.Done:
    """Running jobs continue and their leases are renewed. Submissions are accepted and queued."""
    known = details(request)
    recorded = await plane.tell(Paused(0, caller.id, known.digest), blobs=known.blobs)
    return schemas.Done(number=recorded.number, says="Paused: running jobs continue, and nothing new starts.")


@routes.post("/v1/resume", tags=["plane"], summary="Start things again")
async def resume(request: Request, plane: PlaneHere, caller: MayOperate) -> schemas.Done:
    known = details(request)
    recorded = await plane.tell(Resumed(0, caller.id, known.digest), blobs=known.blobs)
    return schemas.Done(number=recorded.number, says="Resumed: new starts are allowed again.")


@routes.get("/v1/tokens", tags=["tokens"], summary="All tokens, without their secrets")
async def tokens(guard: GuardHere, reader: ReaderHere, caller: MayGiveTokens) -> schemas.TokenList:  # noqa: ARG001 - as above
    known = list(guard.tokens)
    names = await run_in_threadpool(names_of, reader, [token.id for token in known if not token.made_by])
    return schemas.TokenList(tokens=[schemas.Token.of(token, name=names.get(token.id, "")) for token in known])


def names_of(reader: Reader, tokens: Iterable[str]) -> dict[str, str]:
    """The names of those for whom these tokens were made, unless they were erased; a browser has its token's."""
    rows = {token: reader.token(token) for token in tokens}
    for token, row in rows.items():
        for _ in range(MOST_DEEP):
            if row is not None and row.made_by:
                row = reader.token(row.made_by)
        rows[token] = row
    return {token: name_in(reader.blob(row.name)) for token, row in rows.items() if row is not None and row.name}


@routes.post(
    "/v1/tokens",
    tags=["tokens"],
    status_code=201,
    openapi_extra=deps.shape_of_body(schemas.TokenAsk),
    summary="Make a token",
)
async def make_token(request: Request, guard: GuardHere, caller: MayGiveTokens) -> schemas.TokenMade:
    """Answered once it is durable: every control plane of this journal knows it within a second."""
    ask = await deps.read_shape(request, schemas.TokenAsk)
    if ask.team and ask.role not in ("member", "viewer", "approver"):
        raise Problem(
            422, "bad-input", f"A {ask.role} sees all teams; leave 'team' out, or make it a member, viewer or approver."
        )
    expires_at = int(time()) + ask.days * DAY_SECONDS if ask.days else 0
    token, secret = await guard.tokens.issue(
        ask.role, ask.team, expires_at, by=caller.id, details=details(request), name=named(ask.name)
    )
    return schemas.TokenMade.of(token, secret=secret, name=ask.name)


@routes.delete("/v1/tokens/{token}", tags=["tokens"], summary="Revoke a token")
async def revoke_token(
    token: str, request: Request, guard: GuardHere, reader: ReaderHere, caller: MayGiveTokens
) -> schemas.Token:
    """Answered once it is durable. Ends its streams, and the browsers that came in by it or by them."""
    if token == caller.id:
        raise Problem(409, "conflict", "This is the token you are using; revoke it with another one.")
    revoked = await guard.tokens.revoke(token, caller.id, details(request))
    if revoked is None:
        raise not_found("token", token)
    names = await run_in_threadpool(names_of, reader, [token])
    return schemas.Token.of(revoked, name=names.get(token, ""))


@quick.get("/v1/openapi.json", tags=["health"], response_model=dict[str, Any], summary="This API's own description")
async def description(request: Request, caller: Anybody) -> Response:  # noqa: ARG001 - as above
    return JsonAnswer(await request.app.state.description.text())
