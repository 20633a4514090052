"""Runs a command beside a local attempt: in its folder and environment, with a TTY if asked. `LocalDriver.exec` calls
it for `penstock exec`.

The command has the attempt's PENSTOCK_REPORT in its environment; the supervisor kills every process that has it, so the
command ends with the attempt.
"""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from typing import Final

from penstock.core.values import value
from penstock.data.plain_files import CLEAN
from penstock.drivers.driver import Command, Refused
from penstock.drivers.local import supervisor
from penstock.drivers.local.supervisor import signal_group
from penstock.drivers.records import Record
from penstock.kube.exec_protocol import PIECE_BYTES, Printed, Typed

LAST_WORDS_SECONDS: Final = 5.0  #: to read the last output after the end
#: The session leader must make the TTY its controlling terminal, or ^C does not reach it. Only the process itself can.
ON_A_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"penstock: {sys.argv[1]}: {error.strerror}")
"""


@value
class ExecTarget:
    """The attempt that a command runs beside: its folder with us, and what it was told."""

    folder: str
    order: Record

    def start(self, command: Command) -> tuple[tuple[str, ...], dict[str, str], str]:
        """What to start, with which variables and where. A job with a user of its own is entered by a program of ours,
        which must not see the job's variables before it has become the job: they could make it do anything.
        """
        if self.order.get("uid"):
            words = supervisor.command(self.folder, "tty" if command.tty else "", *command.words, does="exec_command")
            return tuple(words), dict(CLEAN), "/"
        first = (sys.executable, "-I", "-S", "-c", ON_A_TERMINAL) if command.tty else ()
        return (*first, *command.words), self.order["env"], self.order["folder"]


@value
class Ends:
    """Our ends of the command's streams; a TTY is one for all three."""

    typed: FileIO | None
    printed: int
    errors: int | None = None


async def run(command: Command, target: ExecTarget, typed: Typed | None, printed: Printed) -> int:
    """Run the command and return its exit code as a shell would. If cancelled, kill it and all that it started."""
    with ExitStack() as files:
        process, ends = await _begin(files, command, target, typed is not None)
        outputs = [(ends.printed, False)] + ([(ends.errors, True)] if ends.errors is not None else [])
        reading = [asyncio.create_task(_read(file, is_error, printed)) for file, is_error in outputs]
        writing = asyncio.create_task(_write(ends, typed, command.tty)) if typed is not None else None
        try:
            code = await process.wait()
            signal_group(process.pid, signal.SIGKILL)  # processes that it left behind would hold GPUs
            await asyncio.wait(reading, timeout=LAST_WORDS_SECONDS)
        finally:
            signal_group(process.pid, signal.SIGKILL)
            tasks = [*reading, *([writing] if writing is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await process.wait()
    return code if code >= 0 else 128 - code


async def _begin(files: ExitStack, command: Command, target: ExecTarget, listens: bool) -> tuple[Process, Ends]:
    words, env, folder = target.start(command)
    with ExitStack() as theirs:  # close our copies of its ends, or we never read end-of-file
        if command.tty:
            ends, given = _terminal(files, theirs, command.size)
        else:
            ends, given = _pipes(files, theirs, listens)
        stdin, stdout, stderr = given
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=env, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise Refused(f"'{command.words[0]}' could not be started: {error}") from None
    return process, ends


def _terminal(files: ExitStack, theirs: ExitStack, size: tuple[int, int]) -> tuple[Ends, tuple[int, int, int]]:
    ours, their = pty.openpty()
    files.callback(os.close, ours)
    theirs.callback(os.close, their)
    os.set_blocking(ours, False)
    _resize(ours, size)
    typed = files.enter_context(FileIO(os.dup(ours), "w"))
    return Ends(typed, ours), (their, their, their)


def _pipes(files: ExitStack, theirs: ExitStack, listens: bool) -> tuple[Ends, tuple[int, int, int]]:
    output, errors = _pipe(files, theirs), _pipe(files, theirs)
    typed: FileIO | None = None
    stdin: int = DEVNULL
    if listens:
        stdin, ours = os.pipe()
        theirs.callback(os.close, stdin)
        typed = files.enter_context(FileIO(ours, "w"))
        os.set_blocking(ours, False)
    return Ends(typed, output[0], errors[0]), (stdin, output[1], errors[1])


def _pipe(files: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    ours, their = os.pipe()
    files.callback(os.close, ours)
    theirs.callback(os.close, their)
    os.set_blocking(ours, False)
    return ours, their


async def _read(file: int, is_error: bool, printed: Printed) -> None:
    while True:
        await _ready(file, to_write=False)
        try:
            text = os.read(file, PIECE_BYTES)
        except BlockingIOError:
            continue
        except OSError:  # the TTY was closed
            return
        if not text:
            return
        await printed(text, is_error)


async def _write(ends: Ends, typed: Typed, tty: bool) -> None:
    assert ends.typed is not None
    file = ends.typed.fileno()
    with suppress(OSError):  # it closed its input
        async for item in typed:
            if isinstance(item, bytes):
                await _write_all(file, item)
            elif tty:
                _resize(file, item)
        if tty:
            await _write_all(file, b"\x04")  # Ctrl-D: end of input on a TTY
        ends.typed.close()


async def _write_all(file: int, text: bytes) -> None:
    while text:
        await _ready(file, to_write=True)
        with suppress(BlockingIOError):
            text = text[os.write(file, text) :]


async def _ready(file: int, to_write: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    with _watched(loop, file, to_write, ready):
        await ready.wait()


@contextmanager
def _watched(loop: asyncio.AbstractEventLoop, file: int, to_write: bool, ready: asyncio.Event) -> Iterator[None]:
    (loop.add_writer if to_write else loop.add_reader)(file, ready.set)
    try:
        yield
    finally:
        (loop.remove_writer if to_write else loop.remove_reader)(file)


def _resize(terminal: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
