"""Supervisor of one local attempt: starts its command, enforces its deadline, and writes how it ended.

`LocalDriver` starts one for each attempt, as a program of its own (see `command`) that imports the standard library and
two small modules. It leaves the control plane's session at once: killing the control plane kills no job, and deadlines
hold without it. Driver and supervisor communicate through files in the attempt's folder, each with one writer:

    order.json      what to run, until when, on which nodes       the driver, once
    deadline.json   when it ends by itself; may move              the driver
    stop.json       stop it, with so much grace                   the driver, once
    lock            held while the supervisor lives               the supervisor
    begun.json      it runs                                       the supervisor, once
    marks.json      its last step and checkpoint                  the supervisor
    ended.json      how it ended: from now on, a tombstone        the supervisor, or the driver if there is none
    log, report     what the job prints, and what it reports      the job

The lock tells whether a supervisor lives, because the kernel releases it with the process; a process id may be reused.
Times are milliseconds of the boot clock, which never steps and counts sleep.
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

TICK_MS: Final = 100  #: how often it reads its files; the end of the process is seen at once
SWEEPS: Final = 100  #: rounds of killing before we give up on processes that fork faster
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # prctl's PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


#: Isolated and without `site`: the supervisor starts in a few milliseconds.
_START: Final = f"import sys; sys.path.append(sys.argv[1]); from {__name__} import main; main(sys.argv[2])"


def command(folder: str) -> list[str]:
    """The command line of the supervisor for this folder."""
    above = os.path.abspath(__file__)
    for _ in __name__.split("."):
        above = os.path.dirname(above)
    return [sys.executable, "-I", "-S", "-c", _START, above, folder]


def main(folder: str) -> None:
    os.chdir(folder)
    lock = take_lock("lock")
    if lock is None or os.path.exists("ended.json") or os.path.exists("begun.json"):
        return  # it has a supervisor or is over; if its supervisor died, the driver notices
    if os.fork():
        os._exit(0)  # the driver waits for this process; the child keeps the lock
    Supervisor(read("order.json")).keep()


class Supervisor:
    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        #: Referenced, or Python would reap the command with the object, and its exit status would be lost.
        self.command: subprocess.Popen[bytes] | None = None
        self.main_pid = 0  #: the command's own process
        self.pidfd = -1  #: readable once that process has ended
        self.begun_ms = 0
        self.status: int | None = None  #: its wait status, once it has ended
        self.why = ""  #: why it is being ended: `stopped` or `lost`
        self.detail = ""
        self.kill_ms: int | None = None  #: the end of its grace
        self.taken_ms: int | None = None  #: when SIGTERM told us that this machine shuts down
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
        """Wait for a simulated start where the site sells per attempt; false if it was told to stop before."""
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
            # The command dies with its supervisor: nothing may run without a deadline.
            preexec_fn=lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509 - no threads here
        )

    # --- its end -----------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        """Wait for the next tick or the process's end. While being stopped it lives as long as its process group."""
        if self.status is None:
            self._wait_for_end()
            if not self._reap():
                return True
            if self.why:  # the shell is gone: signal the program that it waited for
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
        """Reap dead children and adopted orphans. True once the command's own process has ended."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.main_pid:
                    self.status = found[1]
        return self.status is not None

    def _see_to_its_end(self) -> None:
        was_told = bool(self.why)
        if self._is_told() and not was_told and self.status is None:
            os.kill(self.main_pid, signal.SIGTERM)  # not reaped yet, so the pid cannot be reused
        if self.kill_ms is not None and now_ms() >= self.kill_ms:
            signal_group(self.main_pid, signal.SIGKILL)

    def _is_told(self) -> bool:
        """True if there is a reason to end it. The first reason counts; later ones may only shorten the grace."""
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
        """True if there was anything to read. We do not wait for a job that writes faster than we read."""
        before, read_some = self.marks.copy(), False
        for tail in self.tails:
            lines = tail.lines()
            read_some = read_some or bool(lines)
            progress.note(self.marks, b"\n".join(lines), lambda: now_ms() - self.begun_ms)
        if self.marks != before:
            with suppress(OSError):  # the next mark retries, and ended.json repeats the last
                write("marks.json", self.marks)
        return read_some


class Notes:
    """Files of the driver, read again only when they changed: the supervisor looks ten times a second."""

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
    """New whole lines of a growing file, at most a megabyte at once."""

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
        self.rest = rest[-4096:]  # an endless line is data, not a mark
        return lines or [b""]


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


# --- shared with the driver ------------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def insist(path: str, said: dict[str, Any]) -> None:
    """Retry on a full disk until it is written: a job's end must not be lost."""
    while True:
        try:
            write(path, said, durable=True)
        except FileNotFoundError:  # the folder was removed: nobody will read it
            return
        except OSError:
            time.sleep(1)
        else:
            return


def take_lock(path: str) -> int | None:
    """Held until this process and its forks are gone; None if another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    except BlockingIOError:
        os.close(file)
        return None
    return file


def is_locked(path: str) -> bool:
    """Test without taking the lock, so that a test never blocks a supervisor."""
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
    """True if the group has members. A group's id is not reused while it has any."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_all(report: str, group: int | None = None, reap: Callable[[], object] = bool) -> None:
    """Kill every process of an attempt, in whichever session it is. Returns when all are gone."""
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
    """Processes with this report in their environment, or adopted by `parent`: setsid hides neither."""
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
