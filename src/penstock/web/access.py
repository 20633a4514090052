"""Authentication and authorisation: opaque tokens, of which only hashes are stored. Every route declares what it
`Needs`.

A token has a role, which says what it may do, and a team, which says whose jobs it may do it to; no team: all teams.
Another team's things are "not found" on every route.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from penstock.core.values import value
from penstock.web.limits import Buckets
from penstock.web.problems import Problem, not_found

Permission: TypeAlias = Literal["nothing", "read", "submit", "operate", "tokens"]
Role: TypeAlias = Literal["admin", "operator", "member", "viewer"]
MAY: Final[dict[str, tuple[Permission, ...]]] = {
    "admin": ("read", "submit", "operate", "tokens"),
    "operator": ("read", "submit", "operate"),
    "member": ("read", "submit"),
    "viewer": ("read",),
}
COOKIE: Final = "penstock_token"  #: for browsers, whose event streams cannot send a header; read-only
PREFIX: Final = "pst_"
TALK: Final = "TALK"  #: stands for the method of a WebSocket


@value
class Token:
    id: str
    digest: str  # SHA-256 of the secret, in hex
    role: Role
    team: str = ""  # empty: all teams
    expires_at: int = 0  # seconds since 1970; 0: never
    revoked: bool = False
    made_by: str = ""  # for a browser's token: the token it was made from, with which it expires

    def may(self, permission: Permission) -> bool:
        return permission in MAY[self.role]

    def sees(self, team: str) -> bool:
        return self.team in ("", team)

    @property
    def teams(self) -> tuple[str, ...]:
        return (self.team,) if self.team else ()


class Tokens:
    """Token hashes, in one file that only its owner can read. Changed rarely, read on every request."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self.path, self.now = path, now
        self.by_digest = {token.digest: token for token in _read(path)}

    def find(self, secret: str) -> Token | None:
        """None if forged, revoked or expired. Looked up by digest, so timing reveals nothing."""
        token = self.by_digest.get(_digest(secret))
        return token if token is not None and self.still(token) else None

    def still(self, token: Token) -> bool:
        """True if the token is valid now. Streams ask repeatedly: they authenticate once and run for days."""
        found = self.by_digest.get(token.digest)
        return found is not None and not found.revoked and not 0 < found.expires_at <= self.now()

    def create(self, role: Role, team: str = "", expires_at: int = 0, made_by: str = "") -> tuple[Token, str]:
        """A new token and its secret, which is never shown again."""
        self._forget_browsers()
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(secrets.token_hex(6), _digest(secret), role, team, expires_at, made_by=made_by)
        self.by_digest[token.digest] = token
        self._write()
        return token, secret

    def revoke(self, token_id: str) -> bool:
        found = next((token for token in self.by_digest.values() if token.id == token_id), None)
        if found is None:
            return False
        for token in [known for known in self.by_digest.values() if token_id in (known.id, known.made_by)]:
            self.by_digest[token.digest] = replace(token, revoked=True)
        self._write()
        return True

    def _forget_browsers(self) -> None:
        """Delete expired browser tokens: they are many and short-lived."""
        ended = [known.digest for known in self.by_digest.values() if known.made_by and not self.still(known)]
        for digest in ended:
            del self.by_digest[digest]

    def __iter__(self) -> Iterator[Token]:
        return iter(self.by_digest.values())

    def _write(self) -> None:
        text = json.dumps([asdict(token) for token in self.by_digest.values()], indent=1)
        write_private(self.path, text + "\n")


def _read(path: Path) -> list[Token]:
    return [Token(**row) for row in json.loads(path.read_text("utf-8"))] if path.exists() else []


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def write_private(path: Path, text: str) -> None:
    """Write atomically, and never readable by others, not even for a moment."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def first_token(tokens: Tokens, path: Path) -> str:
    """The token of our own commands: created at the first start, or again if its file is gone."""
    secret = path.read_text("utf-8").strip() if path.exists() else ""
    if not tokens.find(secret):
        _, secret = tokens.create("admin")
        write_private(path, secret + "\n")
    return secret


class Audit:
    """The audit log: denials and changes, one JSON line each, beside the journal. Two files of bounded size."""

    MOST_BYTES: Final = 10_000_000

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self.path, self.now = path, now

    def write(self, request: HTTPConnection, token: Token | None, what: str) -> None:
        line = {
            "at": int(self.now() * 1000),
            "token": token.id if token else "",
            "from": request.client.host if request.client else "",
            "asked": f"{method_of(request)} {request.url.path}",
            "what": what,
        }
        if self.path.exists() and self.path.stat().st_size > self.MOST_BYTES:
            self.path.replace(self.path.with_name(self.path.name + ".1"))
        with os.fdopen(
            os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8"
        ) as file:
            file.write(json.dumps(line) + "\n")


@value
class Guard:
    """Tokens, audit log and rate limits that every request is checked against; one per app, in `app.state.guard`."""

    tokens: Tokens
    audit: Audit
    calls: Buckets  # per token
    submits: Buckets  # per team, or per token where it has none
    strangers: Buckets  # per address, for requests without a valid token


class Needs:
    """A dependency: `caller: Annotated[Token, Depends(Needs("read"))]`. `check_routes` requires it on every route."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: HTTPConnection) -> Token:
        guard: Guard = request.app.state.guard
        if self.permission == "nothing":
            return Token("", "", "viewer")
        token = guard.tokens.find(_secret(request))
        if token is None:
            raise stranger(guard, request)
        if not token.may(self.permission):
            guard.audit.write(request, token, f"denied: {token.role} may not {self.permission}")
            raise Problem(403, "forbidden", f"A token of role {token.role} may not do this; ask for another role.")
        self._within_limits(guard, token)
        if self.permission in ("operate", "tokens") and method_of(request) != "GET":
            guard.audit.write(request, token, self.permission)
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
    return request.cookies.get(COOKIE, "") if method_of(request) == "GET" else ""


def method_of(request: HTTPConnection) -> str:
    """A WebSocket has no method of its own: it may change things, and no cookie opens it."""
    return str(request.scope.get("method", TALK))


def stranger(guard: Guard, request: HTTPConnection) -> Problem:
    wait = guard.strangers.take(request.client.host if request.client else "")
    if wait:
        return too_many(wait)
    guard.audit.write(request, None, "denied: no token, or one that is forged, expired or revoked")
    return Problem(
        401,
        "unauthorized",
        "A token is needed: send 'Authorization: Bearer TOKEN'. Ours is in the file 'token' of Penstock's home folder.",
        {"WWW-Authenticate": "Bearer"},
    )


def own(caller: Token, team: str, what: str, name: str) -> None:
    """Raise "not found" unless this caller may know that the thing exists."""
    if not caller.sees(team):
        raise not_found(what, name)


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
