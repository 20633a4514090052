"""The WebSocket route that runs a command where a job runs, in the protocol of `kube/exec_protocol.py`. `penstock exec`
calls it.

A token that may submit for a team may run commands in its jobs: it is the same power. Each command is audited with its
attempt.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect
from starlette.concurrency import run_in_threadpool

from penstock.core.model.events import ExecStarted
from penstock.drivers.driver import Command
from penstock.journal.journal import Reader
from penstock.journal.rows import AttemptRow
from penstock.kube import exec_protocol
from penstock.live.admission import ASK_BYTES
from penstock.live.plane import Plane
from penstock.web import deps
from penstock.web.deps import GuardHere, MaySubmit, PlaneHere, ReaderHere
from penstock.web.details import details
from penstock.web.problems import Problem, conflict, problem_of
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["jobs"])
LAST_SECONDS: Final = 1.0  #: for the last message to a client that may not read
AHEAD: Final = 16  #: buffered input messages; then the client has to wait


@routes.websocket("/jobs/{job:job}/exec")
async def exec_(
    socket: WebSocket,
    job: str,
    guard: GuardHere,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MaySubmit,
    command: Annotated[list[str], Query(description="The program and its arguments.", min_length=1, max_length=1000)],
    rank: Annotated[int, Query(ge=0, lt=1 << 20, description="In which pod of a gang.")] = 0,
    stdin: Annotated[bool, Query(description="Something will be typed.")] = False,
    tty: Annotated[bool, Query(description="On a terminal.")] = False,
    rows: Annotated[int, Query(ge=1, lt=1 << 16)] = 24,
    columns: Annotated[int, Query(ge=1, lt=1 << 16)] = 80,
) -> None:
    """Run a command where a job runs, once it is on record who does so."""
    if exec_protocol.PROTOCOL not in socket.scope["subprotocols"]:
        raise Problem(
            422, "bad-input", f"Ask for the subprotocol {exec_protocol.PROTOCOL}; no other one is spoken here."
        )
    attempt = await run_in_threadpool(_running, reader, caller, job)
    deps.take_share(plane, caller, 1 + sum(map(len, command)) // ASK_BYTES)
    with deps.room_for_stream(socket, guard, caller):
        known = details(socket, command)
        await plane.tell(ExecStarted(0, attempt.id, caller.id, known.digest), blobs=known.blobs)
        asked = Command(tuple(command), rank, tty, (rows, columns))
        await _session(socket, plane, attempt, asked, stdin, guard.tokens.gone(caller))


async def _session(
    socket: WebSocket,
    plane: Plane,
    attempt: AttemptRow,
    asked: Command,
    stdin: bool,
    revoked: Coroutine[Any, Any, None],
) -> None:
    await socket.accept(exec_protocol.PROTOCOL)
    talk = ExecSession(socket)
    running = asyncio.ensure_future(
        plane.exec(attempt.site, attempt.id, asked, talk.typed() if stdin else None, talk.printed)
    )
    others = [asyncio.ensure_future(talk.listen()), asyncio.ensure_future(revoked)]
    try:
        await asyncio.wait([running, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (running, *others):
            task.cancel()
    await asyncio.wait([running, *others])
    await talk.end(_result(running))


def _running(reader: Reader, caller: Token, job: str) -> AttemptRow:
    row = deps.find_job(reader, caller, job)
    here = [
        attempt
        for attempt in reader.attempts(job)
        if attempt.phase in ("running", "stopping") and attempt.started_at is not None
    ]
    if not here:
        raise conflict(f"{job} is not running, but {deps.state_of(row)}; `exec` needs a running job.")
    return here[-1]


def _result(running: "asyncio.Future[int]") -> bytes:
    if running.cancelled():
        return exec_protocol.failed("the talk was ended", "Ended")
    error = running.exception()
    if error is None:
        return exec_protocol.ended(running.result())
    if not isinstance(error, Exception):
        raise error
    problem = problem_of(error) if not isinstance(error, KeyError) else conflict("its site has left")
    return exec_protocol.failed(problem.detail, str(problem.status))


class ExecSession:
    """The client's side of one command, for the driver."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.heard: asyncio.Queue[bytes | tuple[int, int] | None] = asyncio.Queue(AHEAD)

    async def listen(self) -> None:
        """Receive messages until the client disconnects."""
        with suppress(WebSocketDisconnect):
            while True:
                message = await self.socket.receive_bytes()
                if message == exec_protocol.END_OF_INPUT:
                    await self.heard.put(None)
                elif message[:1] == bytes([exec_protocol.STDIN]):
                    await self.heard.put(message[1:])
                elif message[:1] == bytes([exec_protocol.RESIZE]) and (size := exec_protocol.size_in(message[1:])):
                    await self.heard.put(size)

    async def typed(self) -> AsyncIterator[bytes | tuple[int, int]]:
        while (item := await self.heard.get()) is not None:
            yield item

    async def printed(self, text: bytes, is_error: bool) -> None:
        await self._send(exec_protocol.message(exec_protocol.STDERR if is_error else exec_protocol.STDOUT, text))

    async def end(self, result: bytes) -> None:
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._send(result)
                await self.socket.close()

    async def _send(self, message: bytes) -> None:
        with suppress(
            WebSocketDisconnect, RuntimeError
        ):  # disconnected: `listen` returns, and the command is cancelled
            await self.socket.send_bytes(message)
