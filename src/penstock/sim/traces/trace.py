"""Reads and writes traces: recorded jobs and when they were submitted. `simulate`, `compare` and the demo use it.

`read` takes four formats: Penstock's own CSV, any CSV with a column mapping, Slurm's `sacct --parsable2` and `kubectl
get jobs -A -o json`; gzipped or not. `write_csv` writes the first.
"""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.core.errors import BadFile, BadInput
from penstock.core.model.types import JobSpec
from penstock.core.units import SECOND, Instant, Millis
from penstock.core.values import value
from penstock.sim.traces.columns import SCHEMA, mapped_rows, penstock_rows
from penstock.sim.traces.kube_jobs import items_of, kubernetes_rows
from penstock.sim.traces.rows import UNPRINTABLE, Errors, Row, TraceClock, TraceRow, Unreadable, shown
from penstock.sim.traces.sacct import sacct_rows

FORMATS: Final = ("penstock", "csv", "sacct", "kubernetes")
GZIP_MAGIC: Final = b"\x1f\x8b"
MOST_BYTES: Final = 2 << 30  #: of a trace's text
MOST_GROWTH: Final = 200  #: of a gzipped one, beyond this many bytes:
LEAST_MOST_BYTES: Final = 64 << 20


@value
class TraceJob:
    id: str
    submit_at: Instant
    run_ms: Millis  # the truth, pure run time; what an engine may know of it is decided elsewhere
    spec: JobSpec


@value
class Trace:
    """Jobs by submission, ties in the file's order, and how many rows were left out for which reason."""

    jobs: tuple[TraceJob, ...]
    left_out: Mapping[str, int]


def read(
    path: str,
    *,
    format: str | None = None,  # noqa: A002 - the word people type
    columns: Mapping[str, str] | None = None,
) -> Trace:
    """Reads the jobs of a file; `-` is standard input. Raises one `BadFile` with all errors, by file and row."""

    def rows(clock: TraceClock, errors: Errors) -> Iterator[Row]:
        text = text_of(path)
        return _rows(text, format or _guess(text, columns), columns, clock, errors)

    return _read("standard input" if path == "-" else path, rows)


def read_jobs(items: Iterable[object], name: str) -> Trace:
    """Like `read`, for Kubernetes Jobs in memory; `name` replaces the file's name in errors."""
    return _read(name, lambda clock, errors: kubernetes_rows(items, clock, errors))


def _read(name: str, rows: Callable[[TraceClock, Errors], Iterator[Row]]) -> Trace:
    clock, errors = TraceClock(), Errors(name)
    left_out: dict[str, int] = {}
    try:
        readable = list(_counted(rows(clock, errors), left_out))
        errors.check()
        return _trace(readable, left_out, clock.zero())
    except Unreadable as bad:
        errors.add(bad, None)
        raise BadFile(errors.kept) from None


def text_of(path: str) -> str:
    content = _bytes(path)
    if content[:2] == GZIP_MAGIC:
        content = _unzipped(content)
    elif path.endswith(".gz"):
        raise Unreadable("the name ends in .gz and the content is not gzip")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Unreadable("this is not UTF-8 text", line) from None
    if not text.strip():
        raise Unreadable("the file is empty")
    if control := UNPRINTABLE.search(text):
        line = text.count("\n", 0, control.start()) + 1
        raise Unreadable(f"there is a control character ({shown(control[0])}); a trace is plain text", line)
    return text


def _bytes(path: str) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror or error})") from None
    except ValueError:  # a zero byte in the name
        raise Unreadable("this is not a file name") from None
    if len(content) > MOST_BYTES:
        raise Unreadable(f"more than {MOST_BYTES >> 30} GiB; this cannot be a trace")
    return content


def _unzipped(content: bytes) -> bytes:
    """Unpacks gzip, within bounds: a trace grows at most twenty-fold, and a bomb would fill the memory."""
    most = min(MOST_BYTES, max(LEAST_MOST_BYTES, MOST_GROWTH * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(most + 1)
    except (OSError, EOFError, zlib.error):
        raise Unreadable("the gzip file is cut short or damaged") from None
    if len(plain) > most:
        raise Unreadable(f"the gzip file holds more than {most >> 20:,} MiB; no trace is packed so tightly")
    return plain


def _guess(text: str, columns: Mapping[str, str] | None) -> str:
    """Guesses the format by content. A table without pipes is taken for ours: its reader says what is missing."""
    if columns is not None:
        return "csv"
    if text.lstrip()[0] in "{[":
        return "kubernetes"
    first = text.partition("\n")[0]
    return "sacct" if "|" in first or first.startswith("JobID ") else "penstock"


def _rows(
    text: str, chosen: str, columns: Mapping[str, str] | None, clock: TraceClock, errors: Errors
) -> Iterator[Row]:
    if columns is not None and chosen != "csv":
        raise Unreadable(f"a column mapping is for the format csv, not {chosen}")
    match chosen:
        case "penstock":
            clock.seconds_only = True
            return penstock_rows(text, clock, errors)
        case "csv":
            return mapped_rows(text, clock, columns or {}, errors)
        case "sacct":
            return sacct_rows(text, clock, errors)
        case "kubernetes":
            return kubernetes_rows(items_of(text), clock, errors)
    raise Unreadable(f"the format {shown(chosen)} is unknown; formats are {', '.join(FORMATS)}")


def _counted(rows: Iterable[Row], left_out: dict[str, int]) -> Iterator[TraceRow]:
    for row in rows:
        if isinstance(row, str):
            left_out[row] = left_out.get(row, 0) + 1
        else:
            yield row


def _trace(rows: list[TraceRow], left_out: Mapping[str, int], zero: Instant) -> Trace:
    if not rows:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in left_out.items())
        raise Unreadable(f"no job in it can be used ({reasons or 'there are no rows'})")
    rows.sort(key=lambda row: row.submit_at)
    jobs = (TraceJob(row.id, row.submit_at - zero, row.run_ms, _shifted(row.spec, zero)) for row in rows)
    return Trace(tuple(jobs), left_out)


def _shifted(spec: JobSpec, zero: Instant) -> JobSpec:
    if zero == 0 or spec.deadline_at is None:
        return spec
    return replace(spec, deadline_at=spec.deadline_at - zero)


def write_csv(trace: Trace, path: str) -> None:
    """The trace in Penstock's own schema: to a file, gzipped if its name ends in .gz, or to standard output for `-`."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SCHEMA)
    writer.writerows(_cells(job) for job in trace.jobs)
    content = out.getvalue().encode()
    if path.endswith(".gz"):
        content = gzip.compress(content, compresslevel=6, mtime=0)  # the same trace gives the same bytes
    try:
        if path == "-":
            sys.stdout.buffer.write(content)
        else:
            Path(path).write_bytes(content)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error}).") from None


def _cells(job: TraceJob) -> tuple[object, ...]:
    """A job's cells in the order of SCHEMA; unknown ones are blank."""
    spec = job.spec
    model = spec.gpu_models[0].model if spec.gpu_models else ""
    return (
        *(job.id, _seconds(job.submit_at), _seconds(job.run_ms), spec.gpus, "", model, spec.team, "", spec.job_class),
        *("", "", ""),
        *(spec.user, spec.name, spec.project, spec.priority, _seconds(spec.checkpoint_every_ms)),
        *(_seconds(spec.deadline_at), spec.mig_profile),
    )


def _seconds(ms: Millis | None) -> str:
    if ms is None:
        return ""
    whole, rest = divmod(ms, SECOND)
    return f"{whole}.{rest:03d}" if rest else str(whole)
