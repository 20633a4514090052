"""Small JSON files shared by several processes: the local driver's orders and results, and the position in a log.
Standard library only: the supervisor imports it.
"""

import json
import os
import time
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


def read(path: str) -> Record:
    """The record; empty if there is no file. Files are renamed into place, so it is never partial."""
    try:
        with open(path, encoding="utf-8") as file:
            said: Record = json.load(file)
            return said
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}


def write(path: str, said: Record, durable: bool = False) -> None:
    """Write to a temporary file and rename it: readers see the old or the new record."""
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
