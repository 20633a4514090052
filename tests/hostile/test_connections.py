"""Hostile connections: silent, slow, too many, too large. Nobody's connections keep others out."""

import re
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.control_plane import ControlPlane, until
from tests.hostile.raw import admin, connect, head, is_closed, many, memory_bytes, reply_status, status

MB = 1 << 20
UPGRADE = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("hostile") / "home") as control_plane:
        yield control_plane
        assert control_plane.client().get("/healthz").status_code == 200
        assert "Traceback" not in control_plane.words


def test_silent_connections_keep_nobody_out(plane: ControlPlane) -> None:
    """2,000 connections that said nothing were all that there could be."""
    with many(plane, 2_100):
        assert plane.client().get("/v1/status").status_code == 200
        plane.submit("true")


@pytest.mark.slow
def test_nor_do_they_where_few_files_may_be_open(tmp_path: Path) -> None:
    """With `ulimit -n 1024`, they took all files, and the journal had none."""
    with few_files(tmp_path, 1_024) as plane:
        with many(plane, 2_100):
            client = plane.client()
            assert client.get("/readyz").status_code == 200
            name = plane.submit(sys.executable, "-c", "print('hello')", client=client)
            assert plane.ended(name)["state"] == "succeeded"
        assert "Traceback" not in plane.words


class few_files(ControlPlane):  # noqa: N801 - reads as what it is
    """A control plane that may open so many files."""

    def __init__(self, tmp_path: Path, count: int) -> None:
        super().__init__(tmp_path / "home")
        self.count = count

    def start(self, *more: str) -> None:
        import resource

        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.count, before[1]))
        try:
            super().start(*more)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_heads_that_never_end_keep_nobody_out(plane: ControlPlane) -> None:
    with many(plane, 700) as socks:
        for sock in socks:
            sock.sendall(b"GET /v1/status HTTP/1.1\r\nHost: a\r\nX: ")
        assert plane.client().get("/v1/status").status_code == 200


def test_a_connection_that_works_is_not_closed_for_one_that_is_silent(plane: ControlPlane) -> None:
    with connect(plane) as stream:
        stream.sendall(head("GET", "/v1/events/stream", secret=admin(plane)))
        assert status(stream) == 200
        with many(plane, 1_000):
            assert plane.client().get("/healthz").status_code == 200
            plane.submit("true")
            assert stream.recv(65_536)


def test_slow_bodies_keep_nobody_out(plane: ControlPlane) -> None:
    secret = plane.token("member", "slow")
    with many(plane, 700) as socks:
        for sock in socks:
            sock.sendall(head("POST", "/v1/jobs", "Content-Length: 1000", secret=secret) + b"{")
        assert plane.client().get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"a" * 300_000, 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 400_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x" * 400_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"a" * 20_000 + b"\r\n" + b"Y: " + b"a" * 20_000, 431),
    ],
)
def test_a_head_is_bounded(plane: ControlPlane, what: bytes, answer: int) -> None:
    assert reply_status(plane, what) == answer


def test_a_head_without_end_is_cut_off_and_forgotten(plane: ControlPlane) -> None:
    """300 MB of headers were swallowed, and kept."""
    assert plane.process is not None
    before = memory_bytes(plane.process.pid)
    for part in (b"X: " + b"a" * 65_000 + b"\r\n", b"a" * 65_536):
        with connect(plane) as sock:
            assert sent(sock, b"GET / HTTP/1.1\r\nHost: a\r\n", *[part] * 5_000) < 64 * MB
    assert memory_bytes(plane.process.pid) - before < 64 * MB


def sent(sock: socket.socket, *parts: bytes) -> int:
    """How many bytes could be sent before the other side closed the connection."""
    count = 0
    try:
        for part in parts:
            sock.sendall(part)
            count += len(part)
    except (ConnectionError, TimeoutError):
        pass
    return count


