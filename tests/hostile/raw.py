"""Raw sockets for hostile tests: bytes that no HTTP client would send, and what comes back."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.hostile.control_plane import LIMIT_S, ControlPlane


def connect(plane: ControlPlane) -> socket.socket:
    where = urlsplit(plane.address)
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), LIMIT_S)


def head(method: str, path: str, *headers: str, secret: str = "") -> bytes:
    """A request's head; with a token, if there is one."""
    lines = [f"{method} {path} HTTP/1.1", "Host: penstock", *headers]
    lines += [f"Authorization: Bearer {secret}"] if secret else []
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def admin(plane: ControlPlane) -> str:
    return Path(plane.token_file).read_text().strip()


def status(sock: socket.socket) -> int:
    """Of the next answer; 0 if the connection ends before it."""
    text = b""
    while b"\r\n" not in text:
        try:
            part = sock.recv(65_536)
        except ConnectionError:
            return 0
        if not part:
            return 0
        text += part
    return int(text.split()[1])


def reply_status(plane: ControlPlane, *parts: bytes) -> int:
    """The status that answers these bytes."""
    with connect(plane) as sock:
        try:
            for part in parts:
                sock.sendall(part)
        except ConnectionError:
            pass  # it has answered already
        return status(sock)


def is_closed(sock: socket.socket) -> bool:
    """True once the other side has closed it; waits for that, and reads whatever comes before."""
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@contextmanager
def many(plane: ControlPlane, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(plane)) for _ in range(count)]


def cpu_seconds(pid: int) -> float:
    """Processor time of this process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_bytes(pid: int) -> int:
    """The most memory that this process has held so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
