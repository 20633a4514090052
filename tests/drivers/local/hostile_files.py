"""What a job may put in the place of a file of ours: each kind once, for the tests of whoever reads such files."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

Put = Callable[[Path], None]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    """By a short name: a socket's address has a hundred bytes."""
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def _folder(path: Path) -> None:
    (path / "in it").mkdir(parents=True)


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


def _hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_text(json.dumps({"phase": "done", "detail": "", "marks": {}, "step": 1}))
    os.link(other, path)


def _text(text: str | bytes) -> Put:
    raw = text if isinstance(text, bytes) else text.encode("utf-8")

    def write(path: Path) -> None:
        path.write_bytes(raw)

    return write


KINDS: Final[dict[str, Put]] = {
    "fifo": _fifo,
    "socket": _socket,
    "folder": _folder,
    "link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "huge": _huge,
    "hard link": _hard_link,
    "empty": _text(""),
    "no text": _text(bytes(range(256)) * 40),
    "half a record": _text('{"phase": "do'),
    "says nothing": _text("{}"),
    "a list": _text("[1, 2, 3]"),
    "a number": _text("7"),
    "deep": _text('{"a":' * 100_000 + "1" + "}" * 100_000),
    "many digits": _text('{"step": 999999999999999999999999999999, "phase": "done", "detail": "", "at": 1}'),
    "endless digits": _text('{"checkpoint_ms": ' + "9" * 100_000 + "}"),
    "not a number": _text('{"step": NaN, "of": Infinity, "checkpoint_ms": -Infinity}'),
    "negative": _text('{"step": -5, "of": 10, "phase": "done", "detail": "", "marks": {"step": -5}}'),
    "of the future": _text('{"checkpoint_ms": 9999999999999, "checkpoint_step": 1, "boot_ms": 9999999999999, "at": 1}'),
    "wrong types": _text('{"phase": ["done"], "detail": {}, "marks": [], "step": "1", "checkpoint_ms": 1.5, "of": []}'),
    "half a letter": _text('{"phase": "done", "detail": "\\ud800", "marks": {"\\ud800": 1}, "code": 0}'),
}  # fmt: skip


def put(kind: str, path: Path) -> None:
    """Replace whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
