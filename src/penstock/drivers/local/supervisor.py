"""Supervisor of one local attempt: starts its command, enforces its deadline, and writes how it ended.

`LocalDriver` starts one for each attempt, as a program of its own (see `command`) that imports the standard library and
a few small modules. It leaves the control plane's session at once: killing the control plane kills no job, and
deadlines hold without it. Driver and supervisor communicate through files in the attempt's folder, each with one
writer. A job with a user of its own cannot reach them:

    order.json      what to run, until when, on which nodes       the driver, once
    deadline.json   when it ends by itself; may move; sealed      the driver
    stop.json       stop it, with so much grace                   the driver, once
    lock            held while the supervisor lives               the supervisor
    begun.json      it runs                                       the supervisor, once
    marks.json      its last step and checkpoint                  the supervisor
    log             what the job prints, up to a limit            the supervisor
    ended.json      how it ended: from now on, a tombstone        the supervisor, or the driver if there is none

The job has a folder elsewhere (job_folders.py), with its working directory and its report.

A guardian, which does nothing else, waits for the supervisor: what a killed supervisor leaves behind becomes the
guardian's child, and ends. The lock tells whether one of the two lives, because the kernel releases it with the
process; a process id may be reused. Times are milliseconds of the boot clock, which never steps and counts sleep.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from penstock.data.plain_files import PLAIN, DamagedFile, read_plain
from penstock.drivers import progress
from penstock.drivers.local import isolation, limits
from penstock.drivers.local.control_files import grace_ms, opened
from penstock.drivers.local.output import JobLog, JobReport
from penstock.drivers.records import checked, printable, write

TICK_MS: Final = 100  #: how often it reads its files; the end of the process is seen at once
LAST_LOOKS: Final = 128  #: pieces of log and report that are read after the end
REST_S: Final = 0.005  #: after each look at the log: what prints a lot is taken in by pieces, not line by line
SWEEPS: Final = isolation.SWEEPS
KEY_BYTES: Final = 32  #: of the site's seal
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux
_ADOPT_ORPHANS = 36  # prctl's PR_SET_CHILD_SUBREAPER
_CONTROLLING_TTY = 0x540E  # ioctl's TIOCSCTTY


#: Isolated and without `site`: the supervisor starts in a few milliseconds.
_START: Final = "import sys; sys.path.append(sys.argv[1]); from {} import {}; {}(*sys.argv[2:])"


def command(*words: str, does: str = "main") -> list[str]:
    """The command line that calls a function of this module: `main`, with an attempt's folder, is its supervisor."""
    above = os.path.abspath(__file__)
    for _ in __name__.split("."):
        above = os.path.dirname(above)
    return [sys.executable, "-I", "-S", "-c", _START.format(__name__, does, does), above, *words]


def main(folder: str) -> None:
    os.chdir(folder)
    os.umask(0o077)
    lock = take_lock("lock")
    if lock is None or os.path.lexists("ended.json") or os.path.lexists("begun.json"):
        return  # it has a supervisor or is over; if its supervisor died, the driver notices
    order, key = checked("order.json"), read_plain("../../key", KEY_BYTES)
    if os.fork():
        os._exit(0)  # the driver waits for this process; the child keeps the lock
    isolation.hide_from_jobs()
    _adopt_orphans()
    child = os.fork()
    if child:
        guard(child, order)
    else:
        Supervisor(order, key).keep()


def guard(supervisor: int, order: dict[str, Any]) -> None:
    """Wait for the supervisor. If it was killed, whatever it kept is ours now: end it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the supervisor hears it, and takes its time
    ended = status = 0
    while ended != supervisor:
        ended, status = os.waitpid(-1, 0)
    if status:
        kill_all(order, reap=_reap_all)


def _reap_all() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def end_leftovers(folder: str) -> None:
    """Kill what an attempt without a supervisor left behind. The driver runs it as a program: it must not fork."""
    kill_all(checked(f"{folder}/order.json"), parent=-1)


def exec_command(folder: str, on_terminal: str, *words: str) -> None:
    """Become a command of the attempt in this folder: its user, its folder, its variables. For `penstock exec`."""
    order = checked(f"{folder}/order.json")
    if on_terminal:  # the session leader must make the TTY its own, or ^C does not reach it
        fcntl.ioctl(0, _CONTROLLING_TTY, 0)
    try:
        enter(order)
        os.execvpe(words[0], words, order["env"])
    except OSError as error:
        sys.exit(f"penstock: {words[0]}: {error.strerror}")


def enter(order: dict[str, Any]) -> None:
    """Turn this process into one of the job's: limits, user, then its folder, as that user may enter it."""
    if order["cgroup"]:
        limits.join(order["cgroup"])
    isolation.be_ended_first()
    if order["uid"]:
        isolation.become(order["uid"], order["processes"])
    os.umask(order["umask"])
    os.chdir(order["folder"])


