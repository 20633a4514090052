"""The pods of an attempt that runs, as its site counts them now. The front door shows them on the home Job; they change
too often for the journal, which has the counts at the end.
"""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Protocol, runtime_checkable

from penstock.core.values import value


@value
class RunningPods:
    """Of one attempt, by the cluster's own count."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""


@runtime_checkable
class CountsPods(Protocol):
    """A driver that can say so."""

    def running_pods(self, attempt: str) -> RunningPods | None:
        """None: the attempt is not known here."""

    def when_pods_change(self, changed: Callable[[str], None]) -> None:
        """Call this with the attempt whenever its counts differ from before."""


@runtime_checkable
class KeepsForHomeJobs(Protocol):
    """A driver that keeps what has ended, and need not after its home Job is gone."""

    def ask_for_home_jobs(
        self, home_jobs: Callable[[], AbstractSet[str] | None], is_past: Callable[[str], Awaitable[bool]]
    ) -> None:
        """`home_jobs` answers with the uids of all home Jobs that exist; None: not known now. `is_past` is true of an
        attempt that no start can be bound for any more.
        """
