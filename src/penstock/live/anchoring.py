"""Anchors the journal's head outside, on a schedule. `wiring` runs it beside the plane."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from penstock.core.units import MINUTE, Instant, Millis
from penstock.journal.anchors import STDERR, TAIL_BYTES, Anchor, compare, write_anchor
from penstock.journal.journal import Journal
from penstock.live.mount_calls import MountCalls

EVERY_MS: Final[Millis] = 10 * MINUTE  #: and sooner after `EVERY_STEPS`
EVERY_STEPS: Final = 10_000
LOOK_SECONDS: Final = 5.0

#: kind, subject, text; an empty text clears the alarm.
Raise = Callable[[str, str, str], None]


class Anchoring:
    def __init__(
        self,
        files: Sequence[str],
        journal: Journal,
        head: Callable[[], str],
        now: Callable[[], Instant],
        alarm: Raise,
        lost: Callable[[], bool] = lambda: False,
    ) -> None:
        """`head`: the newest that the journal answered; empty: none yet. `lost`: the journal does not have it now, so
        it is anchored at once, for whoever comes next.
        """
        self.files, self.journal, self.head, self.now, self.alarm = files, journal, head, now, alarm
        self.calls = {file: MountCalls() for file in files}
        self.sizes = dict.fromkeys(files, 0)  #: of each file after our last anchor
        self.lost = lost
        self.written = ""
        self.written_at: Instant = 0

    def check(self) -> list[str]:
        """Before a start: raises `BadInput` if the journal does not have the newest heads that were anchored. Returns
        what a person should know: a file without any proves nothing, whoever took them away.
        """
        begun, steps = [], _number(self.journal.claims().head)
        for file in self.files:
            if file == STDERR:
                continue
            if Path(file).exists() and compare(file, self.journal.installation, self.journal.has, TAIL_BYTES):
                continue
            if steps:
                begun.append(
                    f"{file} has no anchors, and the journal has {steps:,} steps: it begins now. If it had some,"
                    " somebody has emptied it; compare the journal with another anchor: penstock journal verify"
                )
        return begun

    async def run(self) -> None:
        while self.files:
            if self._is_due():
                await self.write()
            await asyncio.sleep(LOOK_SECONDS)

    def _is_due(self) -> bool:
        steps = _number(self.head()) - _number(self.written)
        soon = self.lost() or self.now() - self.written_at >= EVERY_MS
        return steps >= EVERY_STEPS or (steps > 0 and soon)

    async def write(self) -> None:
        """Anchor the head now, if it is another one than the last."""
        head = self.head()
        if not _number(head) or head == self.written:
            return
        self.written, self.written_at = head, self.now()
        for file in self.files:
            try:
                anchor = Anchor(head, self.journal.installation, self.written_at)
                self._compare_sizes(file, *await self.calls[file].call(partial(write_anchor, file, anchor)))
                self.alarm("", f"anchor {file}", "")
            except OSError as error:
                why = error.strerror or str(error) or "its file system does not answer"
                words = f"The journal's head could not be anchored in {file}: {why}."
                self.alarm("anchor", f"anchor {file}", words)

    def _compare_sizes(self, file: str, before: int, after: int) -> None:
        """Anchors are only ever added."""
        if before < self.sizes[file]:
            self.alarm(
                "anchor",
                f"anchor {file} shrank",
                f"{file} had {self.sizes[file]:,} bytes of anchors and had {before:,} before the last: somebody has"
                " emptied, cut or replaced it. Compare the journal with another anchor: penstock journal verify",
            )
        self.sizes[file] = after


def _number(head: str) -> int:
    return int(head.partition(":")[0] or 0)