class Supervisor:
    def __init__(self, order: dict[str, Any], key: bytes) -> None:
        self.order, self.key = order, key
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
        self.marks_written: dict[str, int] = {}
        self.log = JobLog("log", order["log_bytes"], order["uid"])
        self.report: JobReport | None = None
        self.notes = Notes()
        #: Our own copy of each deadline. One that we never read with a seal has passed.
        self.deadlines: dict[str, int | None] = {place: now_ms() for place in (".", *order["nodes"])}

    def keep(self) -> None:
        signal.signal(signal.SIGTERM, self._machine_goes_down)
        _adopt_orphans()
        if self._until_begin() and self._begin():
            while self._lives():
                self._note_marks()
                self._see_to_its_end()
            kill_all(self.order, self.main_pid, reap=self._reap)
            for _ in range(LAST_LOOKS):  # all of it that the pipe and the report hold, and not what is endless
                if not self._note_marks():
                    break
        insist("ended.json", self._end())

    # --- its beginning -----------------------------------------------------------------------------------------------

    def _until_begin(self) -> bool:
        """Wait for a simulated start where the site sells per attempt; false if it was told to stop before."""
        while not self._is_told() and now_ms() < self.order["begin_ms"]:
            time.sleep(min(TICK_MS, max(1, self.order["begin_ms"] - now_ms())) / 1000)
        return not self.why

    def _begin(self) -> bool:
        self.begun_ms = now_ms()
        try:
            self._make_room()
            self.command = self._spawn()
            self.main_pid = self.command.pid
            self.pidfd = os.pidfd_open(self.main_pid)
        except (OSError, ValueError, IndexError, DamagedFile, subprocess.SubprocessError) as error:
            self.detail = printable(f"the command could not be started: {error}{self._hint(error)}")
            self.log.say(f"could not start the command: {error}{self._hint(error)}")
        self.log.started()
        insist("begun.json", {"pid": self.main_pid, "begun_ms": self.begun_ms})
        return self.main_pid > 0

    def _make_room(self) -> None:
        """The report, the limits, and the certainty that the job can enter its folder."""
        order = self.order
        self.report = JobReport(order["env"]["PENSTOCK_REPORT"], order["uid"])
        if order["cgroup"]:
            limits.make(order["cgroup"], order["memory"], order["processes"])
        if error := isolation.tried_as(order["uid"], lambda: os.chdir(order["folder"])):
            raise OSError(error.errno, os.strerror(error.errno or 0), order["folder"])

    def _spawn(self) -> subprocess.Popen[bytes]:
        ours = os.getpid()

        def become_the_job() -> None:
            enter(self.order)
            isolation.die_with(ours)  # nothing may run without a deadline

        return subprocess.Popen(
            self.order["command"],
            env=self.order["env"],
            stdin=subprocess.DEVNULL,
            stdout=self.log.target,
            stderr=self.log.target,
            start_new_session=True,
            preexec_fn=become_the_job,  # noqa: PLW1509 - no threads here
        )

    def _hint(self, error: Exception) -> str:
        """Root may read what the job's user may not, and whoever submits is surprised."""
        if not self.order["uid"] or not isinstance(error, OSError) or error.errno not in (errno.EACCES, errno.EPERM):
            return ""
        return (
            f" (jobs here run as uid {self.order['uid']}, which may read only what every user may: open the way to it"
            " with chmod o+rx, or start penstock up with --trust-teams, so that jobs run as root)"
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
        """Wait for one tick, and take in meanwhile what the job prints."""
        until = time.monotonic() + self._wait_ms() / 1000
        while (left := until - time.monotonic()) > 0:
            ready = select.select([self.pidfd, *self.log.sources], [], [], left)[0]
            if self.pidfd in ready or not ready:
                return
            self._note(self.log.take())
            if select.select([self.pidfd], [], [], REST_S)[0]:
                return

    def _wait_ms(self) -> int:
        left = TICK_MS if self.kill_ms is None else self.kill_ms - now_ms()
        return min(left, TICK_MS) if left > 0 else TICK_MS

    def _grace_left(self) -> bool:
        return self.kill_ms is None or now_ms() < self.kill_ms

    def _reap(self) -> bool:
        """Reap dead children and adopted orphans. True once the command's own process has ended."""
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == self.main_pid:
                    self.status = reaped[1]
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
        if os.path.lexists("stop.json"):
            yield "stopped", "told to stop", now + grace_ms(".")
        for lost_ms in [order["lost_ms"], *(self.notes(f"{node}/node.json").get("lost_ms") for node in order["nodes"])]:
            if type(lost_ms) is int and now >= lost_ms - order["notice_ms"]:
                yield "lost", "the capacity was taken away", lost_ms
        for place in (".", *order["nodes"]):
            deadline = self._deadline(place)
            if deadline is not None and now >= deadline:
                yield "stopped", "its deadline passed", deadline + order["grace_ms"]
            if os.path.lexists(f"{place}/released.json"):
                yield "stopped", "its node was given back", now

    def _deadline(self, place: str) -> int | None:
        """The newest that carries the seal: whatever else is written there moves nothing."""
        name = self.order["name"] if place == "." else os.path.basename(place)
        with suppress(DamagedFile):
            self.deadlines[place] = opened(self.key, name, self.notes(f"{place}/deadline.json"))["boot_ms"]
        return self.deadlines[place]

    def _machine_goes_down(self, *_: object) -> None:
        self.taken_ms = now_ms() + int(self.order["grace_ms"])

    def _end(self) -> dict[str, Any]:
        phase, code = self.why, None if self.status is None else os.waitstatus_to_exitcode(self.status)
        if not self.why or (code == 0 and progress.has_finished(self.marks)):
            phase = "done" if code == 0 else "failed"
            self.detail = self.detail if code is None else _words(code)
        return {
            "attempt": self.order["attempt"],
            "phase": phase,
            "code": code,
            "detail": self.detail,
            "ended_ms": now_ms(),
            "marks": self.marks,
        }

    # --- what it reports ---------------------------------------------------------------------------------------------

    def _note_marks(self) -> bool:
        """True if there was anything to read. We do not wait for a job that writes faster than we read."""
        pieces = [self.log.take(), self.report.take() if self.report else None]
        for lines in pieces:
            self._note(lines)
        if self.marks != self.marks_written:
            with suppress(OSError):  # the next mark retries, and ended.json repeats the last
                write("marks.json", self.marks)
                self.marks_written = self.marks.copy()
        return any(lines is not None for lines in pieces)

    def _note(self, lines: bytes | None) -> None:
        progress.note(self.marks, lines or b"", lambda: now_ms() - self.begun_ms)


class Notes:
    """Files of the driver, read again only when they changed: the supervisor looks ten times a second."""

    def __init__(self) -> None:
        self.read: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}

    def __call__(self, path: str) -> dict[str, Any]:
        try:
            stat = os.lstat(path)
            stamp = (stat.st_ino, stat.st_mtime_ns)
            if path not in self.read or self.read[path][0] != stamp:
                self.read[path] = (stamp, checked(path))
        except (OSError, DamagedFile):
            return {}
        return self.read[path][1]


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


