"""Alarms: what a person should look at now. Plane, dispatch, probes and front door set them, and clear them when the
cause is gone.

They are in memory only. What must survive a restart (quarantined facts, clock jumps, overruns) is in the journal.
"""

from collections.abc import Callable
from typing import Final

from penstock.core.units import Instant
from penstock.live.view import Alarm

MOST: Final = 50


class Alarms:
    def __init__(self, now: Callable[[], Instant]) -> None:
        self.clock = now
        self.standing: dict[str, Alarm] = {}  #: by subject

    def set(self, kind: str, about: str, text: str) -> None:
        """Set the alarm of a subject; the same text again changes nothing, and an empty text clears it."""
        if not text:
            self.standing.pop(about, None)
        elif about not in self.standing or self.standing[about].text != text:
            self.standing[about] = Alarm(self.clock(), kind, text)
            while len(self.standing) > MOST:
                del self.standing[next(iter(self.standing))]

    def now(self) -> tuple[Alarm, ...]:
        return tuple(self.standing.values())
