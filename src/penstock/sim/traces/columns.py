"""Reads CSV traces: Penstock's own schema, or any other with a column mapping. `trace.read` calls it.

A mapping goes from our field to the file's column: `{"submit": "SubmitTime", ...}`.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

from penstock.config.document import listed
from penstock.config.scalars import SCALARS, Name
from penstock.core.model.types import GpuChoice, JobSpec
from penstock.core.units import Millis
from penstock.sim.traces.rows import (
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

#: The columns of public traces brought to one form; then what Penstock adds so that its own traces survive a file.
SCHEMA: Final = (
    *("job_id", "submit_s", "duration_s", "gpus", "gpu_fraction", "gpu_model", "user_or_group", "status", "job_class"),
    *("cpus", "memory_gib", "queue_s"),
    *("user", "name", "project", "priority", "checkpoint_s", "deadline_s", "mig_profile"),
)
#: `gpu_model` is not among them: it says where a job ran, not that it could run nowhere else.
PENSTOCK: Final[Mapping[str, str]] = {
    "id": "job_id",
    "submit": "submit_s",
    "duration": "duration_s",
    "gpus": "gpus",
    "team": "user_or_group",
    "user": "user",
    "name": "name",
    "project": "project",
    "job_class": "job_class",
    "priority": "priority",
    "checkpoint": "checkpoint_s",
    "deadline": "deadline_s",
    "mig_profile": "mig_profile",
}
#: Fields of the request. Rows that agree in all of them share one spec.
SPEC_FIELDS: Final = (
    *("gpus", "team", "user", "name", "project", "job_class", "priority", "checkpoint", "deadline", "mig_profile"),
    "gpu_model",
)
FIELDS: Final = ("id", "submit", "duration", "start", "end", *SPEC_FIELDS)

Key: TypeAlias = tuple[str, ...]


def penstock_rows(text: str, clock: TraceClock, errors: Errors) -> Iterator[Row]:
    """Rows of our own schema; only submit_s, duration_s and gpus are required."""
    header, numbered = table_of(text, errors)
    for column in ("submit_s", "duration_s", "gpus"):
        if column not in header:
            hint = "other names need a column mapping"
            errors.add(Unreadable(f"there is no column {column}, only {listed(header)}; {hint}", line=1))
    errors.check()  # without its columns no row makes sense
    present = {field: column for field, column in PENSTOCK.items() if column in header}
    return read_rows(numbered, _Reader(header, present, clock), errors)


def mapped_rows(text: str, clock: TraceClock, columns: Mapping[str, str], errors: Errors) -> Iterator[Row]:
    """Rows of a table with a column mapping."""
    _check_mapping(columns, errors)
    header, numbered = table_of(text, errors)
    for field, column in columns.items():
        if column not in header:
            errors.add(Unreadable(f"there is no column {listed([column])} for {field}, only {listed(header)}", line=1))
    errors.check()
    return read_rows(numbered, _Reader(header, columns, clock), errors)


def _check_mapping(columns: Mapping[str, str], errors: Errors) -> None:
    for field in columns:
        if field not in FIELDS:
            known = ", ".join(FIELDS)
            errors.add(Unreadable(f"the column mapping has an unknown field {shown(field)}; fields are {known}"))
    for field in ("submit", "gpus"):
        if field not in columns:
            errors.add(Unreadable(f"the column mapping has no column for {field}"))
    if "duration" not in columns and not {"start", "end"} <= columns.keys():
        errors.add(Unreadable("the column mapping has no column for duration, nor for both start and end"))


def table_of(text: str, errors: Errors) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    numbered = _numbered(text, errors)
    header = [name.strip() for name in next(numbered, (1, []))[1]]
    for name, count in Counter(header).items():
        if name and count > 1:
            errors.add(Unreadable(f"the column {listed([name])} is there twice", line=1))
    return header, numbered


def _numbered(text: str, errors: Errors) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:  # the rest is unreadable
        errors.add(Unreadable(f"this is not CSV ({error})", reader.line_num))


class _Reader:
    """Reads one row after another, by position: looking columns up by name for each row would take twice as long."""

    def __init__(self, header: Sequence[str], columns: Mapping[str, str], clock: TraceClock) -> None:
        self.columns, self.clock, self.width = columns, clock, len(header)
        self.at = {field: header.index(column) for field, column in columns.items()}
        self.fields = tuple(field for field in SPEC_FIELDS if field in columns)
        # The first is there twice because itemgetter gives no tuple for a single position.
        self.key = itemgetter(*(self.at[field] for field in (self.fields[0], *self.fields)))
        self.specs: dict[Key, JobSpec | None] = {}

    def __call__(self, row: list[str], /) -> Row:
        if len(row) != self.width:
            raise Unreadable(f"there are {len(row)} fields under a header of {self.width}")
        run_ms = self._duration(row) if "duration" in self.at else self._from_start_to_end(row)
        if not run_ms:
            return NO_RUN_TIME if run_ms == 0 else NOT_ENDED
        spec = self._spec(self.key(row))
        if spec is None:
            return NO_GPU
        submit_at = self.clock.submitted(row[self.at["submit"]], self.columns["submit"])
        return TraceRow(row[self.at["id"]] if "id" in self.at else "", submit_at, run_ms, spec)

    def parts(self, row: list[str], /) -> Iterable[Callable[[], object]]:
        if len(row) != self.width:
            return [lambda: self(row)]
        cells = {field: row[self.at[field]] for field in self.fields}
        asked = [{"gpus": "1", field: text} for field, text in cells.items()]
        run_time = self._duration if "duration" in self.at else self._from_start_to_end
        submitted = partial(self.clock.submitted, row[self.at["submit"]], self.columns["submit"])
        return [partial(run_time, row), *(partial(self._new_spec, request) for request in asked), submitted]

    def _duration(self, row: list[str]) -> Millis:
        text = row[self.at["duration"]]
        return millis(text, self.columns["duration"]) if text else 0

    def _from_start_to_end(self, row: list[str]) -> Millis | None:
        start, end = row[self.at["start"]], row[self.at["end"]]
        if not start or not end:
            return None
        run_ms = self.clock.instant(end, self.columns["end"]) - self.clock.instant(start, self.columns["start"])
        if run_ms < 0:
            raise Unreadable(f"{self.columns['end']} {shown(end)} is before {self.columns['start']} {shown(start)}")
        return run_ms

    def _spec(self, key: Key) -> JobSpec | None:
        if key not in self.specs:
            self.specs[key] = self._new_spec(dict(zip(self.fields, key[1:], strict=True)))
        return self.specs[key]

    def _new_spec(self, cells: Mapping[str, str]) -> JobSpec | None:
        gpus = whole_gpus(cells["gpus"], self.columns["gpus"])
        if gpus == 0:
            return None
        asked: dict[str, Any] = {field: cells[field] for field in TEXTS if cells.get(field)}
        if SCALARS[Name][1](cells.get("job_class", "")):  # what is no name says nothing
            asked["job_class"] = cells["job_class"]
        if cells.get("priority"):
            asked["priority"] = _whole(cells["priority"], self.columns["priority"])
        if cells.get("checkpoint"):
            asked["checkpoint_every_ms"] = millis(cells["checkpoint"], self.columns["checkpoint"]) or None
        if cells.get("deadline"):
            asked["deadline_at"] = self.clock.instant(cells["deadline"], self.columns["deadline"])
        if cells.get("gpu_model"):
            asked["gpu_models"] = (GpuChoice(cells["gpu_model"]),)
        return JobSpec(gpus, **asked)


TEXTS: Final = ("team", "user", "name", "project", "mig_profile")


def _whole(text: str, field: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise Unreadable(not_a("whole number", text, field)) from None
    if abs(number) > 1_000_000_000:
        raise Unreadable(f"{field} {shown(text)} is beyond a thousand million")
    return number
