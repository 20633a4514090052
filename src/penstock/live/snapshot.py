"""The engine's state as bytes, so that a restart need not fold a million events. A cache, never the truth.

Keyed by the core's own source: whatever changes there, the next start folds the journal once from its beginning.
"""

import copyreg
import hashlib
import io
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import penstock.core
from penstock.core.state import Lane, State
from penstock.core.values import FROZEN

CHUNK: Final = 200  #: jobs written at once: a few milliseconds


@cache
def schema() -> str:
    """What a snapshot must have been made by to be read."""
    sha = hashlib.sha256(repr((sys.version_info[:3], FROZEN)).encode())
    for file in sorted(Path(penstock.core.__path__[0]).glob("*.py")):
        sha.update(file.read_bytes())
    return sha.hexdigest()


def pack(state: State) -> bytes:
    """A few jobs at a time, and then the rest, which only refers to them: one call would keep all threads waiting."""
    file = io.BytesIO()
    writer = _Writer(file)
    jobs = list(state.jobs.values())
    chunks = [jobs[k : k + CHUNK] for k in range(0, len(jobs), CHUNK)]
    writer.dump(len(chunks))
    for chunk in chunks:
        writer.dump(chunk)
    writer.dump(state)
    writer.dump([(lane, lane.heap) for lane in writer.lanes.values()])
    return file.getvalue()


class _Writer(pickle.Pickler):
    """A lane's queue leads to all jobs at once, so lanes are written without it first."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.lanes: dict[int, Lane] = {}

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is not Lane:
            return NotImplemented
        self.lanes[id(thing)] = thing
        slots = {name: getattr(thing, name) for name in Lane.__slots__ if name != "heap"}
        return copyreg.__newobj__, (Lane,), (None, slots)  # type: ignore[attr-defined]  # pickle's own name for it


def unpack(packed: bytes) -> State:
    reader = _Reader(io.BytesIO(packed))
    chunks = reader.load()
    for _ in range(chunks if isinstance(chunks, int) else 0):
        reader.load()
    found = reader.load() if isinstance(chunks, int) else chunks
    if not isinstance(found, State):
        raise pickle.UnpicklingError("not a state")
    for lane, heap in reader.load():
        lane.heap = heap
    return found


class _Reader(pickle.Unpickler):
    """Only the core's own values: whoever can write the journal's database must not be able to run code here."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if _is_ours(module, name) else None
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"a state holds no {module}.{name}")
        return found


def _is_ours(module: str, name: str) -> bool:
    return (module.startswith("penstock.core.") and "." not in name) or (module, name) == ("collections", "deque")
