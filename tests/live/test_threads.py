"""In a real event loop, with the engine in a thread of its own: everything else goes on while it thinks."""

import asyncio
import threading

from penstock.core.decide.rules import BuiltInRules, Candidate, Verdict
from penstock.core.model import events as e
from penstock.core.model.types import Policy
from penstock.drivers.driver import Work
from penstock.live.plane import Plane, Setup
from tests.live.kit import job
from tests.live.memory import MemoryJournal
from tests.stories.kit import site

LIMIT_S = 60


class Slow(BuiltInRules):
    """Thinks, without ever waiting for anything, until the event loop has done something meanwhile."""

    def __init__(self) -> None:
        self.thinking, self.enough = threading.Event(), threading.Event()

    def verdict(self, asked: Candidate) -> Verdict:
        self.thinking.set()
        while not self.enough.is_set():
            sum(range(1000))
        return super().verdict(asked)


def test_the_loop_answers_while_the_engine_thinks() -> None:
    async def scenario() -> None:
        rules = Slow()
        setup = Setup(opening=(site("lab")(0), e.PolicySet(0, 0, Policy("p"))), rules=rules)
        plane = Plane(MemoryJournal(), {}, setup)
        async with asyncio.timeout(LIMIT_S):
            await plane.start()
            submitting = asyncio.create_task(plane.submit(job(), Work(())))
            await asyncio.to_thread(rules.thinking.wait, LIMIT_S)
            for _ in range(100):  # a hundred turns of the loop, and the picture is there, in the middle of a decision
                await asyncio.sleep(0)
                assert plane.view.number == 1
            assert not submitting.done()
            rules.enough.set()
            assert (await submitting).answer == "j0"
            await plane.stop()

    asyncio.run(scenario())
