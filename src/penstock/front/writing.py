"""What is written on a home Job: marks, status, Events. The door says when; `status`, `telling`, `leaving` say what."""

from collections.abc import Callable

from penstock.core.units import Instant
from penstock.front import leaving, status
from penstock.front.telling import Tale, event_of
from penstock.journal.journal import AttemptRow, JobRow
from penstock.kube.client import EVENTS, JOBS, Cluster
from penstock.kube.closure import Json, part
from penstock.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound


class Writer:
    def __init__(self, cluster: Cluster, tale: Callable[[str], Tale], now: Callable[[], Instant]) -> None:
        self.cluster, self.tale, self.now = cluster, tale, now

    async def change(self, job: Json, change: Json) -> Json:
        """Guarded by the version we saw: if somebody else was first, it is looked at again."""
        if not change:
            return job
        metadata = part(job, "metadata")
        return await self.cluster.patch(
            JOBS, metadata["name"], change, metadata["namespace"], seen=metadata["resourceVersion"]
        )

    async def show(self, job: Json, row: JobRow, attempts: list[AttemptRow]) -> None:
        """In its status, if that does not show it yet."""
        wanted = status.shown(job, row, attempts, self.tale(row.id).why)
        if not status.is_shown(job, wanted):
            metadata = part(job, "metadata")
            await self.cluster.patch_status(
                JOBS, metadata["name"], wanted, metadata["namespace"], seen=metadata["resourceVersion"]
            )

    async def tell(self, job: Json, row: JobRow) -> None:
        """What of its story was not told yet."""
        tale = self.tale(row.id)
        while tale.told < len(tale.lines):
            number = tale.told
            reason, bad, line = tale.lines[number]
            await self.post(job, f"{row.id}-{number}", reason, line.text, bad, at=line.at)
            tale.told = max(tale.told, number + 1)

    async def post(self, job: Json, name: str, reason: str, words: str, bad: bool, at: Instant = 0) -> None:
        event = event_of(job, name, reason, words, bad, at or self.now())
        try:
            await self.cluster.create(EVENTS, event)
        except (AlreadyExists, Invalid, NotFound):  # told before; or its namespace is going: nobody reads it any more
            return
        except Forbidden as error:
            if error.by_account:
                raise

    # --- no longer ours -----------------------------------------------------------------------------------------------

    async def let_go(self, job: Json) -> None:
        await self.change(job, status.released(job))

    async def strip(self, job: Json) -> None:
        """Of every mark of ours."""
        metadata = part(job, "metadata")
        if (conditions := leaving.plain_conditions(job)) is not None:
            job = await self.cluster.patch_status(
                JOBS, metadata["name"], {"conditions": conditions}, metadata["namespace"]
            )
        await self.change(job, leaving.stripped(job))
