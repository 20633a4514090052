"""GPUs wanted by hour, counted as jobs come and end: what a forecast of demand is made of. Part of the state.

Wanted is what people asked for, queued or running. Whole numbers only, and bounded: five weeks are kept.
"""

from typing import Final

from penstock.core.units import HOUR, PERMILLE, Instant

HOURS_KEPT: Final = 35 * 24


class HourlyDemand:
    __slots__ = ("counted_to", "gpu_ms", "gpus", "hours", "starts_at")

    def __init__(self) -> None:
        self.gpus = 0  #: wanted now
        self.gpu_ms = 0  #: of the hour that is not over yet
        self.counted_to: Instant = -1  #: -1: nothing was ever wanted
        self.starts_at: Instant = 0  #: of the hour that is not over yet
        self.hours: list[int] = []  #: mean GPUs of the hours before, in thousandths, oldest first

    def change(self, at: Instant, gpus: int) -> None:
        """So many more are wanted from now on, or fewer."""
        if self.counted_to < 0:
            self.starts_at = self.counted_to = at // HOUR * HOUR
        self.count(at)
        self.gpus += gpus

    def until(self, at: Instant) -> list[int]:
        """By hour, oldest first, all hours that are over by then."""
        later = HourlyDemand()
        later.gpus, later.gpu_ms, later.counted_to, later.starts_at = (
            self.gpus,
            self.gpu_ms,
            self.counted_to,
            self.starts_at,
        )
        later.hours = self.hours.copy()
        if self.counted_to >= 0:
            later.count(at)
        return later.hours

    def count(self, at: Instant) -> None:
        """Up to now. A pause of more than what is kept is like what is kept."""
        over = (at - self.starts_at) // HOUR
        if over > 0:
            first = self.gpu_ms + self.gpus * (self.starts_at + HOUR - self.counted_to)
            self.hours.append(first * PERMILLE // HOUR)
            self.hours += [self.gpus * PERMILLE] * min(over - 1, HOURS_KEPT)
            del self.hours[:-HOURS_KEPT]
            self.starts_at += over * HOUR
            self.counted_to, self.gpu_ms = self.starts_at, 0
        self.gpu_ms += self.gpus * (at - self.counted_to)
        self.counted_to = at
