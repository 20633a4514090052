"""Reads a table of jobs: Penstock's own trace schema, or any CSV with a column mapping. `penstock assess --csv` calls
it.

It needs when a job was submitted and its GPUs; and for waits when it started: `start`, or `queue_s`. Of a job without a
start its run time is enough for all but its wait. One without an end or a run time was still running.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Final

from penstock.assess.history import Evidence, JobRecord, Outcome, SourceReading
from penstock.assess.join import TOLERANCE_MS
from penstock.assess.sources.reading import NO_GPU, FileClock, coverage_of, read_file, records_of, recurring_key
from penstock.config.document import listed
from penstock.core.units import Instant
from penstock.sim.traces.columns import table_of
from penstock.sim.traces.rows import UNPRINTABLE, Errors, Unreadable, millis, shown, whole_gpus
from penstock.sim.traces.trace import text_of

#: Field -> names of columns that hold it, the first that is there.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("job_id", "id"),
    "submit": ("submit_s", "submit", "submitted"),
    "start": ("start_s", "start", "started"),
    "end": ("end_s", "end", "ended"),
    "duration": ("duration_s", "duration"),
    "queue": ("queue_s", "wait_s"),
    "gpus": ("gpus",),
    "gpu_model": ("gpu_model",),
    "team": ("user_or_group", "team"),
    "user": ("user",),
    "name": ("name",),
    "status": ("status",),
    "checkpoint": ("checkpoint_s",),
}
OUTCOMES: Final[dict[str, Outcome]] = {
    **dict.fromkeys(("completed", "complete", "succeeded", "pass", "done"), "succeeded"),
    **dict.fromkeys(("failed", "failure", "timeout", "node_fail"), "failed"),
    **dict.fromkeys(("cancelled", "canceled", "killed"), "cancelled"),
    "running": "running",
    "queued": "queued",
    "pending": "queued",
}


def read_table(path: str, zone: tzinfo, columns: Mapping[str, str] | None = None) -> SourceReading:
    return read_file("standard input" if path == "-" else path, partial(_read, path, zone, columns or {}))


def _read(path: str, zone: tzinfo, columns: Mapping[str, str], errors: Errors) -> SourceReading:
    header, rows = table_of(text_of(path), errors)
    reader = _Reader(path, header, _chosen(header, columns, errors), FileClock(zone))
    errors.check()
    return reader.reading(*records_of(rows, reader.record, errors))


def _chosen(header: list[str], columns: Mapping[str, str], errors: Errors) -> dict[str, int]:
    """Field -> position."""
    positions: dict[str, int] = {}
    for field, column in columns.items():
        if field not in COLUMNS:
            known = ", ".join(COLUMNS)
            errors.add(Unreadable(f"the column mapping has an unknown field {shown(field)}; fields are {known}"))
        elif column not in header:
            errors.add(Unreadable(f"there is no column {listed([column])} for {field}, only {listed(header)}", line=1))
        else:
            positions[field] = header.index(column)
    for field, names in COLUMNS.items():
        present = [name for name in names if name in header]
        if field not in columns and present:
            positions[field] = header.index(present[0])
    for field in ("submit", "gpus"):
        if field not in positions and field not in columns:
            usual = " or ".join(COLUMNS[field])
            errors.add(Unreadable(f"there is no column {usual}; --column {field}=NAME says which it is", line=1))
    return positions


class _Reader:
    def __init__(self, path: str, header: list[str], at: dict[str, int], clock: FileClock) -> None:
        self.path, self.header, self.at, self.clock = path, header, at, clock

    def record(self, number: int, row: list[str]) -> JobRecord | str:
        if len(row) != len(self.header):
            raise Unreadable(f"there are {len(row)} fields under a header of {len(self.header)}")
        cells = {field: row[position].strip() for field, position in self.at.items()}
        gpus = whole_gpus(cells["gpus"], "gpus")
        if gpus == 0:
            return NO_GPU
        for text in cells.values():
            if UNPRINTABLE.search(text):
                raise Unreadable(f"{shown(text)} has characters that cannot be printed")
        submitted_at = self.clock.at(cells["submit"], self._column("submit"))
        started_at, known_by = self._started(cells, submitted_at)
        if started_at is not None and started_at < submitted_at - TOLERANCE_MS:
            raise Unreadable(f"it starts {(submitted_at - started_at) // 1000} s before it is submitted")
        ended_at = self._ended(cells, started_at)
        if started_at is not None and ended_at is not None and ended_at < started_at:
            raise Unreadable(f"it ends {(started_at - ended_at) // 1000} s before it starts")
        team, name = cells.get("team", ""), cells.get("name", "")
        return JobRecord(
            id=cells.get("id") or f"row-{number}",
            source=f"csv {self.path}",
            gpus=gpus,
            gpu_model=cells.get("gpu_model", ""),
            name=name,
            team=team,
            user=cells.get("user", ""),
            key=recurring_key(team, name),
            submitted_at=submitted_at,
            started_at=started_at,
            ended_at=ended_at,
            submitted_by="csv",
            started_by=known_by,
            ended_by="" if ended_at is None else known_by or "csv",
            outcome=OUTCOMES.get(cells.get("status", "").lower(), "unknown"),
            checkpoints=bool(cells["checkpoint"]) if "checkpoint" in cells else None,
        )

    def _column(self, field: str) -> str:
        return self.header[self.at[field]]

    def _started(self, cells: Mapping[str, str], submitted_at: Instant) -> tuple[Instant | None, Evidence]:
        """And how that is known: a run time alone is counted from the submission on."""
        if cells.get("start"):
            return self.clock.at(cells["start"], self._column("start")), "csv"
        if cells.get("queue"):
            return submitted_at + millis(cells["queue"], self._column("queue")), "csv"
        waits = OUTCOMES.get(cells.get("status", "").lower()) == "queued"
        if cells.get("duration") and not cells.get("end") and not waits and millis(cells["duration"], "duration"):
            return submitted_at, "submission"
        return None, ""

    def _ended(self, cells: Mapping[str, str], started_at: Instant | None) -> Instant | None:
        if cells.get("end"):
            return self.clock.at(cells["end"], self._column("end"))
        if started_at is None or not cells.get("duration"):
            return None
        return started_at + millis(cells["duration"], self._column("duration"))

    def reading(self, records: list[JobRecord], left_out: Mapping[str, int]) -> SourceReading:
        seen = [at for job in records for at in (job.submitted_at, job.started_at, job.ended_at) if at is not None]
        last = max(seen, default=0)
        records = [
            replace(job, ended_at=last, ended_by="samples", cut="end")
            if job.started_at is not None and job.ended_at is None
            else job
            for job in records
        ]
        coverage = coverage_of(f"csv {self.path}", records, left_out=left_out, missing=self._missing())
        return SourceReading(coverage, tuple(records), calendar=self.clock.calendar)

    def _missing(self) -> list[str]:
        missing = ["The table tells nothing of how GPUs were used."]
        if not {"start", "queue"} & self.at.keys():
            if "duration" in self.at:
                missing.append(
                    "It has no column start or queue_s, so no wait is known from it, and runs are counted from their"
                    " submission on."
                )
            else:
                missing.append("It has no column start or queue_s, so no wait, allocation or use is known from it.")
        elif not {"end", "duration"} & self.at.keys():
            missing.append("It has no column end or duration_s, so every run is cut off.")
        if self.clock.has_no_zone and str(self.clock.zone) == "UTC":
            missing.append("Its times have no zone and are taken as UTC; --time-zone says otherwise.")
        return missing
