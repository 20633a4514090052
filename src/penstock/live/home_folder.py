"""The home folder of an installation. Its files are written whole or not at all, since others read them meanwhile."""

import os
import secrets
from pathlib import Path

from penstock.core.errors import BadInput


def make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {home} ({error.strerror}); choose another with --home.") from None


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
