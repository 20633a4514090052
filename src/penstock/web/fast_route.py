"""Faster FastAPI routes for the busiest endpoints: described and guarded like all others, called directly.

    quick = APIRouter(route_class=FastRoute)
    @quick.post("/jobs", response_model=schemas.Submitted)
    async def submit(request: Request, caller: MaySubmit) -> Response: ...

The endpoint takes the request and the caller, and what it declares of the query by keyword, and builds its response
itself. Resolving arguments and validating the response takes FastAPI as long as all the rest of a submission; its
layers around each request and the search for the route take a third of that rest. `FastRoutes` calls the route without
them, and does what our own layers around all other routes do (`app.build` lists them).
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from penstock.web import browsers
from penstock.web.access import needed
from penstock.web.browsers import ALWAYS
from penstock.web.limits import BodyLimit
from penstock.web.problems import is_bug, problem_of
from penstock.web.schemas import Shape
from penstock.web.tokens import Token


class MetricsSink(Protocol):
    def observe(self, route: str, method: str, status: int, seconds: float) -> None: ...

    def text(self) -> tuple[bytes, str]:
        """All metrics now, and their media type."""


class FastRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        needs = needed(self.dependant)
        if needs is None:
            raise RuntimeError(f"{self.path} declares no permission; add Needs(...)")
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint

        async def handle(request: Request) -> Response:
            caller: Token = await needs(request)
            # Without a query, the endpoint's own defaults hold.
            asked = self._asked(request) if request.scope["query_string"] else {}
            return await endpoint(request, caller, **asked)

        return handle

    def _asked(self, request: Request) -> dict[str, Any]:
        """What the query says, checked as FastAPI does it."""
        values, errors = request_params_to_args(self.dependant.query_params, request.query_params)
        if errors:
            raise RequestValidationError(errors)
        return values


class FastRoutes:
    """An ASGI app that answers fast routes, by method and whole path; all other requests are for `app`."""

    def __init__(self, app: FastAPI, routers: Iterable[APIRouter], metrics: MetricsSink, limit: BodyLimit) -> None:
        self.app, self.metrics, self.limit = app, metrics, limit
        fast = [route for router in routers for route in router.routes if isinstance(route, FastRoute)]
        self.routes = {
            (method, route.path): (route, route.get_route_handler()) for route in fast for method in route.methods or ()
        }

    def has(self, scope: Scope) -> bool:
        return scope["type"] == "http" and (scope["method"], scope["path"]) in self.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = perf_counter(), 500
        route, handle = self.routes[scope["method"], scope["path"]]
        scope["app"], scope["route"] = self.app, route
        bug: Exception | None = None
        try:
            try:
                browsers.check(scope)
                self.limit.check(scope)
                response = await handle(Request(scope, self.limit.limited(receive), send))
            except Exception as error:  # noqa: BLE001 - one that we did not expect is raised again below
                response = problem_of(error).response()
                bug = error if is_bug(error) else None
            status = response.status_code
            browsers.mark(response.raw_headers)
            await response(scope, receive, send)
        finally:
            self.metrics.observe(route.path_format, scope["method"], status, perf_counter() - began)
        if bug is not None:  # the server logs it
            try:
                raise bug
            finally:
                del bug  # its traceback leads to this frame


class JsonAnswer(Response):
    """JSON that is ready to send. Starlette's own class takes longer to make its headers than we for all the rest."""

    media_type = "application/json"

    def __init__(self, body: bytes, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status_code, self.body, self.background = status, body, None
        length = (b"content-length", b"%d" % len(body))
        self.raw_headers = [length, (b"content-type", b"application/json"), *ALWAYS, *headers]


def answered(shape: Shape, status: int = 200) -> Response:
    """A shape as a JSON response, without validating it again."""
    return JsonAnswer(shape.__pydantic_serializer__.to_json(shape), status)
