"""Checks what the files of an attempt say before anybody acts on it. The driver and the supervisor use it; standard
library only.

Where jobs have a user of their own they cannot write these files. Where they run as our own user they can, and a
mistake or a trick in one of them must harm that attempt alone. A deadline is sealed besides: the supervisor goes by its
own copy until it reads one that carries the site's seal.
"""

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from penstock.data.plain_files import DamagedFile
from penstock.drivers.records import Record, checked, is_whole, printable

MOST_STEPS: Final = 10**15
MOST_MS: Final = 10**13  #: three hundred years: no boot clock and no run is longer
MOST_GRACE_MS: Final = 24 * 3_600_000
MOST_SPEED: Final = 10**6  #: in thousandths
MOST_SLOTS: Final = 10**6
PHASES: Final = ("done", "failed", "stopped", "lost")
MARKS: Final = {"step": MOST_STEPS, "of": MOST_STEPS, "checkpoint_step": MOST_STEPS, "checkpoint_ms": MOST_MS}


def read_order(folder: str) -> Record:
    """What the attempt was told, as far as the driver goes by it; empty if nothing. Raises `DamagedFile`."""
    path = f"{folder}/order.json"
    order = checked(path)
    if order and not (
        isinstance(order.get("attempt"), str)
        and isinstance(order.get("folder"), str)
        and isinstance(order.get("env"), dict)
        and is_whole(order.get("uid", 0), 0, 2**32)
        and is_whole(order.get("resume_ms"), 0, MOST_MS)
        and is_whole(order.get("speed_permille"), 0, MOST_SPEED)
        and _list_of(order.get("nodes"), lambda node: isinstance(node, str))
        and _list_of(order.get("slots"), lambda slot: is_whole(slot, 0, MOST_SLOTS))
    ):
        raise DamagedFile(f"{path} is not what Penstock wrote")
    return order


def read_node(folder: str) -> Record:
    """A rented node's life; empty if it was never rented. Raises `DamagedFile`."""
    path = f"{folder}/node.json"
    node = checked(path)
    if node and not (
        isinstance(node.get("node"), str)
        and isinstance(node.get("boot"), str)
        and isinstance(node.get("offer"), str)
        and is_whole(node.get("gpus"), 0, MOST_SLOTS)
        and is_whole(node.get("ready_ms"), 0, MOST_MS)
        and (node.get("lost_ms") is None or is_whole(node["lost_ms"], 0, MOST_MS))
        and _list_of(node.get("slots"), lambda slot: is_whole(slot, 0, MOST_SLOTS))
    ):
        raise DamagedFile(f"{path} is not what Penstock wrote")
    return node


def _list_of(items: object, good: Callable[[object], bool]) -> bool:
    return isinstance(items, list) and all(good(item) for item in items)


def read_end(folder: str, now_ms: int) -> Record:
    """How the attempt ended; empty if it has not. Raises `DamagedFile`."""
    path = f"{folder}/ended.json"
    end = checked(path)
    if not end:
        return {}
    if end.get("phase") not in PHASES or not isinstance(end.get("detail"), str):
        raise DamagedFile(f"{path} says no phase that there is")
    marks = end.get("marks")
    if not isinstance(marks, dict):
        raise DamagedFile(f"{path} has no marks")
    return {**end, "detail": printable(end["detail"]), "marks": _marks(marks, path, now_ms)}


def read_marks(folder: str, now_ms: int) -> Record:
    """The last step and checkpoint that the supervisor noted. Raises `DamagedFile`."""
    path = f"{folder}/marks.json"
    return _marks(checked(path), path, now_ms)


def _marks(marks: Record, path: str, now_ms: int) -> Record:
    """A machine that is up for so long cannot have run a job for longer."""
    for name, value in marks.items():
        if name not in MARKS or not is_whole(value, 0, MARKS[name]):
            raise DamagedFile(f"{path} has a mark that no job can make: {printable(name, 40)}")
    if marks.get("checkpoint_ms", 0) > now_ms:
        raise DamagedFile(f"{path} has a checkpoint of the future")
    return marks


def grace_ms(folder: str) -> int:
    """How long a stopped attempt may still run: no time at all, if the file does not say it plainly."""
    try:
        grace = checked(f"{folder}/stop.json").get("grace_ms")
    except (DamagedFile, OSError):
        return 0
    return grace if isinstance(grace, int) and is_whole(grace, 0, MOST_GRACE_MS) else 0


def sealed(key: bytes, name: str, at: int, boot_ms: int | None) -> Record:
    """A deadline of the attempt or node with this name, as the file carries it."""
    return {"at": at, "boot_ms": boot_ms, "seal": _seal(key, name, at, boot_ms)}


def opened(key: bytes, name: str, record: Record) -> Record:
    """The deadline, if it carries our seal. Raises `DamagedFile`."""
    at, boot_ms, seal = record.get("at"), record.get("boot_ms"), record.get("seal")
    plain = type(at) is int and (boot_ms is None or type(boot_ms) is int) and isinstance(seal, str)
    if not plain or not compare_digest(str(seal).encode(), _seal(key, name, int(str(at)), boot_ms).encode()):
        raise DamagedFile(f"deadline.json of {name} is not what Penstock wrote")
    return record


def _seal(key: bytes, name: str, at: int, boot_ms: int | None) -> str:
    return blake2b(f"{name}\n{at}\n{boot_ms}".encode(), key=key, digest_size=32).hexdigest()
