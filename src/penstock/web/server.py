"""Serves the app with uvicorn on one socket, bound before anything starts, so that a taken port is one clear error."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import uvicorn

from penstock.core.errors import BadInput
from penstock.drivers.local.listeners import listener_on
from penstock.web.connections import Bounds, Connections, Peer
from penstock.web.http_connection import MOST_MESSAGE, HttpConnection
from penstock.web.tls import Certificate

#: Seconds that a connection without a request stays open.
KEEP_ALIVE_SECONDS: Final = 30
CANCEL_SECONDS: Final = 1.0  #: for what was cancelled at the end


def bind(host: str, port: int) -> socket.socket:
    """The listening socket; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name the protocol: asyncio sets TCP_NODELAY only then; otherwise small answers wait 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        taken = listener_on(host, port) if error.errno == errno.EADDRINUSE else None
        why = f"{taken.words} listens there" if taken else error.strerror
        raise BadInput(f"Cannot listen on {host} port {port} ({why}); choose another with --port.") from None
    return sock


def is_loopback(host: str) -> bool:
    """True if only this machine can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(sock: socket.socket, *, tls: bool = False) -> str:
    """The address for clients on this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(
    app: Any,
    sock: socket.socket,
    tls: Certificate | None = None,
    bounds: Bounds | None = None,
    proxies: str = "",
) -> AsyncIterator[None]:
    """Serve while the block runs; requests in flight get a moment to finish. `proxies`: addresses whose word about a
    client's own address is believed.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
        server_header=False,
        ws="wsproto",
        ws_max_size=MOST_MESSAGE,
        ws_per_message_deflate=False,  # a message of a kilobyte could become one of a megabyte
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a stranger's bad requests are no news
    sock.listen(2_048)  # from now on clients can connect, even if the first answer takes a moment
    server = _Server(config, bounds or Bounds.here(), tls)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        with _cut_in_silence():
            await task


@contextlib.contextmanager
def _cut_in_silence() -> Iterator[None]:
    """Streams never end by themselves: cutting them at the end is no error and no traceback."""
    log = logging.getLogger("uvicorn.error")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class _Server(uvicorn.Server):
    """`penstock up` handles signals, not uvicorn; and `Connections` accepts."""

    def __init__(self, config: uvicorn.Config, bounds: Bounds, tls: Certificate | None) -> None:
        super().__init__(config)
        self.bounded = Connections(bounds, self._connection, tls)

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.bounded.listen(*(sockets or ()))
        self.servers = [self.bounded]  # type: ignore[list-item]  # it is closed as a server of asyncio is
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.bounded.abort_all()  # uvicorn cancels what still answers and leaves its connection open
        await asyncio.sleep(0)  # the loop's next turn is when they are closed
        if cancelled := list(self.server_state.tasks):  # it does not wait for them, and what they log would come later
            await asyncio.wait(cancelled, timeout=CANCEL_SECONDS)

    def _connection(self, peer: Peer) -> HttpConnection:
        return HttpConnection(self.bounded, peer, self.config, self.server_state, self.lifespan.state)
