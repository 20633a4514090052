"""`penstock exec`: a command where a job runs, wherever that is, with its own input, output, terminal and exit code."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.client import EXIT_CODES, UNANSWERED, Client, Failed, job_path
from penstock.kube import exec_protocol

if TYPE_CHECKING:
    from httpx2.websockets import AsyncWebSocketSession

BAD_INPUT: Final = 2


@click.command("exec")
@click.argument("job")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--rank", default=0, type=click.IntRange(0), metavar="N", help="Pod of a gang.  [default: the first]")
@click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
def command(job: str, words: tuple[str, ...], rank: int, url: str | None) -> int:
    """Run a command inside a running job, and exit as it exits."""
    return run(Client(url), job, words, rank)


def run(client: Client, job: str, words: tuple[str, ...], rank: int = 0) -> int:
    """Runs the command and returns its exit code; with a terminal if we have one."""
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    columns, rows = shutil.get_terminal_size()
    params: dict[str, Any] = {"command": list(words), "rank": rank, "tty": tty, "rows": rows, "columns": columns}
    listens = tty or not sys.stdin.isatty()
    with _raw_terminal() if tty else contextlib.nullcontext():
        end = asyncio.run(_talk(client, job_path(job, "/exec"), params | {"stdin": listens}, listens, tty))
    code, words_of_it, reason = exec_protocol.result(end)
    if code is not None:
        return code
    status = int(reason) if reason.isdigit() else 0
    raise Failed(words_of_it, UNANSWERED if status >= 500 else EXIT_CODES.get(status, BAD_INPUT), status)


async def _talk(client: Client, path: str, params: dict[str, Any], listens: bool, tty: bool) -> bytes:
    """Connects both ways until the command ends; returns the message about its end."""
    import httpx2
    from httpx2.websockets import HTTPXWSException

    broken = Failed("The connection broke; the command may still be running.", UNANSWERED)
    try:
        async with (
            client.session() as http,
            http.stream("GET", path, params=params, headers=exec_protocol.upgrade()) as answer,
        ):
            if answer.status_code != 101:
                await answer.aread()
                client.checked(answer)
                raise Failed(f"{client.url} does not support exec; is it an older Penstock?")
            async with exec_protocol.session(answer) as socket:
                try:
                    return await _both_ways(socket, listens, tty)
                except HTTPXWSException:
                    pass
    except httpx2.HTTPError as error:
        raise client.unanswered(error) from None
    raise broken


async def _both_ways(socket: "AsyncWebSocketSession", listens: bool, tty: bool) -> bytes:
    if listens:
        threading.Thread(target=_type, args=(socket, asyncio.get_running_loop()), daemon=True).start()
    with _sizes(socket) if tty else contextlib.nullcontext():
        return await _print(socket)


async def _print(socket: "AsyncWebSocketSession") -> bytes:
    outputs = {exec_protocol.STDOUT: sys.stdout.buffer, exec_protocol.STDERR: sys.stderr.buffer}
    while True:
        heard = await socket.receive_bytes()
        if heard[:1] == bytes([exec_protocol.STATUS]):
            return heard[1:]
        if output := outputs.get(heard[0] if heard else exec_protocol.STATUS):
            output.write(heard[1:])
            output.flush()


def _type(socket: "AsyncWebSocketSession", loop: asyncio.AbstractEventLoop) -> None:
    """Sends our standard input. A thread reads it, because terminals, pipes and files then work alike, and no faster
    than the other side takes it."""
    while True:
        text = os.read(sys.stdin.fileno(), exec_protocol.PIECE_BYTES)
        message = exec_protocol.message(exec_protocol.STDIN, text) if text else exec_protocol.END_OF_INPUT
        try:
            asyncio.run_coroutine_threadsafe(socket.send_bytes(message), loop).result()
        except Exception:  # noqa: BLE001 - it has ended, in whatever way; that is told elsewhere
            return
        if not text:
            return


@contextlib.contextmanager
def _sizes(socket: "AsyncWebSocketSession") -> Iterator[None]:
    """Sends each new size of our terminal."""
    loop, sending = asyncio.get_running_loop(), set()

    def resized() -> None:
        columns, rows = shutil.get_terminal_size()
        sending.add(asyncio.ensure_future(socket.send_bytes(exec_protocol.resized(rows, columns))))

    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Puts our terminal into raw mode: keys, ^C included, go to the command."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
