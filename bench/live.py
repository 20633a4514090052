"""`make bench-live`: a real `penstock up` under load, over HTTP, with full durability. FAST=1 for smaller sizes.

    python -m bench.live [--fast] [--only submits|lists|decisions|plans|starts|memory] [--kind sqlite|postgres]

Submits: 64 clients, each of a team of its own, each waiting for its answer before it submits again. Lists: a page and a
job, one after the other, by how many jobs the journal has. Decisions: one submission at a time while so many wait,
decided and durable, and `/healthz` asked beside it all the time. Plans: one at a time while so many wait, with
submissions and `/healthz` beside it. Starts: from the command to the first answer, by how
many events, with the snapshot as old as it gets. Everything shares this machine's processors, clients and PostgreSQL
included, so what the server itself took of them is said, too: that is what another machine would show again.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.journal import fill, long_life, places
from penstock.core.units import HOUR
from penstock.journal.open import open_journal
from penstock.live.sequencer import SNAPSHOT_EVENTS

CLIENTS: Final = 64
#: The offer that `bench.journal` has, so that a start finds nothing new.
SITES: Final = """
currency: USD
sites:
  - name: lab
    front_door: true
    driver: rehearsal
    offers: [{name: owned, term: owned, gpu: A100, gpus_per_node: 8, nodes: 8}]
"""
JOB: Final = {"gpus": 8, "command": ["true"], "run_time": "10h", "name": "bench"}
KEY: Final = b"a key that seals snapshots, and opens them again"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--only", choices=list(MEASURES))
    parser.add_argument("--kind", choices=["sqlite", "postgres"])
    args = parser.parse_args()
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load average {load} before", flush=True)
    with ExitStack() as stack:
        for kind, place in places(stack):
            for name, measure in MEASURES.items():
                if args.kind in (None, kind) and args.only in (None, name):
                    for words in measure(place, args.fast):
                        print(f"{kind}: {words}  (load {os.getloadavg()[0]:.1f})", flush=True)


# --- submits ---------------------------------------------------------------------------------------------------------


def submits(place: Callable[[], str], fast: bool) -> Iterator[str]:
    for clients in (1, CLIENTS) if fast else (1, 8, CLIENTS):
        with up(place()) as (client, process):
            secrets = [_token(client, f"team-{number}") for number in range(clients)]
            host, seconds = client.base_url, 3 if fast else 10
            before, ours = cpu(process.pid), time.process_time()
            flood = asyncio.run(_flood(str(host.host), int(host.port or 80), secrets, seconds))
            used, ours = cpu(process.pid) - before, time.process_time() - ours
        took = [time_s for each in flood for time_s in each]
        yield (
            f"{len(took) / seconds:,.0f} durable submits a second from {clients} clients, {_spread(took)}; "
            f"each {used / len(took) * 1000:.2f} ms of the server's processor, {ours / len(took) * 1000:.2f} of ours"
        )


def _token(client: httpx2.Client, team: str) -> str:
    answer = client.post("/v1/tokens", json={"role": "member", "team": team})
    answer.raise_for_status()
    return str(answer.json()["secret"])


async def _flood(host: str, port: int, secrets: list[str], seconds: float) -> list[list[float]]:
    until = time.perf_counter() + seconds
    return await asyncio.gather(*(_submitter(host, port, secret, until) for secret in secrets))


async def _submitter(host: str, port: int, secret: str, until: float) -> list[float]:
    """As little of a client as will do: it shares the processors with what is measured."""
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps(JOB).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {secret}\r\n"
    asked = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    took: list[float] = []
    while (began := time.perf_counter()) < until:
        writer.write(asked)
        status = await _answer(reader)
        if status == 201:
            took.append(time.perf_counter() - began)
        else:
            await asyncio.sleep(0.05)  # too many from this team: that is what the limit is for
    writer.close()
    return took


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    await reader.readexactly(int(length.partition(":")[2]))
    return int(head.split()[1])


# --- lists, decisions ------------------------------------------------------------------------------------------------


def lists(place: Callable[[], str], fast: bool) -> Iterator[str]:
    for jobs in (1_000, 5_000) if fast else (1_000, 10_000, 100_000):
        where = place()
        with closing(open_journal(where, key=KEY)) as journal:
            epoch = journal.claim("bench", 0, HOUR)
            fill(journal, epoch, jobs)
            journal.release(epoch)
            if where.startswith("postgres"):
                journal.db.run("vacuum analyze")  # as the server does by itself, sooner or later
        with up(where) as (client, process):
            some = [f"/v1/jobs/job-{number:07}" for number in range(1, jobs, max(1, jobs // 200))]
            page, job = _timed(client, ["/v1/jobs"] * 200), _timed(client, some[:200])
            yield f"{jobs:,} jobs: page {page}, job {job}, {_resident(process)} MB"


def decisions(place: Callable[[], str], fast: bool) -> Iterator[str]:
    for waiting in (1_000, 5_000) if fast else (1_000, 10_000, 100_000):
        with up(place()) as (client, process):
            with healthy(client) as beats:  # an array of a thousand jobs is a long decision
                for _ in range(waiting // 1_000):
                    client.post("/v1/jobs", json={**JOB, "count": 1_000}).raise_for_status()
                took = [_one(client) for _ in range(200)]
            yield (
                f"{waiting:,} waiting: a submit is decided and durable in {_spread(took)}, /healthz meanwhile in "
                f"{_spread(beats)}, {_resident(process)} MB"
            )


def plans(place: Callable[[], str], fast: bool) -> Iterator[str]:
    for waiting in (1_000, 5_000) if fast else (1_000, 10_000, 100_000):
        with up(place()) as (client, process):
            for _ in range(waiting // 1_000):
                client.post("/v1/jobs", json={**JOB, "count": 1_000}).raise_for_status()
            before = cpu(process.pid)
            alone = [_one(client, "/v1/plan") for _ in range(50)]
            used = (cpu(process.pid) - before) / len(alone)
            with healthy(client) as beats, repeated(lambda: _one(client, "/v1/plan")) as asked:
                submits = [_one(client) for _ in range(50)]
            yield (
                f"{waiting:,} waiting: a plan in {_spread(alone)}, {used * 1000:.1f} ms of it on the server's own "
                f"processor; {len(asked)} of them beside submits: these in {_spread(submits)}, /healthz meanwhile in "
                f"{_spread(beats)}"
            )


@contextmanager
def repeated(ask: Callable[[], float]) -> Iterator[list[float]]:
    """Asked again and again beside what the block does; how long each took."""
    took: list[float] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            took.append(ask())

    asking = threading.Thread(target=go_on)
    asking.start()
    try:
        yield took
    finally:
        over.set()
        asking.join()


@contextmanager
def healthy(client: httpx2.Client) -> Iterator[list[float]]:
    """Does it answer while the engine thinks?"""
    with httpx2.Client(base_url=client.base_url, timeout=120, trust_env=False) as another:

        def ask() -> float:
            time.sleep(0.01)
            began = time.perf_counter()
            another.get("/healthz").raise_for_status()
            return time.perf_counter() - began

        with repeated(ask) as took:
            yield took


def _one(client: httpx2.Client, path: str = "/v1/jobs") -> float:
    time.sleep(0.02)  # within a team's limit
    began = time.perf_counter()
    client.post(path, json=JOB).raise_for_status()
    return time.perf_counter() - began


def _timed(client: httpx2.Client, paths: list[str]) -> str:
    took = []
    for path in paths:
        began = time.perf_counter()
        client.get(path).raise_for_status()
        took.append(time.perf_counter() - began)
        time.sleep(0.005)  # within a token's limit
    return _spread(took)


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"p50 {statistics.median(ordered) * 1000:.1f} ms p99 {p99 * 1000:.1f} ms"


# --- starts, memory --------------------------------------------------------------------------------------------------


def starts(place: Callable[[], str], fast: bool) -> Iterator[str]:
    for events in (1_000, 60_000) if fast else (1_000, 100_000, 1_000_000):
        where = place()
        with closing(open_journal(where, key=KEY)) as journal:
            epoch = journal.claim("bench", 0, HOUR)
            long_life(journal, epoch, events, SNAPSHOT_EVENTS)
            journal.release(epoch)
        began = time.perf_counter()
        with up(where) as (client, process):
            ready, used = time.perf_counter() - began, cpu(process.pid)
            client.get("/v1/jobs").raise_for_status()
            yield (
                f"{events:,} events: {ready:.1f} s from the command until it is ready, {used:.1f} s of them on a "
                f"processor, {_resident(process)} MB"
            )


def memory(place: Callable[[], str], fast: bool) -> Iterator[str]:
    with up(place()) as (client, process):
        client.get("/v1/jobs").raise_for_status()
        time.sleep(1 if fast else 5)
        yield f"{_resident(process)} MB of memory with nothing to do"


def cpu(pid: int) -> float:
    """Seconds of processor that it took so far: what is left to say where clients share the machine."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: "subprocess.Popen[str]") -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


