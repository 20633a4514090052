"""Small JSON files that several processes read and write: the local driver's orders and results, and how far a log was
read. Standard library only: the keeper of an attempt imports it.
"""

import json
import os
import time
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


def read(path: str) -> Record:
    """What the file says, nothing if it is not there. Files are renamed into place, so never half of one."""
    try:
        with open(path, encoding="utf-8") as file:
            said: Record = json.load(file)
            return said
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}


def write(path: str, said: Record, durable: bool = False) -> None:
    """Aside first, then renamed: a reader sees the old text or the new one."""
    aside = f"{path}.{os.getpid()}-{time.monotonic_ns()}"
    with open(aside, "w", encoding="utf-8", opener=_for_us_alone) as file:
        json.dump(said, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(aside, path)
    if durable:
        sync_folder(os.path.dirname(path) or ".")


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # an order holds the job's environment, secrets included


def sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
