"""Reads a Penstock journal: every attempt that ran, on owned and on rented GPUs. `penstock assess --journal` calls it.

A job's first attempt ends its wait. Later ones, after a preemption or a move, are runs of their own.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.assess.history import JobRecord, Outcome, OwnedGpus, SourceReading
from penstock.assess.sources.reading import coverage_of, numbered, recurring_key
from penstock.core.units import Instant
from penstock.sim.analysis.journal_fold import JobLife, JobRun, fold
from penstock.sim.traces.rows import EPOCH_LIKE

OUTCOMES: Final[dict[str, Outcome]] = {"done": "succeeded", "failed": "failed", "running": "running"}


def read_journal(where: str) -> SourceReading:
    from penstock.journal.open import read

    return reading_of(read(where), f"journal {where}")


def reading_of(rows: Iterable[Any], source: str) -> SourceReading:
    folded = fold(rows)
    records = [record for life in folded.lives.values() for record in _records(life, source, folded.last_at)]
    missing = ["A journal tells nothing of how GPUs were used."]
    return SourceReading(
        coverage=coverage_of(source, records, to_at=folded.last_at or None, missing=missing),
        jobs=tuple(numbered(records)),
        owned=tuple(OwnedGpus(change.at, change.gpus, change.model) for change in folded.owned),
        owned_by="the journal's sites" if folded.owned else "",
        calendar=folded.last_at >= EPOCH_LIKE,  # a simulated journal counts from its own zero
    )


def _records(life: JobLife, source: str, last_at: Instant) -> Iterable[JobRecord]:
    """One for each run; one for a job that never ran."""
    if life.spec.mig_profile:
        return
    yield _record(life, source, life.runs[0] if life.runs else None, last_at, first=True)
    for run in life.runs[1:]:
        yield _record(life, source, run, last_at, first=False)


def _record(life: JobLife, source: str, run: JobRun | None, last_at: Instant, *, first: bool) -> JobRecord:
    spec = life.spec
    runs = run is not None and run.ended_at is None
    return JobRecord(
        id=life.id,
        source=source,
        gpus=spec.gpus,
        name=spec.name,
        team=spec.team,
        user=spec.user,
        key=recurring_key(spec.team, spec.name),
        submitted_at=life.submitted_at if first else None,
        started_at=run.started_at if run else None,
        ended_at=last_at if runs else run.ended_at if run else None,
        submitted_by="journal" if first else "",
        started_by="journal" if run else "",
        ended_by="journal" if run else "",
        outcome=_outcome(life, run),
        cut="end" if runs else "",
        rented=run is not None and run.rented,
        uid=spec.origin.uid if spec.origin and first else "",
        checkpoints=life.checkpointed or spec.checkpoint_every_ms is not None,
        data=spec.data,
        priority=str(spec.priority) if spec.priority > 0 else "",
    )


def _outcome(life: JobLife, run: JobRun | None) -> Outcome:
    known = OUTCOMES.get(run.end) if run else "queued"
    if run is not None and known is not None:
        return known
    return "cancelled" if life.cancelled else known or "unknown"
