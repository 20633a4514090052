"""The published view: what readers see, a moment behind the journal. The plane draws it after a turn if it is due."""

import asyncio
import contextlib
from typing import Final

from penstock.core.units import SECOND, Instant, Millis
from penstock.live.view import View

#: The view is published at most this often while the inbox is not empty.
DRAWN_MS: Final[Millis] = 200
#: How long a reader waits for the view at most.
LONG_MS: Final[Millis] = 250


class PublishedView:
    def __init__(self) -> None:
        self.latest: View | None = None  #: None until the plane has started
        self.stale = False  #: rows were written since
        self._drawn_at: Instant = 0
        self._asked_for = False  #: somebody waits for it
        self._published = asyncio.Event()  #: another one each time

    def is_due(self, now: Instant, *, busy: bool) -> bool:
        """Under load it is drawn now and then, or if somebody waits for it. `busy`: the inbox is not empty."""
        return self.stale and (self._asked_for or not busy or now - self._drawn_at > DRAWN_MS)

    def publish(self, view: View, now: Instant, newest_row: int) -> None:
        self.latest, self._drawn_at, self._asked_for = view, now, False
        self.stale = view.number < newest_row
        published, self._published = self._published, asyncio.Event()
        published.set()

    async def caught_up(self, number: int) -> None:
        """Returns once the view has this row: whoever asks has it drawn after the next one. After `LONG_MS` it returns
        anyway, since the engine may think for long.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONG_MS / SECOND):
                while self.stale and self.latest is not None and self.latest.number < number:
                    self._asked_for = True
                    await self._published.wait()
