"""Follows one pod's log, parses progress and checkpoints, and keeps the log after the pod is gone. The Kubernetes
driver has one for each started pod of an attempt.

Lines have timestamps. After a broken connection or a restart of the control plane we continue after the last line, and
a checkpoint written in between counts from its own time. What has none is the kubelet's own: that it cannot read the
file, or not yet.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.drivers import progress
from penstock.drivers.records import read, write
from penstock.kube.client import Cluster
from penstock.kube.errors import KubeError, NotFound, Unavailable

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
LAST_TRIES: Final = 2  #: tries to read the rest of an ended pod's log
LONGEST_LINE: Final = 1 << 20  #: a longer one is kept in pieces
STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
TOO_LONG: Final = b"\npenstock: this log is longer than what is kept of one; the rest is not here\n"


#: A line's timestamp and text, and whether it only goes on with the one before, which was too long.
Stamped: TypeAlias = tuple[str, bytes, bool]


class Kubelets:
    """Backs off when no kubelet answers (kwok's nodes have none): instead of thousands of requests, one request now and
    then probes for all pods.
    """

    TRIES: Final = 20
    AGAIN_SECONDS: Final = 600.0
    OPENING: Final = 16  #: logs that are opened at a time: where no kubelet answers, each takes the server 12 s
    RETRIED: Final = 2  #: of them, those that have failed before

    def __init__(self) -> None:
        self.failed = 0  #: consecutive failures
        self.again_at = 0.0
        self.firsts, self.retries = asyncio.Semaphore(self.OPENING), asyncio.Semaphore(self.RETRIED)

    @property
    def answer(self) -> bool:
        return self.failed < self.TRIES

    def may_ask(self) -> bool:
        if self.answer:
            return True
        now = asyncio.get_running_loop().time()
        if now < self.again_at:
            return False
        self.again_at = now + self.AGAIN_SECONDS
        return True

    def opening(self, *, again: bool) -> asyncio.Semaphore:
        """Hold this until the log is open; reading it takes as long as its pod runs."""
        return self.retries if again else self.firsts

    def note(self, answered: bool) -> None:
        self.failed = 0 if answered else self.failed + 1
        if self.failed == self.TRIES:
            self.again_at = asyncio.get_running_loop().time() + self.AGAIN_SECONDS


class Kept:
    """A log file with a maximum size."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, self.most_bytes = path, most_bytes

    def add(self, text: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.path, "ab") as file:
            room = self.most_bytes - file.tell()
            if room > 0:
                file.write(text if len(text) <= room else text[:room] + TOO_LONG)

    def read(self, after: int, most: int) -> tuple[bytes, int]:
        """A piece from an offset, and the total size."""
        try:
            with open(self.path, "rb") as file:
                size = file.seek(0, 2)
                file.seek(min(after, size))
                return file.read(most), size
        except FileNotFoundError:
            return b"", 0


class PodLog:
    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        kubelets: Kubelets,
        marked: Callable[[], None],
        also: Callable[[list[bytes]], None] = lambda _: None,
    ) -> None:
        """`marked`: called on progress or a checkpoint. `also`: called with the lines, for the merged log."""
        self.folder, self.kubelets, self.marked, self.also = folder, kubelets, marked, also
        self.kept = Kept(folder / "log", most_bytes)
        self.marks: dict[str, Any] = read(f"{folder}/marks.json")
        self.heard = False  #: we have read from it
        self.failed = False  #: the last try failed
        self.took = False  #: the last piece was new, and so is what goes on from it
        self.task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        return progress.has_finished(self.marks)

    def follow(
        self, cluster: Cluster, pod: str, where: dict[str, str], began: datetime, over: Callable[[], bool]
    ) -> None:
        """Once for each pod; a second pod, after a retry in place, appends to the same file."""
        fresh = self.task is None or (self.task.done() and self.marks.get("pod") != pod)
        if fresh and self.kubelets.may_ask():
            self.task = asyncio.create_task(self._follow(cluster, pod, where, began, over), name=f"log of {pod}")

    async def _follow(
        self, cluster: Cluster, pod: str, where: dict[str, str], began: datetime, over: Callable[[], bool]
    ) -> None:
        wait, last_tries = FIRST_RETRY_SECONDS, LAST_TRIES
        is_probe = not self.kubelets.answer
        while True:
            try:
                await self._read(cluster, pod, where, began, is_probe)
                if over():
                    self._note_pod(pod)
                    return
                wait = FIRST_RETRY_SECONDS
            except NotFound:
                return
            except KubeError:
                self.failed = True
                self.kubelets.note(answered=False)
                last_tries -= over()
                if not last_tries or not self.kubelets.answer:
                    return
            await asyncio.sleep(min(wait, FIRST_RETRY_SECONDS) if over() else wait)
            wait = min(2 * wait, LAST_RETRY_SECONDS)

    async def _read(self, cluster: Cluster, pod: str, where: dict[str, str], began: datetime, is_probe: bool) -> None:
        upto = self._upto(pod)
        params = {"follow": "true", "timestamps": "true", "container": where["container"]}
        params |= {"sinceTime": upto} if upto else {}
        async with AsyncExitStack() as stack:
            async with self.kubelets.opening(again=self.failed):
                if not (self.kubelets.answer or is_probe):  # found out while this one waited for its turn
                    raise Unavailable("no kubelet answers")
                pieces = await stack.enter_async_context(cluster.log(pod, where["namespace"], params))
            self.heard, self.failed = True, False
            self.kubelets.note(answered=True)
            async for lines, words in _stamped(_lines(pieces)):
                self._take(lines, pod, began)
                if words:
                    raise Unavailable(words)

    def _upto(self, pod: str) -> str:
        """The timestamp of its last line that we have; empty: we have none."""
        upto = str(self.marks.get("upto", "")) if self.marks.get("of_pod") == pod else ""
        return upto if STAMP.fullmatch(upto.encode()) else ""

    def _take(self, lines: list[Stamped], pod: str, began: datetime) -> None:
        upto = self._upto(pod)
        new = [(stamp, text) for stamp, text, goes_on in lines if not upto or stamp > upto or (goes_on and self.took)]
        self.took = bool(new) and bool(lines) and new[-1] == lines[-1][:2]
        if not new:
            return
        before = {key: value for key, value in self.marks.items() if key not in ("upto", "of_pod")}
        for stamp, text in new:
            progress.note(self.marks, text, partial(_ran_ms, stamp, began))
        changed = {key: value for key, value in self.marks.items() if key not in ("upto", "of_pod")} != before
        printed = [text + b"\n" for _, text in new]
        self.kept.add(b"".join(printed))
        self.also(printed)
        self.marks |= {"upto": new[-1][0], "of_pod": pod}
        write(f"{self.folder}/marks.json", self.marks)
        if changed:
            self.marked()

    def _note_pod(self, pod: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.marks["pod"] = pod
        write(f"{self.folder}/marks.json", self.marks)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[list[tuple[bytes, bool]]]:
    """Whole lines, as many as arrived together, each with whether it only goes on with the one before, which was too
    long. The last line of a log needs no line end.
    """
    rest, goes_on = b"", False
    async for piece in pieces:
        *ended, rest = (rest + piece).split(b"\n")
        lines = [(line, goes_on and not number) for number, line in enumerate(ended)]
        goes_on = goes_on and not ended
        if len(rest) > LONGEST_LINE:
            lines, rest, goes_on = [*lines, (rest, goes_on)], b"", True
        if lines:
            yield lines
    if rest:
        yield [(rest, goes_on)]


async def _stamped(many: AsyncIterator[list[tuple[bytes, bool]]]) -> AsyncIterator[tuple[list[Stamped], str]]:
    """Lines with their timestamps, up to the kubelet's own words, if it says any."""
    stamp = ""
    async for lines in many:
        made: list[Stamped] = []
        for line, goes_on in lines:
            first, _, text = line.partition(b" ")
            if goes_on:
                made.append((stamp, line, True))
            elif STAMP.fullmatch(first):
                stamp = first.decode()
                made.append((stamp, text, False))
            else:
                yield made, line[:500].decode("utf-8", "replace")
                return
        yield made, ""


def _ran_ms(stamp: str, began: datetime) -> int:
    """The start is known in whole seconds; rounded so that we never count work that was not done."""
    ran = _when(stamp) - began - timedelta(seconds=1)
    return max(0, ran // timedelta(milliseconds=1))


def _when(stamp: str) -> datetime:
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
