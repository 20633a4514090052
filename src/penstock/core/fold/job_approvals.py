"""What people were asked about a job, and what they said. Part of the state."""

from typing import Any

from penstock.core.model.events import ApprovalAnswered, ApprovalAsked
from penstock.core.units import Instant, Money


class JobApprovals:
    """Of one job; each by the rule that asks."""

    __slots__ = ("answers", "asked", "granted")

    def __init__(self) -> None:
        self.asked: dict[str, ApprovalAsked] = {}  #: the latest request
        self.answers: dict[str, ApprovalAnswered] = {}  #: to that one
        self.granted: dict[str, Money] = {}  #: what the job may cost in all

    @property
    def is_empty(self) -> bool:
        return not self.asked and not self.granted

    def canonical(self) -> list[list[Any]]:
        """For digests."""
        return [list(self.asked.items()), list(self.answers.items()), list(self.granted.items())]


def open_request(known: JobApprovals | None, rule: str, at: Instant) -> ApprovalAsked | None:
    """The request that is not answered and not over; of a given rule, or whichever there is."""
    for name, asked in known.asked.items() if known is not None else ():
        if known is not None and name not in known.answers and at < asked.until_at and rule in ("", name):
            return asked
    return None