def test_a_body_that_nobody_reads_is_cut_off(plane: ControlPlane) -> None:
    """A stranger's is not read; it is answered, and what comes after is too much."""
    with connect(plane) as sock:
        sock.sendall(head("POST", "/v1/jobs", "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        assert sent(sock, *[chunk] * 2_000) < 64 * MB


@pytest.mark.parametrize(
    "chunk",
    [
        b"1;" + b"x" * 60_000 + b"\r\na\r\n",
        b"1\r\na\r\n" * 10_000,
        b"0" * 60_000,
        b"1\r\na\r\n0\r\n" + b"X: a\r\n" * 10_000,
    ],
)
def test_chunks_are_bounded(plane: ControlPlane, chunk: bytes) -> None:
    """Their extensions and trailers, too, which no application sees."""
    assert plane.process is not None
    before = memory_bytes(plane.process.pid)
    with connect(plane) as sock:
        sock.sendall(head("POST", "/v1/jobs", "Transfer-Encoding: chunked", secret=admin(plane)))
        assert sent(sock, *[chunk] * 1_000) < 32 * MB
    assert memory_bytes(plane.process.pid) - before < 64 * MB


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Content-Length: 4, 5",),
        ("Content-Length: -1",),
        ("Content-Length: +4",),
        ("Content-Length: 0x4",),
        ("Content-Length: 99999999999999999999999999",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding:\x0bchunked",),
        ("X: a\rTransfer-Encoding: chunked", "Content-Length: 4"),
        (" Transfer-Encoding: chunked", "Content-Length: 4"),
    ],
)
def test_a_request_with_two_lengths_is_refused(plane: ControlPlane, lines: tuple[str, ...]) -> None:
    """Or its end could be read in two ways, by a proxy and by us: what follows would be somebody else's request."""
    hidden = b"0\r\n\r\nGET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n"
    with connect(plane) as sock:
        sock.sendall(head("POST", "/v1/pause", *lines) + hidden)
        assert status(sock) in (400, 413)
        assert is_closed(sock)


def test_pipelined_requests_are_bounded(plane: ControlPlane) -> None:
    """Thousands in one packet were all parsed, and kept, before the first was answered."""
    with connect(plane) as sock:
        sent(sock, head("GET", "/healthz") * 5_000)
        text = b""
        while part := _some(sock):
            text += part
        assert text.count(b"HTTP/1.1 ") < 100


def _some(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 20)
    except ConnectionError:
        return b""


def test_answers_that_nobody_reads_are_bounded(plane: ControlPlane) -> None:
    """A stranger asks for the longest answer there is, again and again, and reads none."""
    assert plane.process is not None
    before = memory_bytes(plane.process.pid)
    with many(plane, 400) as socks:
        for sock in socks:
            sent(sock, head("GET", "/v1/openapi.json") * 16)
        assert plane.client().get("/v1/status").status_code == 200
        until(lambda: plane.client().get("/healthz").status_code == 200)
    assert memory_bytes(plane.process.pid) - before < 256 * MB


def test_a_query_has_so_many_parameters_and_cookies_so_many_bytes(plane: ControlPlane) -> None:
    """A query of 16 kB took 10 ms to parse, and cookies of 32 kB, which strangers may send, 8 ms."""
    assert reply_status(plane, head("GET", "/v1/jobs?" + "a&" * 1_200, secret=admin(plane))) == 414
    assert reply_status(plane, head("GET", "/v1/jobs", "Cookie: " + "a=b;" * 2_100)) == 431


def test_a_few_pipelined_requests_are_answered_in_order(plane: ControlPlane) -> None:
    with connect(plane) as sock:
        sock.sendall(head("GET", "/healthz") * 4 + head("GET", "/none", "Connection: close"))
        text = b""
        while part := _some(sock):
            text += part
    assert re.findall(rb"HTTP/1.1 ([0-9]+)", text) == [b"200"] * 4 + [b"404"]


def test_a_half_closed_connection_goes(plane: ControlPlane) -> None:
    with connect(plane) as sock:
        sock.sendall(head("GET", "/v1/events/stream", secret=admin(plane)))
        assert status(sock) == 200
        sock.shutdown(socket.SHUT_WR)
        assert is_closed(sock)


@pytest.mark.slow
def test_a_head_has_its_time(plane: ControlPlane) -> None:
    """First byte, slow bytes, and blank lines, which HTTP allows before a request, end after ten seconds."""
    with connect(plane) as silent, connect(plane) as slow, connect(plane) as blank:
        for sock in (silent, slow, blank):
            sock.settimeout(0.2)
        said_before = head("GET", "/healthz")
        blank.sendall(said_before)
        assert status(blank) == 200
        open_ = {silent: b"", slow: b"G", blank: b"\r\n"}

        def closed() -> bool:
            for sock, drip in list(open_.items()):
                if sent(sock, drip) < len(drip) or _is_over(sock):
                    del open_[sock]
            return not open_

        until(closed)


def _is_over(sock: socket.socket) -> bool:
    try:
        return not sock.recv(65_536)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_many_streams_of_one_token_are_refused_and_those_of_others_are_not(plane: ControlPlane) -> None:
    secret = plane.token("viewer")
    with many(plane, 51) as socks:
        for sock in socks:
            sock.sendall(head("GET", "/v1/events/stream", secret=secret))
        assert sorted(status(sock) for sock in socks) == [200] * 50 + [429]
        with connect(plane) as sock:
            sock.sendall(head("GET", "/v1/events/stream", secret=admin(plane)))
            assert status(sock) == 200
    with connect(plane) as sock:  # they have ended
        until(lambda: _streams_again(plane, secret))


def _streams_again(plane: ControlPlane, secret: str) -> bool:
    with connect(plane) as sock:
        sock.sendall(head("GET", "/v1/events/stream", secret=secret))
        return status(sock) == 200


def test_browsers_of_one_token_lock_nobody_out(plane: ControlPlane) -> None:
    """Each browser of a token had fifty streams of its own: with eleven browsers, one read-only token had all the
    connections of an address, and nobody else behind it got in.
    """
    viewer = plane.client(plane.token("viewer"))
    browsers = [_browser(plane, viewer.post("/v1/logins").json()["path"]) for _ in range(11)]
    with many(plane, 20 * len(browsers)) as socks:
        for k, sock in enumerate(socks):
            sock.sendall(head("GET", "/news/stream", f"Cookie: {browsers[k % len(browsers)]}"))
        answers = Counter(status(sock) for sock in socks)
        assert answers == {200: 200, 429: 20}
        assert plane.client().get("/v1/status").status_code == 200


def test_streams_of_many_tokens_give_way_to_others(plane: ControlPlane) -> None:
    tokens = [plane.token("viewer") for _ in range(11)]
    with many(plane, 550) as socks:
        for k, sock in enumerate(socks):
            sock.sendall(head("GET", "/news/stream", secret=tokens[k % len(tokens)]))
        assert status(socks[-1]) == 200
        assert plane.client().get("/v1/status").status_code == 200
        assert plane.submit("true")


def _browser(plane: ControlPlane, link: str) -> str:
    """The cookie of a browser that comes in by this link."""
    return plane.client("").get(link).headers["Set-Cookie"].partition(";")[0]


def test_large_bodies_of_one_token_are_few_at_a_time(plane: ControlPlane) -> None:
    secret = plane.token("member", "vision")
    asked = head("POST", "/v1/jobs", "Content-Length: 990000", secret=secret)
    with many(plane, 20) as socks:
        for sock in socks:
            sock.sendall(asked + b" " * 10)
        with connect(plane) as last:
            last.sendall(asked)
            assert status(last) == 429


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/v1/jobs/a/exec?command=\xff", UPGRADE),
        ("/v1/jobs/a/exec?command=%ED%A0%80", UPGRADE),
        ("/v1/jobs/a/exec", UPGRADE[:3]),
        ("/v1/jobs/a/exec", (*UPGRADE[:2], "Sec-WebSocket-Version: 1", UPGRADE[3])),
        ("/v1/jobs/a/exec", (*UPGRADE, "Sec-WebSocket-Extensions: permessage-deflate; a=b; \xff")),
        ("/v1/jobs/a/exec", (*UPGRADE, "Sec-WebSocket-Protocol: \xff\xfe, a, a")),
        ("*", UPGRADE),
        ("/healthz", UPGRADE),
        ("/healthz", ("Connection: Upgrade", "Upgrade: h2c")),
    ],
)
def test_a_bad_upgrade_is_refused(plane: ControlPlane, path: str, lines: tuple[str, ...]) -> None:
    asked = head("GET", path, *lines, secret=admin(plane))
    assert reply_status(plane, asked) in (0, 200, 400, 403, 404, 422, 426)


