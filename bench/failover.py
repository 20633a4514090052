"""PostgreSQL's primary dies under a running Penstock, a standby is promoted, and Penstock is restarted: what is lost.

    python -m bench.failover [--rounds 20]

Each round: a real primary and a streaming standby, a real `penstock up` with both in its address, and clients that
submit without a pause. The primary gets SIGKILL, the standby is promoted, and Penstock goes on or says what is missing.
Then Penstock gets SIGKILL, too, and the next one must say the same. Where steps are missing, `penstock journal restore`
lets it go on. Rounds take turns: the standby is synchronous, keeps up, or stopped receiving a while ago.

Prints a table and exits with 1 if an accepted submission was lost in silence: it is not there, and Penstock was ready.
"""

import argparse
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx2
import psycopg

from bench.live import announcement
from tests.postgres import Server, Standby
from tests.postgres import found as postgres_programs

KINDS: Final = ("synchronous", "keeps up", "lags")
CLIENTS: Final = 4
LIMIT_S: Final = 60
LAG_STEPS: Final = 20  #: accepted submissions that a lagging standby does not get
JOB: Final = {"gpus": 1, "command": ["true"]}
MISSING: Final = ("missing", "penstock journal restore")  #: in what Penstock says then


@dataclass(slots=True)
class Round:
    kind: str
    accepted: int = 0
    lost: int = 0  # of these, as the promoted journal has it
    says: str = ""  # Penstock's words for what is missing, while it runs
    again: str = ""  # and those of the next one
    was_ready: bool = False  # it took submissions without all that it had accepted
    back_s: float = 0.0  # from the kill until it took submissions again, or said why it does not
    durability: str = ""  # what `up` said before
    restored: str = ""  # the audit's row, if a person let it go on
    wrong: list[str] = field(default_factory=list)

    @property
    def lost_in_silence(self) -> int:
        told = all(word in says for says in (self.says, self.again) for word in MISSING)
        return self.lost if self.was_ready or not told else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    print(f"{'standby':<12} {'accepted':>8} {'lost':>5} {'in silence':>10} {'back or told':>12}")
    silent = wrong = 0
    for number in range(rounds):
        done = play(programs, KINDS[number % len(KINDS)])
        silent, wrong = silent + done.lost_in_silence, wrong + len(done.wrong)
        print(f"{done.kind:<12} {done.accepted:>8} {done.lost:>5} {done.lost_in_silence:>10} {done.back_s:>10.1f} s")
        for words in done.wrong:
            print(f"  {words}")
    print(f"lost in silence: {silent}")
    return 1 if silent or wrong else 0


def play(programs: Path, kind: str) -> Round:
    done = Round(kind)
    with _pair(programs, kind) as (primary, standby), tempfile.TemporaryDirectory(prefix="penstock-failover-") as home:
        name = primary.new_database().rpartition("/")[2]
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        where = f"postgresql://penstock@{hosts}/{name}?target_session_attrs=read-write"
        with Plane(Path(home) / "home", where) as plane:
            _through(done, plane, primary, standby)
    return done


def _through(done: Round, plane: "Plane", primary: Server, standby: Standby) -> None:
    """1. Work, 2. the primary dies, 3. go on or say why not, 4. the same after a restart, 5. a person's word."""
    done.durability = plane.words
    clients = Clients(plane)
    until(lambda: len(clients.accepted) >= LAG_STEPS, "it takes submissions")
    if done.kind == "lags":
        standby.stop_receiving()
        there = len(clients.accepted)
        until(lambda: len(clients.accepted) >= there + LAG_STEPS, "it falls behind")
    primary.dies()
    killed = time.monotonic()
    standby.promote()
    done.accepted = len(clients.accepted)
    ready, done.says = plane.settles()
    done.back_s = time.monotonic() - killed
    clients.stop()
    done.accepted = len(clients.accepted)
    done.lost = len(clients.accepted - _jobs_of(standby, plane))
    done.was_ready = ready and bool(done.lost)
    plane.kill()
    ready, done.again = plane.start()
    done.was_ready |= ready and bool(done.lost)
    if done.lost and not ready:
        _restored(done, plane, clients)
    elif not done.lost and not ready:
        done.wrong.append(f"Nothing is missing, and it does not start: {done.again}")


def _restored(done: Round, plane: "Plane", clients: "Clients") -> None:
    """One word from a person, and it goes on: what was lost is on record, and no id is given twice."""
    plane.restore()
    ready, says = plane.start()
    if not ready:
        done.wrong.append(f"It was let go on, and does not start: {says}")
        return
    rows = plane.asked("GET", "/v1/audit?did=restore").json()["entries"]
    done.restored = "; ".join(f"{row['before']} -> {row['after']}" for row in rows)
    if len(rows) != 1:
        done.wrong.append(f"The audit trail does not say once that it was restored: {rows}")
    fresh = _job(plane.asked("POST", "/v1/jobs", json=JOB).json())
    if fresh in clients.accepted:
        done.wrong.append(f"{fresh} was given to a lost submission, and is given again")


