"""The plane's clock: wall time read once, then advanced by the monotonic clock, so that `at` never goes back.

Every `at` in the journal comes from here. If wall clock and ours differ by more than 30 s, somebody set the clock or
the machine slept: `jumped` tells, the plane looks at every site, and only then accepts the later time.

A jump ahead of more than some minutes is accepted at once only if the machine slept that long, which its boot clock
tells. Otherwise the wall clock may be wrong, and with it the month of the books: it is in doubt, and we go on by the
monotonic clock until the wall clock is back, or has kept its new time for a while.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis

#: A smaller difference is NTP at work.
JUMP_MS: Final = 30 * SECOND
#: A larger jump ahead that no sleep explains is in doubt; so are several that come to more within an hour.
TRUSTED_MS: Final = 5 * MINUTE
#: How long the wall clock must keep its new time before it is believed.
CONFIRM_MS: Final = 10 * MINUTE


def boot_seconds() -> float:
    """Seconds since the machine started, those included in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Clock:
    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        speed: float = 1,
        boot: Callable[[], float] | None = None,
    ) -> None:
        self.wall, self.steady, self.speed = wall, steady, speed
        self.boot = boot or steady  #: advances also while the machine sleeps
        self._read_at = int(wall() * 1000)
        self._read_on = steady()
        self._awake = self.boot() - self._read_on  #: boot clock minus steady one, when we last agreed with the wall
        self._apart: Millis = 0  #: how far the wall clock is ahead of ours, as accepted so far
        self._doubted: Millis = 0  #: how far it jumped ahead without a reason that we know; 0: it is believed
        self._doubted_on = 0.0  #: since then, on the steady clock
        self._followed: Millis = 0  #: how much of its jumps we followed at once, within an hour
        self._followed_on = self._read_on  #: since then, on the steady clock
        self.memory: ClockMemory | None = None
        self.vouched = False  #: the boot clock told what time it was when we began

    def now(self) -> Instant:
        return self._read_at + int((self.steady() - self._read_on) * 1000)

    def begin_after(self, at: Instant) -> None:
        """Start no earlier than the journal's last instant, if the wall clock was set back while we were down."""
        ahead = at - self.now()
        if ahead > 0:
            self._read_at += ahead
            self._apart -= ahead

    def begin_at(self, at: Instant) -> None:
        """Start at the time that the boot clock makes it; a wall clock far ahead of that is in doubt at once."""
        self.vouched = True
        self.begin_after(at)
        if self.now() - at > TRUSTED_MS:
            self._read_at -= self.now() - at

    def keep(self) -> None:
        """Note what time it is, for the next start."""
        if self.memory is not None:
            self.memory.keep(self)

    def seconds_until(self, at: Instant) -> float:
        """How long to sleep; a rehearsal's clock runs at its own speed."""
        return max(0, at - self.now()) / SECOND / self.speed

    @property
    def behind(self) -> Millis:
        """How far the wall clock is behind ours, as far as we know it."""
        return max(0, -self._apart)

    @property
    def doubt(self) -> Millis:
        """How far the wall clock is ahead of ours without a reason that we know; 0: it is believed."""
        self.jumped()
        return self._doubted

    def jumped(self) -> Millis:
        """How far the wall clock moved away from ours since the last agreement; 0 below half a minute, and while it is
        in doubt.
        """
        by = int(self.wall() * 1000) - self.now() - self._apart
        if abs(by) <= JUMP_MS:
            self._doubted = 0
            return 0
        if self._unexplained(by) + self._followed <= TRUSTED_MS * self.speed:
            self._doubted = 0
            return by
        if abs(by - self._doubted) > JUMP_MS * self.speed:  # it jumped, or jumped again
            self._doubted, self._doubted_on = by, self.steady()
        confirmed = (self.steady() - self._doubted_on) * 1000 >= CONFIRM_MS * self.speed
        return by if confirmed else 0

    def _unexplained(self, by: Millis) -> Millis:
        """What neither a sleep explains, nor an earlier jump back that this one makes good."""
        if (self.steady() - self._followed_on) * 1000 > HOUR * self.speed:
            self._followed, self._followed_on = 0, self.steady()
        slept = int((self.boot() - self.steady() - self._awake) * 1000)
        return max(0, by - self.behind - slept)

    def accept(self, by: Millis) -> None:
        """Accept a jump. Forward: we follow. Backward: we go on and stay ahead of the wall clock."""
        self._followed += 0 if self._doubted else self._unexplained(by)
        lead = self.behind  # an earlier backward jump, which this forward jump may only undo
        self._apart += min(by, lead)
        self._read_at += max(0, by - lead)
        self._awake, self._doubted = self.boot() - self.steady(), 0

    async def settle(self) -> None:
        """Let all tasks that are ready at this instant run first."""
        await asyncio.sleep(0)


def clock_at(speed: int) -> Clock:
    """A clock that runs `speed` times as fast as time: a rehearsal of a day takes as long as one likes."""
    if speed == 1:
        return Clock(boot=boot_seconds)
    began, steady = time.time(), time.monotonic()
    return Clock(
        lambda: began + (time.time() - began) * speed, lambda: (time.monotonic() - steady) * speed, speed=speed
    )


class ClockMemory:
    """What time it was at an instant of the boot clock, in a file: a start on the same boot knows what time it
    must be, whatever somebody did to the wall clock meanwhile.
    """

    def __init__(self, file: Path, boot: Callable[[], float] = boot_seconds, boot_id: str | None = None) -> None:
        self.file, self.boot = file, boot
        self.boot_id = _boot_id() if boot_id is None else boot_id

    def keep(self, clock: Clock) -> None:
        """Called with every heartbeat; nothing is kept while the wall clock is in doubt."""
        if self.boot_id and not clock.doubt:
            new = self.file.with_name(self.file.name + ".new")
            with suppress(OSError):  # a full disk; the last note stays good
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    json.dump({"boot": self.boot_id, "boot_s": self.boot(), "at": clock.now()}, file)
                new.replace(self.file)

    def now(self) -> Instant | None:
        """What time it is by the boot clock; None: nothing is known of this boot."""
        try:
            kept = json.loads(self.file.read_text()[:1_000])
            at = int(kept["at"]) + int((self.boot() - float(kept["boot_s"])) * 1000)
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return None
        return at if kept["boot"] == self.boot_id != "" else None


def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
