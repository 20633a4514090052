"""Accepts connections within bounds, so that nobody's connections keep others out. `server` runs it.

    connections = Connections(Bounds.here(), make)          # `make` returns the protocol of a new connection
    connections.listen(sock)

All connections together stay below the process's limit of open files, with a reserve for journal, sites and logs. When
they are too many, of one address or at all, the newest comes in and the oldest that waits for its client goes:
somebody who connects and says nothing, or says it slowly, keeps nobody out. If none waits, the oldest stream goes: its
client asks again, and goes on where it was. Any other connection whose request is whole is never closed for another.
"""

import asyncio
import contextlib
import errno
import ipaddress
import itertools
import resource
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any, Final, Protocol, Self

from penstock.core.values import value
from penstock.web.tls import Certificate

#: Why `accept` may fail although the listening socket is well: wait, and close somebody's connection.
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
REST_SECONDS: Final = 0.1  #: after such a failure
SWEEP_SECONDS: Final = 1.0
#: Requests at most; one takes about a millisecond, and every other client waits for the turn.
STARTS_IN_A_TURN: Final = 4
PROBES_IN_A_TURN: Final = 2 * STARTS_IN_A_TURN  #: requests with which a probe begins in a turn that is full
LONG_TURN_SECONDS: Final = 0.006  #: of processor time; after a longer turn half as many start, until they take less
PARSE_SECONDS: Final = 0.003  #: of a turn, to parse what clients sent; the rest waits for the next turn
IN_A_ROW: Final = 4  #: connections accepted in a turn; one takes about half a millisecond
BUSY_BODY: Final = (
    b'{"type":"urn:penstock:busy","title":"Service Unavailable","status":503,'
    b'"detail":"Too many connections are open; try again in a moment."}'
)
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
) % (len(BUSY_BODY), BUSY_BODY)


