"""What the ledger counts with: an account of one scope in one period, and a lease, which is a hold and its life."""

from typing import Final, TypeAlias

from penstock.core.model.types import Hold, Part
from penstock.core.units import NEVER, Instant, Money

Parts: TypeAlias = tuple[Part, ...]
#: No instant: what is settled is renewed at none.
SETTLED: Final[Instant] = -1


class Account:
    """One scope in one period. `cap` None: counted, not limited."""

    __slots__ = ("cap", "held", "spent")

    def __init__(self, cap: Money | None) -> None:
        self.cap, self.held, self.spent = cap, 0, 0


class Lease:
    """A hold and what has happened to it since."""

    __slots__ = (
        "asked",
        "charged",
        "charged_to",
        "deadline_at",
        "denied",
        "hold",
        "opened_at",
        "parts",
        "renew_at",
        "unconfirmed",
        "wanted_at",
    )

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.parts = hold.parts  #: held now, by period
        self.charged: Money = 0
        self.opened_at = self.charged_to = hold.opened_at  #: billed from; for an attempt, from when the site is asked
        self.asked = (
            True  #: False while an attempt waits for its data or for whoever is there before it: nothing is billed
        )
        self.deadline_at = hold.deadline_at  #: the latest the running thing can end by itself: what the hold covers
        self.wanted_at = hold.deadline_at  #: what it was last asked to end at
        self.renew_at = hold.renew_at  #: a note to renew it at another instant no longer counts
        self.denied = False
        self.unconfirmed = False  #: a deadline was asked for and not yet answered

    def ask(self, at: Instant) -> None:
        """The site is asked for it now: from here on it is billed."""
        self.asked = True
        self.opened_at = self.charged_to = at

    @property
    def held(self) -> Money:
        return sum_of(self.parts)

    @property
    def is_ending(self) -> bool:
        """Nothing should begin on it: it is not renewed, or its end was called back."""
        return self.denied or self.wanted_at < self.deadline_at or self.renew_at == NEVER

    @property
    def worst_at(self) -> Instant:
        """The instant after which nothing more can be billed, if nobody does anything."""
        return self.deadline_at + self.hold.terms.grace_ms + self.hold.terms.kill_ms


def sum_of(parts: Parts) -> Money:
    return parts[0].amount if len(parts) == 1 else sum([part.amount for part in parts])  # nearly always one period