# --- shared with the driver ------------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def insist(path: str, record: dict[str, Any]) -> None:
    """Retry on a full disk until it is written: a job's end must not be lost."""
    while True:
        try:
            write(path, record, durable=True)
        except FileNotFoundError:  # the folder was removed: nobody will read it
            return
        except OSError:
            with suppress(OSError):  # a job that runs as our own user may have taken our right to write here
                os.chmod(os.path.dirname(path) or ".", 0o700)
            time.sleep(1)
        else:
            return


def take_lock(path: str) -> int | None:
    """Held until this process and its forks are gone; None if another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    except BlockingIOError:
        os.close(file)
        return None
    return file


def is_locked(path: str) -> bool:
    """Test without taking the lock, so that a test never blocks a supervisor."""
    try:
        file = os.open(path, os.O_RDWR | PLAIN)
    except OSError:  # there is none, or something that we did not make
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


def kill_all(
    order: dict[str, Any], group: int | None = None, parent: int | None = None, reap: Callable[[], object] = bool
) -> None:
    """Kill every process of an attempt, in whichever session it is. Returns when all are gone. `parent`: whose adopted
    children are the attempt's, ours if left out.
    """
    parent = os.getpid() if parent is None else parent
    if order.get("uid"):
        isolation.kill_user(order["uid"], reap)
    if order.get("cgroup"):
        limits.end(order["cgroup"])
    for _ in range(SWEEPS):
        in_group = group is not None and signal_group(group, signal.SIGKILL)
        others = list(processes_of(order["env"]["PENSTOCK_REPORT"], parent))
        for pid in others:
            with suppress(ProcessLookupError, PermissionError):
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
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, its_parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state != b"Z" and (int(its_parent) == parent or mark in _environment(name)):
                yield int(name)


def _environment(process: str) -> list[bytes]:
    """Its variables when it was started; none, if it does not show them to us."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
