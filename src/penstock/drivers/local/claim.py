"""The claim of a local site: `claim.json` in its folder, and a lock that lives as long as the control plane.

    claim.json      whose site it is now (`drivers/claim`), and which folder it was written in
    claim.lock      locked by the control plane that works here; its inode tells a folder from a copy of it

The lock says whether anybody renews the claim, without a clock: the kernel releases it with the process.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.drivers.claim import MOST_BYTES, Claim, SeenClaim, Superseded, packed, unpacked
from penstock.drivers.driver import Unreachable
from penstock.drivers.records import sync_folder

T = TypeVar("T")
LET_GO_SECONDS: Final = 2.0  #: a killed control plane's children may have its lock for a moment
OPENED: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderClaim:
    by_path = True

    def __init__(
        self, folder: Path, prepare: Callable[[], None], locked: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`prepare`: makes the folder, and refuses another installation's. `locked`: one change at a time."""
        self.folder, self.prepare, self.locked = folder.absolute(), prepare, locked
        self.path = self.folder / "claim.json"
        self.written = ""  #: our last claim's version
        self.lock: int | None = None
        self.is_ours = False  #: we have the lock

    async def read(self) -> SeenClaim:
        return await asyncio.to_thread(self._told, self._read)

    async def write(self, claim: Claim, over: SeenClaim) -> SeenClaim:
        return await asyncio.to_thread(self._told, lambda: self._write(claim, over))

    async def is_renewed(self, seen: SeenClaim) -> bool:  # noqa: ARG002 - the lock says more
        return not await asyncio.to_thread(self._told, self._take_lock)

    def check(self) -> None:
        """Before anything is started: raises `Unreachable` if another control plane took the site over."""
        if self.written:
            with self.locked():  # not in the middle of our own renewal
                if self._record() != self.written:
                    raise Unreachable("another control plane works with this site now")

    def close(self) -> None:
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    # --- in a thread -------------------------------------------------------------------------------------------------

    def _told(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise Unreachable(f"the claim in {self.folder} cannot be used now: {error.strerror}") from error

    def _read(self) -> SeenClaim:
        self.prepare()
        here = self._identity()
        self._try_lock()
        return self._seen(self._record(), here)

    def _seen(self, text: str, here: str) -> SeenClaim:
        claim = unpacked(text)
        if not text:
            return SeenClaim(None)
        if claim is None:
            return SeenClaim(None, text, f"{self.path} is damaged")
        recorded = str(msgspec.json.decode(text).get("folder", ""))
        # A copy has another inode and another time; a changed owner or mode leaves the inode as it is.
        same = any(a == b for a, b in zip(here.split(":"), recorded.split(":"), strict=False))
        return SeenClaim(claim, text, "" if same else f"{self.folder} is a copy of a site's folder")

    def _write(self, claim: Claim, over: SeenClaim) -> SeenClaim:
        text = packed(claim, folder=self._identity())
        with self.locked():
            if self._record() != over.version:
                raise Superseded
            _replace(self.path, text)
            self.written = text
        return SeenClaim(claim, text)

    def _record(self) -> str:
        """The claim's text; empty if there is none. Nothing but a plain file is read, and never more than fits one."""
        try:
            file = os.open(self.path, os.O_RDONLY | OPENED)
        except FileNotFoundError:
            return ""
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                return "a link or a socket"
            raise
        try:
            plain = stat.S_ISREG(os.fstat(file).st_mode)
            return (os.read(file, MOST_BYTES).decode("utf-8", "replace") if plain else "") or "not a file, or empty"
        finally:
            os.close(file)

    def _identity(self) -> str:
        lock_stat = os.fstat(self._lock_file())
        return f"{lock_stat.st_ino}:{lock_stat.st_ctime_ns}"

    def _lock_file(self) -> int:
        if self.lock is None:
            self.lock = os.open(self.folder / "claim.lock", os.O_RDWR | os.O_CREAT | OPENED, 0o600)
        return self.lock

    def _try_lock(self) -> bool:
        if not self.is_ours:
            try:
                fcntl.flock(self._lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.is_ours = True
            except BlockingIOError:
                return False
        return True

    def _take_lock(self) -> bool:
        until = time.monotonic() + LET_GO_SECONDS
        while not self._try_lock():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


def _replace(path: Path, text: str) -> None:
    """Durable, and whole or not at all: after a power cut the site must not have an older claim than the journal."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPENED, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(aside, path)
    except OSError:
        aside.unlink(missing_ok=True)  # a full disk would get another one every few seconds
        raise
    sync_folder(str(path.parent))
