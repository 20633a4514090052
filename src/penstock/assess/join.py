"""Joins what several sources say of one month. Better evidence wins, field by field; where two good sources differ,
that is named and not averaged. `penstock assess` calls it with all readings.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.assess.history import (
    EVIDENCE,
    VAGUE_START,
    Cut,
    Disagreement,
    Evidence,
    HourOfUse,
    JobRecord,
    MonthHistory,
    OwnedGpus,
    SourceReading,
)
from penstock.assess.owned import OwnedSteps
from penstock.core.errors import BadInput
from penstock.core.units import DAY, HOUR, MINUTE, Instant, Millis
from penstock.formatting import instant

#: Two clocks and a scrape interval; further apart, two sources disagree.
TOLERANCE_MS: Final[Millis] = 5 * MINUTE
MOST_SPAN_MS: Final[Millis] = 1_100 * DAY
RANK: Final = {evidence: rank for rank, evidence in enumerate(EVIDENCE)}


def join(
    readings: Sequence[SourceReading], from_at: Instant | None = None, to_at: Instant | None = None
) -> MonthHistory:
    """Of all that was seen, or of the span that is asked for. Raises `BadInput` if no source saw a job in it, or their
    clocks cannot be compared.
    """
    _check(readings)
    differences = _Differences()
    joined, teams = _joined(readings, differences)
    owned, owned_by = _owned(readings, differences)
    seen = [cover for cover in (reading.coverage for reading in readings) if cover.from_at is not None]
    from_at = min(cover.from_at or 0 for cover in seen) if from_at is None else from_at
    last = max(cover.to_at or 0 for cover in seen)
    ends_at = last + 1 if to_at is None else to_at  # what happened in the last instant was seen, too
    to_at = last if to_at is None else to_at
    _check_span(from_at, to_at, readings[0].calendar)
    jobs = [job for job in joined if _first_at(job) < ends_at and _last_at(job) >= from_at]
    if not jobs:
        raise BadInput(f"None of the {len(joined):,} jobs that were seen lies between --from and --until.")
    return MonthHistory(
        from_at=from_at,
        to_at=max(to_at, from_at + 1),
        jobs=tuple(jobs),
        owned=owned,
        owned_by=owned_by,
        use=tuple(_use(jobs, readings, teams, from_at, to_at)),
        coverage=tuple(reading.coverage for reading in readings),
        disagreements=differences.disagreements(),
        manifests=tuple({key: job for reading in readings for key, job in reading.manifests}.items()),
        calendar=readings[0].calendar,
    )


def _check(readings: Sequence[SourceReading]) -> None:
    if not any(reading.jobs for reading in readings):
        missing = [f"{cover.source}: {' '.join(cover.missing)}" for cover in (reading.coverage for reading in readings)]
        left = [f"{count:,} × {why}" for reading in readings for why, count in reading.coverage.left_out]
        more = f" Left out: {', '.join(left)}." if left else ""
        raise BadInput(f"No job with GPUs was seen, so there is nothing to assess. {' '.join(missing)}{more}".strip())
    zeros = [reading.coverage.source for reading in readings if reading.jobs and not reading.calendar]
    if zeros and len([reading for reading in readings if reading.jobs]) > 1:
        raise BadInput(f"{zeros[0]} counts seconds from a zero of its own; it cannot be joined with other sources.")


def _check_span(from_at: Instant, to_at: Instant, calendar: bool) -> None:
    """One wrong time makes a month of decades, and every hour of them a row."""
    if to_at - from_at > MOST_SPAN_MS:
        ends = f" ({instant(from_at)} to {instant(to_at)})" if calendar else ""
        raise BadInput(
            f"What was seen spans {(to_at - from_at) // DAY:,} days{ends}; a report has at most"
            f" {MOST_SPAN_MS // DAY:,}. If a time is wrong, mend it; otherwise choose a part with --from and --until."
        )


# --- jobs -------------------------------------------------------------------------------------------------------------


def _joined(
    readings: Sequence[SourceReading], differences: "_Differences"
) -> tuple[list[JobRecord], dict[tuple[int, str], str]]:
    """The jobs by time, and the team of each job by its source's number and id there."""
    records: list[JobRecord] = []
    by_name: dict[str, list[int]] = defaultdict(list)
    by_uid: dict[str, int] = {}
    where: dict[tuple[int, str], int] = {}
    for k, reading in enumerate(readings):
        before = len(records)
        for job in reading.jobs:
            same = _same(job, records, by_name, by_uid, before) if k else None
            if same is not None:
                records[same] = _merged(records[same], job, differences)
                where[k, job.id] = same
                continue
            where[k, job.id] = len(records)
            by_name[_stem(job.id)].append(len(records))
            if job.uid:
                by_uid[job.uid] = len(records)
            records.append(job)
    teams = {key: records[index].team for key, index in where.items()}
    return sorted(records, key=lambda job: (_first_at(job), job.id)), teams


