"""The home folder of an installation. Its files are written whole or not at all, since others read them meanwhile."""

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput

#: What an installation has in its home; a folder with one of these is one.
OURS: Final = ("journal.db", "tokens.json", "token", "address", "users.key", "audit.log", "sites")


def make_home(home: Path) -> None:
    """Make the folder, or close one that others may enter: it holds tokens, and other people's words."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.stat()
        if status.st_uid != os.geteuid():
            raise BadInput(
                f"{home} belongs to another user (uid {status.st_uid}, and this is uid {os.geteuid()}), who could read"
                " tokens and journal; choose another with --home."
            )
        if status.st_mode & 0o077:
            _close(home, status.st_mode)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {home} ({error.strerror}); choose another with --home.") from None
    for path in home.iterdir():
        close_file(path)


def _close(home: Path, mode: int) -> None:
    """Close our own folder to others. One that holds other things is somebody's who counts on its being open."""
    names = {path.name for path in home.iterdir()}
    if mode & stat.S_ISVTX or (names and not names & set(OURS)):
        raise BadInput(
            f"Other users may enter {home}, and it holds other things than Penstock's; choose another folder with"
            f" --home, or close this one: chmod 700 {home}"
        )
    home.chmod(0o700)


def close_file(path: Path) -> None:
    """Close a plain file of ours to other users; whatever else has this name is left alone. It must not be opened for
    that: closing a file again gives up all locks that this process has on it, SQLite's among them.
    """
    try:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077:
            path.chmod(0o600)
    except FileNotFoundError:
        return


def secret_key(path: Path) -> bytes:
    """The installation's key, made once and kept for good. Nobody else can read it."""
    if not path.exists():
        beside = path.with_name(path.name + ".new")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        os.replace(beside, path)
    return path.read_bytes()


def write_address(home: Path, address: str) -> None:
    """Commands read it while we start, so it is there whole or not at all."""
    path = home / "address"
    beside = path.with_name(path.name + ".new")
    beside.write_text(address + "\n", "utf-8")
    os.replace(beside, path)
