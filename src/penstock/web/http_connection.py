"""One client's HTTP connection, and its WebSocket: uvicorn's protocols, with bounds on what a client may send and how
slowly. `server` makes one for each connection that `connections` accepts.

uvicorn's own limits begin when a head is whole, and its parser keeps whatever comes before that.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from penstock.web.connections import Bounds, Connections, Peer
from penstock.web.limits import MOST_BYTES

MOST_LINE: Final = 16_384  #: bytes of an address with its query
MOST_HEAD: Final = 32_768  #: bytes of a request's line and headers
MOST_HEADERS: Final = 100
MOST_PARAMETERS: Final = 1_100  #: of a query; a command of `penstock exec` has up to a thousand words
MOST_COOKIES: Final = 8_192  #: bytes
#: They do not wait for other requests, since whoever probes us would restart us; unless a client sends many at once.
AT_ONCE: Final = ("/healthz", "/readyz")
PROBES: Final = tuple(f"GET {path} ".encode() for path in AT_ONCE)
MOST_PROBE: Final = 1_024  #: bytes of one; more is several of them
MOST_UNPARSED: Final = 65_536  #: bytes of one client that wait to be parsed; then we read no more of it
MOST_PIPELINED: Final = 16  #: requests that a client may send before it has the answer to the first
MOST_ON_WIRE: Final = 2 * MOST_BYTES  #: bytes of a body with its chunks' sizes and extensions
MOST_CHUNKS: Final = 1_024  #: of one body, unless they are large; parsing them takes some milliseconds
LEAST_CHUNK: Final = 64  #: bytes of a chunk, on average, if they are many
MOST_MESSAGE: Final = 1_000_000  #: bytes of a WebSocket message
MOST_BUFFERED: Final = 4_000_000  #: bytes for one client that does not read


class Excess(Exception):
    """A client sent more than it may: the parser ends."""


class SlowReader(asyncio.Protocol):
    """Knows since when the client has not read what is buffered for it. Mixed into uvicorn's protocols."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    write_since: float | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self.write_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.write_since = None

    def unread(self) -> int:
        return self.transport.get_write_buffer_size()


