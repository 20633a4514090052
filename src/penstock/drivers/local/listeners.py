"""Whose program is at the other end of a connection within this machine, and who listens on a port, as the kernel tells
it. `cli/client` asks before it sends a token, `web/server` when its port is taken. Standard library only.

A port belongs to whoever takes it first. While the control plane is down a job may listen there, and would be told the
administrator's token by the next command.
"""

import os
import pwd
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from penstock.core.values import value
from penstock.drivers.local import isolation
from penstock.drivers.records import printable

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
ESTABLISHED, LISTENS = "01", "0A"
#: The other side has this long to accept: from then on the kernel says whose socket it is.
PATIENCE_S: Final = 10.0
LOOK_S: Final = 0.005

Address = tuple[IPv4Address | IPv6Address, int]


@value
class SocketRow:
    """A socket of this machine."""

    local: Address
    remote: Address
    state: str
    uid: int  # of the program that has it; 0 as long as none has
    inode: int  # 0: no program has it


@value
class SocketOwner:
    """The program that has a socket."""

    uid: int
    pid: int = 0  # 0: we may not know
    command: str = ""

    @property
    def is_job(self) -> bool:
        return isolation.is_jobs(self.uid)

    @property
    def words(self) -> str:
        """Like "process 4711 (python3 serve.py) of a job (uid 1900000123)"."""
        process = f"process {self.pid} ({self.command})" if self.pid else "a process"
        return f"{process} of {self._whose}"

    @property
    def _whose(self) -> str:
        if self.is_job:
            return f"a job (uid {self.uid})"
        with suppress(KeyError):
            return f"user {pwd.getpwuid(self.uid).pw_name}"
        return f"uid {self.uid}"


def accepted_by(connected: socket.socket) -> SocketOwner | None:
    """The program that accepted our connection; None if it is none of this machine's, but beyond a forwarding that
    root has set up, or if this system does not tell. Raises `TimeoutError` if nobody accepts it.
    """
    ours, theirs = _address(connected.getsockname()), _address(connected.getpeername())
    until = time.monotonic() + PATIENCE_S
    while True:
        row = next((row for row in _rows() if row.local == theirs and row.remote == ours), None)
        if row is None:
            return None
        if row.inode:
            return _owner(row)
        if row.state != ESTABLISHED or time.monotonic() > until:
            raise TimeoutError("nobody accepts the connection")
        time.sleep(LOOK_S)


def listener_on(host: str, port: int) -> SocketOwner | None:
    """Who has this port, as far as we may know."""
    for row in _rows():
        if row.state == LISTENS and row.local[1] == port and _meets(row.local[0], host):
            return _owner(row)
    return None


def _meets(listening: IPv4Address | IPv6Address, host: str) -> bool:
    """True if both cannot listen on one port."""
    try:
        wanted = _address((socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0], 0))[0]
    except OSError:
        return False
    return listening == wanted or listening.is_unspecified or wanted.is_unspecified


def _rows() -> Iterator[SocketRow]:
    for table in TABLES:
        with suppress(OSError), open(table, encoding="ascii") as file:  # not every system has it
            next(file, None)
            for line in file:
                words = line.split()
                yield SocketRow(_parsed(words[1]), _parsed(words[2]), words[3], int(words[7]), int(words[9]))


def _parsed(text: str) -> Address:
    """Like `0100007F:1B9E`: words of four bytes, each in the machine's order."""
    host, _, port = text.partition(":")
    words = [int(host[k : k + 8], 16).to_bytes(4, "little") for k in range(0, len(host), 8)]
    packed = b"".join(words)
    return _plain(IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)), int(port, 16)


def _address(name: tuple[object, ...]) -> Address:
    host = str(name[0]).partition("%")[0]
    return _plain(IPv6Address(host) if ":" in host else IPv4Address(host)), int(str(name[1]))


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that somebody listens to by IPv6 is one address."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _owner(row: SocketRow) -> SocketOwner:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if any(_is(f"/proc/{pid}/fd/{name}", row.inode) for name in os.listdir(f"/proc/{pid}/fd")):
                return SocketOwner(row.uid, int(pid), _command(pid))
    return SocketOwner(row.uid)


def _is(path: str, inode: int) -> bool:
    with suppress(OSError):  # it has closed it meanwhile
        return os.readlink(path) == f"socket:[{inode}]"
    return False


def _command(pid: str) -> str:
    """The beginning of its command line, as text that is safe to print."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read(200).replace(b"\0", b" ").decode("utf-8", "replace").split()
    return printable(" ".join(words), 80)
