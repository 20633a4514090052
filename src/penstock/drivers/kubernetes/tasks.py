"""Background tasks of a driver, at most one per name. All parts of the Kubernetes driver use it."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, ParamSpec

from penstock.drivers.driver import Unreachable
from penstock.kube import errors

P = ParamSpec("P")


class TaskSet:
    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}  #: running tasks by name

    def see_to(self, name: str, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
        """Run it in the background unless a task of this name runs. A failed one is retried with the next change or
        tick.
        """
        if name not in self.tasks:
            self.tasks[name] = asyncio.create_task(_seen_to(work, *args, **named), name=name)
            self.tasks[name].add_done_callback(lambda _: self.tasks.pop(name, None))

    async def close(self) -> None:
        await cancel_all(list(self.tasks.values()))


async def cancel_all(tasks: Collection[asyncio.Task[None]]) -> None:
    """Returns when all of them are over, however they end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _seen_to(work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
    try:
        await work(*args, **named)
    except (errors.KubeError, Unreachable):
        return
