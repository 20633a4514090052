"""Serving the app: one socket, bound before anything starts, so that a taken port is one clear sentence."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import uvicorn

from penstock.core.errors import BadInput

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
#: Connections at once; one more is answered with 503 instead of memory.
MOST_CONNECTIONS: Final = 2_000


def bind(host: str, port: int) -> socket.socket:
    """The socket to serve on; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol by name: asyncio sends small answers at once only where it is sure of TCP, and else 40 ms later.
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
    """Answers come while the block runs. What is being answered at its end has a moment to finish."""
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
    sock.listen(2_048)  # from now on a client is taken, even if it is answered a moment later
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
    """Streams do not end by themselves: that they are cut at the end is no news, and no traceback."""
    log = logging.getLogger("uvicorn.error")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class _Server(uvicorn.Server):
    """Signals are `penstock up`'s to handle, not the web server's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
