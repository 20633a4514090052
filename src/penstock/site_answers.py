"""What a site says: facts, by itself, and one of four errors when it does not do as it is told. The errors are named by
what happens next. What runs workloads (`drivers`) and what rents nodes (`capacity`) both raise them.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

from penstock.core.model import events as e
from penstock.core.model.reasons import Obstacle, Shortage
from penstock.core.units import Millis

Say: TypeAlias = Callable[[e.Fact], None]


class NoCapacity(Exception):
    """Not here, not now: the engine looks elsewhere, and asks here again after `retry_ms`. With a `shortage` the cloud
    said why.
    """

    def __init__(self, message: str, retry_ms: Millis, shortage: Shortage = "") -> None:
        super().__init__(message)
        self.retry_ms, self.shortage = retry_ms, shortage


class NeverReady(NoCapacity):
    """As `NoCapacity`; but a node was there that never became usable: it is given back, and what it cost is booked."""


class Unstartable(Exception):
    """Not this job, not here as things are: others may start here, and it is tried again after a pause that grows."""

    def __init__(self, message: str, retry_ms: Millis, obstacle: Obstacle, nodes: tuple[str, ...] = ()) -> None:
        """`nodes`: those with free GPUs that could not take it, where they are known."""
        super().__init__(message)
        self.retry_ms, self.obstacle, self.nodes = retry_ms, obstacle, nodes


class Unreachable(Exception):
    """Again later: it may or may not have happened."""


class Undelivered(Unreachable):
    """The same, and it has not happened: nothing was sent to the site that could still take effect."""


class Refused(Exception):
    """Never: the site will not take this, and a person must be told why."""


#: Whether whoever asks still holds the journal's lease: `dispatch` sets it. What nobody can take back is asked for only
#: if it is true in the instant that the request leaves; a process may sleep between any two lines.
still_leads: ContextVar[Callable[[], bool]] = ContextVar("still_leads", default=lambda: True)


def check_leads() -> None:
    """Raises `Unreachable` if another control plane may lead by now. Called in the instant that a request leaves."""
    if not still_leads.get()():
        raise Unreachable("another control plane may lead by now; nothing was asked for")


def to_nobody(_: e.Fact) -> None:
    """`say` before `open` and after `close`."""
