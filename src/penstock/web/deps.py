"""Dependencies of all routes: the plane, the journal's reader, the caller. Also converts values to JSON shapes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from fastapi import Depends, Request
from pydantic import ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import HTTPConnection

from penstock.core.ids import site_of
from penstock.core.model.types import STANDING
from penstock.core.model.types import Offer as CoreOffer
from penstock.core.units import MINUTE, NEVER, Instant
from penstock.explain.story import StoryLine
from penstock.journal import states
from penstock.journal.journal import Reader
from penstock.journal.rows import AttemptRow, JobRow
from penstock.live.plane import Plane
from penstock.web import explain, schemas
from penstock.web.access import Guard, Needs, own
from penstock.web.connections import Peer
from penstock.web.limits import MOST_FORM_BYTES, Streams, read_body
from penstock.web.problems import invalid, not_found
from penstock.web.tokens import Token

S = TypeVar("S", bound=schemas.Shape)


class JobIdInPath(Convertor[str]):
    """A job's id, or a member's of an array: `sweep-k3f9x2/7`. So `/v1/jobs/sweep-k3f9x2/7/log` is its log."""

    regex = "[^/]+(?:/[0-9]+)?"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("job", JobIdInPath())


async def _plane(request: HTTPConnection) -> Plane:
    """The plane, with a view of all that was answered before this request."""
    plane: Plane = request.app.state.plane
    await plane.caught_up()
    return plane


async def _reader(request: HTTPConnection) -> Reader:  # async although it awaits nothing: otherwise it has a thread
    reader: Reader = request.app.state.reader
    return reader


async def _guard(request: HTTPConnection) -> Guard:
    guard: Guard = request.app.state.guard
    return guard


PlaneHere: TypeAlias = Annotated[Plane, Depends(_plane)]
ReaderHere: TypeAlias = Annotated[Reader, Depends(_reader)]
GuardHere: TypeAlias = Annotated[Guard, Depends(_guard)]
Anybody: TypeAlias = Annotated[Token, Depends(Needs("nothing"))]
MayRead: TypeAlias = Annotated[Token, Depends(Needs("read"))]
MaySubmit: TypeAlias = Annotated[Token, Depends(Needs("submit"))]
MayOperate: TypeAlias = Annotated[Token, Depends(Needs("operate"))]
MayApprove: TypeAlias = Annotated[Token, Depends(Needs("approve"))]
MayGiveTokens: TypeAlias = Annotated[Token, Depends(Needs("tokens"))]
MayAudit: TypeAlias = Annotated[Token, Depends(Needs("audit"))]

#: Every route may answer with a problem.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {"application/problem+json": {"schema": schemas.ProblemShape.model_json_schema()}},
    }
    for status, text in (
        (401, "No token, or one that is forged, expired or revoked."),
        (403, "The token's role may not do this."),
        (404, "It does not exist, or belongs to another team."),
        (408, "The body took too long."),
        (409, "Its state does not allow this."),
        (413, "The body is too large."),
        (422, "Input that cannot be used; `detail` says what to change."),
        (429, "Too many requests; see Retry-After."),
        (503, "The journal or a site does not answer; nothing was recorded. See Retry-After."),
    )
}


async def _one_stream(request: HTTPConnection, guard: GuardHere, caller: MayRead) -> AsyncIterator[None]:
    """Count a request that does not end by itself, until it has ended. Its connection gives way when there are too
    many.
    """
    peer: Peer | None = request.scope.get("state", {}).get("peer")
    with room_for_stream(request, guard, caller):
        if peer is not None:
            peer.streams = True
        try:
            yield
        finally:
            if peer is not None:
                peer.streams = False


def room_for_stream(request: HTTPConnection, guard: Guard, caller: Token) -> AbstractContextManager[None]:
    streams: Streams = request.app.state.streams
    return streams.take(caller.id, guard.tokens.line(caller)[-1].id)


#: Declared by a route whose answer may last for days.
OneStream: TypeAlias = Annotated[None, Depends(_one_stream)]


async def read_shape(request: Request, shape: type[S], most: int = MOST_FORM_BYTES) -> S:
    """The body as a shape. Routes call it themselves: FastAPI would parse a stranger's body before it asks who sent
    it.
    """
    raw = await read_body(request, most)
    try:
        return shape.model_validate_json(raw)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise invalid([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


def shape_of_body(shape: type[schemas.Shape]) -> dict[str, Any]:
    """The same for a route's description."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": shape.model_json_schema()}}}}


