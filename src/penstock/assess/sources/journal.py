"""Reads a Penstock journal: every attempt that ran, on owned and on rented GPUs. `penstock assess --journal` calls it.

A job's first attempt ends its wait. Later ones, after a preemption or a move, are runs of their own.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.assess.history import JobRecord, Outcome, OwnedGpus, SourceReading
from penstock.assess.sources.reading import coverage_of, numbered, recurring_key
from penstock.core.ids import job_of, members
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Offer
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.sim.traces.rows import EPOCH_LIKE

STANDING: Final = ("owned", "reserved")
OUTCOMES: Final[dict[str, Outcome]] = {"done": "succeeded", "failed": "failed"}


def read_journal(where: str) -> SourceReading:
    from penstock.journal.open import read

    return reading_of(read(where), f"journal {where}")


def reading_of(rows: Iterable[Any], source: str) -> SourceReading:
    found = _Folded()
    for row in rows:
        found.last_at = row.at
        for event in (*row.inputs, *row.outputs):
            note = NOTE.get(type(event))
            if note is not None:
                note(found, event)
    return found.reading(source)


@value
class _Run:
    started_at: Instant
    ended_at: Instant | None
    rented: bool
    outcome: Outcome


class _Folded:
    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self.submitted_at: dict[str, Instant] = {}
        self.runs: dict[str, list[_Run]] = {}  #: by job
        self.running: dict[str, Instant] = {}  #: by attempt
        self.rented: dict[str, bool] = {}  #: by attempt
        self.cancelled: dict[str, None] = {}
        self.checkpointed: dict[str, None] = {}
        self.offers: dict[str, Offer] = {}
        self.owned: list[OwnedGpus] = []
        self.counts: dict[str, int] = {}  #: GPUs by standing offer
        self.last_at: Instant = 0

    # --- events ------------------------------------------------------------------------------------------------------

    def submitted(self, event: e.JobSubmitted) -> None:
        for job in members(event.job, event.spec.count):
            self.specs[job], self.submitted_at[job] = event.spec, event.at

    def promised(self, event: e.StartPromised) -> None:
        self.rented[event.attempt] = event.rented

    def started(self, event: e.AttemptStarted) -> None:
        self.running[event.attempt] = event.at

    def ended(self, event: e.AttemptEnded) -> None:
        self._over(event.attempt, event.at, OUTCOMES[event.outcome])

    def broken_off(self, event: e.AttemptStopped | e.AttemptLost) -> None:
        job = job_of(event.attempt)
        self._over(event.attempt, event.at, "cancelled" if job in self.cancelled else "unknown")

    def cancel_requested(self, event: e.CancelRequested) -> None:
        self.cancelled[event.job] = None

    def checkpoint(self, event: e.AttemptCheckpointed) -> None:
        self.checkpointed[job_of(event.attempt)] = None

    def site_joined(self, event: e.SiteJoined) -> None:
        for offer in event.site.offers:
            if offer.term in STANDING and not offer.mig_profile:
                self.offers[offer.id] = offer
                known = [shape for shape in offer.shapes if shape.count is not None]
                if known:
                    self._own(event.at, offer.id, sum(shape.gpus * (shape.count or 0) for shape in known))

    def nodes_seen(self, event: e.NodesSeen) -> None:
        if event.offer in self.offers:
            self._own(event.at, event.offer, sum(gpus for _, gpus in event.nodes))

    def _over(self, attempt: str, at: Instant, outcome: Outcome) -> None:
        started_at = self.running.pop(attempt, None)
        if started_at is not None:
            run = _Run(started_at, at, self.rented.pop(attempt, False), outcome)
            self.runs.setdefault(job_of(attempt), []).append(run)

    def _own(self, at: Instant, offer: str, gpus: int) -> None:
        if self.counts.get(offer) == gpus:
            return
        self.counts[offer] = gpus
        model = self.offers[offer].gpu_model
        total = sum(count for other, count in self.counts.items() if self.offers[other].gpu_model == model)
        self.owned.append(OwnedGpus(at, total, model))

    # --- the sum -----------------------------------------------------------------------------------------------------

    def reading(self, source: str) -> SourceReading:
        for attempt, started_at in self.running.items():
            run = _Run(started_at, None, self.rented.get(attempt, False), "running")
            self.runs.setdefault(job_of(attempt), []).append(run)
        records = [record for job in self.specs for record in self._records(job, source)]
        missing = ["A journal tells nothing of how GPUs were used."]
        coverage = coverage_of(source, records, to_at=self.last_at or None, missing=missing)
        by = "the journal's sites" if self.owned else ""
        calendar = self.last_at >= EPOCH_LIKE  # a simulated journal counts from its own zero
        return SourceReading(coverage, tuple(numbered(records)), tuple(self.owned), by, calendar=calendar)

    def _records(self, job: str, source: str) -> Iterable[JobRecord]:
        spec, runs = self.specs[job], sorted(self.runs.get(job, ()), key=lambda run: run.started_at)
        if spec.mig_profile:
            return
        queued: Outcome = "cancelled" if job in self.cancelled else "queued"
        for k, run in enumerate(runs or [None]):
            ended_at = run.ended_at if run else None
            yield JobRecord(
                id=job,
                source=source,
                gpus=spec.gpus,
                name=spec.name,
                team=spec.team,
                user=spec.user,
                key=recurring_key(spec.team, spec.name),
                submitted_at=self.submitted_at[job] if k == 0 else None,
                started_at=run.started_at if run else None,
                ended_at=self.last_at if run is not None and ended_at is None else ended_at,
                submitted_by="journal" if k == 0 else "",
                started_by="journal" if run else "",
                ended_by="journal" if run else "",
                outcome=run.outcome if run else queued,
                cut="end" if run is not None and ended_at is None else "",
                rented=bool(run and run.rented),
                uid=spec.origin.uid if spec.origin and k == 0 else "",
                checkpoints=job in self.checkpointed or spec.checkpoint_every_ms is not None,
                data=spec.data,
            )


NOTE: Final[dict[type, Callable[[_Folded, Any], None]]] = {
    e.JobSubmitted: _Folded.submitted,
    e.StartPromised: _Folded.promised,
    e.AttemptStarted: _Folded.started,
    e.AttemptEnded: _Folded.ended,
    e.AttemptStopped: _Folded.broken_off,
    e.AttemptLost: _Folded.broken_off,
    e.CancelRequested: _Folded.cancel_requested,
    e.AttemptCheckpointed: _Folded.checkpoint,
    e.SiteJoined: _Folded.site_joined,
    e.NodesSeen: _Folded.nodes_seen,
}
