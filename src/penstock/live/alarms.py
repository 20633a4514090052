"""What a person should look at now: told by dispatch and the loop, taken back when it is over.

What must outlast a restart (a fact set aside, a clock that jumped, an overrun) is in the journal and in the state.
"""

from collections.abc import Callable
from typing import Final

from penstock.core.units import Instant
from penstock.live.view import Alarm

MOST: Final = 50


class Alarms:
    def __init__(self, now: Callable[[], Instant]) -> None:
        self.clock = now
        self.standing: dict[str, Alarm] = {}  #: by what they are about

    def set(self, kind: str, about: str, text: str) -> None:
        """One for each thing; the same words again are no news. An empty text takes it back."""
        if not text:
            self.standing.pop(about, None)
        elif about not in self.standing or self.standing[about].text != text:
            self.standing[about] = Alarm(self.clock(), kind, text)
            while len(self.standing) > MOST:
                del self.standing[next(iter(self.standing))]

    def now(self) -> tuple[Alarm, ...]:
        return tuple(self.standing.values())
