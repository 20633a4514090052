"""The plane's clock: wall time read once, then advanced by the monotonic clock, so that `at` never goes back.

Every `at` in the journal comes from here. If wall clock and ours differ by more than 30 s, somebody set the clock or
the machine slept: `jumped` tells, the plane looks at every site, and only then accepts the later time.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.core.units import SECOND, Instant, Millis

#: A smaller difference is NTP at work.
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
        self._apart: Millis = 0  #: how far the wall clock is ahead of ours, as accepted so far

    def now(self) -> Instant:
        return self._read_at + int((self.steady() - self._read_on) * 1000)

    def begin_after(self, at: Instant) -> None:
        """Start no earlier than the journal's last instant, if the wall clock was set back while we were down."""
        ahead = at - self.now()
        if ahead > 0:
            self._read_at += ahead
            self._apart -= ahead

    def seconds_until(self, at: Instant) -> float:
        """How long to sleep; a rehearsal's clock runs at its own speed."""
        return max(0, at - self.now()) / SECOND / self.speed

    def jumped(self) -> Millis:
        """How far the wall clock moved away from ours since the last agreement; 0 below half a minute."""
        by = int(self.wall() * 1000) - self.now() - self._apart
        return by if abs(by) > JUMP_MS else 0

    def accept(self, by: Millis) -> None:
        """Accept a jump. Forward: we follow. Backward: we go on and stay ahead of the wall clock."""
        lead = max(0, -self._apart)  # an earlier backward jump, which this forward jump may only undo
        self._apart += min(by, lead)
        self._read_at += max(0, by - lead)

    async def settle(self) -> None:
        """Let all tasks that are ready at this instant run first."""
        await asyncio.sleep(0)


def clock_at(speed: int) -> Clock:
    """A clock that runs `speed` times as fast as time: a rehearsal of a day takes as long as one likes."""
    if speed == 1:
        return Clock()
    began, steady = time.time(), time.monotonic()
    return Clock(
        lambda: began + (time.time() - began) * speed, lambda: (time.monotonic() - steady) * speed, speed=speed
    )
