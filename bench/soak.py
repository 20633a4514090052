"""A soak: half an hour of streams, pages, reads, submissions and bad tokens against a real `penstock up`. Its memory
must be flat after the first five minutes.

    python -m bench.soak [--minutes 30]

Prints a line each minute: resident memory, open files, threads, and what was asked. Ends with exit code 1 if memory
grew by more than `MOST_GROWTH_MB` from the minutes six to ten to the last five, or if anything was answered with a 5xx.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.core.values import value
from tests.hostile.control_plane import ControlPlane
from tests.hostile.raw import connect, head

FIRST: Final = 5  #: minutes in which caches fill
MOST_GROWTH_MB: Final = 5.0
SITES: Final = """
sites:
  - name: lab
    driver: local
    offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 4, nodes: 1}]
teams:
  - {name: vision}
  - {name: speech}
"""
BODY: Final = b'{"gpus": 1, "command": ["true"], "run_time": "1m"}'


@value
class Minute:
    number: int
    memory_mb: float
    files: int
    threads: int
    asked: dict[str, int]


class Clients:
    """All clients, each kind in a thread of its own, until `over` is set."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.over, self.asked = plane, threading.Event(), Counter[str]()
        self.teams = {team: plane.token("member", team) for team in ("vision", "speech")}
        self.viewers = [plane.token("viewer", team) for team in ("vision", "speech", "")]
        self.streams = list[socket.socket]()
        self.job = plane.submit("true", client=plane.client(self.teams["vision"]))
        kinds: dict[Callable[[int], None], float] = {
            self.guess: 0.02, self.look: 0.2, self.watch: 0.1, self.read: 0.05, self.submit: 1.0, self.hold: 2.0,
        }  # fmt: skip
        self.threads = [threading.Thread(target=self._go_on, args=kind, daemon=True) for kind in kinds.items()]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def _go_on(self, ask: Callable[[int], None], pause_s: float) -> None:
        turn = 0
        while not self.over.wait(pause_s):
            try:
                ask(turn)
            except OSError as error:  # as a client that is refused, or cut off
                self.asked[type(error).__name__] += 1
            turn += 1

    def guess(self, turn: int) -> None:
        """A stranger with a bad token: on the list, on another route, or gone before the answer."""
        path = ("/v1/jobs", "/v1/sites", "/", "/v1/events/stream")[turn % 4]
        self._ask("guess", head("GET", path, secret=f"pst_{turn}"), waits=turn % 5 > 0)

    def look(self, turn: int) -> None:
        paths = ("/", "/jobs", f"/jobs/{self.job}", "/jobs?show=ended")
        self._ask("page", head("GET", paths[turn % 4], "Accept: text/html", secret=self.viewers[turn % 3]))

    def watch(self, turn: int) -> None:
        """A page that is opened and closed again."""
        path = ("/news/stream", "/v1/events/stream?after=0", f"/v1/jobs/{self.job}/log?follow=true")[turn % 3]
        self._ask("stream", head("GET", path, secret=self.viewers[turn % 3]))

    def read(self, turn: int) -> None:
        paths = ("/v1/jobs", f"/v1/jobs/{self.job}", "/v1/status", "/v1/budget", "/v1/events", "/v1/nowhere")
        self._ask("read", head("GET", paths[turn % 6], secret=list(self.teams.values())[turn % 2]))

    def submit(self, turn: int) -> None:
        length = f"Content-Length: {len(BODY)}"
        self._ask("submit", head("POST", "/v1/jobs", length, secret=list(self.teams.values())[turn % 2]) + BODY)

    def hold(self, turn: int) -> None:
        """Twenty streams that stay open, and read what comes."""
        if len(self.streams) >= 20:
            self.streams.pop(0).close()
        held = connect(self.plane)
        held.sendall(head("GET", "/v1/events/stream", secret=self.viewers[turn % 3]))
        self.streams.append(held)
        for stream in self.streams:
            stream.settimeout(0.01)
            try:
                stream.recv(1 << 20)
            except TimeoutError:
                continue
        self.asked["held"] += 1

    def _ask(self, kind: str, data: bytes, *, waits: bool = True) -> None:
        with connect(self.plane) as sock:
            sock.sendall(data)
            status = sock.recv(1 << 16).partition(b" ")[2][:3].decode() if waits else ""
        self.asked[f"{kind} {status}".strip()] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=30)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "home", sites=SITES) as plane:
        clients = Clients(plane)
        measured = [_minute(plane, clients, number) for number in range(1, minutes + 1)]
        clients.end()
    return _judged(measured)


def _minute(plane: ControlPlane, clients: Clients, number: int) -> Minute:
    time.sleep(60)
    assert plane.process is not None
    lines = Path(f"/proc/{plane.process.pid}/status").read_text().splitlines()
    fields = {name: text.split()[0] for name, _, text in (line.partition(":") for line in lines) if text.split()}
    files = len(list(Path(f"/proc/{plane.process.pid}/fd").iterdir()))
    minute = Minute(number, int(fields["VmRSS"]) / 1024, files, int(fields["Threads"]), dict(clients.asked))
    asked = ", ".join(f"{name}: {count:,}" for name, count in sorted(minute.asked.items()))
    print(
        f"{number:3} min  {minute.memory_mb:7.1f} MB  {files:4} files  {minute.threads:3} threads  {asked}", flush=True
    )
    return minute


def _judged(measured: list[Minute]) -> int:
    memory = [minute.memory_mb for minute in measured]
    if len(memory) < FIRST + 10:
        print("Too short to judge: caches fill in the first five minutes.")
        return 0
    grown = statistics.mean(memory[-5:]) - statistics.mean(memory[FIRST : FIRST + 5])
    failed = {name: count for name, count in measured[-1].asked.items() if name.partition(" ")[2].startswith("5")}
    print(
        f"Memory grew by {grown:.1f} MB after the first {FIRST} minutes; at most {MOST_GROWTH_MB:.0f} MB. 5xx: {failed}"
    )
    return 1 if grown > MOST_GROWTH_MB or failed else 0


if __name__ == "__main__":
    sys.exit(main())
