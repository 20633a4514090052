"""Small JSON files shared by several processes: the local driver's orders and results, and the position in a log.
Standard library only: the supervisor imports it.

A job that runs as our own user can put anything in their place, so they are read as `plain_files`, and nothing in them
is believed that is not checked.
"""

import json
import os
import re
import time
from contextlib import suppress
from typing import Any, Final, TypeAlias

from penstock.data.plain_files import DamagedFile, read_plain

Record: TypeAlias = dict[str, Any]

MOST_BYTES: Final = 16 << 20  #: an order holds a command and its variables
MOST_DIGITS: Final = 20  #: of a number, which has 64 bits at most


def read(path: str) -> Record:
    """The record; empty if there is no file, or none that we could have written."""
    try:
        return checked(path)
    except DamagedFile:
        return {}


def checked(path: str) -> Record:
    """The record, which is never partial: files are renamed into place. Empty if there is none. `DamagedFile`: see
    above.
    """
    try:
        text = read_plain(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    try:
        record = json.loads(text, parse_int=_whole, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is no record: {str(error)[:100]}") from None
    if not isinstance(record, dict):
        raise DamagedFile(f"{path} is no record: it holds a {type(record).__name__}")
    if not record:
        raise DamagedFile(f"{path} says nothing")
    return record


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS or abs(int(digits)) >= 1 << 63:
        raise ValueError("a number has too many digits")
    return int(digits)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def is_whole(number: object, least: int, most: int) -> bool:
    """True for a whole number in these bounds, both included."""
    return type(number) is int and least <= number <= most


def printable(words: str, most: int = 1_000) -> str:
    """Words that a journal can store and a terminal can show, cut to a length."""
    plain = words[:most].encode("utf-8", "replace").decode("utf-8")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", plain)


def write(path: str, record: Record, durable: bool = False) -> None:
    """Write to a temporary file and rename it: readers see the old or the new record."""
    aside = f"{path}.{os.getpid()}-{time.monotonic_ns()}"
    with open(aside, "x", encoding="utf-8", opener=_for_us_alone) as file:
        json.dump(record, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    _put(aside, path)
    if durable:
        sync_folder(os.path.dirname(path) or ".")


def _put(aside: str, path: str) -> None:
    """Rename into place. A folder in the way, which we never make, is moved out of it."""
    try:
        os.rename(aside, path)
    except IsADirectoryError:
        os.rename(path, f"{aside}-was")
        os.rename(aside, path)
    except OSError:
        with suppress(OSError):
            os.unlink(aside)
        raise


def _for_us_alone(path: str, flags: int) -> int:
    """An order holds the job's environment, secrets included."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
