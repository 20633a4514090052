"""Builds the FastAPI app: routes, rate limits, problem details, and the check that every route declares a permission.
`wiring` calls it.
"""

from pathlib import Path
from time import monotonic, perf_counter, time
from typing import Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import __version__
from penstock.core.values import value
from penstock.journal.journal import Reader
from penstock.live.plane import Plane
from penstock.web import html, problems
from penstock.web.access import Guard, check_routes
from penstock.web.browsers import BrowserRules
from penstock.web.denials import Denials
from penstock.web.description import Description
from penstock.web.fast_route import FastRoutes, MetricsSink
from penstock.web.limits import MOST_HELD, MOST_HELD_EACH, BodyLimit, Buckets, Room, Streams
from penstock.web.log_reads import LogReads
from penstock.web.parsing import Parsing
from penstock.web.routes import (
    approvals,
    audit,
    clusters,
    control,
    front_doors,
    job_exec,
    jobs,
    list_page,
    login,
    logs,
    money,
    nodes,
    pages,
    policy,
    sites,
    stream,
)
from penstock.web.tokens import Tokens


class App(FastAPI):
    """Answers fast routes itself, without FastAPI's layers around every request."""

    fast: FastRoutes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.fast.has(scope):
            await self.fast(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


#: Routers whose routes are all fast.
QUICK: Final = (jobs.quick, control.quick)


@value
class Limits:
    """Rate limits: per second, and bursts. They stop a runaway script, not a busy team."""

    calls_per_second: float = 200  # of one token
    calls_burst: float = 400
    submits_per_second: float = 50  # of one team
    submits_burst: float = 200
    strangers_per_second: float = 5  # of one address without a valid token
    strangers_burst: float = 50
    body_seconds: float = 10  # until a whole body must have arrived


def build(
    plane: Plane,
    reader: Reader,
    guard: Guard,
    metrics: MetricsSink,
    limits: Limits = Limits(),  # noqa: B008 - a value
    rehearsal: bool = False,
) -> FastAPI:
    """Raises if a route declares no permission: better no server than an open one."""
    app = App(
        title="Penstock",
        version=__version__,
        summary="Fill the GPUs you own first; rent just enough beside them.",
        docs_url=None,  # they load scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # our own route serves it, with a permission
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.plane, app.state.reader, app.state.guard, app.state.metrics = plane, reader, guard, metrics
    app.state.manager = None  # the front door's `Manager`; wiring starts it after the plane
    app.state.sites = None  # takes sites files, likewise
    app.state.policies = None  # takes policy files; wiring knows the sites that they are for
    app.state.parsing, app.state.bodies = Parsing(), Room(MOST_HELD, MOST_HELD_EACH)
    app.state.streams = Streams()
    app.state.links, app.state.rehearsal = login.Links(monotonic), rehearsal
    for quick in QUICK:
        app.include_router(quick)
    for part in (
        jobs,
        logs,
        job_exec,
        control,
        stream,
        sites,
        clusters,
        nodes,
        front_doors,
        money,
        approvals,
        policy,
        audit,
        login,
    ):
        app.include_router(part.routes)
    for people in (login.people, list_page.routes, pages.routes):
        app.include_router(people)
    problems.install(app)
    app.add_exception_handler(HTTPException, html.nowhere)
    app.fast = FastRoutes(app, QUICK, metrics, BodyLimit(app, limits.body_seconds))
    app.add_middleware(BodyLimit, seconds=limits.body_seconds)
    app.add_middleware(BrowserRules)
    app.add_middleware(Measured, metrics=metrics)
    check_routes(app)
    app.state.description = Description(app)
    return app


def guard_of(home: Path, plane: Plane, limits: Limits = Limits()) -> Guard:  # noqa: B008 - a value
    """The guard of a plane, without any tokens yet. It counts denials in a file of the home folder."""
    tokens = Tokens(plane.tell, time)
    return Guard(
        tokens=tokens,
        denials=Denials(home / "denied.json", time),
        log_reads=LogReads(tokens, monotonic),
        calls=Buckets(limits.calls_per_second, limits.calls_burst, monotonic),
        submits=Buckets(limits.submits_per_second, limits.submits_burst, monotonic),
        strangers=Buckets(limits.strangers_per_second, limits.strangers_burst, monotonic),
    )


class Measured:
    """Counts and times answers by route, not by path: paths are unbounded."""

    def __init__(self, app: ASGIApp, metrics: MetricsSink) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            self.metrics.observe(route, scope["method"], status, perf_counter() - began)
