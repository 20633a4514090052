"""Shared parts of all trace formats: rows, reasons to skip one, errors, and a file's clock.

`columns`, `sacct` and `kube_jobs` make `TraceRow`s with these; `trace.read` makes the trace.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.core.errors import BadFile, FileError
from penstock.core.model.types import JobSpec
from penstock.core.units import DAY, SECOND, Instant, Millis

Raw = TypeVar("Raw")
Raw_contra = TypeVar("Raw_contra", contravariant=True)

#: Why a row is no job to simulate. These words are shown to people, with a count before them.
NO_RUN_TIME: Final = "no run time"
NO_GPU: Final = "fewer than 1 GPU"
NOT_ENDED: Final = "not ended yet"
NEVER_STARTED: Final = "ended before it started"
MIXED: Final = "different kinds of GPU slices in one job"
NOT_A_JOB: Final = "not a batch/v1 Job"

MOST_GPUS: Final = 1_000_000
#: Characters that a terminal may obey, except ends of lines, and halves of pairs, which have no bytes.
UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
MOST_SECONDS: Final = 100 * 365 * 86_400  #: a hundred years: beyond it a number is a mistake, such as milliseconds
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_LIKE: Final[Instant] = 1_000_000_000 * SECOND  #: seconds this large count from 1970: no trace is 30 years long


MOST_ERRORS: Final = 1_000  #: of one file; beyond it they are only counted


class Unreadable(ValueError):
    """What is wrong, as the end of a sentence; a caller that knows the line adds it."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem, self.line = problem, line


class Errors:
    """All that is wrong with one file. `word` is what its rows are counted by: lines, or the items of a list."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.word = "line"
        self.kept: list[FileError] = []
        self.more = 0

    def add(self, bad: Unreadable, number: int | None = None) -> None:
        number = bad.line if number is None else number
        key = f"{self.word} {number}" if self.word != "line" and number is not None else ""
        self.keep(FileError(self.name, None if key else number, key, f"{bad.problem}."))

    def keep(self, error: FileError) -> None:
        if len(self.kept) < MOST_ERRORS:
            self.kept.append(error)
        else:
            self.more += 1

    def check(self) -> None:
        """Raise them, if there are any."""
        if self.kept:
            raise BadFile(self.kept, self.more) from None


class TraceRow(NamedTuple):
    """A job as its file describes it; `submit_at` still counts from the clock's zero."""

    id: str
    submit_at: Instant
    run_ms: Millis
    spec: JobSpec


Row: TypeAlias = TraceRow | str  #: a job, or the reason why it is left out


class RowReader(Protocol[Raw_contra]):
    """Reads one row of a format."""

    def __call__(self, raw: Raw_contra, /) -> Row: ...

    def parts(self, raw: Raw_contra, /) -> Iterable[Callable[[], object]]:
        """The parts of a row, read one by one, so that an error in one does not hide another."""


def read_rows(numbered: Iterable[tuple[int, Raw]], read: RowReader[Raw], errors: Errors) -> Iterator[Row]:
    """Reads every row; keeps each error with its row's number, and refuses an id that comes twice."""
    first_use: dict[str, int] = {}
    for number, raw in numbered:
        try:
            row = read(raw)
        except Unreadable:
            for bad in _all_wrong(read, raw):
                errors.add(bad, number)
            continue
        if not isinstance(row, str):
            if not row.id:
                row = row._replace(id=f"row-{number}")
            if wrong := _unprintable(row):  # JSON can spell what a file may not hold
                errors.add(Unreadable(f"{shown(wrong)} has characters that cannot be printed"), number)
                continue
            earlier = first_use.setdefault(row.id, number)
            if earlier != number:
                errors.add(Unreadable(f"id {shown(row.id)} was already used in {errors.word} {earlier}"), number)
        yield row


