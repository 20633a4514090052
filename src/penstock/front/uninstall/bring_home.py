"""`penstock leave --bring-home`: moves jobs that run elsewhere back to their home cluster before we leave it. The
manager runs it.

It asks for the engine's ordinary move, with a checkpoint, as soon as the home has enough free GPUs. A job without
checkpoints would lose its work, so it stays and ends where it runs.
"""

import asyncio
from contextlib import suppress
from typing import Final

from penstock.core.model.events import MoveRequested
from penstock.core.model.types import STANDING
from penstock.front.job_follower import JobFollower
from penstock.front.status import JobSnapshot
from penstock.journal.journal import Reader
from penstock.journal.rows import JobRow
from penstock.live.plane import NotReady, Plane

LOOK_SECONDS: Final = 2.0  #: how often we look for free GPUs at home
AGAIN_SECONDS: Final = 30.0  #: before we ask again for a move that the engine refused


class HomeBringer:
    def __init__(self, plane: Plane, reader: Reader, follower: JobFollower) -> None:
        self.plane, self.reader, self.follower = plane, reader, follower
        self.asked: dict[str, float] = {}  #: job -> when we last asked for its move

    async def bring(self, site: str, left: asyncio.Event) -> None:
        """Ask for moves until the cluster is left."""
        while not left.is_set():
            with suppress(NotReady):
                for row in await asyncio.to_thread(self._away, self.follower.live(site)):
                    await self._ask(row, site)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await left.wait()

    def _away(self, live: list[JobSnapshot]) -> list[JobRow]:
        """Jobs that run elsewhere and write checkpoints."""
        return [snapshot.job for snapshot in live if self._is_away(snapshot)]

    def _is_away(self, snapshot: JobSnapshot) -> bool:
        row = snapshot.job
        if row.phase != "placed":
            return False
        spec = self.reader.spec(row.id)
        tries = [attempt for attempt in snapshot.attempts if attempt.phase == "running"]
        keeps = spec is not None and spec.checkpoint_every_ms is not None and spec.interruptible
        return keeps and bool(tries) and tries[-1].site != row.origin_site

    async def _ask(self, row: JobRow, site: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self.asked.get(row.id, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        for offer in self._with_room(site, row.gpus):
            self.asked[row.id] = now
            await self.plane.tell(MoveRequested(0, row.id, offer))
            return

    def _with_room(self, site: str, gpus: int) -> list[str]:
        """Standing offers at this site with enough idle GPUs."""
        offers = [offer for site_view in self.plane.view.sites if site_view.id == site for offer in site_view.offers]
        return [offer.offer.id for offer in offers if offer.offer.term in STANDING and offer.idle >= gpus]