def test_a_message_that_is_too_large_ends_its_socket_only(plane: ControlPlane) -> None:
    name = plane.submit(sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
    until(lambda: plane.job(name)["state"] == "running")
    assert plane.process is not None
    before = memory_bytes(plane.process.pid)
    for frame in (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), b"\x02\xfe\xff\xff"):  # one huge, or many pieces
        with connect(plane) as sock:
            sock.sendall(head("GET", f"/v1/jobs/{name}/exec?command=cat&stdin=true", *UPGRADE, secret=admin(plane)))
            assert status(sock) == 101
            sent(sock, frame + b"\0\0\0\0")
            assert sent(sock, *[b"\0" * 65_535] * 2_000) < 64 * MB
    with connect(plane) as sock:  # pings are answered, and the answers not read
        sock.sendall(head("GET", f"/v1/jobs/{name}/exec?command=cat&stdin=true", *UPGRADE, secret=admin(plane)))
        assert status(sock) == 101
        assert sent(sock, *[(b"\x89\xfd\0\0\0\0" + b"a" * 125) * 500] * 1_000) < 64 * MB
    assert memory_bytes(plane.process.pid) - before < 64 * MB
    plane.client().post(f"/v1/jobs/{name}/cancel")
    plane.ended(name)


def test_files_that_run_out_do_not_end_the_listener(tmp_path: Path) -> None:
    """All files of the process are taken; once they are back, so is it."""
    with ControlPlane(tmp_path / "home") as plane:
        import resource

        assert plane.process is not None
        before = resource.prlimit(plane.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(plane.process.pid, resource.RLIMIT_NOFILE, (8, before[1]))  # it has more open already
        with many(plane, 20):
            pass
        resource.prlimit(plane.process.pid, resource.RLIMIT_NOFILE, before)
        assert plane.client().get("/healthz").status_code == 200
        assert "Traceback" not in plane.words


def test_a_stop_with_pages_and_logs_open_is_silent(tmp_path: Path) -> None:
    """Each stop with a browser open ended in sixty lines of traceback: the streams were cancelled, nobody waited for
    them, and by the time they ended their errors were printed.
    """
    with ControlPlane(tmp_path / "home") as plane:
        job = plane.submit(sys.executable, "-c", "import time; time.sleep(600)")
        until(lambda: plane.job(job)["state"] == "running")
        paths = ("/news/stream", "/v1/events/stream?after=0", f"/v1/jobs/{job}/log?follow=true")
        with many(plane, len(paths) + 1) as (*streams, waits):
            for sock, path in zip(streams, paths, strict=True):
                sock.sendall(head("GET", path, secret=admin(plane)))
                assert status(sock) == 200
            waits.sendall(head("GET", f"/v1/jobs/{job}/log?wait=30", secret=admin(plane)))
            until(lambda: plane.client().get("/healthz").status_code == 200)
            plane.client().post(f"/v1/jobs/{job}/cancel")
            plane.ended(job)
            assert plane.stop() == 0
            assert all(is_closed(sock) for sock in (*streams, waits))
    assert [line for line in plane.words.splitlines() if not line.startswith("Notice: Jobs at here run as")] == []
