"""Reads `sacct --parsable2` (or -p) of Slurm 15 to 25, as it is printed or with fewer columns. `penstock assess
--sacct` calls it.

    sacct --allusers --starttime=2026-10-01 --endtime=2026-11-01 --parsable2 \\
          --format=JobID,JobName,User,Account,QOS,Submit,Eligible,Start,End,ElapsedRaw,State,NNodes,AllocTRES,ReqTRES

A job waits from the moment it is eligible: what its user held back, or made depend on another job, waits for that.
Slurm before 20 has GPUs in AllocGRES and, for each node, in ReqGRES. A job that has not ended is cut at the last
instant of the file.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Final

from penstock.assess.history import JobRecord, Outcome, SourceReading
from penstock.assess.sources.reading import NO_GPU, FileClock, coverage_of, read_file, records_of, recurring_key
from penstock.core.units import Instant
from penstock.sim.traces import sacct as slurm
from penstock.sim.traces.rows import Errors, Unreadable, whole_gpus
from penstock.sim.traces.trace import text_of

NEEDED: Final = (("JobID",), ("Submit",), ("Start",), ("State",), ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES"))
GRES: Final = re.compile(r"(?:gres[:/])?gpu(?::(?P<model>[^:,()]+?))??[:=](?P<count>\d{1,7})(?:\([^)]*\))?", re.ASCII)
UNBOUNDED: Final = (
    "Jobs that ended before the --starttime of sacct are not in it, so what lies before is incomplete; --from leaves"
    " it out."
)
USUAL_QOS: Final = ("", "normal")  #: Slurm's own default
NO_TIME: Final = ("", "Unknown", "None", "N/A")
SLICES: Final = "slices of GPUs"
OUTCOMES: Final[dict[str, Outcome]] = {"COMPLETED": "succeeded", "CANCELLED": "cancelled"}
RUNNING: Final = ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "COMPLETING", "STAGE_OUT")


def read_sacct(path: str, zone: tzinfo, *, bounded: bool = False) -> SourceReading:
    """`bounded`: the report leaves out what lies before --starttime. Otherwise it says that this part is incomplete."""
    reading = read_file(path, partial(_read, path, zone))
    cover = reading.coverage
    return reading if bounded else replace(reading, coverage=replace(cover, missing=(*cover.missing, UNBOUNDED)))


def _read(path: str, zone: tzinfo, errors: Errors) -> SourceReading:
    header, lines = slurm.header_of(text_of(path), NEEDED, errors)
    clock = FileClock(zone)
    jobs = slurm.jobs_of(header, lines, errors)
    records, left_out = records_of(jobs, lambda _, job: _record(job, path, clock), errors)
    return _reading(path, records, clock, left_out, header)


def _record(job: Mapping[str, str], path: str, clock: FileClock) -> JobRecord | str:
    gpus, model = _gpus(job)
    if gpus == 0:
        return model or NO_GPU
    state = slurm.state_of(job)
    submitted_at = clock.at(job["Submit"], "Submit")
    eligible_at = _time(job, "Eligible", clock)
    started_at, ended_at = _time(job, "Start", clock), _time(job, "End", clock)
    if started_at is not None and (ended_at is None or _has_elapsed(job)) and _ended(job):
        ended_at = started_at + slurm.elapsed_ms(job)  # unlike wall times, not moved by summer time
    if started_at is not None and ended_at is not None and ended_at < started_at:
        raise Unreadable(f"End {job.get('End')!r} is before Start {job['Start']!r}")
    if state == "PENDING" or (state == "CANCELLED" and ended_at == started_at):
        started_at = None  # Slurm writes the expected start of a pending job, and the end of one that never ran
    team, name = job.get("Account", ""), job.get("JobName", "")
    return JobRecord(
        id=job["JobID"],
        source=f"sacct {path}",
        gpus=gpus,
        gpu_model=model,
        name=name,
        team=team,
        user=job.get("User", ""),
        key=recurring_key(team, name),
        submitted_at=_waits_from(submitted_at, eligible_at, started_at),
        started_at=started_at,
        ended_at=ended_at if _ended(job) else _so_far(job, started_at),
        submitted_by="sacct",
        started_by="sacct" if started_at is not None else "",
        ended_by="sacct" if _ended(job) else "",
        outcome=_outcome(state),
        cut="end" if started_at is not None and not _ended(job) else "",
        priority=_priority(job),
    )


def _priority(job: Mapping[str, str]) -> str | None:
    if "QOS" not in job:
        return None
    return "" if job["QOS"] in USUAL_QOS else job["QOS"]


def _waits_from(submitted_at: Instant, eligible_at: Instant | None, started_at: Instant | None) -> Instant:
    """When it may start; never after its start, as clocks of two machines may have it."""
    eligible_at = max(submitted_at, eligible_at or 0)
    return eligible_at if started_at is None else min(eligible_at, max(submitted_at, started_at))


def _so_far(job: Mapping[str, str], started_at: Instant | None) -> Instant | None:
    """Until when a running job is known to have run: to the moment when sacct printed it."""
    if started_at is None:
        return None
    return started_at + (slurm.elapsed_ms(job) if _has_elapsed(job) else 0)


def _time(job: Mapping[str, str], field: str, clock: FileClock) -> Instant | None:
    text = job.get(field, "")
    return None if text in NO_TIME else clock.at(text, field)


def _has_elapsed(job: Mapping[str, str]) -> bool:
    return bool(job.get("ElapsedRaw") or job.get("Elapsed"))


def _ended(job: Mapping[str, str]) -> bool:
    return not slurm.is_unended(job)


def _outcome(state: str) -> Outcome:
    if state in RUNNING:
        return "running"
    return "queued" if state in slurm.UNENDED else OUTCOMES.get(state, "failed")


def _gpus(job: Mapping[str, str]) -> tuple[int, str]:
    """How many, and of which model; none, and why."""
    for field in ("AllocTRES", "ReqTRES"):
        if "gres/gpu" in job.get(field, ""):
            allocated = slurm.gpus_of_tres(job[field], field)
            if isinstance(allocated, str) or allocated[1]:
                return 0, SLICES if not isinstance(allocated, str) else ""
            return allocated[0], _model(job[field])
    if job.get("AllocGRES"):
        return _gres(job["AllocGRES"], 1)
    return _gres(job.get("ReqGRES", ""), max(1, whole_gpus(job.get("NNodes") or "1", "NNodes")))


def _model(tres: str) -> str:
    models = [part.partition("=")[0][len("gres/gpu:") :] for part in tres.split(",") if part.startswith("gres/gpu:")]
    return models[0] if len(models) == 1 else ""


def _gres(text: str, nodes: int) -> tuple[int, str]:
    """`gpu:4`, `gpu:a100:4` or `gres:gpu:2`, as Slurm before 21 wrote it."""
    matches = [match for part in text.split(",") if (match := GRES.fullmatch(part.strip()))]
    models = {match["model"] or "" for match in matches}
    return nodes * sum(int(match["count"]) for match in matches), models.pop() if len(models) == 1 else ""


def _reading(
    path: str, records: list[JobRecord], clock: FileClock, left_out: Mapping[str, int], header: list[str]
) -> SourceReading:
    seen = [at for job in records for at in (job.submitted_at, job.started_at, job.ended_at) if at is not None]
    last = max(seen, default=0)
    records = [replace(job, ended_at=last, ended_by="samples") if job.cut else job for job in records]
    missing = ["Slurm's accounting tells nothing of how GPUs were used."]
    if clock.has_no_zone and str(clock.zone) == "UTC":
        missing.append("Times of sacct have no zone and are taken as UTC; --time-zone says otherwise.")
    if "Eligible" not in header:
        missing.append("Without the column Eligible, waits of held and dependent jobs count from their submission.")
    coverage = coverage_of(f"sacct {path}", records, left_out=left_out, missing=missing)
    return SourceReading(coverage, tuple(records), calendar=clock.calendar)
