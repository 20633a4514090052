"""Learned capacity: when standing GPUs become free, how often rented ones are preempted, how long data transfers take.

Fed only by starts, ends and finished copies, and rebuilt by replay; `runtimes` does the same for run times.
"""

from typing import Final

from penstock.core.model.types import Offer
from penstock.core.units import GB, HOUR, MICRO, PERMILLE, Instant, Millis

#: "At worst" is a p90. One that proved too short grows by half, one that held shrinks by a twentieth: in balance when
#: about one in nine is too short.
MISSED_NUM, MISSED_DEN, HELD_PART = 3, 2, 20
#: The same for "about": as much up as down, so that half of the starts come sooner.
ABOUT_PART: Final = 10
LEAST, MOST = 50, 1_000_000  # thousandths


class Starts:
    """Of jobs of one width or wider on the same standing offers: how often, and how well that foretells a start."""

    __slots__ = ("about_permille", "gap_ms", "last_at", "standing", "waiting", "width", "worst_permille")

    def __init__(self, standing: tuple[str, ...], width: int) -> None:
        self.standing, self.width = standing, width
        self.waiting = 0  #: jobs queued for these
        self.last_at: Instant | None = None
        #: The usual time between two such starts while somebody wants one, the newest counting for an eighth.
        self.gap_ms: Millis = 0
        self.about_permille = PERMILLE  #: what the gaps ahead come to in truth: as often less as more
        self.worst_permille = 5 * PERMILLE  #: and what nine of ten do not exceed

    def began(self, at: Instant, since: Instant) -> None:
        """One started, having asked `since`: how long GPUs for it took to come free."""
        last = since if self.last_at is None else max(self.last_at, since)
        self.gap_ms = (7 * self.gap_ms + at - last) // 8
        self.last_at = at

    def soonest(self, ahead: int) -> Millis:
        """Optimistic: half the usual gap, for each one before it and for itself."""
        return self.gap_ms * (ahead + 1) // 2

    def foretell(self, gaps: Millis) -> tuple[Millis, Millis]:
        """About when, and at worst, if the gaps until then usually come to so much."""
        about = gaps * self.about_permille // PERMILLE
        return about, max(about, gaps * self.worst_permille // PERMILLE)

    def proved(self, waited_ms: Millis, about_ms: Millis, worst_ms: Millis, started: bool) -> None:
        """A job that was told so waited so long, and then started; or gave up, which proves only what it outlived."""
        about, worst = self.about_permille, self.worst_permille
        if waited_ms > worst_ms:
            worst = worst * MISSED_NUM // MISSED_DEN
        elif started:
            worst -= worst // HELD_PART
        if waited_ms > about_ms:
            about += about // ABOUT_PART
        elif started:
            about -= about // (ABOUT_PART + 1)
        self.about_permille = min(max(about, LEAST), MOST)
        self.worst_permille = min(max(worst, LEAST), MOST)


#: What was declared of an offer counts as much as so many hours of seeing it.
DECLARED_MS: Final = 12 * HOUR
#: Seen so long, the past counts half from then on: zones change.
FORGET_MS: Final = 400 * HOUR


class Losses:
    """How often things rented at one offer were taken away."""

    __slots__ = ("lost", "ms")

    def __init__(self) -> None:
        self.lost = 0  #: in thousandths, so that half of one is not nothing
        self.ms: Millis = 0

    def saw(self, ms: Millis, lost: bool) -> None:
        self.ms += ms
        self.lost += PERMILLE if lost else 0
        if self.ms > FORGET_MS:
            self.ms, self.lost = self.ms // 2, self.lost // 2

    def ppm_per_hour(self, declared_ppm: int) -> int:
        """Losses per million hours, starting from what was declared."""
        seen = self.lost * (MICRO // PERMILLE) * HOUR
        return (seen + declared_ppm * DECLARED_MS) // (self.ms + DECLARED_MS)


def loss_ppm(losses: dict[str, Losses], offer: Offer) -> int:
    known = losses.get(offer.id)
    return offer.loss_ppm_per_hour if known is None else known.ppm_per_hour(offer.loss_ppm_per_hour)


#: Copied so much, the past counts half from then on.
FORGET_BYTES: Final = 20_000 * GB


class Uplink:
    """How long data sets take to other sites, waiting for their turn on the company's line included."""

    __slots__ = ("ms", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.ms: Millis = 0

    def saw(self, size_bytes: int, ms: Millis) -> None:
        self.size_bytes += size_bytes
        self.ms += ms
        if self.size_bytes > FORGET_BYTES:
            self.size_bytes, self.ms = self.size_bytes // 2, self.ms // 2

    def takes(self, size_bytes: int) -> Millis:
        """Nothing, before any has landed."""
        return self.ms * size_bytes // self.size_bytes if self.size_bytes else 0
