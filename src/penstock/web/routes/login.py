"""Signs a browser in: by a link that works once, or by a token typed into a form. The browser gets a cookie.

The cookie holds a read-only token that sees what its maker sees and expires with it. Scripts cannot read the cookie
(HttpOnly), and other sites cannot make a browser send it (SameSite=Strict).
"""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request, Response

from penstock.web import deps, schemas
from penstock.web.access import COOKIE, Guard, asked_for, too_many
from penstock.web.deps import Anybody, MayRead
from penstock.web.details import address_of, details
from penstock.web.html import ForPeople, html
from penstock.web.limits import MOST_FORM_BYTES, read_body
from penstock.web.problems import Problem
from penstock.web.tokens import Token

routes: Final = APIRouter(responses=deps.PROBLEMS)
LINK_SECONDS: Final = 600  #: lifetime of a link
STAY_SECONDS: Final = 7 * 86_400  #: lifetime of a browser's token
MOST_LINKS: Final = 1_000
MOST_LINKS_EACH: Final = 20  #: of one token; its oldest goes first
MOST_FIELDS: Final = 10  #: of the form


class Links:
    """One-time keys that sign one browser in. In memory: a restart voids them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.waiting: dict[str, tuple[Token, float]] = {}

    def make(self, token: Token) -> str:
        """The path of a new link."""
        mine = [key for key, (maker, _) in self.waiting.items() if maker.id == token.id]
        if len(mine) >= MOST_LINKS_EACH:
            del self.waiting[mine[0]]
        elif len(self.waiting) >= MOST_LINKS:
            del self.waiting[self._oldest_of_most()]
        key = secrets.token_urlsafe(24)
        self.waiting[key] = token, self.now() + LINK_SECONDS
        return f"/login/{key}"

    def _oldest_of_most(self) -> str:
        """Of the token that has the most links, so that many of one push out no link of somebody else."""
        counts = Counter(maker.id for maker, _ in self.waiting.values())
        most = max(counts.values())
        return next(key for key, (maker, _) in self.waiting.items() if counts[maker.id] == most)

    def take(self, key: str) -> Token | None:
        token, until = self.waiting.pop(key, (None, 0.0))
        return token if until > self.now() else None


@routes.post("/v1/logins", tags=["tokens"], status_code=201, summary="A link that lets one browser in, once")
async def invite(request: Request, caller: MayRead) -> schemas.Link:
    links: Links = request.app.state.links
    return schemas.Link(path=links.make(caller), seconds=LINK_SECONDS)


people: Final = APIRouter(include_in_schema=False, route_class=ForPeople)


@people.get("/login/{key}")
async def by_link(key: Annotated[str, Path(max_length=100)], request: Request, caller: Anybody) -> Response:  # noqa: ARG001 - declares the permission
    links: Links = request.app.state.links
    guard: Guard = request.app.state.guard
    await guard.tokens.fresh()
    maker = links.take(key)
    if maker is None or not guard.tokens.still(maker):
        raise Problem(410, "gone", "This link was used before, or has expired. Print a new one: penstock open")
    return await _come_in(request, guard, maker)


@people.post("/login")
async def by_token(request: Request, caller: Anybody) -> Response:  # noqa: ARG001 - as above
    guard: Guard = request.app.state.guard
    address = address_of(request)
    if wait := guard.strangers.take(address):
        # Before the body is read: one who guesses, or keeps us waiting, has so many tries.
        guard.denials.count_stranger(address, asked_for(request), "too many")
        raise too_many(wait)
    typed = _typed(await read_body(request, MOST_FORM_BYTES))
    await guard.tokens.fresh()
    maker = guard.tokens.find(typed)
    if maker is None:
        guard.denials.count_stranger(address, asked_for(request), "a token that is forged, expired or revoked")
        raise Problem(422, "bad-input", "The token is wrong, expired or revoked.")
    return await _come_in(request, guard, maker)


def _typed(form: bytes) -> str:
    try:
        return parse_qs(form.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS).get("token", [""])[0].strip()
    except ValueError:
        raise Problem(
            422, "bad-input", f"A sign-in form has at most {MOST_FIELDS} fields; send 'token' only."
        ) from None


async def _come_in(request: Request, guard: Guard, maker: Token) -> Response:
    ends_at = int(guard.tokens.now()) + STAY_SECONDS
    _, secret = await guard.tokens.issue(
        "viewer",
        maker.team,
        min(ends_at, maker.expires_at or ends_at),
        made_by=maker.id,
        by=maker.id,
        details=details(request),
    )
    answer = html(request, "welcome.html", title="You are in")
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=STAY_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer
