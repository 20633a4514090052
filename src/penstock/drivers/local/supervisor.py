"""The keeper of one attempt on this machine: it starts the command, sees to its end, and writes down what became of it.

`LocalDriver` starts one for each attempt, as a program of its own (`command` says how), of the standard library and two
small modules beside this one. It leaves the control plane's session at once and needs it no more: whoever kills the
control plane kills no job, and a deadline holds while nobody listens. The two speak through files in the attempt's
folder:

    order.json      what to run, until when, on which nodes       the driver, once
    deadline.json   when it ends by itself; may move              the driver
    stop.json       stop it, with so much grace                   the driver, once
    lock            held while the keeper lives                   the keeper
    begun.json      it runs                                       the keeper, once
    marks.json      its last step and checkpoint                  the keeper
    ended.json      how it ended: from now on, a tombstone        the keeper, or the driver for what has no keeper
    log, report     what the job prints, and what it reports      the job

Whether a keeper lives is told by its lock, which the system takes away with it, never by a process id, which another
process may carry by now. Times are milliseconds of the machine's boot clock: it never steps, and counts sleep.
"""

import ctypes
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from penstock.drivers import progress
from penstock.drivers.records import read, write

TICK_MS: Final = 100  #: how often a keeper looks at its files; an end of the process itself is seen at once
SWEEPS: Final = 100  #: whoever forks faster than we kill is given up on after so many rounds
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # names that prctl has for these: PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


#: Without the environment's settings and without site-packages' own start-up: an attempt starts in a few milliseconds.
_START: Final = f"import sys; sys.path.append(sys.argv[1]); from {__name__} import main; main(sys.argv[2])"


def command(folder: str) -> list[str]:
    """The program that keeps the attempt of this folder."""
    above = os.path.abspath(__file__)
    for _ in __name__.split("."):
        above = os.path.dirname(above)
    return [sys.executable, "-I", "-S", "-c", _START, above, folder]


def main(folder: str) -> None:
    os.chdir(folder)
    lock = take_lock("lock")
    if lock is None or os.path.exists("ended.json") or os.path.exists("begun.json"):
        return  # another one keeps it, or it is over; if its keeper died, the driver finds that out
    if os.fork():
        os._exit(0)  # the driver waits for this one; the lock goes on with the other
    Supervisor(read("order.json")).keep()


class Supervisor:
    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        #: Kept, or Python reaps the command as soon as it forgets the object, and nobody can ask how it ended.
        self.command: subprocess.Popen[bytes] | None = None
        self.main_pid = 0  #: the command's own process
        self.pidfd = -1  #: readable once that has ended
        self.begun_ms = 0
        self.status: int | None = None  #: how the command's own process ended, once it has
        self.why = ""  #: it is being ended: `stopped` or `lost`
        self.detail = ""
        self.kill_ms: int | None = None  #: the end of its grace
        self.taken_ms: int | None = None  #: this machine goes down: told by SIGTERM to the keeper itself
        self.marks: dict[str, int] = {}
        self.tails = [TailedFile("log"), TailedFile("report")]
        self.notes = Notes()

    def keep(self) -> None:
        signal.signal(signal.SIGTERM, self._machine_goes_down)
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        if self._until_begin() and self._begin():
            while self._lives():
                self._note_marks()
                self._see_to_its_end()
            kill_all(self.order["env"]["PENSTOCK_REPORT"], self.main_pid, self._reap)
            while self._note_marks():
                pass
        insist("ended.json", self._end())

    # --- its beginning -----------------------------------------------------------------------------------------------

    def _until_begin(self) -> bool:
        """Where the site sells by the attempt, its start takes a while; it may be told to stop before."""
        while not self._is_told() and now_ms() < self.order["begin_ms"]:
            time.sleep(min(TICK_MS, max(1, self.order["begin_ms"] - now_ms())) / 1000)
        return not self.why

    def _begin(self) -> bool:
        self.begun_ms = now_ms()
        log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self.command = self._spawn(log)
            self.main_pid = self.command.pid
            self.pidfd = os.pidfd_open(self.main_pid)
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            os.write(log, f"penstock could not start the command: {error}\n".encode())
            self.detail = f"the command could not be started: {error}"
        finally:
            os.close(log)
        insist("begun.json", {"pid": self.main_pid, "begun_ms": self.begun_ms})
        return self.main_pid > 0

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        order, libc = self.order, ctypes.CDLL(None)
        return subprocess.Popen(
            order["command"],
            env=order["env"],
            cwd=order["folder"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # A keeper that dies takes the command with it: nothing runs on that no deadline can end.
            preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - no threads here
        )

    # --- its end -----------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        """Wait for the next tick or for the process's end. What is told to stop lives as long as its group does."""
        if self.status is None:
            self._wait_for_end()
            if not self._reap():
                return True
            if self.why:  # a shell that only waited for the program: now the program is told
                signal_group(self.main_pid, signal.SIGTERM)
        else:
            time.sleep(self._wait_ms() / 1000)
            self._reap()
        return bool(self.why) and self._grace_left() and signal_group(self.main_pid, 0)

    def _wait_for_end(self) -> None:
        select.select([self.pidfd], [], [], self._wait_ms() / 1000)

    def _wait_ms(self) -> int:
        left = TICK_MS if self.kill_ms is None else self.kill_ms - now_ms()
        return min(left, TICK_MS) if left > 0 else TICK_MS

    def _grace_left(self) -> bool:
        return self.kill_ms is None or now_ms() < self.kill_ms

    def _reap(self) -> bool:
        """Collect whoever died, orphans that came to us included. True once the command's own process has."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.main_pid:
                    self.status = found[1]
        return self.status is not None

    def _see_to_its_end(self) -> None:
        was_told = bool(self.why)
        if self._is_told() and not was_told and self.status is None:
            os.kill(self.main_pid, signal.SIGTERM)  # ours and not yet reaped, so the number is still its own
        if self.kill_ms is not None and now_ms() >= self.kill_ms:
            signal_group(self.main_pid, signal.SIGKILL)

    def _is_told(self) -> bool:
        """Is there a reason to end it? The first one names it; any later one may only shorten its grace."""
        for why, detail, kill_ms in self._reasons():
            if not self.why:
                self.why, self.detail = why, detail
            self.kill_ms = kill_ms if self.kill_ms is None else min(self.kill_ms, kill_ms)
        return bool(self.why)

    def _reasons(self) -> Iterator[tuple[str, str, int]]:
        now, order = now_ms(), self.order
        if self.taken_ms is not None:
            yield "lost", "the machine went down", self.taken_ms
        if os.path.exists("stop.json"):
            yield "stopped", "told to stop", now + int(read("stop.json")["grace_ms"])
        for lost_ms in [order["lost_ms"], *(self.notes(f"{node}/node.json").get("lost_ms") for node in order["nodes"])]:
            if lost_ms is not None and now >= lost_ms - order["notice_ms"]:
                yield "lost", "the capacity was taken away", lost_ms
        for place in (".", *order["nodes"]):
            deadline = self.notes(f"{place}/deadline.json").get("boot_ms")
            if deadline is not None and now >= deadline:
                yield "stopped", "its deadline passed", deadline + order["grace_ms"]
            if os.path.exists(f"{place}/released.json"):
                yield "stopped", "its node was given back", now

    def _machine_goes_down(self, *_: object) -> None:
        self.taken_ms = now_ms() + int(self.order["grace_ms"])

    def _end(self) -> dict[str, Any]:
        phase, code = self.why, None if self.status is None else os.waitstatus_to_exitcode(self.status)
        if not self.why or (code == 0 and progress.has_finished(self.marks)):
            phase = "done" if code == 0 else "failed"
            self.detail = self.detail if code is None else _words(code)
        return {"phase": phase, "code": code, "detail": self.detail, "ended_ms": now_ms(), "marks": self.marks}

    # --- what it reports ---------------------------------------------------------------------------------------------

    def _note_marks(self) -> bool:
        """True if there was anything to read: a job that writes faster than we read is not waited for."""
        before, read_some = self.marks.copy(), False
        for tail in self.tails:
            lines = tail.lines()
            read_some = read_some or bool(lines)
            progress.note(self.marks, b"\n".join(lines), lambda: now_ms() - self.begun_ms)
        if self.marks != before:
            with suppress(OSError):  # the next mark will do, and the end repeats the last one
                write("marks.json", self.marks)
        return read_some


class Notes:
    """Files that others write, read again only when they were written again: a keeper looks ten times a second."""

    def __init__(self) -> None:
        self.read: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}

    def __call__(self, path: str) -> dict[str, Any]:
        try:
            found = os.stat(path)
        except OSError:
            return {}
        stamp = (found.st_ino, found.st_mtime_ns)
        if path not in self.read or self.read[path][0] != stamp:
            self.read[path] = (stamp, read(path))
        return self.read[path][1]


class TailedFile:
    """What a growing file says since we last looked: whole lines, a megabyte at most."""

    def __init__(self, path: str) -> None:
        self.path, self.offset, self.rest = path, 0, b""

    def lines(self) -> list[bytes]:
        try:
            if os.stat(self.path).st_size <= self.offset:
                return []
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                new = file.read(1 << 20)
        except OSError:
            return []
        self.offset += len(new)
        *lines, rest = re.split(rb"[\r\n]", self.rest + new)
        self.rest = rest[-4096:]  # a line without an end is somebody's data, not a mark
        return lines or [b""]


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


# --- shared with the driver ------------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def insist(path: str, said: dict[str, Any]) -> None:
    """On a full disk, until there is room again: what became of a job is not lost for want of a few bytes."""
    while True:
        try:
            write(path, said, durable=True)
        except FileNotFoundError:  # somebody removed the folder: there is nobody left to tell
            return
        except OSError:
            time.sleep(1)
        else:
            return


def take_lock(path: str) -> int | None:
    """Held until this process and its forks are gone; None if somebody has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    except BlockingIOError:
        os.close(file)
        return None
    return file


def is_locked(path: str) -> bool:
    """Asked without taking it, so that asking never stands in the way of a keeper."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    finally:
        os.close(file)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def signal_group(group: int, number: int) -> bool:
    """True if somebody is in it. A group's number is not given away while it has members."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_all(report: str, group: int | None = None, reap: Callable[[], object] = bool) -> None:
    """Whatever an attempt started is over, wherever it hid. Returns when it is."""
    for _ in range(SWEEPS):
        in_group = group is not None and signal_group(group, signal.SIGKILL)
        others = list(processes_of(report, os.getpid() if group is not None else -1))
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not others and not in_group:
            return
        time.sleep(0.01)


def processes_of(report: str, parent: int = -1) -> Iterator[int]:
    """Processes that were given this report to write to, or were left to `parent`: what a setsid does not hide."""
    mark = b"PENSTOCK_REPORT=" + os.fsencode(report)
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    ours = mark in file.read().split(b"\0")
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, its_parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state != b"Z" and (ours or int(its_parent) == parent):
                yield int(name)
