"""Status writer: patches a home Job's metadata and status, and posts its Events. `JobController` decides when;
`status`, `event_recorder` and `restore_jobs` compute what.
"""

from collections.abc import Callable

from penstock.core.units import Instant
from penstock.front import status
from penstock.front.event_recorder import EventRecorder, event_of
from penstock.front.home_jobs import HomeJobs
from penstock.front.status import JobSnapshot
from penstock.front.uninstall import restore_jobs
from penstock.kube.client import EVENTS, JOBS
from penstock.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from penstock.kube.references import Json, part
from penstock.kube.request_priority import SOON, Rank


class StatusWriter:
    def __init__(self, home: HomeJobs, now: Callable[[], Instant]) -> None:
        self.cluster, self.learn, self.now = home.cluster, home.learn, now

    async def change(self, job: Json, change: Json) -> Json:
        """Patch metadata, guarded by the resourceVersion we read. On `Conflict` the controller reconciles again."""
        if not change:
            return job
        metadata = part(job, "metadata")
        patched = await self.cluster.patch_outlived(JOBS, job, change, seen=metadata["resourceVersion"])
        self.learn(patched)
        return patched

    async def show(self, job: Json, snapshot: JobSnapshot, rank: Rank = SOON) -> None:
        """Write metadata and status in one request, or in two if the Job must be unsuspended first. No request if
        nothing differs.
        """
        change = status.metadata_change(job, snapshot)
        if "spec" in change:
            job, change = await self.change(job, change), {}
        wanted = status.shown(job, snapshot)
        if status.is_shown(job, wanted):
            await self.change(job, change)
            return
        metadata = part(job, "metadata")
        patched = await self.cluster.patch_status(
            *(JOBS, metadata["name"], wanted, metadata["namespace"]),
            seen=metadata["resourceVersion"],
            marks=part(change, "metadata"),
            rank=rank,
        )
        if status.metadata_change(patched, snapshot):
            raise Conflict(
                "its marks were not taken with its status"
            )  # the retry writes them in a request of their own
        self.learn(patched)

    async def tell(self, job: Json, recorder: EventRecorder) -> None:
        """Post the untold lines of the job's story as Events."""
        while (news := recorder.news) is not None:
            words = f"{news.words} Its log: {status.log_command(job)}" if news.runs else news.words
            await self.post(job, f"{recorder.job}-{news.upto - 1}", news.reason, words, news.bad, at=news.at)
            recorder.posted = max(recorder.posted, news.upto)

    async def post(self, job: Json, name: str, reason: str, words: str, bad: bool, at: Instant = 0) -> None:
        event = event_of(job, name, reason, words, bad, at or self.now())
        try:
            await self.cluster.create(EVENTS, event)
        except (AlreadyExists, Invalid, NotFound):  # posted before, or its namespace is being deleted
            return
        except Forbidden as error:
            if error.by_account and "deletionTimestamp" not in part(job, "metadata"):
                raise

    # --- no longer ours -----------------------------------------------------------------------------------------------

    async def let_go(self, job: Json) -> None:
        await self.change(job, status.released(job))

    async def strip(self, job: Json) -> None:
        """Remove every mark of ours."""
        metadata = part(job, "metadata")
        if (conditions := restore_jobs.plain_conditions(job)) is not None:
            job = await self.cluster.patch_status(
                JOBS, metadata["name"], {"conditions": conditions}, metadata["namespace"]
            )
        await self.change(job, restore_jobs.stripped(job))
