"""No connection, token or body leaves anything behind: objects are counted after many of each kind, and nothing may be
left for the cyclic collector.
"""

import asyncio
import gc
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final
from urllib.parse import urlsplit

import pytest
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from penstock.web import server
from penstock.web.connections import Peer
from penstock.web.http_connection import HttpConnection, WebSocketConnection
from penstock.web.problems import Problem
from penstock.web.streaming import StreamedAnswer
from penstock.wiring import event_loop
from tests.awaiting import LIMIT_S
from tests.hostile.raw import head
from tests.web.kit import CLOUD, LAB, WAITS, Penstock, running

MANY: Final = 40  #: connections of each kind
FIRST: Final = 6  #: connections before, which fill caches
#: Of what each connection has, and of what an error leads to.
COUNTED: Final = (
    HttpConnection, WebSocketConnection, Peer, RequestResponseCycle, HTTPConnection, StreamedAnswer, Problem,
    asyncio.Task, asyncio.Event, FrameType, TracebackType,
)  # fmt: skip
TALK: Final = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip
BODY: Final = ("Content-Length: 2",)


class Client:
    """What strangers, members and browsers send, each on a connection of its own; `JOB` stands for a running job."""

    def __init__(self, penstock: Penstock, job: str, member: str) -> None:
        self.url, self.job, self.member = urlsplit(penstock.url), job, member

    def asks(self, method: str, path: str, *headers: str, secret: str | None = None) -> bytes:
        return head(method, path.replace("JOB", self.job), *headers, secret=self.member if secret is None else secret)

    def sends(self, data: bytes, *, waits: bool = True, resets: bool = False) -> bytes:
        """The beginning of the answer; `resets`: it ends the connection with an error, as a browser that is closed."""
        with socket.create_connection((self.url.hostname or "", self.url.port or 0), LIMIT_S) as sock:
            sock.sendall(data)
            got = sock.recv(1 << 16) if waits else b""
            if resets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return got


Ask = Callable[[Client], bytes]
BAD: Final = "pst_of-nobody"
#: What happens on the connection, and how its answer begins.
KINDS: Final[dict[str, tuple[Ask, bytes]]] = {
    "bad token": (lambda c: c.sends(c.asks("GET", "/v1/jobs", secret=BAD)), b"401"),
    "bad token, another route": (lambda c: c.sends(c.asks("GET", "/v1/sites", secret=BAD)), b"401"),
    "bad token, gone before the answer": (lambda c: c.sends(c.asks("GET", "/v1/sites", secret=BAD), waits=False), b""),
    "bad token, reset": (lambda c: c.sends(c.asks("GET", "/v1/jobs", secret=BAD), waits=False, resets=True), b""),
    "bad token and a body": (lambda c: c.sends(c.asks("POST", "/v1/jobs", *BODY, secret=BAD) + b"{}"), b"401"),
    "no token, a page": (lambda c: c.sends(c.asks("GET", "/", "Accept: text/html", secret="")), b"401"),
    "a guess in the form": (lambda c: c.sends(c.asks("POST", "/login", *BODY, secret="") + b"to"), b"422"),
    "a guessed link": (lambda c: c.sends(c.asks("GET", "/login/guessed", secret="")), b"410"),
    "a probe": (lambda c: c.sends(c.asks("GET", "/healthz", secret="")), b"200"),
    "no HTTP": (lambda c: c.sends(b"\x00\x01\r\n\r\n"), b"400"),
    "a huge head": (lambda c: c.sends(c.asks("GET", "/", "X: " + "a" * 40_000, secret="")), b"431"),
    "half a head": (lambda c: c.sends(b"GET / HTTP/1.1\r\nHost:", waits=False), b""),
    "nothing at all": (lambda c: c.sends(b"", waits=False), b""),
    "a bad token for a command": (lambda c: c.sends(c.asks("GET", "/v1/jobs/JOB/exec", *TALK, secret=BAD)), b"401"),
    "a command without its protocol": (lambda c: c.sends(c.asks("GET", "/v1/jobs/JOB/exec?command=a", *TALK)), b"422"),
    "no such address": (lambda c: c.sends(c.asks("GET", "/nowhere")), b"404"),
    "a role that may not": (lambda c: c.sends(c.asks("POST", "/v1/pause")), b"403"),
    "jobs": (lambda c: c.sends(c.asks("GET", "/v1/jobs")), b"200"),
    "one job": (lambda c: c.sends(c.asks("GET", "/v1/jobs/JOB")), b"200"),
    "a bad job": (lambda c: c.sends(c.asks("POST", "/v1/jobs", *BODY) + b"{}"), b"422"),
    "a bad form": (lambda c: c.sends(c.asks("POST", "/v1/budget/raise", *BODY) + b"{}"), b"422"),
    "a body that is too large": (lambda c: c.sends(c.asks("POST", "/v1/jobs", "Content-Length: 9999999")), b"413"),
    "a body that stops": (lambda c: c.sends(c.asks("POST", "/v1/jobs", *BODY) + b"{", waits=False), b""),
    "many at once": (lambda c: c.sends(c.asks("GET", "/v1/jobs") * 5), b"200"),
    "the page": (lambda c: c.sends(c.asks("GET", "/")), b"200"),
    "the page, gone before the answer": (lambda c: c.sends(c.asks("GET", "/"), waits=False), b""),
    "a job's page": (lambda c: c.sends(c.asks("GET", "/jobs/JOB")), b"200"),
    "a bad page": (lambda c: c.sends(c.asks("GET", "/jobs/nobody", "Accept: text/html")), b"404"),
    "the page's stream": (lambda c: c.sends(c.asks("GET", "/news/stream")), b"200"),
    "the page's stream, reset": (lambda c: c.sends(c.asks("GET", "/news/stream"), resets=True), b"200"),
    "events": (lambda c: c.sends(c.asks("GET", "/v1/events/stream?after=0")), b"200"),
    "a log that is followed": (lambda c: c.sends(c.asks("GET", "/v1/jobs/JOB/log?follow=true")), b"200"),
    "a log that is waited for": (
        lambda c: c.sends(c.asks("GET", "/v1/jobs/JOB/log?after=9&wait=30"), waits=False),
        b"",
    ),
}


