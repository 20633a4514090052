"""Shared by the readers: a file's clock in UTC, the key of recurring jobs, and the coverage of what was read."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

from penstock.assess.history import VAGUE_START, Coverage, JobRecord, SourceReading
from penstock.core.errors import BadFile, BadInput
from penstock.core.units import Instant
from penstock.sim.traces.rows import EPOCH, EPOCH_LIKE, Errors, TraceClock, Unreadable

RawRow = TypeVar("RawRow")
NO_GPU: Final = "no whole GPU"
#: What differs between two runs of one script: dates, numbers, attempts and the random end of a generated name.
RUN_NUMBER: Final = re.compile(r"(?:[-_.]?(?:v|run|try)?\d+|[-_.](?=[a-z]*\d)[a-z0-9]{5})+$", re.ASCII | re.IGNORECASE)


class FileClock:
    """Times of one file as instants in UTC. Times without a zone are of `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone, self.clock = zone, TraceClock()
        self.first: Instant | None = None

    def at(self, text: str, field: str) -> Instant:
        read = self.clock.instant(text, field)
        self.first = read if self.first is None else min(read, self.first)
        return self._utc(read) if self.clock.kind == "local time" else read

    @property
    def calendar(self) -> bool:
        """False if the file counts seconds from a zero of its own."""
        return self.clock.kind != "seconds" or (self.first or 0) >= EPOCH_LIKE

    @property
    def has_no_zone(self) -> bool:
        return self.clock.kind == "local time"

    def _utc(self, read: Instant) -> Instant:
        wall = (EPOCH + timedelta(milliseconds=read)).replace(tzinfo=self.zone)
        return (wall.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)


def zone_named(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise BadInput(f"--time-zone '{name}' is no time zone; write it like Europe/Berlin.") from None


def from_text(text: str) -> Instant:
    """An instant of a Kubernetes object: 2026-11-03T09:00:00Z. Raises ValueError."""
    read = datetime.fromisoformat(text)
    if read.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    return (read - EPOCH) // timedelta(milliseconds=1)


def read_file(name: str, read: Callable[[Errors], SourceReading]) -> SourceReading:
    """Runs a reader of one file; all its errors become one `BadFile`."""
    errors = Errors(name)
    try:
        reading = read(errors)
        errors.check()
    except Unreadable as bad:
        errors.add(bad)
        raise BadFile(errors.kept) from None
    return reading


def records_of(
    rows: Iterable[tuple[int, RawRow]], record: Callable[[int, RawRow], JobRecord | str], errors: Errors
) -> tuple[list[JobRecord], Counter[str]]:
    """Reads every row: the jobs, and the others by why they are left out. What cannot be read is one error for all."""
    records: list[JobRecord] = []
    left_out = Counter[str]()
    for number, row in rows:
        try:
            entry = record(number, row)
        except Unreadable as bad:
            errors.add(bad, number)
            continue
        if isinstance(entry, str):
            left_out[entry] += 1
        else:
            records.append(entry)
    errors.check()
    return numbered(records), left_out


def recurring_key(team: str, name: str) -> str:
    """Equal for runs of one script of one team; empty without a name."""
    stem = RUN_NUMBER.sub("", name) or name
    return f"{team}/{stem}" if name else ""


def numbered(records: Iterable[JobRecord]) -> list[JobRecord]:
    """A second run of the same id gets `#2`."""
    runs: Counter[str] = Counter()
    renamed = []
    for record in records:
        runs[record.id] += 1
        renamed.append(replace(record, id=f"{record.id}#{runs[record.id]}") if runs[record.id] > 1 else record)
    return renamed


def coverage_of(
    source: str,
    records: Sequence[JobRecord],
    *,
    from_at: Instant | None = None,
    to_at: Instant | None = None,
    left_out: Mapping[str, int] | None = None,
    missing: Sequence[str] = (),
) -> Coverage:
    """Counts what the records leave open. Without bounds the source reaches from its first instant to its last."""
    seen = [at for job in records for at in (job.submitted_at, job.started_at, job.ended_at) if at is not None]
    return Coverage(
        source=source,
        from_at=min(seen, default=None) if from_at is None else from_at,
        to_at=max(seen, default=None) if to_at is None else to_at,
        jobs=len(records),
        cut=sum(bool(job.cut) for job in records),
        unknown_starts=sum(_wait_is_unknown(job) for job in records),
        left_out=tuple((left_out or {}).items()),
        missing=tuple(missing),
    )


def _wait_is_unknown(job: JobRecord) -> bool:
    ran = job.started_at is not None
    return ran and (job.submitted_at is None or job.started_by in VAGUE_START or job.cut in ("start", "both"))