@value
class Bounds:
    """Of connections and of what a client may send before it is known."""

    most: int = 2_000  # connections at once
    most_each: int = 500  # of one address
    head_seconds: float = 10  # until the whole head of a request must have arrived; also a TLS handshake
    write_seconds: float = 60  # until a client must have read what is buffered for it
    most_unread: int = 64_000_000  # bytes that are buffered for clients that do not read

    @classmethod
    def here(cls) -> Self:
        """As many connections as this process may open files, with a reserve for everything else it opens."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        reserve = max(64, min(512, files // 4))
        most = max(16, min(2_000, files - reserve)) if files != resource.RLIM_INFINITY else 2_000
        return cls(most, max(8, most // 4))


class ClientConnection(Protocol):
    """What a protocol of asyncio must be able to do here."""

    peer: "Peer"

    def is_late(self, now: float, bounds: Bounds) -> bool:
        """True if its client has taken too long."""

    def unread(self) -> int:
        """Bytes that are buffered for a client until it reads them."""

    def abort(self) -> None:
        """Close it at once."""


class Peer:
    """One accepted socket, from before its TLS handshake until it is closed."""

    __slots__ = ("address", "connection", "sock", "spoke", "starting", "streams")

    def __init__(self, address: str, sock: socket.socket) -> None:
        self.address, self.sock = address, sock
        self.connection: ClientConnection | None = None
        self.starting: asyncio.Task[None] | None = None  #: until it has a protocol
        self.spoke = False  #: it has sent a whole request before
        self.streams = False  #: its answer does not end by itself


class Turns:
    """Parses and starts requests: a few in each turn of the event loop, and those of all addresses in turn, so that a
    thousand that arrive at once neither hold the loop nor delay somebody else's one.
    """

    def __init__(self, now: Callable[[], float] = thread_time) -> None:
        self.now = now
        self.waiting: dict[str, deque[Callable[[], None]]] = {}  #: by address; the first is next
        self.began_at = 0.0  #: this turn
        self.scheduled = False  #: the next one
        self.begun = 0  #: requests in this turn
        self.most = STARTS_IN_A_TURN  #: fewer after a long turn
        self.parsed = 0.0  #: seconds of this turn

    def start(self, address: str, begin: Callable[[], None], *, at_once: bool = False) -> None:
        """Call `begin` now, or in one of the next turns; `at_once`: before those that wait, if they are few."""
        if self.begun >= (PROBES_IN_A_TURN if at_once else self.most) or (self.waiting and not at_once):
            self.waiting.setdefault(address, deque()).append(lambda: self._begin(begin))
            return
        self._begin(begin)

    @property
    def has_time(self) -> bool:
        """False if what clients sent in this turn has taken long enough to parse."""
        return self.parsed < PARSE_SECONDS

    def parse(self, parse: Callable[[bytes], None], data: bytes) -> None:
        """Call `parse` now, and count the time that it takes."""
        self._schedule()
        before = self.now()
        try:
            parse(data)
        finally:
            self.parsed += self.now() - before

    def later(self, address: str, parse: Callable[[], None]) -> None:
        """Call `parse` in one of the next turns; it calls the other one."""
        self._schedule()
        self.waiting.setdefault(address, deque()).append(parse)

    def _begin(self, begin: Callable[[], None]) -> None:
        self.begun += 1
        self._schedule()
        begin()

    def _schedule(self) -> None:
        if not self.scheduled:
            self.scheduled, self.began_at = True, self.now()
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        was_long = self.now() - self.began_at >= LONG_TURN_SECONDS
        self.most = max(1, self.most // 2) if was_long else min(STARTS_IN_A_TURN, self.most * 2)
        self.scheduled, self.begun, self.parsed = False, 0, 0.0
        while self.waiting and self.begun < self.most and self.has_time:
            address = next(iter(self.waiting))
            queue = self.waiting.pop(address)
            first = queue.popleft()
            if queue:
                self.waiting[address] = queue  # behind the others
            first()


class Connections:
    """All connections of a server, by address."""

    def __init__(
        self, bounds: Bounds, make: Callable[[Peer], asyncio.Protocol], tls: Certificate | None = None
    ) -> None:
        self.bounds, self.make, self.tls = bounds, make, tls
        self.peers: Counter[str] = Counter()  #: by address
        self.total = 0
        #: Those that wait for their client, oldest first: that never sent a whole request, and that did.
        self.silent: dict[str, dict[Peer, None]] = {}
        self.idle: dict[str, dict[Peer, None]] = {}
        self.open: dict[Peer, None] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.turns = Turns()

    def listen(self, *socks: socket.socket) -> None:
        for sock in socks:
            sock.setblocking(False)
        self.tasks = [asyncio.ensure_future(self._accept(sock)) for sock in socks]
        self.tasks.append(asyncio.ensure_future(self._sweep()))

    def close(self) -> None:
        """Accept nothing more. Connections with a protocol are its owner's to end."""
        for task in (*self.tasks, *(peer.starting for peer in self.open if peer.starting is not None)):
            task.cancel()

    def abort_all(self) -> None:
        """Close every connection at once, whatever it does."""
        for peer in list(self.open):
            self._close(peer)

    async def wait_closed(self) -> None:
        await asyncio.gather(*self.tasks, return_exceptions=True)

    # --- coming -------------------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for turn in itertools.count(1):
            if turn % IN_A_ROW == 0:  # a flood of them does not hold the event loop
                await asyncio.sleep(0)
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._close_oldest(self._crowded())
                    await asyncio.sleep(REST_SECONDS)
                continue  # else the client was gone before it was accepted
            self._admit(sock, address_key(address[0]))

    def _admit(self, sock: socket.socket, address: str) -> None:
        fits = self.peers[address] < self.bounds.most_each or self._close_oldest(address)
        if not fits or (self.total >= self.bounds.most and not self._close_oldest(self._crowded())):
            self._refuse(sock)
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = Peer(address, sock)
        self.total += 1
        self.peers[address] += 1
        self.open[peer] = None
        self.waits(peer)
        peer.starting = asyncio.ensure_future(self._start(peer))

    async def _start(self, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        limit: dict[str, Any] = {"ssl_handshake_timeout": self.bounds.head_seconds} if self.tls else {}
        context = self.tls.context if self.tls else None  # the newest: a renewed certificate makes another one
        try:
            await loop.connect_accepted_socket(lambda: self.make(peer), peer.sock, ssl=context, **limit)
        except (OSError, TimeoutError, ssl.SSLError, asyncio.CancelledError):  # no TLS, or none in time
            peer.sock.close()
            self.gone(peer)
        finally:
            peer.starting = None

    def _refuse(self, sock: socket.socket) -> None:
        """In a word, if it takes no waiting: the client may not read it."""
        with contextlib.closing(sock), contextlib.suppress(OSError):
            if self.tls is None:
                sock.setblocking(False)
                sock.send(BUSY)

    # --- what its protocol says ---------------------------------------------------------------------------------------

    def waits(self, peer: Peer) -> None:
        """It waits for its client."""
        (self.idle if peer.spoke else self.silent).setdefault(peer.address, {})[peer] = None

    def works(self, peer: Peer) -> None:
        """Its request is whole: it waits for us."""
        self._forget(peer)
        peer.spoke = True

    def gone(self, peer: Peer) -> None:
        if peer not in self.open:
            return
        del self.open[peer]
        self._forget(peer)
        self.total -= 1
        self.peers[peer.address] -= 1
        if not self.peers[peer.address]:
            del self.peers[peer.address]

    def _forget(self, peer: Peer) -> None:
        waiting = self.idle if peer.spoke else self.silent
        if peer.address in waiting:
            waiting[peer.address].pop(peer, None)
            if not waiting[peer.address]:
                del waiting[peer.address]

    # --- going --------------------------------------------------------------------------------------------------------

    def _crowded(self) -> str:
        """The address with the most connections, among those with one that can be closed."""
        closable = {*self.silent, *self.idle} or {peer.address for peer in self.open if peer.streams}
        return max(closable, key=lambda address: self.peers[address], default="")

    def _close_oldest(self, address: str) -> bool:
        """Close the connection of this address that waits for its client the longest, or its oldest stream. False if
        there is none.
        """
        for waiting in (self.silent, self.idle):
            if address in waiting:
                self._close(next(iter(waiting[address])))
                return True
        stream = next((peer for peer in self.open if peer.streams and peer.address == address), None)
        if stream is not None:
            self._close(stream)
        return stream is not None

    def _close(self, peer: Peer) -> None:
        self.gone(peer)  # now: its socket takes a moment, and the next one needs its place
        if peer.connection is not None:
            peer.connection.abort()
        elif peer.starting is not None:
            peer.starting.cancel()

    async def _sweep(self) -> None:
        """Close connections whose clients take too long to write or to read."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for peer, connection in list(self._started()):
                if connection.is_late(now, self.bounds):
                    self._close(peer)
            self._drop_unread()

    def _drop_unread(self) -> None:
        unread = sorted(((connection.unread(), id(peer), peer) for peer, connection in self._started()), reverse=True)
        total = sum(size for size, _, _ in unread)
        for size, _, peer in unread:
            if total <= self.bounds.most_unread:
                return
            self._close(peer)
            total -= size

    def _started(self) -> Iterator[tuple[Peer, ClientConnection]]:
        return ((peer, peer.connection) for peer in self.open if peer.connection is not None)


def address_key(host: str) -> str:
    """An address that counts as one client: of IPv6 the network, since everybody has 2**64 addresses in it."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
