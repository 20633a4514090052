"""Serves the app with uvicorn on one socket, bound before anything starts, so that a taken port is one clear error."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import uvicorn

from penstock.core.errors import BadInput

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
#: Concurrent connections; more are answered with 503.
MOST_CONNECTIONS: Final = 2_000


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
        raise BadInput(f"Cannot listen on {host} port {port} ({error.strerror}); choose another with --port.") from None
    return sock


def address_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: Any, sock: socket.socket) -> AsyncIterator[None]:
    """Serve while the block runs; requests in flight get a moment to finish."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    sock.listen(2_048)  # from now on clients can connect, even if the first answer takes a moment
    server = _Server(config)
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
    """`penstock up` handles signals, not uvicorn."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