def take_share(plane: Plane, caller: Token, asks: int = 1) -> None:
    """Raises `NotAdmitted` if the caller's team, or the caller where that has none, may add no more to the journal."""
    if caller.team:
        plane.admission.grow(caller.team, asks)
    else:
        plane.admission.grow_by(caller.id, asks)


def find_job(reader: Reader, caller: Token, job: str) -> JobRow:
    row = reader.job(job)
    if row is None:
        raise not_found("job", job)
    own(caller, row.team, "job", job)
    return row


def job_shape(row: JobRow, currency: str, now: Instant) -> schemas.Job:
    return schemas.Job.of(row, **_said(row, currency, now))


def job_detail(row: JobRow, currency: str, now: Instant, **more: object) -> schemas.JobDetail:
    return schemas.JobDetail.of(row, **_said(row, currency, now), **more)


def jobs_json(rows: Sequence[JobRow], following: int | None, currency: str, now: Instant) -> bytes:
    """`schemas.Jobs` as JSON, in a fifth of the time that making the shapes takes: rows are what the journal holds, and
    need no check.
    """
    return msgspec.json.encode({"jobs": [_job_json(row, currency, now) for row in rows], "next": following})


def _job_json(row: JobRow, currency: str, now: Instant) -> dict[str, object]:
    """In the order of the shape's fields; those that are shown differently are replaced."""
    kind, because = explain.reason_json(row.because, row.until_at, currency, _age_minutes(row, now))
    shown = dict(zip(JOB_KEYS, stored_of(row), strict=True))
    shown["state"] = state_of(row)
    shown["preempted"] = states.is_preempted(row.phase, row.last_outcome, kind)
    shown["until_at"], shown["because"] = moment(row.until_at), because
    return shown


JOB_KEYS: Final = tuple(field.alias or name for name, field in schemas.Job.model_fields.items())
#: A row has neither state nor preempted; its phase holds their place.
stored_of: Final = attrgetter(*({"state": "phase", "preempted": "phase"}.get(n, n) for n in schemas.Job.model_fields))


def _said(row: JobRow, currency: str, now: Instant) -> dict[str, object]:
    """Fields that are shown differently from how they are stored."""
    because = explain.reason(row.because, row.until_at, currency, _age_minutes(row, now))
    return {
        "state": state_of(row),
        "preempted": states.is_preempted(row.phase, row.last_outcome, because.kind if because else ""),
        "until_at": moment(row.until_at),
        "because": because,
    }


def _age_minutes(row: JobRow, now: Instant) -> int:
    """A queue reason comes with its age: GPUs may have become free since."""
    queued = row.phase == "waiting" and row.decided_at is not None
    return max(0, now - (row.decided_at or now)) // MINUTE if queued else 0


def state_of(row: JobRow) -> states.JobState:
    return states.job_state(row.phase, row.attempt_phase)


def attempt_shape(row: AttemptRow, currency: str) -> schemas.Attempt:
    because = explain.reason(row.because, None, currency)
    state = states.attempt_state(row.phase, row.outcome)
    return schemas.Attempt.of(row, state=state, deadline_at=moment(row.deadline_at), because=because)


def trouble(plane: Plane, site: str) -> str:
    """Why the site does not answer; empty if it does."""
    alarm = plane.trouble_at(site)
    return alarm.text if alarm is not None else ""


def silence(plane: Plane, row: JobRow) -> list[StoryLine]:
    """A line for a job whose site does not answer: its progress is unknown now."""
    alarm = plane.trouble_at(site_of(row.offer)) if row.phase in ("placed", "leaving") else None
    if alarm is None:
        return []
    words = "The job continues there, its money stays held, and nothing is started twice; Penstock retries by itself."
    return [StoryLine(alarm.at, f"{alarm.text.rstrip('.')}. {words}")]


def instant(plane: Plane) -> Instant:
    """Now, and never before the instant that is shown."""
    return max(plane.view.at, plane.clock.now())


def moment(at: Instant | None) -> Instant | None:
    """ "Never" becomes null: browsers' numbers have 53 bits."""
    return None if at is None or at >= NEVER else at


def guarantee(offer: CoreOffer) -> Literal["hard", "soft"]:
    """ "hard" if caps hold there without us. Where use costs nothing, there is nothing to overrun."""
    return "soft" if offer.guarantee == "none" and offer.term not in STANDING else "hard"
