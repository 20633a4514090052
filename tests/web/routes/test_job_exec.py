"""Commands where jobs run, through the real API and local site: whose they are, and when they end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from httpx2.websockets import AsyncWebSocketSession

from penstock.drivers.driver import Command, Refused
from penstock.kube import exec_protocol
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.world import World
from tests.awaiting import story
from tests.web.kit import LAB, WAITS, Penstock, python, running


@asynccontextmanager
async def talk(
    client: httpx2.AsyncClient, job: str, *command: str, **params: Any
) -> AsyncIterator[AsyncWebSocketSession]:
    asked = {"command": list(command), **params}
    async with client.stream("GET", f"/v1/jobs/{job}/exec", params=asked, headers=exec_protocol.upgrade()) as answer:
        assert answer.status_code == 101, await answer.aread()
        async with exec_protocol.session(answer) as socket:
            yield socket


async def hears(socket: AsyncWebSocketSession, channel: int) -> bytes:
    while (heard := await socket.receive_bytes())[0] != channel:
        pass
    return heard[1:]


async def runs(penstock: Penstock, client: httpx2.AsyncClient | None = None) -> str:
    job = await penstock.submits(client, command=WAITS)
    await penstock.until_prints(job, "runs")
    return job


@story
async def test_a_command_is_the_teams_own_and_audited_by_its_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        ours = penstock.team("a")
        job = await runs(penstock, ours)
        async with talk(ours, job, "echo", "hello") as socket:
            assert await hears(socket, exec_protocol.STDOUT) == b"hello\n"
            assert exec_protocol.result(await hears(socket, exec_protocol.STATUS)) == (0, "", "")
        for other, status in (
            (penstock.team("b"), 404),
            (penstock.team("a", "viewer"), 403),
            (penstock.client(""), 401),
        ):
            answer = await other.get(
                f"/v1/jobs/{job}/exec", params={"command": "true"}, headers=exec_protocol.upgrade()
            )
            assert (answer.status_code, answer.headers["Connection"]) == (status, "close")
        entries = (await penstock.admin.get("/v1/audit", params={"did": "exec"})).json()["entries"]
        assert [(entry["about"], entry["words"]) for entry in entries] == [(f"{job}.1", ["echo", "hello"])]


@story
async def test_a_cookie_opens_no_talk(tmp_path: Path) -> None:
    """A page of somebody else's can make a browser open WebSockets, with its cookies."""
    async with running(tmp_path) as penstock:
        cookie = {"Cookie": f"penstock_token={penstock.token('admin')[1]}"}
        headers = exec_protocol.upgrade() | cookie
        answer = await penstock.client("").get("/v1/jobs/none/exec", params={"command": "true"}, headers=headers)
        assert answer.status_code == 401


@story
async def test_bad_input_is_answered_before_anything_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        for params in ({}, {"command": "true", "rank": "x"}, {"command": "true", "rows": "0"}):
            answer = await penstock.admin.get("/v1/jobs/none/exec", params=params, headers=exec_protocol.upgrade())
            assert (answer.status_code, answer.json()["type"]) == (422, "urn:penstock:bad-input")


@story
async def test_whoever_hangs_up_ends_the_command_and_all_that_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    program = f"""
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
os.mkfifo({str(left)!r})
print("there", flush=True)
os.open({str(left)!r}, os.O_WRONLY)
time.sleep(600)
"""
    async with running(tmp_path) as penstock:
        job = await runs(penstock)
        async with talk(penstock.admin, job, *python(program)) as socket:
            assert await hears(socket, exec_protocol.STDOUT) == b"there\n"
            reading = await asyncio.to_thread(open, left, "rb")
        with reading:
            assert await asyncio.to_thread(reading.read) == b""  # its end of the pipe is closed: it is over


@story
async def test_a_job_that_ends_takes_its_commands_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await runs(penstock)
        async with talk(penstock.admin, job, *python("print('x', flush=True); input()"), stdin=True) as socket:
            await hears(socket, exec_protocol.STDOUT)
            await penstock.admin.post(f"/v1/jobs/{job}/cancel")
            assert exec_protocol.result(await hears(socket, exec_protocol.STATUS))[0] == 128 + 9


@story
async def test_a_revoked_token_speaks_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await runs(penstock)
        token, secret = penstock.token("member")
        async with talk(penstock.client(secret), job, "cat", stdin=True) as socket:
            await penstock.guard.tokens.revoke(token.id)
            assert exec_protocol.result(await hears(socket, exec_protocol.STATUS)) == (
                None,
                "the talk was ended",
                "Ended",
            )


@story
async def test_a_terminal_follows_the_size_of_ours(tmp_path: Path) -> None:
    # os.write, for a resize may arrive while a buffered print is still flushing, and print is not reentrant.
    program = """
import os, signal
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, str(os.get_terminal_size()).encode()))
os.write(1, b"up")
while True: signal.pause()
"""
    async with running(tmp_path) as penstock:
        job = await runs(penstock)
        async with talk(penstock.admin, job, *python(program), stdin=True, tty=True) as socket:
            await hears(socket, exec_protocol.STDOUT)
            await socket.send_bytes(exec_protocol.resized(50, 132))
            assert b"columns=132, lines=50" in await hears(socket, exec_protocol.STDOUT)


@story
async def test_a_rehearsal_runs_no_programs() -> None:
    stage = Stage(World([LAB], {}), lambda: 0)

    async def printed(_text: bytes, _is_error: bool) -> None: ...

    with pytest.raises(Refused, match="a rehearsal runs no programs"):
        await Rehearsal("lab", stage).exec("a.1", Command(("true",)), None, printed)
