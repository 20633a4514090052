"""Authentication and authorisation: every route declares what it `Needs`, and the `Guard` knows tokens and limits.

A token has a role, which says what it may do, and a team, which says whose jobs it may do it to; no team: all teams.
Another team's things are "not found" on every route. Tokens are in `tokens.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from penstock.core.values import value
from penstock.web.denials import Denials
from penstock.web.details import address_of
from penstock.web.limits import Buckets
from penstock.web.log_reads import LogReads
from penstock.web.problems import Problem, not_found
from penstock.web.tokens import MAY, Permission, Token, Tokens, unauthorized

COOKIE: Final = "penstock_token"  #: for browsers, whose event streams cannot send a header; read-only
TALK: Final = "TALK"  #: stands for the method of a WebSocket


@value
class Guard:
    """Tokens and rate limits that every request is checked against; one per app, in `app.state.guard`."""

    tokens: Tokens
    denials: Denials
    log_reads: LogReads
    calls: Buckets  # per token
    submits: Buckets  # per team, or per token where it has none
    strangers: Buckets  # per address, for requests without a valid token


def _who_may(permission: Permission) -> str:
    """The roles, the least powerful first, so that nobody asks for more than it takes."""
    return " or ".join(role for role in reversed(MAY) if permission in MAY[role])


class Needs:
    """A dependency: `caller: Annotated[Token, Depends(Needs("read"))]`. `check_routes` requires it on every route."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: HTTPConnection) -> Token:
        guard: Guard = request.app.state.guard
        if self.permission == "nothing":
            return Token("", "", "viewer")
        if guard.tokens.is_stale:
            await guard.tokens.fresh()
        token = guard.tokens.find(_secret(request))
        if token is None:
            raise stranger(guard, request)
        if not token.may(self.permission):
            guard.denials.count_token(token.id, asked_for(request), f"{token.role} may not {self.permission}")
            raise Problem(
                403,
                "forbidden",
                f"This needs a token of role {_who_may(self.permission)}, and yours is of role {token.role}.",
            )
        self._within_limits(guard, token)
        return token

    def _within_limits(self, guard: Guard, token: Token) -> None:
        wait = guard.calls.take(token.id)
        if not wait and self.permission == "submit":
            wait = guard.submits.take(token.team or token.id)
        if wait:
            raise too_many(wait)


def too_many(wait: float) -> Problem:
    seconds = max(1, round(wait + 0.5))
    return Problem(429, "too-many", f"Too many requests; try again in {seconds} s.", {"Retry-After": str(seconds)})


def _secret(request: HTTPConnection) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    # Browsers send cookies with requests of other sites, too: a cookie may read, and never change anything.
    if method_of(request) != "GET" or COOKIE not in request.headers.get("cookie", ""):  # to parse others' takes long
        return ""
    return request.cookies.get(COOKIE, "")


def method_of(request: HTTPConnection) -> str:
    """A WebSocket has no method of its own: it may change things, and no cookie opens it."""
    return str(request.scope.get("method", TALK))


def asked_for(request: HTTPConnection) -> str:
    return f"{method_of(request)} {request.url.path}"


def stranger(guard: Guard, request: HTTPConnection) -> Problem:
    """The answer to a request without a valid token, counted by its address."""
    address = address_of(request)
    wait = guard.strangers.take(address)
    guard.denials.count_stranger(
        address, asked_for(request), "too many" if wait else "no token, or one that is forged, expired or revoked"
    )
    return too_many(wait) if wait else unauthorized()


def own(caller: Token, team: str, kind: str, name: str) -> None:
    """Raise "not found" unless this caller may know that the thing exists."""
    if not caller.sees(team):
        raise not_found(kind, name)


def check_routes(app: FastAPI) -> None:
    """Refuse to start while any route declares no permission."""
    open_doors = [f"{method} {path}" for method, path, needs in permissions(app.routes) if needs is None]
    if open_doors:
        raise RuntimeError(f"these routes declare no permission: {', '.join(open_doors)}; add Needs(...) to each")


def permissions(routes: Sequence[BaseRoute]) -> Iterator[tuple[str, str, Permission | None]]:
    """Method, path and permission of each route. Routes that are not ours have none, and so are detected."""
    for route in routes:
        inner = getattr(
            getattr(route, "original_router", None), "routes", None
        )  # how FastAPI stores an included router
        if inner is not None:
            yield from permissions(inner)
        elif isinstance(route, APIRoute):
            yield from (
                (method, route.path_format, _declared(route.dependant)) for method in sorted(route.methods or ())
            )
        elif isinstance(route, APIWebSocketRoute):
            yield TALK, route.path_format, _declared(route.dependant)
        else:
            yield "ANY", getattr(route, "path", repr(route)), None


def _declared(dependant: Any) -> Permission | None:
    needs = needed(dependant)
    return None if needs is None else needs.permission


def needed(dependant: Any) -> Needs | None:
    """The permission that a route declares."""
    return next((inner.call for inner in dependant.dependencies if isinstance(inner.call, Needs)), None)
