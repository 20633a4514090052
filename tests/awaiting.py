"""Tests that await, in a real event loop and against a generous limit: `story` is their decorator."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

LIMIT_S = 120  #: a wait that takes longer has failed; nothing takes a tenth of it, unless others want the machine


def story(tell: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that awaits. It fails if it waits for something that does not come."""

    @functools.wraps(tell)
    def test(*args: Any, **kwargs: Any) -> None:
        async def timed() -> None:
            async with asyncio.timeout(LIMIT_S):
                await tell(*args, **kwargs)

        asyncio.run(timed())

    return test
