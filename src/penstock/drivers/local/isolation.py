"""A user of its own for every job of a local site, where Penstock runs as root. The supervisor and the driver use it;
standard library only.

A job's uid and gid are one number, from a range that no distribution hands out: systemd's list of uids leaves
1879048192 to 2147352575 unused. The number follows from installation and job, so all attempts of a job own its
checkpoints, and whatever has it is the job's: nothing hides from `kill_user` by a new session or an empty environment.
"""

import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Final

FIRST_UID: Final = 1_900_000_000
UIDS: Final = 100_000_000  #: jobs have the first so many; the next so many are of whoever ends them, one for each
PROCESSES: Final = 16_384  #: of one job at once, threads included
SWEEPS: Final = 100  #: rounds of killing before we give up on processes that fork faster
#: What root needs: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID.
RIGHTS: Final = (0, 1, 3, 5, 6, 7)
OOM_SCORE: Final = "/proc/self/oom_score_adj"  #: added to the thousandths of all memory that a process has
JOBS_SCORE: Final = 500
OUR_SCORE: Final = -500
_DIE_WITH_PARENT, _DUMPABLE, _NO_NEW_PRIVILEGES = 1, 4, 38  # prctl's PR_SET_...


def missing() -> str:
    """Why jobs cannot have a user of their own; empty if they can."""
    if os.geteuid() != 0:
        return "Penstock does not run as root"
    effective = int(_status_of("self").get("CapEff", "0"), 16)
    if not all(effective >> right & 1 for right in RIGHTS):
        return "root has too few capabilities here (it needs those to change owner and user)"
    if not (_maps("uid_map") and _maps("gid_map")):
        return f"this container has no uids from {FIRST_UID} on"
    return ""


def _maps(name: str) -> bool:
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        rows = [list(map(int, line.split())) for line in file]
    return any(first <= FIRST_UID and first + count >= FIRST_UID + 2 * UIDS for first, _, count in rows)


def uid_of(installation: str, job: str, salt: int = 0) -> int:
    """The job's own number. Another `salt` gives another one, should somebody have it already."""
    digest = blake2b(f"{installation}\n{job}\n{salt}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return FIRST_UID + int.from_bytes(digest) % UIDS


def is_jobs(uid: int) -> bool:
    """True if only a job, or who ends one, has this number."""
    return FIRST_UID <= uid < FIRST_UID + 2 * UIDS


def become(uid: int, processes: int = PROCESSES) -> None:
    """Turn this process into the job's, for good: no groups, no rights, and no program that gives any back."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    status = _status_of("self")
    kept = [name for name in ("CapPrm", "CapEff", "CapAmb") if int(status.get(name, "1"), 16)]
    if kept or status.get("NoNewPrivs") != "1" or os.getresuid() != (uid, uid, uid) or os.getgroups():
        raise PermissionError(errno.EPERM, f"this machine did not take root's rights away from uid {uid}")


def die_with(parent: int) -> None:
    """End this process when its parent ends. Called after `become`, which would undo it."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def hide_from_jobs() -> None:
    """Keep this process's environment and memory from other processes of the same user."""
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def be_ended_first() -> None:
    """Where memory ends, the kernel ends jobs before us, whoever of us has more. Called before `become`: what is
    set with CAP_SYS_RESOURCE, the job cannot take back.
    """
    _set_oom_score(max(_oom_score(), JOBS_SCORE))


def be_ended_last() -> None:
    """The control plane and its supervisors, which inherit it, outlive jobs; unless somebody chose another value, or we
    may not.
    """
    if _oom_score() == 0:
        _set_oom_score(OUR_SCORE)


def _oom_score() -> int:
    with suppress(OSError), open(OOM_SCORE, encoding="ascii") as file:
        return int(file.read())
    return 0


def _set_oom_score(score: int) -> None:
    with suppress(OSError), open(OOM_SCORE, "w", encoding="ascii") as file:
        file.write(str(score))


def tried_as(uid: int, attempt: Callable[[], object]) -> OSError | None:
    """Try something as the job would, in a process of its own; the error that it meets."""
    child = os.fork()
    if not child:
        code = 0
        try:
            if uid:
                become(uid)
            attempt()
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os._exit(min(code, 255))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return OSError(code, os.strerror(code)) if code > 0 else None


def kill_user(uid: int, reap: Callable[[], object] = bool) -> bool:
    """Kill every process of a job's user, wherever it hides. True once all are gone."""
    for _ in range(SWEEPS):
        _kill_all_of(uid)
        reap()
        if not any(processes_of(uid)):
            return True
        time.sleep(0.01)
    return False


def _kill_all_of(uid: int) -> None:
    """One signal to all of them at once, which no fork escapes. Who sends it has the uid in effect alone: by its real
    and its saved one, a number of its own, the job cannot signal it back.
    """
    if not FIRST_UID <= uid < FIRST_UID + UIDS:
        raise ValueError(f"{uid} is no job's uid")
    child = os.fork()
    if not child:
        with suppress(OSError):
            os.setgroups([])
            os.setresuid(uid + UIDS, uid, uid + UIDS)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    with suppress(ChildProcessError):  # somebody else's reaping may have met it first
        os.waitpid(child, 0)


def processes_of(uid: int) -> Iterator[int]:
    """Living processes that have this uid in any of its four places."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = _status_of(name)
            if str(uid) in status.get("Uid", "").split() and not status.get("State", "Z").startswith("Z"):
                yield int(name)


def _status_of(process: str) -> dict[str, str]:
    """Fields of /proc/PID/status; none if the process is gone."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            return {name: text.strip() for name, _, text in (line.partition(":") for line in file)}
    except OSError:
        return {}
