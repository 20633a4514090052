"""A wire whose answers a test says: a function from a request to an answer, both as httpx2 has them."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import httpx2

from penstock.kube.errors import Silent
from penstock.kube.transport import Channel, Request, Response, Stream

Say = Callable[[httpx2.Request], httpx2.Response | Awaitable[httpx2.Response]]


class Told:
    def __init__(self, say: Say) -> None:
        self.say = say

    async def send(self, request: Request) -> Response:
        response = await self._said(request)
        return Response(response.status_code, response.headers, await response.aread())

    async def open(self, request: Request, silence_s: float | None) -> Stream:  # noqa: ARG002 - a wire's own
        return _Open(await self._said(request))

    async def talk(self, request: Request, protocol: str) -> Channel | Response:  # noqa: ARG002 - a wire's own
        return await self.send(request)

    async def close(self) -> None:
        """Nothing is open."""

    async def _said(self, request: Request) -> httpx2.Response:
        asked = httpx2.Request(
            request.method,
            f"https://told{request.path}",
            params=dict(request.params),
            content=request.content,
            headers={"Content-Type": request.kind},
        )
        try:
            answer = self.say(asked)
            return await answer if inspect.isawaitable(answer) else answer
        except httpx2.HTTPError as error:
            raise Silent(str(error)) from error


class _Open:
    def __init__(self, response: httpx2.Response) -> None:
        self.found, self.status = response, response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        return await self.found.aread()

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self.found.aiter_bytes():
                yield piece
        except httpx2.HTTPError as error:
            raise Silent(str(error)) from error

    async def close(self) -> None:
        await self.found.aclose()
