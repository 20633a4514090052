"""The plane's one clock: wall time read once, then advanced by the steady clock, so that `at` never falls.

Every `at` in the journal comes from here. If the wall clock and ours drift apart by more than 30 s, somebody set it or
the machine slept: `jumped` says so, the loop looks at every site again, and only then is a later time believed.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.core.units import SECOND, Instant, Millis

#: A disagreement of less than this is the wall clock being kept right.
JUMP_MS: Final = 30 * SECOND


class Clock:
    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        speed: float = 1,
    ) -> None:
        self.wall, self.steady, self.speed = wall, steady, speed
        self._read_at = int(wall() * 1000)
        self._read_on = steady()
        self._apart: Millis = 0  #: how far the wall clock is ahead of ours, as far as we know and accept

    def now(self) -> Instant:
        return self._read_at + int((self.steady() - self._read_on) * 1000)

    def begin_after(self, at: Instant) -> None:
        """The journal's last instant: if the wall clock was set back while nobody ran, we go on from there."""
        ahead = at - self.now()
        if ahead > 0:
            self._read_at += ahead
            self._apart -= ahead

    def seconds_until(self, at: Instant) -> float:
        """How long to sleep; a rehearsal's clock runs at a speed of its own."""
        return max(0, at - self.now()) / SECOND / self.speed

    def jumped(self) -> Millis:
        """By how much the wall clock has left ours since we last agreed; 0 while it is less than half a minute."""
        by = int(self.wall() * 1000) - self.now() - self._apart
        return by if abs(by) > JUMP_MS else 0

    def accept(self, by: Millis) -> None:
        """Believe a jump. Ahead, we follow; back, we go on as we were, and stay ahead of the wall clock by so much."""
        lead = max(0, -self._apart)  # what it went back by before, and may now only have made good
        self._apart += min(by, lead)
        self._read_at += max(0, by - lead)

    async def settle(self) -> None:
        """Let everybody who is ready at this instant have their say first."""
        await asyncio.sleep(0)


def clock_at(speed: int) -> Clock:
    """A clock that runs `speed` times as fast as time: a rehearsal of a day takes as long as one likes."""
    if speed == 1:
        return Clock()
    began, steady = time.time(), time.monotonic()
    return Clock(
        lambda: began + (time.time() - began) * speed, lambda: (time.monotonic() - steady) * speed, speed=speed
    )
