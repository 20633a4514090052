"""Snapshot: the engine's state as bytes and back, so that a restart need not fold a million events. A cache, never the
truth.

Its schema is a digest of the core's source: after any change there, the next start folds the whole journal once. The
unpickler accepts only the core's own classes, so that a manipulated database cannot run code. Shared objects stay
shared; the state's caches rely on that.
"""

import gc
import hashlib
import io
import pickle
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import penstock.core
from penstock.core.fold.state import State
from penstock.core.values import FROZEN
from penstock.journal.seal import Doubtful

#: Allowed beside the core's own classes: run times are kept in deques.
OTHERS: Final = {("collections", "deque")}


@cache
def schema() -> str:
    """A snapshot is readable only by the schema that wrote it."""
    compiled = hasattr(State, "__mypyc_attrs__")  # compiled classes order their fields differently
    sha = hashlib.sha256(repr((sys.version_info[:3], FROZEN, compiled)).encode())
    for file in sorted(Path(penstock.core.__path__[0]).rglob("*.py")):
        sha.update(file.read_bytes())
    return sha.hexdigest()


def pack(state: State) -> bytes:
    with _no_collection():
        return zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), level=1)


def unpack(packed: bytes) -> State:
    """The state. Raises whatever damaged bytes make of it: `restored` is for bytes that somebody may have changed."""
    with _no_collection():
        unpacked = _Reader(io.BytesIO(zlib.decompress(packed))).load()
    if not isinstance(unpacked, State):
        raise pickle.UnpicklingError(f"a snapshot holds a State, not a {type(unpacked).__name__}")
    return unpacked


def restored(number: int, packed: bytes) -> State:
    """The state after this step. Raises `Doubtful` if the bytes are no such state."""
    try:
        state = unpack(packed)
    except Exception as error:  # damaged bytes raise whatever they like
        raise Doubtful(f"the snapshot of step {number} cannot be read ({type(error).__name__}: {error})") from error
    if state.steps != number:
        raise Doubtful(f"the snapshot of step {number} holds step {state.steps}")
    return state


class _Reader(pickle.Unpickler):
    """Unpickles only the core's own classes: write access to the journal's database must not become code execution."""

    def find_class(self, module: str, name: str) -> Any:
        kind = super().find_class(module, name) if _is_ours(module, name) else None
        if not isinstance(kind, type):
            raise pickle.UnpicklingError(f"a snapshot may not hold {module}.{name}")
        return kind


def _is_ours(module: str, name: str) -> bool:
    return (module.startswith("penstock.core.") and "." not in name) or (module, name) in OTHERS


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: it would take half of the time, and a million new objects hold no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
