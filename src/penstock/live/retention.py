"""How long the checkpoints of ended jobs are kept. `wiring` runs `keep_sweeping` beside the plane."""

import asyncio
import contextlib
from typing import Final

from penstock.core.units import DAY, Instant
from penstock.data.checkpoints import Store
from penstock.journal.journal import Reader, Unwritable
from penstock.live.clock import Clock

CHECKPOINTS_KEPT: Final = 30 * DAY  #: after their job has ended
SWEPT_SECONDS: Final = 3_600


async def keep_sweeping(store: Store, reader: Reader, clock: Clock) -> None:
    """Every hour, remove the checkpoints of jobs that are long over. What cannot be done now is tried again."""
    while True:
        with contextlib.suppress(OSError, Unwritable):
            await asyncio.to_thread(store.sweep, lambda job: long_over(reader, job, clock.now()))
        await asyncio.sleep(SWEPT_SECONDS)


def long_over(reader: Reader, job: str, now: Instant) -> bool:
    row = reader.job(job)  # None: of a journal that is not this one, so not ours to judge
    return row is not None and row.ended_at is not None and row.ended_at < now - CHECKPOINTS_KEPT
