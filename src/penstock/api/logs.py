"""The route of a job's log: what there is, or all that comes until the job has ended."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from penstock.api import desk
from penstock.api.desk import MayRead, PlaneHere, ReaderHere
from penstock.api.problems import conflict, not_found
from penstock.core.lifecycle import ENDED
from penstock.journal.journal import AttemptRow, Reader
from penstock.live.plane import Plane

routes: Final = APIRouter(prefix="/v1", tags=["jobs"], responses=desk.PROBLEMS)
MOST: Final = 1 << 20  #: bytes in one answer
LOOK_SECONDS: Final = 0.5  #: a growing log tells nobody that it grew
#: A log is whatever a job prints: shown as text, and never guessed to be a page with scripts.
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
TEXT: Final = "text/plain; charset=utf-8"


@routes.get(
    "/jobs/{job:job}/log",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "`Penstock-Next` is where the next bytes begin."}},
    summary="What a job printed",
)
async def log(  # noqa: PLR0913 - one for each way to ask
    job: str,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    attempt: Annotated[str, Query(description="Of this attempt; empty: of its last.", max_length=300)] = "",
    after: Annotated[int, Query(ge=0, lt=1 << 62, description="From this byte on.")] = 0,
    follow: Annotated[bool, Query(description="Go on until the job has ended, over all further attempts.")] = False,
) -> Response:
    await run_in_threadpool(desk.find_job, reader, caller, job)
    tries = await run_in_threadpool(reader.attempts, job)
    wanted = next((one for one in reversed(tries) if attempt in ("", one.id)), None)
    if attempt and wanted is None:
        raise not_found("attempt", attempt)
    if follow:
        return StreamingResponse(_follow(plane, reader, job, wanted, after), media_type=TEXT, headers=HEADERS)
    if wanted is None:
        raise conflict(f"{job} has not started yet, so there is no log; follow it, or ask again later.")
    text, more = await _read(plane, wanted, after)
    return Response(text, media_type=TEXT, headers=HEADERS | {
        "Penstock-Attempt": wanted.id, "Penstock-Next": str(after + len(text)), "Penstock-More": str(more).lower(),
    })  # fmt: skip


async def _read(plane: Plane, attempt: AttemptRow, after: int) -> tuple[bytes, bool]:
    try:
        return await plane.log(attempt.site, attempt.id, after, MOST)
    except KeyError:
        return b"", False  # the site has left, and its logs with it


async def _follow(plane: Plane, reader: Reader, job: str, attempt: AttemptRow | None, after: int) -> AsyncIterator[bytes]:
    seen = plane.view.number
    while True:
        if attempt is not None:
            text, more = await _read(plane, attempt, after)
            after += len(text)
            if text:
                yield text
            if len(text) == MOST:
                continue
            if not more and attempt.phase == "over":
                row = await run_in_threadpool(reader.job, job)
                if row is None or row.phase in ENDED:
                    return
        seen = await _news(plane, seen)
        attempt, after = await _newest(reader, job, attempt, after)
        if attempt is None and (row := await run_in_threadpool(reader.job, job)) and row.phase in ENDED:
            return


async def _news(plane: Plane, seen: int) -> int:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await plane.heard(seen)
    except TimeoutError:
        return seen


async def _newest(
    reader: Reader, job: str, attempt: AttemptRow | None, after: int
) -> tuple[AttemptRow | None, int]:
    """The same attempt as it is now, or the next one, once this one is over and read to its end."""
    tries = await run_in_threadpool(reader.attempts, job)
    if attempt is None:
        return (tries[0], 0) if tries else (None, 0)
    later = [one for one in tries if one.number > attempt.number]
    if attempt.phase == "over" and later:
        return later[0], 0
    return next(one for one in tries if one.id == attempt.id), after
