"""Answers that do not end by themselves: server-sent events, and logs that are followed.

    return EventStream(guard.tokens.while_valid(caller, events()))

FastAPI's and Starlette's own have task groups and channels for each stream. Cancelled, these leave hundreds of objects
that refer to each other, and a page that is opened and closed again and again filled the memory.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core.values import value
from penstock.web.problems import Problem

PING_SECONDS: Final = 15.0  #: proxies close a connection that is silent for longer
PING: Final = b": ping\n\n"  #: a comment, which clients ignore
EVENT_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the latter is for nginx

T = TypeVar("T")


@value
class ServerEvent:
    data: str  # of one line
    id: str = ""
    kind: str = ""

    def encoded(self) -> bytes:
        fields = (("event", self.kind), ("data", self.data), ("id", self.id))
        return ("".join(f"{name}: {text}\n" for name, text in fields if text) + "\n").encode()


class StreamedAnswer(Response):
    """Sends what comes, until there is no more or its client is gone."""

    def __init__(
        self, parts: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.parts, self.media_type, self.status_code, self.background = parts, media_type, 200, None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as Starlette calls it
        async with aclosing(until(left(receive), self.parts)) as parts:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class EventStream(StreamedAnswer):
    """Server-sent events, with a comment now and then while nothing happens."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[ServerEvent, None]) -> None:
        super().__init__(_encoded(events), "text/event-stream", EVENT_HEADERS)


async def left(receive: Receive) -> None:
    """Until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _encoded(events: AsyncGenerator[ServerEvent, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        coming = asyncio.ensure_future(_next(events))
        try:
            while True:
                done, _ = await asyncio.wait([coming], timeout=PING_SECONDS)
                if not done:
                    yield PING
                elif (event := coming.result()) is None:
                    return
                else:
                    coming = asyncio.ensure_future(_next(events))
                    yield event[0].encoded()
        finally:
            await drop(coming)


async def until(gone: Coroutine[Any, Any, None], items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items until `gone` returns, also while none comes."""
    going = asyncio.ensure_future(gone)
    try:
        async with aclosing(items):
            while (item := await _before(going, items)) is not None:
                yield item[0]
    finally:
        await drop(going)


async def unless(gone: Coroutine[Any, Any, None], work: Coroutine[Any, Any, T], problem: Callable[[], Problem]) -> T:
    """The work's result; raises the problem as soon as `gone` returns, and ends the work."""
    going, working = asyncio.ensure_future(gone), asyncio.ensure_future(work)
    tasks: list[asyncio.Future[Any]] = [going, working]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if going.done():
            raise problem()
        return await working
    finally:
        await drop(going)
        await drop(working)


async def _before(gone: "asyncio.Future[None]", items: AsyncIterator[T]) -> tuple[T] | None:
    """The next item; None if there is none before somebody is gone."""
    coming = asyncio.ensure_future(_next(items))
    tasks: list[asyncio.Future[Any]] = [gone, coming]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if gone.done() else await coming
    finally:
        await drop(coming)


async def drop(task: "asyncio.Future[Any]") -> None:
    """Nobody wants its result any more, nor its error."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    with suppress(asyncio.CancelledError):
        task.exception()  # of a cancelled one it is taken out: it leads to frames that hold the task


async def _next(items: AsyncIterator[T]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None
