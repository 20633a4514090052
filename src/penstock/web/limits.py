"""Limits per client: body size, body time and request rate, so that one noisy team or slow connection does not affect
others.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.web.problems import Problem

MOST_BYTES: Final = 1_000_000  #: of a request's body, and so of a job file
MOST_KEYS: Final = 10_000  #: buckets kept


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


class BodyLimit:
    """ASGI middleware: answers a body that is too large or too slow, and reads no more of it."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif _announced(scope) > MOST_BYTES:
            await self._too_large().response()(scope, receive, send)
        else:
            await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
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
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> Problem:
        detail = f"The body is larger than {MOST_BYTES:,} bytes; put files where the job can fetch them."
        return Problem(413, "too-large", detail, {"Connection": "close"})


def _announced(scope: Scope) -> int:
    length = next((text for name, text in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() else 0
