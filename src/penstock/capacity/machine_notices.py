"""Follows queues in which a cloud says which machines it takes away soon. `pools` runs it where an offer names one.

A queue that cannot be read ends nothing: the Node's own marks still say most of it, later. A person is told (`warns`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.core.values import value

AGAIN_SECONDS: Final = 10.0  #: after a queue could not be read

log = logging.getLogger(__name__)


@value
class MachineNotice:
    """A message of a queue."""

    receipt: str  # what the queue forgets it by
    machines: tuple[str, ...]  # ids at the cloud of those that will go soon; none: it is about something else
    words: str


class BlockingQueue(ABC):
    """A queue, by an SDK whose calls block for a bounded time."""

    @abstractmethod
    def read(self) -> Sequence[MachineNotice]:
        """Waits for a few seconds if there is nothing."""

    @abstractmethod
    def forget(self, notices: Sequence[MachineNotice]) -> None:
        """The engine was told: nobody needs to read them again."""


@value
class NoticeQueue:
    name: str  # one queue that several offers name is read once
    connect: Callable[[], BlockingQueue]


class QueueReaders:
    def __init__(self, hear: Callable[[str, str], None]) -> None:
        """`hear`: called with a machine's id at the cloud, and with why it will go."""
        self.hear, self.tasks = hear, dict[str, asyncio.Task[None]]()
        self.wrong: dict[str, str] = {}  #: by queue: why it cannot be read

    def follow(self, queue: NoticeQueue) -> None:
        if queue.name not in self.tasks:
            self.tasks[queue.name] = asyncio.get_running_loop().create_task(self._read_on(queue))

    def warns(self) -> str:
        """What a person should mend; empty: nothing."""
        return next(iter(self.wrong.values()), "")

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks.values())
        self.tasks.clear()

    async def _read_on(self, queue: NoticeQueue) -> None:
        """In a thread of its own: a read waits for messages, and requests about nodes must not wait for it."""
        run, thread = asyncio.get_running_loop().run_in_executor, ThreadPoolExecutor(1, "machine-notices")
        try:
            while True:
                try:
                    connected = await run(thread, queue.connect)
                    while True:
                        notices = await run(thread, connected.read)
                        self.wrong.pop(queue.name, None)
                        for notice in notices:
                            for machine in notice.machines:
                                self.hear(machine, notice.words)
                        if notices:
                            await run(thread, connected.forget, notices)
                except Exception as error:  # noqa: BLE001 - a bug is told, too: reading must go on
                    self.wrong[queue.name] = f"Notices of the cloud cannot be read from {queue.name}: {error}"
                    log.warning("%s", self.wrong[queue.name])
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
