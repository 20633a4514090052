"""Follows the journal for all controllers and publishes a snapshot of each home job.

A snapshot is `(job, attempts, reason)` at one journal row. Rows and tables are read in one transaction, so a snapshot
never mixes two instants. Each published snapshot enqueues the Job's key in its home cluster's work queue.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from penstock.core.ids import job_concerned
from penstock.core.model import events as e
from penstock.core.model.lifecycle import ENDED
from penstock.core.units import MINUTE, Millis
from penstock.front.event_recorder import EventRecorder
from penstock.front.home_cluster import live_jobs
from penstock.front.status import JobSnapshot
from penstock.journal.journal import Reader, Row, Unwritable
from penstock.journal.rows import AttemptRow, JobRow
from penstock.live.plane import Plane

AT_ONCE: Final = 200  #: journal rows in one page
LATER_SECONDS: Final = 2.0
#: Lines older than this were posted before a restart. Clusters keep Events for an hour.
NEWS_MS: Final[Millis] = 10 * MINUTE
#: Events that change nothing on a home Job: no reconcile needed.
UNSEEN: Final = (e.LeaseRenewed, e.DeadlineSet, e.AttemptCheckpointed, e.AttemptProgressed)

Tables: TypeAlias = dict[str, tuple[JobRow | None, tuple[AttemptRow, ...]]]


class FollowedHome(Protocol):
    """What jobs come from: the home Jobs of a cluster, or the Workloads of a Kueue."""

    ids: dict[str, str]

    def touch(self, our_id: str) -> None:
        """The journal has a new row about it."""


class JobFollower:
    def __init__(self, homes: Mapping[str, FollowedHome], plane: Plane, reader: Reader) -> None:
        self.homes, self.plane, self.reader = homes, plane, reader
        self.number = 0  #: the last row that was read
        self.currency = "USD"
        self.recorders: dict[str, EventRecorder] = {}  #: of home jobs that are live, or have Events to post
        self.snapshots: dict[str, JobSnapshot] = {}  #: of the same jobs; a missing one comes with the next page
        self.touched: set[str] = set()  #: jobs with new rows and no snapshot of them yet

    # --- what controllers ask -----------------------------------------------------------------------------------------

    async def snapshot(self, job: str) -> JobSnapshot | None:
        """The newest snapshot. None: the journal has no such job, or the next page publishes it."""
        if (
            job not in self.recorders
            and (read := await asyncio.to_thread(self._read, job))
            and job not in self.recorders
        ):
            self.recorders[job], self.snapshots[job] = read
        return self.snapshots.get(job)

    def live(self, site: str) -> list[JobSnapshot]:
        """Home jobs of this site that have not ended."""
        here = [snapshot for snapshot in self.snapshots.values() if snapshot.job.origin_site == site]
        return [candidate for candidate in here if candidate.job.phase not in ENDED]

    def drop(self, job: str) -> None:
        """Forget an ended job whose Events are posted. `snapshot` reads it again if asked."""
        self.recorders.pop(job, None)
        self.snapshots.pop(job, None)

    # --- following ----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Read all live home jobs at the plane's current row; `follow` continues from there."""
        self.drop_all()
        self.number = self.plane.number
        self.currency = self.plane.view.policy.currency
        for row in await asyncio.to_thread(live_jobs, self.reader):
            if home := self.homes.get(row.origin_site):
                home.ids[row.origin_uid] = row.id
                await self.snapshot(row.id)

    def drop_all(self) -> None:
        self.recorders.clear()
        self.snapshots.clear()
        self.touched.clear()

    async def follow(self) -> None:
        """Read page after page until cancelled."""
        while True:
            if not self.touched:
                await self.plane.heard(self.number)
            try:
                rows, tables = await asyncio.to_thread(self._page)
            except Unwritable:  # the plane raises the alarm for this
                await asyncio.sleep(LATER_SECONDS)
                continue
            self._take(rows, tables)

    def _page(self) -> tuple[list[Row], Tables]:
        """The next rows, and the touched jobs' tables as of the last of them; no tables if more rows follow. Runs in a
        thread.
        """
        with self.reader.at_one_row() as reader:
            rows = reader.steps(self.number, AT_ONCE)
            if len(rows) == AT_ONCE:
                return rows, {}
            touched = self.touched.union(*map(self._touched_by, rows))
            return rows, {job: (reader.job(job), tuple(reader.attempts(job))) for job in touched}

    def _touched_by(self, row: Row) -> set[str]:
        """Home jobs that this row changes."""
        seen = [event for event in (*row.inputs, *row.outputs) if not isinstance(event, UNSEEN)]
        return {job for event in seen if (job := job_concerned(event)) in self.recorders or self._is_new(event)}

    def _is_new(self, event: Any) -> bool:
        return (
            isinstance(event, e.JobSubmitted) and event.spec.origin is not None and event.spec.origin.site in self.homes
        )

    def _take(self, rows: Sequence[Row], tables: Tables) -> None:
        for row in rows:
            self._hear(row)
            self.touched |= self._touched_by(
                row
            )  # computed again: `snapshot` may have added a job since the page was read
            self.number = row.number
        self.touched -= tables.keys()
        for line, attempts in tables.values():
            if line is not None:
                self._publish(line, attempts)

    def _hear(self, row: Row) -> None:
        for event in (*row.inputs, *row.outputs):
            if isinstance(event, e.PolicySet):
                self.currency = event.policy.currency
            if self._is_new(event) and event.job not in self.recorders:
                origin = event.spec.origin
                self.recorders[event.job] = EventRecorder(event.job, origin.site, origin.uid, self.currency)
            recorder = self.recorders.get(job_concerned(event))
            if recorder is not None and row.number > recorder.number:
                recorder.hear(event)

    def _publish(self, job: JobRow, attempts: tuple[AttemptRow, ...]) -> None:
        recorder, before = self.recorders.get(job.id), self.snapshots.get(job.id)
        if recorder is None or (before is not None and before.number > self.number):
            return
        self.snapshots[job.id] = JobSnapshot(
            self.number, job, attempts, recorder.why, recorder.tally.earlier, recorder.suspended
        )
        self.homes[job.origin_site].touch(job.id)

    def _read(self, job: str) -> tuple[EventRecorder, JobSnapshot] | None:
        """Read one job that is not followed yet, with its story so far. Runs in a thread."""
        with self.reader.at_one_row() as reader:
            row = reader.job(job)
            if row is None or row.origin_site not in self.homes:
                return None
            number, attempts, story = reader.head(), tuple(reader.attempts(job)), reader.story(job)
        recorder = EventRecorder(job, row.origin_site, row.origin_uid, self.currency, number)
        for event in (event for step in story for event in (*step.inputs, *step.outputs)):
            if isinstance(event, e.PolicySet) or job_concerned(event) == job:
                recorder.hear(event)
        recorder.forget_before(self.plane.clock.now() - NEWS_MS)
        return recorder, JobSnapshot(number, row, attempts, recorder.why, recorder.tally.earlier, recorder.suspended)
