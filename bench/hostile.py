"""What hostile clients cost everybody else: attacks on a real `penstock up`, and a line of figures for each.

    python -m bench.hostile [--quick] [--only SECTION]

While an attack goes on, somebody asks `/healthz` all the time: p99 is the slowest of a hundred answers. Memory is the
most that the control plane held; connections are those that it had open. A section is a module-level function with
`@section`: it yields `Line`s. Each line names its bound; one beyond it ends the run with exit code 1.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import httpx2

from penstock.core.values import value
from tests.hostile.control_plane import ControlPlane
from tests.hostile.raw import admin, connect, head, memory_bytes

MOST_P99_MS: Final = 50.0
MOST_GROWTH_MB: Final = 128.0
PACE_S: Final = 0.005  #: between two questions
SIZE: Final = 960_000


@value
class Line:
    """One check: a figure and the most it may be."""

    what: str
    figure: float
    unit: str
    most: float

    @property
    def holds(self) -> bool:
        return self.figure <= self.most


Section: TypeAlias = Callable[[Path, bool], Iterator[Line]]  #: of a new folder, and whether to be quick
SECTIONS: Final[dict[str, Section]] = {}


def section(run: Section) -> Section:
    SECTIONS[run.__name__] = run
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds of each attack")
    parser.add_argument("--only", choices=list(SECTIONS))
    args = parser.parse_args()
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load average {load} before", flush=True)
    print(f"{'':9} {'check':66} {'measured':>12} {'at most':>12}", flush=True)
    failed = 0
    for name, run in SECTIONS.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                for line in run(Path(folder), args.quick):
                    failed += not line.holds
                    print(as_text(line), flush=True)
    return 1 if failed else 0


def as_text(line: Line) -> str:
    verdict = "holds" if line.holds else "TOO MUCH"
    return f"{verdict:9} {line.what:66} {line.figure:9,.1f} {line.unit:2} {line.most:9,.1f} {line.unit:2}"


# --- asking meanwhile ------------------------------------------------------------------------------------------------


class Watch:
    """Asks `/healthz` from a process of its own, over one connection, until it is told to stop."""

    def __init__(self, plane: ControlPlane) -> None:
        words = [sys.executable, "-c", ASKING, plane.address, str(PACE_S)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first(self.process.pid)
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it has its first answer
        self.took_ms = list[float]()

    def end(self) -> None:
        stdout, _ = self.process.communicate("\n")
        self.took_ms = [float(text) for text in stdout.split()]

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.took_ms, n=100)[98]


ASKING: Final = """
import select, sys, time
import httpx2

took = []
with httpx2.Client(base_url=sys.argv[1], timeout=60, trust_env=False) as client:
    while not took or not select.select([sys.stdin], [], [], float(sys.argv[2]))[0]:
        began, answered = time.perf_counter(), False
        while not answered:
            try:
                answered = client.get("/healthz").is_success
            except httpx2.TransportError as error:  # its connection was closed for another one: it asks again
                print(repr(error), file=sys.stderr)
        took.append((time.perf_counter() - began) * 1000)
        if len(took) == 1:
            print("began", flush=True)
print(*took)
"""


@contextmanager
def started(home: Path, *options: str) -> Iterator[ControlPlane]:
    with ControlPlane(home, *options) as plane:
        assert plane.process is not None
        first(plane.process.pid)
        yield plane


def first(pid: int) -> None:
    """Where we may, put it before whatever else this machine does: that is not what we measure."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, -10)
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -10)


@contextmanager
def watched(plane: ControlPlane) -> Iterator[Watch]:
    watch = Watch(plane)
    try:
        yield watch
    finally:
        watch.end()