@contextmanager
def _pair(programs: Path, kind: str) -> Iterator[tuple[Server, Standby]]:
    """A primary and its standby, each thrown away at the end."""
    folder = functools.partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
    with folder(prefix="penstock-primary-") as one, folder(prefix="penstock-standby-") as other:
        primary = Server(programs, Path(one))
        servers: list[Server] = [primary]
        primary.start()
        try:
            standby = Standby(primary, Path(other))
            servers.append(standby)
            standby.start()
            _follow(primary, synchronous=kind == "synchronous")
            yield primary, standby
        finally:
            for server in servers:
                if server.runs:
                    server.stop()


def _follow(primary: Server, synchronous: bool) -> None:
    with psycopg.connect(primary.address("postgres"), autocommit=True) as db:
        if synchronous:
            db.execute("alter system set synchronous_standby_names = '*'")
            db.execute("select pg_reload_conf()")
        wanted = "sync" if synchronous else "async"
        asks = "select 1 from pg_stat_replication where state = 'streaming' and sync_state = %s"
        until(lambda: db.execute(asks, (wanted,)).fetchall(), "the standby streams")


def _jobs_of(server: Server, plane: "Plane") -> set[str]:
    """What the promoted journal has, asked of the database itself."""
    name = plane.where.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(server.address(name)) as db:
        return {row[0] for row in db.execute("select id from jobs").fetchall()}


class Plane:
    """`penstock up` in one home folder, in as many lives as a round takes. Its sites are rehearsed."""

    def __init__(self, home: Path, where: str) -> None:
        self.home, self.where = home, where
        self.errors = home.with_name("stderr")
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        ready, words = self.start()
        assert ready, words
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def words(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""

    def start(self) -> tuple[bool, str]:
        """Whether it is ready; if it is not, its last words."""
        self.kill()
        said = len(self.words)
        command = [sys.executable, "-m", "penstock.cli", "up", "--rehearse", "--home", str(self.home), "--port", "0"]
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*command, "--json", "--journal", self.where], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        try:
            self.address = announcement(self.process)["address"]
        except SystemExit:
            return False, self.words[said:]
        return self.settles()

    def settles(self) -> tuple[bool, str]:
        """Wait until it is ready, or says that something is missing, or has ended. Whether, and its words."""
        limit = time.monotonic() + LIMIT_S
        says = ""
        while time.monotonic() < limit:
            assert self.process is not None
            if self.process.poll() is not None:
                return False, self.words
            try:
                answer = self.asked("GET", "/readyz").json()
            except httpx2.HTTPError as error:
                says = str(error)
            else:
                says = answer["says"]
                if answer["ok"] and self._takes():
                    return True, ""
                if all(word in says for word in MISSING):
                    return False, says
            time.sleep(0.05)
        return False, f"nothing for {LIMIT_S} s but: {says}"

    def _takes(self) -> bool:
        """Ready as of the last heartbeat is not enough: the primary may be dead for a second."""
        return self.asked("POST", "/v1/jobs", json=JOB).status_code == 201

    def asked(self, method: str, path: str, **more: Any) -> httpx2.Response:
        with self.client() as client:
            return client.request(method, path, **more)

    def client(self) -> httpx2.Client:
        token = (self.home / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=30, trust_env=False)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(LIMIT_S)
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def restore(self) -> None:
        """A person's word. The lease of who was killed may have to run out first."""
        command = [sys.executable, "-m", "penstock.cli", "journal", "restore", self.where, "--yes"]

        def is_done() -> bool:
            environment = {**os.environ, "PENSTOCK_HOME": str(self.home)}
            return subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 0

        until(is_done, "penstock journal restore", every_s=1.0)


class Clients:
    """Submit without a pause, and note what was accepted."""

    def __init__(self, plane: Plane) -> None:
        self.plane, self.accepted, self.over = plane, set[str](), threading.Event()
        self.threads = [threading.Thread(target=self._submit, daemon=True) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _submit(self) -> None:
        with self.plane.client() as client:
            while not self.over.is_set():
                try:
                    answer = client.post("/v1/jobs", json=JOB)
                except httpx2.HTTPError:
                    continue
                if answer.status_code == 201:
                    self.accepted.add(_job(answer.json()))
                elif answer.status_code not in (429, 503):
                    raise RuntimeError(f"{answer.status_code}: {answer.text}")
                else:
                    self.over.wait(0.05)

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(LIMIT_S)


def _job(answer: dict[str, Any]) -> str:
    return str(answer["job"])


def until(true: Callable[[], object], what: str, every_s: float = 0.02) -> None:
    limit = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < limit, f"not within {LIMIT_S} s: {what}"
        time.sleep(every_s)


if __name__ == "__main__":
    raise SystemExit(main())
