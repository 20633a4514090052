"""Handles ^C and SIGTERM during the demo: everything is ended in order, and no interrupt is lost.

Python drops an exception that is raised during cleanup. So the handler records the interrupt, and the script checks at
each turn.
"""

import signal
from typing import Any, Final, Self

KINDS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    def __init__(self) -> None:
        self.heard = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {kind: signal.signal(kind, self) for kind in KINDS}
        return self

    def __exit__(self, *raised: object) -> None:
        for kind, before in self._before.items():
            signal.signal(kind, before)

    def __call__(self, *_: object) -> None:
        self.heard = True
        raise KeyboardInterrupt


def again_if_lost() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, Interrupts) and handler.heard:
        raise KeyboardInterrupt
