"""What a driver does beside its calls, each thing once at a time. The parts of the Kubernetes driver hand it out."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from penstock.drivers.driver import Unreachable
from penstock.kube import errors

P = ParamSpec("P")


class TaskSet:
    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}  #: what is being seen to

    def see_to(self, what: str, work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
        """Do it beside all else, once at a time. What fails is tried again when something changes, or with the tick."""
        if what not in self.tasks:
            self.tasks[what] = asyncio.create_task(_seen_to(work, *args, **named), name=what)
            self.tasks[what].add_done_callback(lambda _: self.tasks.pop(what, None))

    async def close(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _seen_to(work: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **named: P.kwargs) -> None:
    try:
        await work(*args, **named)
    except (errors.KubeError, Unreachable):
        return
