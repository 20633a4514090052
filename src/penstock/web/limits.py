"""Limits per client: body size, body time, request rate and streams, so that one noisy team or slow connection does not
affect others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.web.problems import Problem

MOST_BYTES: Final = 1_000_000  #: of any request's body, and so of a job file
MOST_FORM_BYTES: Final = 4_096  #: of a form, or of a body with a few fixed keys
MOST_KEYS: Final = 10_000  #: buckets kept
FREE_BYTES: Final = 16_384  #: bodies up to this need no room
MOST_HELD: Final = 64_000_000  #: bytes of larger bodies that are in memory at once, of all tokens
MOST_HELD_EACH: Final = 8_000_000  #: and of one token
MOST_STREAMS: Final = 50  #: answers of one token that do not end by themselves: events, logs, commands
MOST_STREAMS_WITH_BROWSERS: Final = 200  #: of one token and all browsers that it has let in


class Buckets:
    """Token buckets by key: `burst` at once, `per_second` in the long run."""

    def __init__(self, per_second: float, burst: float, now: Callable[[], float]) -> None:
        self.per_second, self.burst, self.now = per_second, burst, now
        self.left: dict[str, tuple[float, float]] = {}  #: key -> (tokens left, as of)

    def take(self, key: str) -> float:
        """0, or the seconds until a token is available."""
        now = self.now()
        tokens, at = self.left.pop(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - at) * self.per_second)
        granted = tokens >= 1
        self.left[key] = (tokens - granted, now)
        if len(self.left) > MOST_KEYS:  # the first is the least recently used; it is full again, or nearly
            del self.left[next(iter(self.left))]
        return 0 if granted else (1 - tokens) / self.per_second


class Room:
    """How much of something is in use: of all callers (None: without a bound), and of each."""

    def __init__(self, most: int | None, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.used: Counter[str] = Counter()
        self.total = 0

    @contextmanager
    def take(self, caller: str, amount: int, problem: Callable[[], Problem]) -> Iterator[None]:
        is_full = self.most is not None and self.total + amount > self.most
        if is_full or self.used[caller] + amount > self.most_each:
            raise problem()
        self.used[caller] += amount
        self.total += amount
        try:
            yield
        finally:
            self.total -= amount
            self.used[caller] -= amount
            if not self.used[caller]:
                del self.used[caller]


async def read_body(request: Request, most: int) -> bytes:
    """The body, if it has at most so many bytes; of a larger one no more is read. Call it once the caller is known."""
    length = _announced(request.scope)
    if length > most:
        raise _too_large(most)
    parts, size, more = list[bytes](), 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "cut-off", "The connection ended before the body did; send it again.")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def room_for_body(request: Request, caller: str) -> AbstractContextManager[None]:
    """Room in memory for a large body, while it is read and parsed."""
    length = _announced(request.scope, missing=MOST_BYTES)
    if length <= FREE_BYTES:
        return nullcontext()
    room: Room = request.app.state.bodies
    return room.take(caller, length, _too_many_bodies)


def _too_many_bodies() -> Problem:
    detail = "Too many large bodies are arriving; send fewer at a time, and this one again."
    return Problem(429, "too-many", detail, {"Retry-After": "1", "Connection": "close"})


class Streams:
    """Room for answers that do not end by themselves: of each token, and of each with all browsers that it has let in,
    who would otherwise be as many clients as they like. Of all together connections are the bound, where the oldest
    streams give way (`connections`): a bound here would let a few tokens lock out everybody else.
    """

    def __init__(self) -> None:
        self.each, self.with_browsers = Room(None, MOST_STREAMS), Room(None, MOST_STREAMS_WITH_BROWSERS)

    @contextmanager
    def take(self, caller: str, first: str) -> Iterator[None]:
        """`first`: the token that let the caller in, or the caller."""
        with self.each.take(caller, 1, _too_many_streams), self.with_browsers.take(first, 1, _too_many_with_browsers):
            yield


def _too_many_streams() -> Problem:
    detail = f"This token has {MOST_STREAMS} streams open: events, logs and commands; end some of them."
    return Problem(429, "too-many", detail, {"Retry-After": "5"})


def _too_many_with_browsers() -> Problem:
    detail = (
        f"A token and its browsers have {MOST_STREAMS_WITH_BROWSERS} streams open; close pages, or make another token."
    )
    return Problem(429, "too-many", detail, {"Retry-After": "5"})


class BodyLimit:
    """ASGI middleware: answers a body that is too large or too slow, and reads no more of it."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        else:
            await self.app(scope, self.limited(receive), send)

    def check(self, scope: Scope) -> None:
        """Raise if the client announces too much."""
        if _announced(scope) > MOST_BYTES:
            raise _too_large(MOST_BYTES)

    def limited(self, receive: Receive) -> Receive:
        """The same, which raises if the body is too large or too slow."""
        read = 0
        whole = False
        until = asyncio.get_running_loop().time() + self.seconds

        async def counted() -> Message:
            nonlocal read, whole
            if whole:  # only a disconnect can follow: no timeout
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "too-slow", "The body took too long to arrive.", {"Connection": "close"}) from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > MOST_BYTES:
                raise _too_large(MOST_BYTES)
            return message

        return counted


def _too_large(most: int) -> Problem:
    detail = f"The body is larger than {most:,} bytes; put files where the job can fetch them."
    return Problem(413, "too-large", detail, {"Connection": "close"})


def _announced(scope: Scope, missing: int = 0) -> int:
    for name, text in scope["headers"]:
        if name == b"content-length":
            return int(text) if text.isdigit() else 0
    return missing
