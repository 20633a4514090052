"""Routes about events: a page of the latest ones, and the journal as resumable server-sent events.

An event's id is its step's number and its index in the step. A client that sends the last id as `Last-Event-ID`, as
browsers do, gets everything after it.
"""

import re
from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from penstock.core.ids import job_concerned, members
from penstock.explain.event_words import is_for, shown, words_of
from penstock.journal.journal import Reader, Row
from penstock.live.plane import Plane
from penstock.web import deps, explain, schemas
from penstock.web.deps import GuardHere, MayRead, OneStream, PlaneHere, ReaderHere
from penstock.web.discretion import Discretion
from penstock.web.patterns import EVENT_ID
from penstock.web.problems import Problem
from penstock.web.streaming import EventStream, ServerEvent
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["events"], responses=deps.PROBLEMS)
STEPS: Final = 200  #: read at once


@routes.get("/events", summary="What just happened, newest first")
def events(
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    before: Annotated[str | None, Query(pattern=EVENT_ID, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Events:
    entries = reader.feed(_place(before) if before else None, limit)
    teller = EventShapes(reader, plane.view.policy.currency, caller)
    shapes = [teller.shape(entry.number, entry.part, entry.at, entry.event) for entry in entries]
    following = f"{entries[-1].number}.{entries[-1].part}" if len(entries) == limit else None
    return schemas.Events(events=[shape for shape in shapes if shape is not None], next=following)


async def _begin(
    plane: PlaneHere,
    last: Annotated[str, Header(alias="Last-Event-ID", max_length=50, description="Go on after this one.")] = "",
    after: Annotated[str, Query(max_length=50, description="The same, where headers cannot be set.")] = "",
) -> tuple[int, int]:
    """The step to start with, and the last part of it that the client has. Parsed before the response starts, since it
    may be refused.
    """
    text, head = last or after, plane.view.number
    if not text:
        return head + 1, -1
    if not re.fullmatch(EVENT_ID, text):
        raise Problem(422, "bad-input", "Last-Event-ID is the id of an event, like 1042.3; send it as it came.")
    return _place(text) if "." in text else (int(text) + 1, -1)


def _place(text: str) -> tuple[int, int]:
    """An event's id as step and index. Without an index: before all of that step."""
    step, _, part = text.partition(".")
    return int(step), int(part or 0)


@routes.get(
    "/events/stream",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events."}},
    summary="The journal as it is written",
)
async def stream(
    guard: GuardHere,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    begin: Annotated[tuple[int, int], Depends(_begin)],
    stream_slot: OneStream,  # noqa: ARG001 - counts it
) -> Response:
    """Begins with what comes next, or after the event that the client saw last. Ends with the token."""
    return EventStream(guard.tokens.while_valid(caller, _events(plane, reader, caller, *begin)))


async def _events(
    plane: Plane, reader: Reader, caller: Token, step: int, part: int
) -> AsyncGenerator[ServerEvent, None]:
    teller = EventShapes(reader, plane.view.policy.currency, caller)
    while True:
        for row in await run_in_threadpool(reader.steps, step - 1, STEPS):
            after_part = part if row.number == step else -1
            for shape in await run_in_threadpool(teller.row, row, after_part):
                yield ServerEvent(shape.model_dump_json(), shape.id, shape.kind)
            step, part = row.number, len(row.inputs) + len(row.outputs) - 1
        await plane.heard(step)


class EventShapes:
    """Converts events to shapes for one caller, who may not see them all. Caches which team a job belongs to."""

    def __init__(self, reader: Reader, currency: str, caller: Token) -> None:
        self.currency, self.caller = currency, caller
        self.discretion = Discretion(reader, caller)
        self.team_of = lru_cache(10_000)(lambda job: _team(reader, job))

    def row(self, row: Row, after: int) -> list[schemas.Event]:
        parts = list(enumerate((*row.inputs, *row.outputs)))[after + 1 :]
        shapes = [self.shape(row.number, part, row.at, event) for part, event in parts]
        return [shape for shape in shapes if shape is not None]

    def shape(self, number: int, part: int, at: int, event: Any) -> schemas.Event | None:
        """None: it is not for this caller."""
        job = job_concerned(event)
        team = getattr(getattr(event, "spec", None), "team", "") or (self.team_of(job) if job else "")
        if self.caller.team and not is_for(event, self.caller.team, team):
            return None
        event = self.discretion.event(event)
        return schemas.Event(
            id=f"{number}.{part}",
            at=at,
            kind=type(event).__name__,
            job=job,
            team=team,
            says=explain.says(event, self.currency),
            event=self._fields(event),
        )

    def _fields(self, event: Any) -> dict[str, Any]:
        fields, row = explain.plain(event), words_of(event)
        return shown(fields, row.shows) if self.caller.team and row.to == "everybody" else fields


def _team(reader: Reader, job: str) -> str:
    row = reader.job(job) or reader.job(members(job, 2)[0])  # of an array: its first member
    return row.team if row else ""
