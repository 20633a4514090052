"""Reads a trace from Slurm's `sacct --parsable2`: one line per job, fields between pipes. `trace.read` calls it.

    sacct --allusers --starttime=2026-03-01 --parsable2 \\
          --format=JobID,JobName,User,Account,Submit,Start,End,ElapsedRaw,State,AllocTRES,ReqTRES

Times are the cluster's wall clock; run times come from Elapsed, which daylight saving does not affect.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from penstock.config.document import listed
from penstock.core.model.types import JobSpec
from penstock.core.units import SECOND, Instant, Millis
from penstock.sim.traces.rows import (
    MIXED,
    NEVER_STARTED,
    NO_GPU,
    NO_RUN_TIME,
    NOT_ENDED,
    Errors,
    Row,
    TraceClock,
    TraceRow,
    Unreadable,
    millis,
    not_a,
    read_rows,
    shown,
    whole_gpus,
)

Fields: TypeAlias = Mapping[str, str]

#: Each of these must be there, by one of its names.
NEEDED: Final = (
    ("JobID",),
    ("Submit",),
    ("State",),
    ("ElapsedRaw", "Elapsed"),
    ("AllocTRES", "ReqTRES"),
)
#: States that a job leaves again; all others are an end.
UNENDED: Final = (
    *("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "COMPLETING", "STAGE_OUT"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
)
ELAPSED: Final = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,6}):(\d{1,2})(?:\.\d+)?", re.ASCII)
MIG: Final = re.compile(r"\d+g\.\d+gb", re.ASCII)


def sacct_rows(text: str, clock: TraceClock, errors: Errors) -> Iterator[Row]:
    """Jobs and array tasks; the steps of a job (`123.batch`) are parts of it, and not counted."""
    header, lines = header_of(text, NEEDED, errors)
    return read_rows(jobs_of(header, lines, errors), _Reader(clock), errors)


def header_of(text: str, needed: Iterable[tuple[str, ...]], errors: Errors) -> tuple[list[str], list[str]]:
    """The names of the columns and the lines below them. Each of `needed` must be there, by one of its names."""
    first, *lines = text.split("\n")
    header = first.rstrip("\r").split("|")
    if len(header) < 2:
        raise Unreadable("there are no pipes between the fields; print them with sacct --parsable2", line=1)
    for names in needed:
        if not set(names) & set(header):
            errors.add(Unreadable(f"there is no column {' or '.join(names)}, only {listed(header)}", line=1))
    errors.check()  # without its columns no row makes sense
    return header, lines


def jobs_of(header: list[str], lines: list[str], errors: Errors) -> Iterator[tuple[int, Fields]]:
    for number, line in enumerate(lines, start=2):
        cells = line.rstrip("\r").split("|")
        if cells == [""]:
            continue
        if len(cells) != len(header):
            errors.add(Unreadable(f"there are {len(cells)} fields under a header of {len(header)}", number))
            continue
        job = dict(zip(header, cells, strict=True))
        if "." not in job["JobID"]:
            yield number, job


class _Reader:
    def __init__(self, clock: TraceClock) -> None:
        self.clock = clock
        self.specs: dict[JobSpec, JobSpec] = {}  # equal specs are kept once

    def __call__(self, job: Fields, /) -> Row:
        asked = asked_gpus(job)
        if isinstance(asked, str):
            return asked
        if is_unended(job):
            return NOT_ENDED
        run_ms = elapsed_ms(job)
        if run_ms == 0:
            never = state_of(job) == "CANCELLED" or job.get("Start") in ("None", "Unknown")
            return NEVER_STARTED if never else NO_RUN_TIME
        return TraceRow(job["JobID"], self._submitted(job), run_ms, self._spec(job, *asked))

    def parts(self, job: Fields, /) -> Iterable[Callable[[], object]]:
        ended = [] if is_unended(job) else [partial(elapsed_ms, job), partial(self._submitted, job)]
        return [partial(asked_gpus, job), *ended]

    def _submitted(self, job: Fields) -> Instant:
        return self.clock.submitted(job["Submit"], "Submit")

    def _spec(self, job: Fields, gpus: int, mig_profile: str) -> JobSpec:
        spec = JobSpec(
            gpus,
            team=job.get("Account") or "default",
            user=job.get("User", ""),
            name=job.get("JobName", ""),
            mig_profile=mig_profile,
        )
        return self.specs.setdefault(spec, spec)


def state_of(job: Fields) -> str:
    return job["State"].partition(" ")[0]  # "CANCELLED by 1001"


def is_unended(job: Fields) -> bool:
    return state_of(job) in UNENDED or job.get("End") == "Unknown"


def asked_gpus(job: Fields) -> tuple[int, str] | str:
    tres = "AllocTRES" if job.get("AllocTRES") else "ReqTRES"  # a job that never started has nothing allocated
    return gpus_of_tres(job.get(tres, ""), tres)


def gpus_of_tres(tres: str, field: str) -> tuple[int, str] | str:
    """How many, and of which MIG profile, from `cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G`; or why it is left out."""
    amounts = dict(part.partition("=")[::2] for part in tres.split(","))
    typed = {name[len("gres/gpu:") :]: count for name, count in amounts.items() if name.startswith("gres/gpu:")}
    counts = {kind: whole_gpus(count, f"{field} gres/gpu:{kind}") for kind, count in typed.items()}
    total = whole_gpus(amounts["gres/gpu"], f"{field} gres/gpu") if "gres/gpu" in amounts else sum(counts.values())
    profiles = {match[0] if (match := MIG.search(kind)) else "" for kind in typed} or {""}
    if total == 0:
        return NO_GPU
    return (total, profiles.pop()) if len(profiles) == 1 else MIXED


def elapsed_ms(job: Fields) -> Millis:
    if job.get("ElapsedRaw"):
        return millis(job["ElapsedRaw"], "ElapsedRaw")
    text = job.get("Elapsed", "")
    match = ELAPSED.fullmatch(text)
    if not match:
        if "Elapsed" not in job:
            raise Unreadable("ElapsedRaw is empty")
        raise Unreadable(not_a("time like 1-02:03:04", text, "Elapsed"))
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return millis(str(total), f"Elapsed {shown(text)}, in seconds") // SECOND * SECOND