def _same(
    job: JobRecord, records: list[JobRecord], by_name: dict[str, list[int]], by_uid: dict[str, int], before: int
) -> int | None:
    """The record of the same job in an earlier source: of the same uid, or of the same id and time."""
    if job.uid and by_uid.get(job.uid, before) < before:
        return by_uid[job.uid]
    for index in by_name.get(_stem(job.id), ()):
        other = records[index]
        if index < before and not (job.uid and other.uid) and _overlap(job, other):
            return index
    return None


def _stem(job_id: str) -> str:
    return job_id.partition("#")[0]


def _first_at(job: JobRecord) -> Instant:
    return min((at for at in (job.submitted_at, job.started_at, job.ended_at) if at is not None), default=0)


def _last_at(job: JobRecord) -> Instant:
    """A job that is still queued goes on."""
    times = [at for at in (job.submitted_at, job.started_at, job.ended_at) if at is not None]
    return 1 << 62 if job.outcome == "queued" else max(times, default=0)


def _overlap(job: JobRecord, other: JobRecord) -> bool:
    return _first_at(job) <= _last_at(other) + TOLERANCE_MS and _first_at(other) <= _last_at(job) + TOLERANCE_MS


def _merged(known: JobRecord, other: JobRecord, differences: "_Differences") -> JobRecord:
    """Field by field, the better evidence. The earliest submission is the true one: a pod comes after its Job."""
    start, end = _with_run_time(
        _better(_start(known), _start(other)), _better(_end(known), _end(other)), _known_run(known, other)
    )
    differences.times("started", known, other, _start(known), _start(other))
    differences.times("ended", known, other, _end(known), _end(other))
    differences.gpus(known, other)
    submitted = [job for job in (known, other) if job.submitted_at is not None]
    first = min(submitted, key=lambda job: job.submitted_at or 0, default=known)
    best = known if start[2] == known.started_by else other
    measured = known if known.used_gpu_ms is not None else other
    return replace(
        known,
        source=f"{known.source} + {other.source}",
        gpus=best.gpus,
        name=known.name or other.name,
        team=known.team or other.team,
        user=known.user or other.user,
        gpu_model=known.gpu_model or other.gpu_model,
        key=known.key or other.key,
        submitted_at=first.submitted_at,
        submitted_by=first.submitted_by,
        started_at=start[1],
        started_by=start[2],
        ended_at=end[1],
        ended_by=end[2],
        outcome=known.outcome if known.outcome != "unknown" else other.outcome,
        cut=_cut(start[0], end[0]),
        rented=known.rented or other.rented,
        uid=known.uid or other.uid,
        used_gpu_ms=measured.used_gpu_ms,
        measured_gpu_ms=measured.measured_gpu_ms,
        idle_gpu_ms=measured.idle_gpu_ms,
        memory_permille=measured.memory_permille,
        checkpoints=known.checkpoints if known.checkpoints is not None else other.checkpoints,
        volumes=known.volumes if known.volumes is not None else other.volumes,
        data=known.data if known.data is not None else other.data,
        priority=known.priority if known.priority is not None else other.priority,
    )


_Time = tuple[bool, Instant | None, Evidence]  #: whether it is cut there, when, and how that is known


def _start(job: JobRecord) -> _Time:
    return job.cut in ("start", "both"), job.started_at, job.started_by


def _end(job: JobRecord) -> _Time:
    return job.cut in ("end", "both"), job.ended_at, job.ended_by


def _known_run(*jobs: JobRecord) -> Millis | None:
    """A run time that is known without its start and end."""
    return next((job.run_ms for job in jobs if job.counts_from_submission), None)


