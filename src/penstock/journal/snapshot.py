"""The engine's state as bytes and back, so that a start need not fold the whole past. The live loop calls it.

A snapshot is a cache, never the truth: it is keyed by `schema`, a digest of how the core's classes are laid out, and
one of another schema is not found. It comes from our own database, and is still read with care: nothing but classes
of the core can be made from it. Objects that are one stay one, which the state's own caches rely on.
"""

import gc
import io
import pickle
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

import penstock.core
from penstock import __version__
from penstock.core.engine import VERSION
from penstock.core.state import State
from penstock.core.values import FROZEN

CORE: Final = "penstock.core."
#: Of other modules: run times are kept in queues.
OTHERS: Final = {("collections", "deque")}


def dump(state: State) -> bytes:
    with _no_collection():
        return zlib.compress(pickle.dumps(state, protocol=5), level=1)


def load(snapshot: bytes) -> State:
    with _no_collection():
        found = CoreOnly(io.BytesIO(zlib.decompress(snapshot))).load()
    if not isinstance(found, State):
        raise pickle.UnpicklingError(f"a snapshot holds a State, not a {type(found).__name__}")
    return found


class CoreOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith(CORE) or (module, name) in OTHERS else None
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"a snapshot may not hold {module}.{name}")
        return found


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


@cache
def schema() -> str:
    """Of this program: another layout, version, interpreter or way of freezing, another schema."""
    about = [__version__, str(VERSION), str(FROZEN), ".".join(map(str, sys.version_info[:2]))]
    for module in sorted(found.name for found in iter_modules(penstock.core.__path__, CORE)):
        for name, found in sorted(vars(import_module(module)).items()):
            if isinstance(found, type) and found.__module__ == module:
                about.append(f"{module}.{name}{getattr(found, '__slots__', ())}")
    return sha256("\n".join(about).encode()).hexdigest()[:16]
