"""Parses job files and policy files where they cannot hold up anybody else: small JSON at once, everything else in
worker processes.

    parsing = Parsing()                                             # one per app
    file = await parsing.job(caller.id, raw, as_json=False)

A worker has limits of time and memory. Each token has one body with the workers at a time, so that one token's large
bodies do not delay another's.
"""

import asyncio
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool

from penstock.config import SitesFile
from penstock.config.jobs import JobFile, parse_json_job
from penstock.core.errors import BadFile, BadInput, FileError
from penstock.core.units import Instant
from penstock.journal import codec
from penstock.policy.file import PolicyFile
from penstock.web.parse_worker import SitesOfPolicy, read, write
from penstock.web.problems import Problem, invalid
from penstock.web.schemas import PolicyText

#: JSON of up to so many bytes with up to so many marks, each of which can begin a word, takes a millisecond: no worker
#: is needed.
SMALL_BYTES: Final = 8_192
SMALL_MARKS: Final = 250
MARKS: Final = (b",", b":", b"[", b"{")
WORKERS: Final = 2
MOST_WAITING: Final = 16  #: bodies of one token that wait for a worker
#: Of our environment, what a worker gets: it handles what strangers may have written.
ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "PENSTOCK_FROZEN")


class Parsing:
    """Worker processes, started when first needed. Bound to one event loop."""

    def __init__(self) -> None:
        self.idle: list[Worker] = []
        self.turns = asyncio.Semaphore(WORKERS)
        self.locks: dict[str, asyncio.Lock] = {}  #: of tokens that have a body with the workers
        self.waiting: Counter[str] = Counter()
        weakref.finalize(self, _end_all, self.idle)

    async def job(self, caller: str, raw: bytes, *, as_json: bool) -> JobFile:
        """A job file. Raises `BadInput`."""
        if as_json and is_small(raw):
            return parse_json_job(raw, "The job")
        return _job_file(await self._ask(caller, {"json": as_json}, raw, "The job"))

    async def job_or_home_job(
        self, caller: str, raw: bytes, *, as_json: bool, home: str, at: Instant, known: Sequence[str]
    ) -> JobFile:
        """A job file, or a Kubernetes Job as one."""
        if as_json and is_small(raw) and b'"kind"' not in raw:
            return parse_json_job(raw, "The job")
        header = {"json": as_json, "home": home, "at": at, "known": known}
        return _job_file(await self._ask(caller, header, raw, "The job"))

    async def policy(self, caller: str, raw: bytes, sites: SitesFile) -> tuple[PolicyText, PolicyFile]:
        """The body of a request to apply a policy file, and what the file says; without its text and lines."""
        answer = await self._ask(caller, {"policy": SitesOfPolicy.of(sites)}, raw, "The policy file")
        match answer:
            case {"asked": asked, "policy": policy}:
                return PolicyText.model_validate(asked), msgspec.convert(policy, type=PolicyFile)
            case {"invalid": error}:
                raise invalid([error])
            case _:
                raise _bad(answer)

    async def _ask(self, caller: str, header: dict[str, Any], raw: bytes, subject: str) -> dict[str, Any]:
        async with self._turn(caller):
            answer = await run_in_threadpool(self._answer, header, raw)
        if answer is None:
            raise BadInput(f"{subject} takes too long to be read; leave out what is not part of it.")
        return answer

    def _answer(self, header: dict[str, Any], raw: bytes) -> dict[str, Any] | None:
        """In a thread: None if the worker ended instead."""
        worker = self._worker()
        answer = worker.ask(header, raw)
        if answer is None:
            worker.end()
        else:
            self.idle.append(worker)
        return answer

    def _worker(self) -> "Worker":
        while self.idle:
            worker = self.idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.end()  # somebody killed it while it had nothing to do
        return Worker()

    @asynccontextmanager
    async def _turn(self, caller: str) -> AsyncIterator[None]:
        """One body of each token at a time, and then one for each worker, in the order in which they came."""
        if self.waiting[caller] >= MOST_WAITING:
            raise Problem(429, "too-many", "Too many large bodies of yours wait to be read; send fewer at a time.")
        self.waiting[caller] += 1
        lock = self.locks.setdefault(caller, asyncio.Lock())
        try:
            async with lock, self.turns:
                yield
        finally:
            self.waiting[caller] -= 1
            if not self.waiting[caller]:
                del self.waiting[caller], self.locks[caller]


def is_small(raw: bytes) -> bool:
    return len(raw) <= SMALL_BYTES and sum(raw.count(mark) for mark in MARKS) <= SMALL_MARKS


def _job_file(answer: dict[str, Any]) -> JobFile:
    if "file" not in answer:
        raise _bad(answer)
    file: JobFile = codec.reader(JobFile)(answer["file"])
    return file


def _bad(answer: dict[str, Any]) -> Exception:
    """Why there is no file, as the worker said."""
    match answer:
        case {"errors": errors, "more": more}:
            return BadFile([FileError(*error) for error in errors], more)
        case {"says": says}:
            return BadInput(says)
        case _:
            return RuntimeError(f"a worker failed to parse a body:\n{answer.get('bug')}")


class Worker:
    """One process. All its calls block."""

    COMMAND: Final[Sequence[str]] = (sys.executable, "-m", "penstock.web.parse_worker")

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            self.COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )

    def ask(self, header: dict[str, Any], raw: bytes) -> dict[str, Any] | None:
        """Its answer; None if it ended instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            write(self.process.stdin, msgspec.json.encode(header), raw)
            answer = read(self.process.stdout)
        except OSError:
            return None
        decoded: dict[str, Any] | None = None if answer is None else msgspec.json.decode(answer)
        return decoded

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what it has not read
                    pipe.close()


def _end_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.end()
