"""`penstock`, as it is, with a note beside it of when it heard of each home Job that came. `bench.kube` starts it.

    python -m bench.heard FILE up --sites ...

The clock is the machine's, counted alike in every process. A line of the file: the Job's name and the instant.
"""

import sys
import time
from typing import Any, TextIO

from penstock.cli.main import main
from penstock.kube import annotations
from penstock.kube.client import JOBS
from penstock.kube.informer import Informer


def listen(file: TextIO) -> None:
    """Before anything is made of it: when a mirror of home Jobs has it in hand."""
    hear = Informer._set

    def heard(self: Informer, obj: Any, surely: bool = False) -> None:
        if self.kind is JOBS and self.labels == annotations.QUEUE and self.get(*_place(obj)) is None:
            file.write(f"{obj['metadata']['name']} {time.monotonic():.6f}\n")
        hear(self, obj, surely)

    setattr(Informer, "_set", heard)  # noqa: B010 - the one place that every change goes through


def _place(obj: Any) -> tuple[str, str]:
    return obj["metadata"]["name"], obj["metadata"]["namespace"]


if __name__ == "__main__":
    with open(sys.argv.pop(1), "w", buffering=1, encoding="utf-8") as notes:
        listen(notes)
        main()
