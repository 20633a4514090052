"""Reference counting for test beds: the first user starts one, the last stops it, and the next user ends what dead
users left. `testbed` calls it.

One file per test bed, in a folder of this user, contains the bed's folder. Each user holds a shared lock on that file,
which the kernel drops with the process; an exclusive lock proves that there is no other user.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def mark_for(folder: Path) -> str:
    """A short name for the test bed in this folder; bridges have it in their names, of at most 15 characters."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


class Seat:
    """Our reference to a test bed. `alone`: no other user, and others are kept out until `share` or `leave`."""

    def __init__(self, folder: Path) -> None:
        self.path = _folder() / mark_for(folder)
        self.folder = folder.resolve()
        self.alone = False
        self._handle = -1

    def take(self) -> None:
        """Waits while somebody starts or stops it."""
        while True:
            with locked():
                self._open()
                self.alone = _try(self._handle)
            if self.alone:
                return
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            if os.fstat(self._handle).st_nlink:
                return
            os.close(self._handle)  # it was stopped while we waited

    def try_alone(self) -> bool:
        """Whether nobody uses it; never waits."""
        with locked():
            self._open()
            self.alone = _try(self._handle)
        if not self.alone:
            os.close(self._handle)
        return self.alone

    def share(self) -> None:
        """It stands; others may come in."""
        with locked():  # changing a lock is not atomic, and nobody may become "alone" in between
            fcntl.flock(self._handle, fcntl.LOCK_SH)
            self.alone = False

    def be_last(self) -> bool:
        """Of several who leave at once exactly one is."""
        with locked():
            self.alone = self.alone or _try(self._handle)
        return self.alone

    def leave(self, *, forget: bool) -> None:
        if forget:
            self.path.unlink(missing_ok=True)
        os.close(self._handle)

    def _open(self) -> None:
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._handle, str(self.folder).encode(), 0)


def known() -> list[Path]:
    """The folders of all test beds that this user started and nobody ended."""
    folders = []
    for path in sorted(_folder().iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path.name != "door" and (text := path.read_text()):
                folders.append(Path(text))
    return folders


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked() -> Iterator[None]:
    """A short critical section over all of this user's processes on this machine."""
    with open(_folder() / "door", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _folder() -> Path:
    path = Path(tempfile.gettempdir()) / f"penstock-beds-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
