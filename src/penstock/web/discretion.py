"""Reasons without the names of other teams' jobs. A job makes room for another one, or runs beside one: another team
learns that there is one, what it needs and what its priority is, and not what somebody called it.

    discretion = Discretion(reader, caller)         # for one request, or one stream
    row, event = discretion.row(row), discretion.event(event)
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from penstock.core.ids import job_of
from penstock.journal.journal import Reader, Row
from penstock.journal.rows import AttemptRow, JobRow
from penstock.web.tokens import Token

#: Fields of reasons that name other jobs.
NAMING: Final = ("gainer", "reserved_for", "left_by")
ANOTHER: Final = "a job of another team"

R = TypeVar("R", JobRow, AttemptRow)


class Discretion:
    def __init__(self, reader: Reader, caller: Token) -> None:
        self.caller = caller
        self.sees = lru_cache(10_000)(lambda job: _sees(reader, caller, job))

    def row(self, row: R) -> R:
        because = self._recorded(row.because)
        return row if because is row.because else replace(row, because=because)

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Steps of the journal."""
        for row in rows:
            inputs, outputs = tuple(map(self.event, row.inputs)), tuple(map(self.event, row.outputs))
            yield replace(row, inputs=inputs, outputs=outputs) if self.caller.team else row

    def event(self, event: Any) -> Any:
        if not self.caller.team:
            return event
        because: Any = getattr(event, "because", None)
        after = getattr(event, "after", ())
        named = {name: self._named(text) for name in NAMING if (text := getattr(because, name, None)) is not None}
        own = tuple(attempt for attempt in after if self.sees(job_of(attempt)))
        changed = ({"because": replace(because, **named)} if named else {}) | ({"after": own} if own != after else {})
        return replace(event, **changed) if changed else event

    def _recorded(self, because: str) -> str:
        """A reason as the journal's tables have it: JSON."""
        if not self.caller.team or not any(f'"{name}"' in because for name in NAMING):
            return because
        numbers = json.loads(because)
        return json.dumps(numbers | {name: self._named(numbers[name]) for name in NAMING if name in numbers})

    def _named(self, jobs: Any) -> Any:
        if isinstance(jobs, str):
            return jobs if self.sees(jobs) else ANOTHER
        return tuple(map(self._named, jobs))


def _sees(reader: Reader, caller: Token, job: str) -> bool:
    row = reader.job(job)
    return row is not None and caller.sees(row.team)
