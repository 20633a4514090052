"""Watches the wall clock for the plane: where time begins, an alarm while the clock is in doubt, and which facts wait
until it is not.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.events import Fact
from penstock.core.units import DAY, Millis
from penstock.formatting import duration
from penstock.live.clock import CONFIRM_MS, TRUSTED_MS, Clock

#: A working Penstock writes a row in every month, when it opens the next one.
FAR_AHEAD_MS: Final[Millis] = 35 * DAY
#: The facts that end what is billed.
ENDS: Final = (e.AttemptEnded, e.AttemptStopped, e.AttemptLost, e.NodeLost, e.NodeGone)
OWN_TIME: Final = "Penstock counts on by itself, so that no month begins too early."


class ClockWatch:
    def __init__(
        self, clock: Clock, alarm: Callable[[str, str, str], None], accept: bool, simulated: bool = False
    ) -> None:
        """`simulated`: a rehearsal's time, which may be days ahead of the wall clock; nobody needs to set that."""
        self.clock, self.alarm, self.accept, self.simulated = clock, alarm, accept, simulated
        self.says = ""  #: the alarm that stands

    def begin(self, state: State) -> None:
        """Go on from the journal's last row. A wall clock so far ahead of it that no working Penstock can have written
        nothing meanwhile needs a person's word. Raises `BadInput`.
        """
        ahead, clock = self.clock.now() - state.at, self.clock
        if state.steps and ahead > FAR_AHEAD_MS and not (clock.vouched or self.accept or self.simulated):
            raise BadInput(
                f"The wall clock is {ahead // DAY} days ahead of the journal's last row. If that is right, start once "
                "with --accept-clock; if it is not, set the clock first."
            )
        clock.begin_after(state.at)
        if clock.behind > TRUSTED_MS and not self.simulated:
            self._say(f"The wall clock is {duration(clock.behind)} behind the journal; set it. {OWN_TIME}")

    def look(self) -> None:
        """Alarm while the wall clock is in doubt, or as far behind as it was at the start."""
        doubt = self.clock.doubt
        if doubt and not self.simulated:
            self._say(
                f"The wall clock jumped {duration(doubt)} ahead and this machine did not sleep; set it. {OWN_TIME} "
                f"If the clock stays so for {duration(CONFIRM_MS)}, or you restart with --accept-clock, it follows."
            )
        elif self.says and self.clock.behind <= TRUSTED_MS:
            self._say("")

    def _say(self, text: str) -> None:
        self.says = text
        self.alarm("clock", "wall clock", text)

    def waiting(self, heard: Iterable[Fact]) -> list[Fact]:
        """While the clock is in doubt, when a thing ended is not known, and its last charge depends on that."""
        return [fact for fact in heard if isinstance(fact, ENDS)] if self.clock.doubt else []