def attacked(
    plane: ControlPlane, what: str, attack: Callable[[], None], seconds: float, clients: int
) -> Iterator[Line]:
    """So many clients repeat an attack for so long; p99 of `/healthz` and the memory it took."""
    assert plane.process is not None
    before = memory_bytes(plane.process.pid)
    with watched(plane) as watch:
        until = time.monotonic() + seconds

        def repeat() -> None:
            while time.monotonic() < until:
                attack()

        threads = [threading.Thread(target=repeat) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    yield Line(f"/healthz, p99: {what}", watch.p99_ms, "ms", MOST_P99_MS)
    yield Line(f"memory: {what}", (memory_bytes(plane.process.pid) - before) / 1e6, "MB", MOST_GROWTH_MB)


# --- requests --------------------------------------------------------------------------------------------------------

BODIES: Final[dict[str, tuple[str, bytes]]] = {
    "a YAML list of 480,000 words": ("yaml", b"command: [" + b"a," * (SIZE // 2) + b"]\ngpus: 1\n"),
    "40,000 YAML directives": ("yaml", b"".join(b"%%TAG !a%d! tag:x:\n" % k for k in range(SIZE // 24)) + b"---\na: 1"),
    "brackets in brackets": ("yaml", b"[" * SIZE),
    "90,000 unknown keys": ("json", b"{" + b",".join(b'"k%d":1' % k for k in range(SIZE // 11)) + b"}"),
    "320,000 empty objects": ("json", b'{"gpu":[' + b"{}," * (SIZE // 3) + b"{}]}"),
    "small bodies, all wrong": ("json", b'{"gpu":[' + b"{}," * 60 + b"{}]}"),
}
_TEAMS: Final = ",".join(['"a"'] * 450)
#: Of a megabyte, and with as many conditions as there may be.
POLICIES: Final = {
    "policy files of a megabyte": "version: 1\nrules: [" + "a," * (SIZE // 2 - 100) + "]",
    "policy files with long conditions": "version: 1\nrules:\n"
    + "".join(f"- {{name: r{k}, deny: 'job.team in [{_TEAMS}]'}}\n" for k in range(25)),
}


@section
def requests(folder: Path, quick: bool) -> Iterator[Line]:
    """Eight clients of one team send bodies that are dear to parse, or strangers send forms."""
    with started(folder / "home") as plane:
        yield from attacked(plane, "nothing goes on", lambda: time.sleep(0.1), 2 if quick else 5, 1)
        for what, (kind, body) in BODIES.items():
            client = plane.client(plane.token("member", "malicious"))
            post = _post(client, "/v1/jobs", body, f"application/{kind}")
            yield from attacked(plane, what, post, 2 if quick else 8, 8)
        operator = plane.client(plane.token("operator"))
        for what, text in POLICIES.items():
            apply = _post(operator, "/v1/policy", json.dumps({"text": text}).encode(), "application/json")
            yield from attacked(plane, what, apply, 2 if quick else 8, 8)
        stranger = plane.client("")
        fields = b"&".join(b"a%d=1" % k for k in range(SIZE // 8))
        form = _post(stranger, "/login", fields, "application/x-www-form-urlencoded")
        yield from attacked(plane, "strangers' forms of a megabyte", form, 2 if quick else 8, 8)
        wrong = _post(stranger, "/v1/budget", b"[" * SIZE, "application/json")
        yield from attacked(plane, "strangers' bodies of a megabyte", wrong, 2 if quick else 8, 8)


def _post(client: httpx2.Client, path: str, body: bytes, kind: str) -> Callable[[], None]:
    def send() -> None:
        with suppress(httpx2.HTTPError):  # answered before all of it was sent
            client.post(path, content=body, headers={"Content-Type": kind})

    return send


# --- connections -----------------------------------------------------------------------------------------------------


@section
def connections(folder: Path, quick: bool) -> Iterator[Line]:
    """Silent, slow and endless connections."""
    seconds = 2 if quick else 8
    with started(folder / "home") as plane:
        for what, begins in _SLOW.items():
            with ExitStack() as stack:
                for _ in range(2_100):
                    with suppress(OSError):
                        stack.enter_context(connect(plane)).sendall(begins)
                yield Line(f"open connections: 2,100 {what}", _open_sockets(plane), "", 2_001)
                yield from attacked(plane, f"2,100 {what}", lambda: time.sleep(0.1), seconds, 1)
        for what, (begins, part) in _ENDLESS.items():
            pour = _pour(plane, begins.replace(b"SECRET", admin(plane).encode()), part)
            yield from attacked(plane, what, pour, seconds, 4)
        for what, asked in _AT_ONCE.items():
            yield from attacked(plane, what, _burst(plane, asked), seconds, 1)


_SLOW: Final = {
    "connections that say nothing": b"",
    "heads that never end": b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
    "forms that never end": head("POST", "/login", "Content-Length: 100"),
}
_ENDLESS: Final = {
    "one header without end": (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"a" * 65_536),
    "headers without end": (b"GET / HTTP/1.1\r\nHost: a\r\n", b"X: " + b"a" * 65_000 + b"\r\n"),
    "chunk extensions without end": (
        head("POST", "/v1/jobs", "Transfer-Encoding: chunked", secret="SECRET"),
        b"1;" + b"x" * 65_000 + b"\r\na\r\n",
    ),
    "chunks of a byte": (
        head("POST", "/v1/jobs", "Transfer-Encoding: chunked", secret="SECRET"),
        b"1\r\na\r\n" * 10_000,
    ),
    "pipelined requests": (b"", head("GET", "/healthz") * 1_000),
    "connections that come and go": (b"", b""),
}


_AT_ONCE: Final = {
    "400 strangers ask at once": head("GET", "/v1/jobs", "Accept: text/html", "Cookie: " + "a=b;" * 2_000),
    "400 unread answers of 100 kB": head("GET", "/v1/openapi.json") * 8,
}


def _burst(plane: ControlPlane, asked: bytes) -> Callable[[], None]:
    def burst() -> None:
        with ExitStack() as stack, suppress(OSError):
            socks = [stack.enter_context(connect(plane)) for _ in range(400)]
            for sock in socks:
                sock.sendall(asked)
            for sock in socks:
                sock.recv(1)

    return burst


def _pour(plane: ControlPlane, begins: bytes, part: bytes) -> Callable[[], None]:
    def pour() -> None:
        with suppress(OSError), connect(plane) as sock:
            sock.sendall(begins)
            for _ in range(1_000 if part else 0):
                sock.sendall(part)

    return pour


def _open_sockets(plane: ControlPlane) -> int:
    assert plane.process is not None
    folder = Path(f"/proc/{plane.process.pid}/fd")
    sockets = 0
    for entry in folder.iterdir():
        with suppress(OSError):
            sockets += os.readlink(entry).startswith("socket:")
    return sockets


if __name__ == "__main__":
    sys.exit(main())
