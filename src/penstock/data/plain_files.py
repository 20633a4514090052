"""Reads and removes files that a job could have put there. Drivers, supervisors and the checkpoint folders use it;
standard library only.

A file is opened without following a link and without waiting, and must be a plain file of ours and of bounded size. A
lock is waited for as long as somebody honest could hold it.
"""

import errno
import fcntl
import os
import secrets
import stat
import subprocess
import time
from pathlib import Path
from typing import Final

#: What opening says of a link, a socket, a device without a driver, and a file that was made unreadable.
NOT_PLAIN: Final = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES)
PLAIN: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PATIENCE_S: Final = 10.0  #: for a lock that is held for milliseconds, unless a job holds it
#: The environment of our own small programs: a job may look at them.
CLEAN: Final = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


class DamagedFile(Exception):
    """A file is not what we wrote there. The message names the file and says what it is."""


def read_plain(path: str, most: int) -> bytes:
    """The whole content of a plain file. Raises `DamagedFile` if it is none, or has more than `most` bytes."""
    file = open_plain(path)
    try:
        text = _read_up_to(file, most + 1)
    finally:
        os.close(file)
    if len(text) > most:
        raise DamagedFile(f"{path} has more than {most} bytes")
    return text


def open_plain(path: str) -> int:
    """Open a plain file of ours for reading. `DamagedFile` if it is a link, a folder, a pipe, or somebody else's."""
    try:
        file = os.open(path, os.O_RDONLY | PLAIN)
    except OSError as error:
        if error.errno in NOT_PLAIN:
            raise DamagedFile(f"{path} is no plain file of ours") from None
        raise
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_uid != os.geteuid():
        os.close(file)
        raise DamagedFile(f"{path} is no plain file of ours")
    return file


def _read_up_to(file: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(file, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def replace_with(path: Path, text: str) -> None:
    """Write a file whole, or leave it as it is. In a folder that others may write to, nothing that they have put there
    is followed. A file that a link names is replaced where it is; the mode stays. Raises `OSError`.
    """
    path = path.resolve()
    aside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o666), "w", encoding="utf-8") as file:
        try:
            file.write(text)
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.flush()
            os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


def wait_for_lock(file: int, name: str, patience_s: float = PATIENCE_S) -> None:
    """Lock a file that others lock for moments only. `TimeoutError` (an `OSError`) if it is never free."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "somebody has held this lock for too long", name) from None
            time.sleep(0.005)
        else:
            return


def copy_tree(source: Path, target: Path, uid: int = 0) -> None:
    """Copy what is in a folder into another, whatever it is and however deep; by this user, if one is named, so that
    nothing is read or written that it may not.
    """
    command = ["cp", "-a", "--", f"{source}/.", str(target)]
    done = subprocess.run(
        command,
        env=CLEAN,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        user=uid or None,
        group=uid or None,
        extra_groups=() if uid else None,
    )
    if done.returncode:
        raise OSError(errno.EIO, done.stderr.decode("utf-8", "replace").strip()[:300], str(source))


def remove_tree(path: Path) -> None:
    """Remove what is there, however deep, and leave what cannot be removed."""
    subprocess.run(["rm", "-rf", "--", str(path)], env=CLEAN, stderr=subprocess.DEVNULL, check=False)
