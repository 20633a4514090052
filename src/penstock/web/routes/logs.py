"""The route of a job's log: a piece of it, now or as soon as there is more, or a stream until the job has ended.

A client that asks for pieces, each from the last one's end, loses and repeats nothing, even across a restart of
Penstock; `penstock logs -f` does that. `follow` is for curl.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from penstock.core.model.lifecycle import ENDED
from penstock.core.values import value
from penstock.drivers.driver import Refused
from penstock.journal.journal import Reader
from penstock.journal.rows import AttemptRow
from penstock.live.plane import Plane
from penstock.web import deps
from penstock.web.access import Guard
from penstock.web.deps import GuardHere, MayRead, OneStream, PlaneHere, ReaderHere
from penstock.web.problems import cut_off, not_found
from penstock.web.streaming import StreamedAnswer, left, unless
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["jobs"], responses=deps.PROBLEMS)
MOST: Final = 1 << 20  #: bytes in one piece
LOOK_SECONDS: Final = 0.5  #: poll interval: drivers do not announce new log lines
#: Served as plain text with `nosniff`: a job's output must never run as a script.
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
TEXT: Final = "text/plain; charset=utf-8"


@value
class Piece:
    attempt: str  # empty: the job has not started
    text: bytes
    next: int  # offset of the attempt's next piece
    more: bool  # the attempt may still print
    then: str  # the next attempt
    ended: bool  # the job has ended

    @property
    def headers(self) -> dict[str, str]:
        fields = {"Attempt": self.attempt, "Next": self.next, "More": self.more, "Then": self.then, "Ended": self.ended}
        return {
            f"Penstock-{name}": str(text).lower() if isinstance(text, bool) else str(text)
            for name, text in fields.items()
        }


@routes.get(
    "/jobs/{job:job}/log",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "See Penstock-Next."}},
    summary="What a job printed",
)
async def log(
    job: str,
    request: Request,
    guard: GuardHere,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    stream_slot: OneStream,  # noqa: ARG001 - counts it
    attempt: Annotated[str, Query(description="Of this attempt; empty: of its last.", max_length=300)] = "",
    rank: Annotated[int | None, Query(ge=0, lt=1 << 20, description="Of this pod of a gang; empty: of all.")] = None,
    after: Annotated[int, Query(ge=0, lt=1 << 62, description="From this byte on.")] = 0,
    wait: Annotated[int, Query(ge=0, le=30, description="So many seconds for something new, if need be.")] = 0,
    follow: Annotated[bool, Query(description="Go on until the job has ended, over all further attempts.")] = False,
) -> Response:
    """Of a gang each line has its pod's `[RANK] ` before it.

    Headers say what to ask next: Penstock-Attempt, -Next (as `after`), -More, -Then (the next attempt), -Ended.
    """
    await on_record(request, guard, plane, reader, caller, job)
    asked = LogQuery(plane, reader, caller, job, rank)
    piece = await guard.tokens.while_asked(
        caller, unless(left(request.receive), asked.piece(attempt, after, wait), cut_off)
    )
    if follow:
        following = guard.tokens.while_valid(caller, asked.follow(piece))
        return StreamedAnswer(following, TEXT, HEADERS)
    return Response(piece.text, media_type=TEXT, headers=HEADERS | piece.headers)


async def on_record(request: Request, guard: Guard, plane: Plane, reader: Reader, caller: Token, job: str) -> None:
    """Record that this caller reads this job's log, if it is somebody else's."""
    if guard.log_reads.concerns(caller):
        row = await run_in_threadpool(deps.find_job, reader, caller, job)
        await guard.log_reads.record(plane, request, caller, row)


class LogQuery:
    """One request for one job's log."""

    def __init__(self, plane: Plane, reader: Reader, caller: Token, job: str, rank: int | None = None) -> None:
        self.plane, self.reader, self.caller, self.job, self.rank = plane, reader, caller, job, rank

    async def follow(self, piece: Piece) -> AsyncGenerator[bytes, None]:
        while True:
            yield piece.text
            if piece.then and not piece.more and not piece.text:
                try:
                    piece = await self.piece(piece.then, 0, 30)
                except Refused as refused:  # it resumed with fewer pods
                    yield f"penstock: {refused}\n".encode()
                    return
            elif piece.ended and not piece.more and not piece.text:
                return
            else:
                piece = await self.piece(piece.attempt, piece.next, 30)

    async def piece(self, attempt: str, after: int, wait: float) -> Piece:
        """What there is; if nothing, wait for something new up to `wait` seconds."""
        until = asyncio.get_running_loop().time() + wait
        seen = self.plane.view.number
        while True:
            piece = await self._look(attempt, after)
            left = until - asyncio.get_running_loop().time()
            if piece.text or left <= 0 or not piece.more:
                return piece
            seen = await self._news(seen, min(left, LOOK_SECONDS))

    async def _look(self, attempt: str, after: int) -> Piece:
        # Read the journal first: an attempt that ended before its log was read prints nothing more.
        row = await run_in_threadpool(deps.find_job, self.reader, self.caller, self.job)
        tries = await run_in_threadpool(self.reader.attempts, self.job)
        wanted = next((candidate for candidate in reversed(tries) if attempt in ("", candidate.id)), None)
        ended = row.phase in ENDED
        if wanted is None:
            if attempt:
                raise not_found("attempt", attempt)
            return Piece("", b"", 0, not ended, "", ended)
        text, growing = await self._read(wanted, after)
        then = next((later.id for later in tries if later.number > wanted.number), "")
        more = growing or wanted.phase != "over" or not (then or ended)
        return Piece(wanted.id, text, after + len(text), more, then, ended)

    async def _read(self, attempt: AttemptRow, after: int) -> tuple[bytes, bool]:
        try:
            return await self.plane.log(attempt.site, attempt.id, after, MOST, self.rank)
        except KeyError:
            return b"", False  # the site was removed, with its logs

    async def _news(self, seen: int, seconds: float) -> int:
        try:
            async with asyncio.timeout(seconds):
                return await self.plane.heard(seen)
        except TimeoutError:
            return seen