def _with_run_time(start: _Time, end: _Time, run_ms: Millis | None) -> tuple[_Time, _Time]:
    """Where one source has the run time alone and another one end of it, both ends are known."""
    if run_ms is None or (start[2] == "submission") == (end[2] == "submission"):
        return start, end
    if end[2] == "submission" and start[1] is not None and not start[0]:
        return start, (False, start[1] + run_ms, start[2])
    if start[2] == "submission" and end[1] is not None and not end[0]:
        return (False, end[1] - run_ms, end[2]), end
    return start, end


def _better(known: _Time, other: _Time) -> _Time:
    def rank(time: _Time) -> tuple[bool, bool, int]:
        return time[1] is None, time[0], RANK[time[2]]

    return min(known, other, key=rank)


def _cut(start: bool, end: bool) -> Cut:
    return "both" if start and end else "start" if start else "end" if end else ""


class _Differences:
    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], tuple[int, int, str]] = {}

    def times(self, field: str, known: JobRecord, other: JobRecord, a: _Time, b: _Time) -> None:
        if a[1] is None or b[1] is None or a[0] or b[0] or a[2] in VAGUE_START or b[2] in VAGUE_START:
            return
        if abs(a[1] - b[1]) > TOLERANCE_MS:
            kept, lost = (known, other) if _better(a, b) is a else (other, known)
            self.note(field, kept.source, lost.source, known.id, abs(a[1] - b[1]))

    def gpus(self, known: JobRecord, other: JobRecord) -> None:
        if known.gpus != other.gpus:
            kept, lost = (known, other) if _better(_start(known), _start(other)) == _start(known) else (other, known)
            self.note("gpus", kept.source, lost.source, known.id, abs(known.gpus - other.gpus))

    def note(self, field: str, kept: str, other: str, example: str, apart: int) -> None:
        count, worst, name = self.counts.get((field, kept, other), (0, -1, ""))
        self.counts[field, kept, other] = (count + 1, max(worst, apart), example if apart > worst else name)

    def disagreements(self) -> tuple[Disagreement, ...]:
        return tuple(
            Disagreement(field, kept, other, count, example, worst)
            for (field, kept, other), (count, worst, example) in sorted(self.counts.items())
        )


# --- owned GPUs and use -----------------------------------------------------------------------------------------------


def _owned(readings: Sequence[SourceReading], differences: _Differences) -> tuple[tuple[OwnedGpus, ...], str]:
    """Of the source that follows them longest; another that ends with a different number disagrees."""
    known = [reading for reading in readings if reading.owned]
    if not known:
        return (), ""
    best = max(known, key=lambda reading: reading.owned[-1].at - reading.owned[0].at)
    last = OwnedSteps(best.owned).last
    for reading in known:
        other = OwnedSteps(reading.owned).last
        if reading is not best and other != last:
            differences.note("owned GPUs", best.coverage.source, reading.coverage.source, "", abs(other - last))
    return tuple(sorted(best.owned, key=lambda row: (row.at, row.model))), best.owned_by


def _use(
    jobs: Iterable[JobRecord],
    readings: Iterable[SourceReading],
    teams: Mapping[tuple[int, str], str],
    from_at: Instant,
    to_at: Instant,
) -> Iterator[HourOfUse]:
    """Allocated GPU time follows from the jobs, used time from whoever measured it."""
    sums: dict[tuple[Instant, str], list[Millis]] = defaultdict(lambda: [0, 0, 0])
    for job in jobs:
        if job.started_at is not None and job.ended_at is not None:
            for hour, ms in hours_between(max(job.started_at, from_at), min(job.ended_at, to_at)):
                sums[hour, job.team][0] += ms * job.gpus
    for k, reading in enumerate(readings):
        for row in reading.measured:
            if not from_at - HOUR < row.at < to_at:
                continue
            sums_of_hour = sums[row.at, teams[k, row.job]]
            sums_of_hour[1] += row.measured_gpu_ms
            sums_of_hour[2] += row.used_gpu_ms
    for (at, team), (allocated, measured, used) in sorted(sums.items()):
        # Samples are minutes apart, so a short run may be measured for longer than it ran.
        whole = min(measured, allocated)
        yield HourOfUse(at, team, allocated, whole, used * whole // measured if measured else 0)


def hours_between(begin: Instant, end: Instant) -> Iterator[tuple[Instant, Millis]]:
    """Each full or partial hour of a span, with how much of it lies in the span."""
    at = begin // HOUR * HOUR
    while at < end:
        yield at, min(end, at + HOUR) - max(begin, at)
        at += HOUR