@pytest.mark.slow
def test_connections_leave_no_object_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection with a bad token left 4 kB: what was left of it referred to itself, a timer held it for half a
    minute, and the collector hardly ever looked at what had become old. A stranger filled the memory in ten minutes.
    """
    servers = list[server._Server]()
    make = server._Server.__init__

    def made(self: server._Server, *more: object) -> None:
        make(self, *more)  # type: ignore[arg-type]  # passed on
        servers.append(self)

    monkeypatch.setattr(server._Server, "__init__", made)

    async def tells() -> None:
        async with asyncio.timeout(LIMIT_S), _busy(tmp_path) as client:
            wrong = {kind: left for kind in KINDS if (left := await _left(client, kind, servers[0]))}
            assert wrong == {}

    with asyncio.Runner(loop_factory=event_loop()) as runner:  # the loop of `penstock up`: it has its own transports
        runner.run(tells())


@asynccontextmanager
async def _busy(home: Path) -> AsyncIterator[Client]:
    """A running job, and a member of its team."""
    async with running(home, LAB, CLOUD) as penstock:
        _, member = penstock.token("member", "vision")
        job = await penstock.submits(penstock.client(member), command=WAITS)
        await penstock.until_prints(job, "runs")
        yield Client(penstock, job, member)


async def _left(client: Client, kind: str, served: server._Server) -> dict[str, int]:
    """What this many connections have left behind, by the kind of object, without the collector."""
    ask, begins = KINDS[kind]
    answers = await asyncio.to_thread(lambda: [ask(client) for _ in range(FIRST)])
    assert all(answer.partition(b" ")[2].startswith(begins) for answer in answers), (kind, answers)
    await _all_closed(served)
    gc.collect()
    gc.disable()
    try:
        before = _alive()
        await asyncio.to_thread(lambda: [ask(client) for _ in range(MANY)])
        await _all_closed(served)
        left = _alive() - before
    finally:
        gc.enable()
    return {name: count for name, count in left.items() if count >= MANY // 2}


async def _all_closed(served: server._Server) -> None:
    while served.bounded.open or served.server_state.tasks:
        await asyncio.sleep(0.01)
    for _ in range(5):  # turns in which what was waiting for them ends
        await asyncio.sleep(0.01)


def _alive() -> "Counter[str]":
    things = Counter(map(type, gc.get_objects()))
    return Counter({kind.__name__: count for kind, count in things.items() if issubclass(kind, COUNTED)})