class HttpConnection(SlowReader, HttpToolsProtocol):
    """Counts heads, chunks and pipelined requests, and tells `Connections` whom it waits for."""

    def __init__(
        self, connections: Connections, peer: Peer, config: Config, state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, state, app_state)
        self.bounded, self.peer = connections, peer
        self.head_since: float | None = self.loop.time()  #: since when a head is awaited or arriving
        self.body_since: float | None = None  #: since when a body is arriving
        self.wire = 0  #: bytes of this head or body so far
        self.chunks = self.head = 0
        self.excess = 0, ""  #: status and sentence for a client that sent more than it may
        self.running: RequestResponseCycle | None = None  #: the request that is worked on; `cycle` is the newest
        self.unparsed = bytearray()  #: what waits for its turn
        self.answering = False  #: a request has just been answered

    # --- what the client sends ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.peer.connection = self
        if self.peer not in self.bounded.open:  # closed for another one during its handshake
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parsed now or in one of the next turns, so that a thousand clients that write at once hold nobody up."""
        turns = self.bounded.turns
        if not self.unparsed and (turns.has_time or (len(data) < MOST_PROBE and data.startswith(PROBES))):
            turns.parse(self._parse, data)
            return
        if not self.unparsed:
            turns.later(self.peer.address, self._parse_waiting)
        self.unparsed += data
        if len(self.unparsed) > MOST_UNPARSED:
            self.flow.pause_reading()

    def _parse_waiting(self) -> None:
        data, self.unparsed = bytes(self.unparsed), bytearray()
        if len(data) > MOST_UNPARSED:
            self.flow.resume_reading()
        self.bounded.turns.parse(self._parse, data)

    def _parse(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.wire += len(data)
        if self.body_since is None and self.head_since is None:
            self.head_since = self.loop.time()
        most = MOST_HEAD if self.body_since is None else MOST_ON_WIRE
        before = self.wire
        super().data_received(data)
        if self.wire == before > most and not self.transport.is_closing():  # no head and no body ended in it
            if not self.excess[0]:
                self.excess = 431 if self.body_since is None else 413, "The request is too large."
            self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["peer"] = self.peer  # for what does not end by itself
        self.head = self.chunks = 0
        if len(self.pipeline) >= MOST_PIPELINED:
            self._refuse(429, f"At most {MOST_PIPELINED} requests may wait on a connection; read the answers first.")

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MOST_LINE or self.url.count(b"&") > MOST_PARAMETERS:
            excess = f"longer than {MOST_LINE:,} bytes, or has more than {MOST_PARAMETERS:,} parameters"
            self._refuse(414, f"The address with its query is {excess}.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.body_since is not None:  # a trailer, after a chunked body: nobody reads it
            return
        super().on_header(name, value)
        self.head += len(name) + len(value) + 4
        if len(value) > MOST_COOKIES and name.lower() == b"cookie":
            self._refuse(431, f"The cookies are longer than {MOST_COOKIES:,} bytes; delete those of this host.")
        if self.head > MOST_HEAD or len(self.headers) > MOST_HEADERS:
            self._refuse(431, f"The headers are more than {MOST_HEADERS}, or longer than {MOST_HEAD:,} bytes.")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.head_since, self.body_since, self.wire = None, self.loop.time(), 0

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        start = super()._start_asgi_task

        def begin() -> None:
            if not self.transport.is_closing():  # while it waited
                self.running = cycle
                start(cycle, app)

        probes = cycle.scope["path"] in AT_ONCE and not self.answering
        self.bounded.turns.start(self.peer.address, begin, at_once=probes)

    def on_chunk_header(self) -> None:
        self.chunks += 1
        if self.chunks > MOST_CHUNKS and self.wire < self.chunks * LEAST_CHUNK:
            self._refuse(413, "The body comes in too many small chunks.")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        answered = self._answered()  # before its body was whole
        self.head_since, self.body_since, self.wire = self.loop.time() if answered else None, None, 0
        if not answered:
            self.bounded.works(self.peer)

    def on_response_complete(self) -> None:
        self.answering = True
        super().on_response_complete()  # begins the next request of its pipeline
        self.answering = False
        if not self.pipeline and self.peer in self.bounded.open:
            self.bounded.waits(self.peer)

    def _refuse(self, status: int, detail: str) -> None:
        """The parser ends with an error, which `send_400_response` answers."""
        self.excess = status, detail  # and not the error: its traceback leads back here
        raise Excess(detail)

    def send_400_response(self, msg: str) -> None:
        status, detail = self.excess if self.excess[0] else (400, msg)
        title = HTTPStatus(status).phrase
        problem = {"type": "urn:penstock:bad-request", "title": title, "status": status, "detail": detail}
        body = json.dumps(problem).encode()
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
            "x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    # --- for `Connections` --------------------------------------------------------------------------------------------

    def is_late(self, now: float, bounds: Bounds) -> bool:
        if self.transport.is_closing() and self.write_since is None:  # once the client has read the rest
            self.write_since = now
        rest = self.body_since if self._answered() else None  # of a body that nobody reads any more
        late_head = self.head_since is not None and now - self.head_since > bounds.head_seconds
        return late_head or any(
            since is not None and now - since > bounds.write_seconds for since in (rest, self.write_since)
        )

    def _answered(self) -> bool:
        cycle: Any = self.cycle  # none before the first request, whatever its type says
        return cycle is not None and bool(cycle.response_complete)

    def abort(self) -> None:
        self._disconnect()
        self.transport.abort()

    def shutdown(self) -> None:
        """The server ends: what streams ends now, what answers may finish."""
        super().shutdown()
        streams = self.running is not None and self.running.response_started and not self._answered()
        if streams and self.write_since is None:
            self._disconnect()
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnect()
        super().connection_lost(exc)
        self.bounded.gone(self.peer)
        self._let_go()

    def _let_go(self) -> None:
        """Break what refers to itself. What is left of a connection must not wait for the cyclic collector, nor for a
        timer: strangers open and close them by the thousand.
        """
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        gone: Any = self
        gone.cycle = gone.parser = self.running = None
        if self.peer.connection is self:
            self.peer.connection = None

    def _disconnect(self) -> None:
        """Tell the request that is worked on; uvicorn tells only the newest one."""
        if self.running is not None and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        self.bounded.works(self.peer)
        self.connections.discard(self)
        lines = [self.scope["method"].encode() + b" " + self.url + b" HTTP/1.1"]
        lines += [name + b": " + text for name, text in self.scope["headers"]]
        talk = WebSocketConnection(self.bounded, self.peer, self.config, self.server_state, self.app_state)
        talk.connection_made(self.transport)
        self.transport.set_protocol(talk)
        self._let_go()
        try:
            talk.data_received(b"\r\n".join([*lines, b"", b""]))
        except ValueError:  # bytes beyond ASCII, which WebSockets do not have in an address or a header
            self.send_400_response("Invalid HTTP request received.")


class WebSocketConnection(SlowReader, WSProtocol):
    """Bounds what is buffered for a client that does not read."""

    def __init__(
        self, connections: Connections, peer: Peer, config: Config, state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, state, app_state)
        self.bounded, self.peer = connections, peer
        peer.connection = self

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_BUFFERED:  # pings are answered whether or not it reads
            self.transport.abort()

    def is_late(self, now: float, bounds: Bounds) -> bool:
        return self.write_since is not None and now - self.write_since > bounds.write_seconds

    def abort(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.bounded.gone(self.peer)
        self.peer.connection = None
