"""Writes the golden journal anew: `python -m tests.journals.make`.

Only for a new release, or while there is none yet: a golden journal of a release stays as it is for ever, and a changed
meaning is a new version of the event. The file is gzipped JSON lines: one row a step, last what it means.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.core.engine import VERSION, replay
from penstock.journal import codec
from tests.parity import chosen, scenario, steps_of

FOLDER = Path(__file__).parent
NAME = f"v{VERSION}.jsonl.gz"


def make() -> bytes:
    made = scenario(jobs=250)
    steps, engine = steps_of(made, chosen(made, "compute-q30"))
    lines = [
        json.dumps([step.number, step.at, codec.encode(step.inputs).decode(), codec.encode(step.outputs).decode()])
        for step in steps
    ]
    lines.append(json.dumps({"version": VERSION, "digest": engine.state.meaning()}))
    return gzip.compress("\n".join(lines).encode(), mtime=0)


def rows(packed: bytes) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    *lines, last = gzip.decompress(packed).decode().splitlines()
    version = json.loads(last)["version"]
    for line in lines:
        _, at, inputs, outputs = json.loads(line)
        yield at, codec.decode(inputs.encode(), version), codec.decode(outputs.encode(), version)


def digest(packed: bytes) -> str:
    return str(json.loads(gzip.decompress(packed).decode().splitlines()[-1])["digest"])


if __name__ == "__main__":
    packed = make()
    assert replay(rows(packed)).state.meaning() == digest(packed)
    (FOLDER / NAME).write_bytes(packed)
    print(f"{NAME}: {len(packed):,} bytes, digest {digest(packed)}")