@contextmanager
def up(
    where: str, content: str = SITES, program: Sequence[str] = ("penstock.cli",)
) -> Iterator[tuple[httpx2.Client, "subprocess.Popen[str]"]]:
    """A Penstock of its own on this journal and these sites, with a client that may do everything."""
    with tempfile.TemporaryDirectory(prefix="penstock-live-") as home:
        sites = Path(home) / "sites.yaml"
        sites.write_text(content)
        (Path(home) / "journal.key").write_bytes(KEY)
        command = [sys.executable, "-m", *program, "up", "--home", home, "--sites", str(sites), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--json", "--accept-clock", "--journal", where], stdout=subprocess.PIPE, text=True
        )
        try:
            ready = announcement(process)
            headers = {"Authorization": f"Bearer {Path(ready['token_file']).read_text().strip()}"}
            with httpx2.Client(base_url=ready["address"], headers=headers, timeout=120, trust_env=False) as client:
                yield client, process
        finally:
            process.terminate()
            process.wait(60)


def announcement(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.rstrip() == "}":
            announced: dict[str, Any] = json.loads(text)
            return announced
    raise SystemExit(f"penstock up ended with {process.wait()}")


MEASURES: Final = {
    "submits": submits,
    "lists": lists,
    "decisions": decisions,
    "plans": plans,
    "starts": starts,
    "memory": memory,
}


if __name__ == "__main__":
    main()
