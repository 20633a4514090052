"""HTTPS and WebSocket transport to one API server. `access.connect` makes it; `client` interprets the answers.

It uses aiohttp: a request costs a fifth of the CPU time of the alternatives (bench/kube.py), and a Job takes several.
lightkube does the login; its result is one header, which is renewed when the server refuses it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from lightkube.core.exceptions import ConfigError
from yarl import URL

from penstock.core.values import value
from penstock.kube.errors import Silent, Unavailable

if TYPE_CHECKING:
    import httpx2

ANSWER_SECONDS: Final = 15.0  #: timeout of a request
CONNECT_SECONDS: Final = 5.0
PING_SECONDS: Final = 20.0  #: a peer that does not answer a ping is gone
MOST_BYTES: Final = 1 << 20  #: of a message
KEPT_SECONDS: Final = 30.0  #: how long an idle connection stays open
HEADERS: Final = {"Accept": "application/json", "User-Agent": "penstock"}
#: Errors of a login: lightkube's own for a program that fails; OSError for a token file that is being replaced.
FAILED: Final = (aiohttp.ClientError, TimeoutError, ConfigError, OSError, ValueError)


@value
class Request:
    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    kind: str = "application/json"  # the content type
    make: Callable[[], bytes] | None = None  # instead of `content`: made when it is sent; raises if it shall not be


@value
class Response:
    status: int
    headers: Mapping[str, str]
    content: bytes


class Stream(Protocol):
    """A streaming answer. Raises `Unavailable` when the connection breaks."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes: ...

    def pieces(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


class Channel(Protocol):
    """Messages in both directions. Raises `Unavailable` once the peer is gone."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    async def close(self) -> None: ...


class Transport(Protocol):
    """Raises `Unavailable` if no answer arrives."""

    async def send(self, request: Request) -> Response: ...

    async def open(self, request: Request, silence_s: float | None) -> Stream: ...

    async def talk(self, request: Request, protocol: str) -> Channel | Response:
        """Open a WebSocket; or return the answer of a server that refuses the upgrade."""
        ...

    async def close(self) -> None: ...


class RenewedToken(Protocol):
    """A token that is replaced before it ends (`token_renewal`)."""

    @property
    def path(self) -> str: ...

    def due(self) -> bool: ...

    def begin(self) -> bytes: ...

    async def renewed(self, status: int, content: bytes) -> str: ...

    async def newest(self) -> str: ...


class HttpsTransport:
    def __init__(
        self, server: str, context: ssl.SSLContext, auth: "httpx2.Auth | None", renewal: RenewedToken | None = None
    ) -> None:
        self.server, self.context = server.rstrip("/"), context
        self.login = Login(auth, server, renewal)
        self.renewal = renewal
        self._tasks: set[asyncio.Task[None]] = set()
        self.proxy = _proxy(server)
        self._session: aiohttp.ClientSession | None = None
        self._watching: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        try:
            async with await self._ask(request, ANSWER_SECONDS) as answer:
                return Response(answer.status, answer.headers, await answer.read())
        except FAILED as error:
            raise unheard(error) from error

    async def open(self, request: Request, silence_s: float | None) -> Stream:
        try:
            return _Open(await self._ask(request, silence_s))
        except FAILED as error:
            raise unheard(error) from error

    async def talk(self, request: Request, protocol: str) -> Channel | Response:
        try:
            return _Socket(
                await self._opened().ws_connect(
                    self._url(request),
                    protocols=(protocol,),
                    headers=self._headers(await self.login.header(), request),
                    heartbeat=PING_SECONDS,
                    max_msg_size=MOST_BYTES,
                    proxy=self.proxy,
                )
            )
        except aiohttp.WSServerHandshakeError:  # the reason is only in the answer to a plain request
            return await self.send(request)
        except FAILED as error:
            raise unheard(error) from error

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)  # a token that was given is kept
        for session in (self._session, self._watching):
            if session is not None:
                await session.close()

    async def _ask(self, request: Request, silence_s: float | None) -> aiohttp.ClientResponse:
        """Send the request; on 401, log in again and send it once more."""
        header = await self.login.header()
        self._renew_in_time(header)
        answer = await self._ask_as(header, request, silence_s)
        if answer.status == 401 and (newer := await self.login.header(refused=header)) != header:
            answer.release()
            answer = await self._ask_as(newer, request, silence_s)
        return answer

    def _renew_in_time(self, header: str) -> None:
        """Beside the request, with the token that is still good."""
        if self.renewal is not None and self.renewal.due():
            body = self.renewal.begin()
            task = asyncio.create_task(self._renew(header, Request("POST", self.renewal.path, content=body)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _renew(self, header: str, request: Request) -> None:
        assert self.renewal is not None
        with suppress(*FAILED):  # due again in a minute
            async with await self._ask_as(header, request, ANSWER_SECONDS) as answer:
                if token := await self.renewal.renewed(answer.status, await answer.read()):
                    self.login.known = f"Bearer {token}"

    async def _ask_as(self, header: str, request: Request, silence_s: float | None) -> aiohttp.ClientResponse:
        session = self._opened_to_watch() if ("watch", "true") in request.params else self._opened()
        return await session.request(
            request.method,
            self._url(request),
            data=request.content if request.make is None else _made_when_sent(request.make),
            headers=self._headers(header, request),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_s),
            allow_redirects=False,
            proxy=self.proxy,
        )

    def _url(self, request: Request) -> URL:
        asked = f"?{urlencode(request.params)}" if request.params else ""
        return URL(self.server + request.path + asked, encoded=True)

    def _headers(self, login: str, request: Request) -> dict[str, str]:
        content = {} if request.content is None and request.make is None else {"Content-Type": request.kind}
        return content | ({"Authorization": login} if login else {})

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made with the first request because it belongs to that event loop. `request_priority` limits
        concurrency, not the session: each followed log and each watch holds a connection for as long as it lasts.
        """
        if self._session is None:
            self._session = _session(aiohttp.TCPConnector(ssl=self.context, limit=0, keepalive_timeout=KEPT_SECONDS))
        return self._session

    def _opened_to_watch(self) -> aiohttp.ClientSession:
        """Each watch has a new connection. One that was kept may be dead since an outage, and a watch is silent so long
        anyway that nobody would notice."""
        if self._watching is None:
            self._watching = _session(aiohttp.TCPConnector(ssl=self.context, limit=0, force_close=True))
        return self._watching


async def _made_when_sent(make: Callable[[], bytes]) -> AsyncIterator[bytes]:
    """The connection is there and has taken the headers: these bytes leave at once. If `make` raises, the server never
    has the whole request, and drops it.
    """
    yield make()


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector, headers=HEADERS, cookie_jar=aiohttp.DummyCookieJar())


