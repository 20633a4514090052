"""A PostgreSQL server for the tests: started on loopback when first wanted, thrown away at the end of the run.

Debian's, or any whose `initdb` is found. Under PENSTOCK_REQUIRE_ALL=1 it is installed where it is missing, as root on a
machine that has apt; otherwise its tests are skipped.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests import debian
from tests.conftest import REQUIRE_ALL, Part

PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin")


class Server:
    """A cluster in a folder of its own. `stop` and `start` are how a fault is made."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder, self.port = programs, folder, free_port()
        self.databases = 0
        self._own(folder)
        # No fsync: a test that kills the server's process loses nothing that the system has.
        self._run("initdb", "-D", str(folder / "data"), "-U", "penstock", "--auth=trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-o", options, "-l", f"{self.folder}/log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def processes(self) -> list[int]:
        """The server's own, and all that it has begun: the first is their parent."""
        parent = int((self.folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        return [parent, *(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == parent)]

    def signal(self, number: signal.Signals) -> None:
        """To all of them, its parent first, so that it begins no other."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def dies(self) -> None:
        """As its machine does: at once, and nothing is flushed."""
        self.signal(signal.SIGKILL)
        (self.folder / "data" / "postmaster.pid").unlink()

    @property
    def runs(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def new_database(self) -> str:
        self.databases += 1
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"create database journal_{self.databases}")
        return self.address(f"journal_{self.databases}")

    def address(self, name: str) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{name}"

    def _own(self, folder: Path) -> None:
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres", "postgres")

    def _run(self, program: str, *args: str) -> None:
        command = [str(self.programs / program), *args]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}")


class Standby(Server):
    """A streaming standby of that server."""

    def __init__(self, primary: Server, folder: Path) -> None:
        self.programs, self.folder, self.port = primary.programs, folder, free_port()
        self.databases = 0
        self._own(folder)
        source = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "penstock")
        self._run("pg_basebackup", "-D", str(folder / "data"), *source, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def stop_receiving(self) -> None:
        """From now on it falls behind: what it has not received by then, it never gets."""
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute("alter system set primary_conninfo = ''")
            db.execute("select pg_reload_conf()")
            until = time.monotonic() + 30
            while db.execute("select 1 from pg_stat_wal_receiver").fetchall():
                assert time.monotonic() < until, "it still receives"
                time.sleep(0.01)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@contextmanager
def server() -> Iterator[Server]:
    """A running one; a skip where there is none to be had."""
    programs = found_or_skip()
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        made = Server(programs, folder)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def found_or_skip() -> Path:
    """The folder of its programs."""
    programs = found() or (installed() if REQUIRE_ALL else None)
    if programs is None:
        pytest.skip(Part.POSTGRES)
    return programs


def found() -> Path | None:
    """On the PATH, or where packages put it. With PENSTOCK_TEST_BARE=1 on the PATH only: it hides what it can there."""
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent, Path(on_path).parent] if on_path else []
    usual = () if os.environ.get("PENSTOCK_TEST_BARE") == "1" else PLACES
    places += [path for place in usual for path in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return next((path for path in places if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def installed() -> Path | None:
    return found() if debian.install("postgresql") else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
