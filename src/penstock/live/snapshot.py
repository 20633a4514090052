"""The engine's state as bytes and back, so that a restart need not fold a million events. A cache, never the truth.

Keyed by the core's own source: whatever changes there, the next start folds the journal once from its beginning.
It comes from our own database, and is still read with care: nothing but the core's values can be made from it. Objects
that are one stay one, which the state's own caches rely on.
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

#: Beside the core's own: run times are kept in queues.
OTHERS: Final = {("collections", "deque")}


@cache
def schema() -> str:
    """What a snapshot must have been made by to be read."""
    compiled = hasattr(State, "__mypyc_attrs__")  # it keeps its fields in another order
    sha = hashlib.sha256(repr((sys.version_info[:3], FROZEN, compiled)).encode())
    for file in sorted(Path(penstock.core.__path__[0]).rglob("*.py")):
        sha.update(file.read_bytes())
    return sha.hexdigest()


def pack(state: State) -> bytes:
    with _no_collection():
        return zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), level=1)


def unpack(packed: bytes) -> State:
    with _no_collection():
        found = _Reader(io.BytesIO(zlib.decompress(packed))).load()
    if not isinstance(found, State):
        raise pickle.UnpicklingError(f"a snapshot holds a State, not a {type(found).__name__}")
    return found


class _Reader(pickle.Unpickler):
    """Only the core's own values: whoever can write the journal's database must not be able to run code here."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if _is_ours(module, name) else None
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"a snapshot may not hold {module}.{name}")
        return found


def _is_ours(module: str, name: str) -> bool:
    return (module.startswith("penstock.core.") and "." not in name) or (module, name) in OTHERS


@contextmanager
def _no_collection() -> Iterator[None]:
    """Half of the time would go into looking for garbage among a million new objects, and there is none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