class _Open:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer, self.status = answer, answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def read(self) -> bytes:
        try:
            return await self.answer.read()
        except FAILED as error:
            raise unheard(error) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self.answer.content.iter_any():
                yield piece
        except FAILED as error:
            raise unheard(error) from error

    async def close(self) -> None:
        """Close at once, without draining the answer."""
        connection = self.answer.connection
        transport = connection.transport if connection is not None else None
        self.answer.close()
        if transport is not None:
            transport.abort()


class _Socket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, message: bytes) -> None:
        try:
            await self.socket.send_bytes(message)
        except FAILED as error:
            raise unheard(error) from error

    async def receive(self) -> bytes:
        heard = await self.socket.receive()
        if heard.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            raise Unavailable(f"the connection broke off ({heard.extra or heard.data or heard.type.name})")
        return heard.data if isinstance(heard.data, bytes) else str(heard.data).encode()

    async def close(self) -> None:
        await self.socket.close()


class Login:
    """The Authorization header, kept until a server refuses it."""

    def __init__(self, auth: "httpx2.Auth | None", server: str, renewal: RenewedToken | None = None) -> None:
        self.auth, self.server, self.renewal = auth, server, renewal
        self.known: str | None = None if auth is not None else ""
        self.asking = asyncio.Lock()

    async def header(self, refused: str | None = None) -> str:
        if self.known is not None and self.known != refused:
            return self.known
        async with self.asking:
            if self.known is None or (self.known == refused and self.auth is not None):
                self.known = await self._ask(again=self.known is not None)
            return self.known

    async def _ask(self, again: bool) -> str:
        """`again`: the last header was refused, so ask for a fresh one. A static token stays the same."""
        import httpx2

        assert self.auth is not None
        if again and self.renewal is not None:
            return f"Bearer {await self.renewal.newest()}"
        flow = self.auth.async_auth_flow(httpx2.Request("GET", self.server))
        asked = await anext(flow)
        if again:
            with suppress(StopAsyncIteration):
                asked = await flow.asend(httpx2.Response(401))
        header = str(asked.headers.get("Authorization", ""))
        await flow.aclose()
        return header


def unheard(error: Exception) -> Unavailable:
    """The error for a server that did not answer, or for a login that failed."""
    silent = isinstance(error, aiohttp.ClientError | TimeoutError | ConnectionError)
    late = "it did not answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return (Silent if silent else Unavailable)(str(error) or late)


def _proxy(server: str) -> str | None:
    """From the environment."""
    where = urlsplit(server)
    return None if proxy_bypass(where.netloc) else getproxies().get(where.scheme)