def _unprintable(row: TraceRow) -> str:
    """The first text of a job that must not reach a terminal; empty if there is none."""
    spec = row.spec
    texts = (row.id, spec.team, spec.user, spec.name, spec.project)
    return next(filter(UNPRINTABLE.search, texts), "") if UNPRINTABLE.search("".join(texts)) else ""


def _all_wrong(read: RowReader[Raw], raw: Raw) -> Iterator[Unreadable]:
    for part in read.parts(raw):
        try:
            part()
        except Unreadable as bad:
            yield bad


def millis(text: str, field: str) -> Millis:
    """Seconds as written, in whole milliseconds."""
    try:
        seconds = float(text)
    except ValueError:
        raise Unreadable(not_a("number", text, field)) from None
    if 0 <= seconds <= MOST_SECONDS:
        return round(seconds * SECOND)
    raise Unreadable(_out_of_range(seconds, text, field, "100 years"))


def whole_gpus(text: str, field: str) -> int:
    """Parts of a GPU are cut off: `2.0` is 2; `0.5`, nothing, and the `-1` of some exports are 0."""
    try:
        gpus = float(text or 0)
    except ValueError:
        raise Unreadable(not_a("number", text, field)) from None
    if -MOST_GPUS <= gpus <= MOST_GPUS:
        return max(0, int(gpus))
    raise Unreadable(_out_of_range(gpus, text, field, f"{MOST_GPUS:,}"))


def not_a(kind: str, text: str, field: str) -> str:
    return f"{field} {shown(text)} is not a {kind}" if text.strip() else f"{field} is empty"


def _out_of_range(number: float, text: str, field: str, most: str) -> str:
    if not math.isfinite(number):
        return f"{field} {shown(text)} is not a finite number"
    return f"{field} {shown(text)} is " + ("negative" if number < 0 else f"more than {most}")


def shown(text: str) -> str:
    """The file's text in quotes, shortened if it is long."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


class TraceClock:
    """One file's clock: seconds, or timestamps that all have a zone or all have none.

    Zero is 00:00 of the first submission's day, where that submission was made; or, when the file counts seconds from
    a zero of its own, that zero.
    """

    def __init__(self, *, seconds_only: bool = False) -> None:
        self.seconds_only = seconds_only
        self.kind = ""  # decided by the first time read
        self.first_at: Instant | None = None
        self.first_offset_ms: Millis = 0

    def submitted(self, text: str, field: str) -> Instant:
        at, offset_ms = self._read(text, field)
        if self.first_at is None or at < self.first_at:
            self.first_at, self.first_offset_ms = at, offset_ms
        return at

    def instant(self, text: str, field: str) -> Instant:
        return self._read(text, field)[0]

    def zero(self) -> Instant:
        if self.first_at is None or self.seconds_only or (self.kind == "seconds" and self.first_at < EPOCH_LIKE):
            return 0
        return (self.first_at + self.first_offset_ms) // DAY * DAY - self.first_offset_ms

    def _read(self, text: str, field: str) -> tuple[Instant, Millis]:
        if self.seconds_only or _is_number(text):
            at, offset_ms, kind = millis(text, field), 0, "seconds"
        else:
            at, offset_ms, kind = _timestamp(text, field)
        if kind != self.kind:
            if self.kind:
                raise Unreadable(f"{field} {shown(text)} is in {kind}, and times before it are in {self.kind}")
            self.kind = kind
        return at, offset_ms


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _timestamp(text: str, field: str) -> tuple[Instant, Millis, str]:
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Unreadable(not_a("time like 2026-03-01T09:00:00", text, field)) from None
    if not 1970 < read.year < 2200:  # also keeps every offset from UTC within what datetime can express
        raise Unreadable(f"{field} {shown(text)} is not between 1971 and 2199")
    offset = read.utcoffset()
    kind = "local time" if offset is None else "time with a zone"
    if offset is None:
        read = read.replace(tzinfo=UTC)
    return _ms(read - EPOCH), _ms(offset or timedelta()), kind


def _ms(span: timedelta) -> Millis:
    return span // timedelta(milliseconds=1)
