"""The live control plane's one door: tell it facts, look at its picture, ask what it would do. The API calls it.

    plane = Plane(journal, drivers, opening, settings)
    await plane.start()                        # replayed, sites looked at, what was outstanding said again
    told = await plane.submit(spec, work)      # returns once the job is durable
    plane.view                                 # an immutable picture of the last step

All of it runs in one event loop; the engine and the journal's writes have a thread of their own, so that everything
else is answered while the engine thinks.
"""

from collections.abc import Mapping

from penstock.core.events import Fact
from penstock.core.model import JobSpec
from penstock.core.values import value
from penstock.drivers.driver import Work
from penstock.live.plan import Plan
from penstock.live.view import View


class NotReady(Exception):
    """Nothing was recorded and nothing will be: the words say what is wrong and what to do. Answered with 503."""


class KeyReused(Exception):
    """This idempotency key came with another body before. Answered with 422."""


class Quarantined(Exception):
    """The engine cannot take this; it is set aside with an alarm, and all else goes on. Answered with 500."""


@value
class Told:
    """It is durable. `number` is the journal's row; `answer` is what the idempotency key was first answered with."""

    number: int
    answer: str
    again: bool  # the key was known: nothing new was recorded


class Plane:
    #: The journal's id: what drivers mark their things with.
    installation: str
    #: What the last step left. Never None once `start` has returned.
    view: View

    @property
    def ready(self) -> str:
        """Empty if submissions are taken; otherwise a sentence that says why not and what to do."""
        raise NotImplementedError

    async def submit(self, spec: JobSpec, work: Work, *, key: str = "", body: str = "") -> Told:
        """Record a new job; `answer` is its id. Raises `NotReady`, `Quarantined`.

        `key`: an idempotency key, already made unique to whoever asks (prefix it with the token's id). The same key
        again returns the first answer with `again`; with another `body` digest it raises `KeyReused`.
        """
        raise NotImplementedError

    async def tell(
        self, *facts: Fact, blobs: Mapping[str, bytes] | None = None, key: str = "", body: str = "", answer: str = ""
    ) -> Told:
        """Record facts; returns after the durable commit. Their `at` is ignored: the loop stamps them.

        So are the `number` of a `JobSubmitted` and the `revision` of a `PolicySet`. A `JobSubmitted` without a `job`
        is given an id, which is the answer if no other is given. `blobs`: by SHA-256 in hex.
        """
        raise NotImplementedError

    async def plan(self, spec: JobSpec) -> Plan:
        """What would happen to such a job now. Nothing is recorded."""
        raise NotImplementedError

    async def log(self, site: str, attempt: str, after: int, most: int) -> tuple[bytes, bool]:
        """Bytes of an attempt's log, and whether more may come. Raises the driver's errors; KeyError: no such site."""
        raise NotImplementedError

    async def heard(self, number: int) -> int:
        """Wait until the journal has a row after `number`; returns the newest row's number. For event streams."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Let go of everything. Nothing that runs is touched."""
        raise NotImplementedError
