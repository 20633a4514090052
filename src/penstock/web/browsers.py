"""What browsers are told and asked: pages of other origins change nothing, and an answer is what it says it is and is
not kept. ASGI middleware around all routes.
"""

from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.web.problems import Problem

READS: Final = ("GET", "HEAD", "OPTIONS")
STARTS: Final = ("http.response.start", "websocket.http.response.start")
ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))  #: unless a route says else
ASKED: Final = (b"origin", b"sec-fetch-site")
PORTS: Final = {"http": 80, "https": 443}


class BrowserRules:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] in STARTS:
                mark(message["headers"])
            await send(message)

        try:
            check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, marked)
        else:
            await self.app(scope, receive, marked)


def check(scope: Scope) -> None:
    """Raise if a page of another origin would change something."""
    changes = scope["type"] == "websocket" or scope["method"] not in READS
    if changes and _is_browsers(scope) and not is_own(Headers(scope=scope)):
        raise Problem(
            403, "forbidden", "A page of another site sent this; use Penstock's own page, or a token in a program."
        )


def mark(headers: list[tuple[bytes, bytes]]) -> None:
    """Add what every answer says, unless its route says else."""
    names = [name for name, _ in headers]
    headers += [header for header in ALWAYS if header[0] not in names]


def _is_browsers(scope: Scope) -> bool:
    names = [name for name, _ in scope["headers"]]
    return any(name in names for name in ASKED)


def is_own(headers: Headers) -> bool:
    """True unless a browser sends this for a page of another origin. Programs send none of these headers."""
    if site := headers.get("sec-fetch-site"):
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    # No page can set X-Forwarded-Host without asking us first: it is a proxy's word.
    hosts = [host for name in ("host", "x-forwarded-host") for host in headers.getlist(name)]
    return origin is None or any(_same(origin, host) for host in hosts)


def _same(origin: str, host: str) -> bool:
    try:
        page, own = urlsplit(origin), urlsplit(f"//{host}")
        usual = PORTS.get(page.scheme)
        return page.hostname is not None and (page.hostname, page.port or usual) == (own.hostname, own.port or usual)
    except ValueError:
        return False
