"""Processes that outlive their starter and can be found again. `testbed` and `cluster` use it.

Each has the test bed's mark in its environment, so a later process can end them even if the folder is gone and the
starter was killed. No other process is ever touched.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput

MARK: Final = "PENSTOCK_BED"
END_S: Final = 20  #: how long a killed process may take to disappear
NOTHING: Final[Mapping[str, str]] = {}
#: Programs in Go collect garbage less often: an API server starts with a tenth less CPU, with Cluster API's definitions
#: a fifth, for 100 MB more of memory. Near the limit they collect as ever.
GO: Final[Mapping[str, str]] = {"GOGC": "400", "GOMEMLIMIT": "600MiB"}


class Process:
    """A process by name, in a test bed's folder, which has its pid and its log."""

    def __init__(self, folder: Path, name: str, mark: str) -> None:
        self.folder, self.name, self.mark = folder, name, mark
        self.log = folder / f"{name}.log"
        self._note = folder / f"{name}.pid"

    def start(self, command: Sequence[str], env: Mapping[str, str] = NOTHING) -> None:
        """Start it as an orphan in its own session: nobody waits for it, and our ^C does not reach it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        script = '"$@" >>"$LOG" 2>&1 </dev/null & echo $!'
        own = {**GO, **os.environ, **env, MARK: self.mark, "LOG": str(self.log)}
        completed = subprocess.run(
            ["sh", "-c", script, "sh", *command],
            env=own,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            start_new_session=True,
        )
        pid = int(completed.stdout)
        self._note.write_text(f"{pid} {born(pid)}")

    @property
    def pid(self) -> int:
        """0 if it does not run. Pids are reused, so its start time must match, too."""
        with contextlib.suppress(FileNotFoundError):
            pid, _, when = self._note.read_text().partition(" ")
            return int(pid) if when and born(int(pid)) == when else 0
        return 0

    def signal(self, number: int) -> None:
        if self.pid:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; it is gone on return."""
        if pid := self.pid:
            end([pid])

    def check(self) -> None:
        if not self.pid:
            raise BadInput(f"{self.name} did not start. Its last words: {self.last_words()}")

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        errors = [line for line in lines if line.startswith(("E", "F", "Error", "panic")) or '"fatal"' in line]
        return " | ".join(dict.fromkeys([*errors[-2:], *lines[-2:]]))[-800:] or "none"


def born(pid: int) -> str:
    """Start time in ticks since boot; empty for dead processes and zombies.

    The mark would not do: during exec a process has no environment for an instant.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


def end_all(mark: str) -> int:
    """Kill every process of this test bed, with all descendants, also new ones. Returns how many."""
    count = 0
    while pids := list(marked(mark)):
        count += len(pids)
        end(pids)
    return count


def marked(mark: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and mark_of(int(entry.name)) == mark:
            yield int(entry.name)


def mark_of(pid: int) -> str:
    """Empty for processes of others, for those that are gone, and for those that are dead and not yet buried."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    start = f"{MARK}=".encode()
    return next((line[len(start) :].decode() for line in environ if line.startswith(start)), "")


def end(pids: Sequence[int]) -> None:
    """SIGKILL and wait: after SIGTERM an API server holds its port for seconds, and nothing here needs a farewell."""
    until = time.monotonic() + END_S
    waiting = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            waiting.append(os.pidfd_open(pid))
            os.kill(pid, signal.SIGKILL)
    for handle in waiting:
        gone = select.poll()
        gone.register(handle, select.POLLIN)
        gone.poll(max(0.0, until - time.monotonic()) * 1000)
        os.close(handle)
