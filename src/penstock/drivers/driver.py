"""What a site can be told, and what it says. `live/dispatch` calls `Driver`, one for each site. A driver is a
`BaseDriver`: what runs workloads (`Workloads`, here) together with what rents nodes (`capacity/contract.py`), and the
table from actions to their methods. `tests/contract` has a suite for each part.

The contract, in words:

- **Idempotent by id.** A call told twice, or told again after a crash, does the thing once and answers the same. An
  attempt that has ended stays ended: told to start it again, the driver says that it is over, and starts
  nothing.
- **A call returns when the thing is so**: the attempt runs, the deadline stands. It may be cancelled
  at any instant and told again.
- **A call that can no longer be answered is cancelled**, with `asyncio.CancelledError`: the attempt was lost
  before it ran. That is said instead, so the caller has nothing to add.
- **What happens by itself is said, not asked for.** The driver calls `say` with a fact: an attempt ended, was stopped,
  was lost, wrote a checkpoint. Said at least once, also for what happened while nobody
  listened; twice is harmless. The `at` of such a fact is ignored: the loop stamps it with its own clock.
- **A started thing outlives us.** It ends by itself at its deadline, whether or not the control plane lives. A deadline
  is an instant of the control plane's clock.
- **Unknown is not gone.** A site that cannot be asked raises `Unreachable`; only a site that answers can say that a
  thing is not there.

A call raises one of the four errors of `site_answers.py`. Anything else is a bug of the driver.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Literal, Protocol, TypeAlias, assert_never

from penstock.capacity.contract import Capacity, NoNodes
from penstock.core.ids import is_node
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.core.units import HOUR, Instant, Millis
from penstock.core.values import value
from penstock.drivers.claim import ClaimStore
from penstock.kube.exec_protocol import Printed, Typed
from penstock.site_answers import NeverReady, NoCapacity, Refused, Say, Undelivered, Unreachable, Unstartable

__all__ = [  # the errors, too: whoever writes or calls a driver needs them
    "BaseDriver",
    "Command",
    "Driver",
    "NeverReady",
    "NoCapacity",
    "Refused",
    "Say",
    "SeenAttempt",
    "SeenPhase",
    "SiteInventory",
    "Undelivered",
    "Unreachable",
    "Unstartable",
    "Work",
    "Workloads",
    "no_capacity",
    "refused",
    "unstartable",
]

#: How long an offer is closed whose site will never take such a node; nobody knows better.
REFUSED_MS: Final[Millis] = HOUR


@value
class Work:
    """What runs. The journal keeps it as a blob beside the steps; a job's spec names it by digest."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""  # the working directory; empty: one of its own
    image: str = ""  # for sites that run containers
    manifest: str = ""  # JSON of the Kubernetes Job that a person applied; empty: a cluster's Job is made of the above


@value
class Command:
    """What to run beside an attempt: in its pod, or in its folder and environment."""

    words: tuple[str, ...]
    rank: int = 0  # in which pod of a gang
    tty: bool = False
    size: tuple[int, int] = (24, 80)  # rows and columns of the terminal


SeenPhase: TypeAlias = Literal["running", "done", "failed", "stopped", "lost"]


@value
class SeenAttempt:
    attempt: str
    phase: SeenPhase
    kept_ms: Millis = 0
    deadline_at: Instant = 0
    detail: str = ""  # an exit code or the site's own words
    pods: PodCounts | None = None  # of an attempt that ended


@value
class SiteInventory:
    """All that the site knows of ours, ended things included until they are forgotten."""

    attempts: tuple[SeenAttempt, ...] = ()
    nodes: tuple[str, ...] = ()
    warns: str = ""  # what a person should mend there, in a sentence, though all goes on


class Driver(Protocol):
    """What `live` asks of a site."""

    @property
    def claims(self) -> ClaimStore | None:
        """Where the site keeps which control plane it obeys; None: nowhere. Read before it is opened."""

    async def open(self, say: Say) -> None:
        """Connect, and from now on say what happens. Raises `Refused` if another installation works here."""

    async def close(self) -> None:
        """Let go. Nothing that runs is touched."""

    async def do(self, action: a.Action, work: Work | None = None) -> e.Fact | None:
        """Carry out an action; returns the fact that it is done. `work` is what a start runs, None if it was erased."""

    async def look(self) -> SiteInventory:
        """What is there now."""

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        """Bytes of its log from an offset on, and whether more may come: of one rank, or of all, with `[RANK] ` before
        each line where there are several."""

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        """Run a command where the attempt runs; returns its exit code. Cancelled: it is hung up on."""

    async def forget(self, attempt: str) -> None:
        """Its end is on record: what the site kept of it may go."""

    def consider(self, needs: Iterable[str]) -> None:
        """Jobs have these needs: say which nodes do not meet them (`NodesUnsuited`), now and whenever it changes."""

    def judged(self, needs: Iterable[str]) -> list[e.NodesUnsuited]:
        """What it would say of these; nothing is said."""


class Workloads(ABC):
    """Running attempts. A site that cannot do something refuses it: override what it can do."""

    @abstractmethod
    async def start(self, ask: a.StartAttempt, work: Work) -> None:
        """Returns when it runs, from the checkpoint that `ask.earlier` left if that names an attempt."""

    @abstractmethod
    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        """Returns when it has been told; that it stopped is said. An attempt that never began is said to be stopped."""

    @abstractmethod
    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        """Returns the deadline of the attempt that stands now."""

    async def copy(self, data_set: str) -> Instant:
        """Returns when the data set is at the site, with when it will be gone again."""
        raise Refused(f"nothing is copied to this site: data set {data_set} must be there already")


class BaseDriver(Workloads, Driver):
    """What a site's driver begins with: it runs workloads, and has a `Capacity` that rents nodes. Each action is a
    method of one of the two.
    """

    capacity: Capacity = NoNodes()

    @property
    def claims(self) -> ClaimStore | None:
        return None

    def consider(self, needs: Iterable[str]) -> None:
        """All nodes are alike."""

    def judged(self, needs: Iterable[str]) -> list[e.NodesUnsuited]:  # noqa: ARG002 - all nodes are alike
        return []

    async def do(self, action: a.Action, work: Work | None = None) -> e.Fact | None:
        """The table of all actions: which method each one is, and the fact that says that it returned."""
        match action:
            case a.LaunchNode():
                await self.capacity.ask(action)
                return e.NodeReady(0, action.node)
            case a.ReleaseNode():
                await self.capacity.release(action.node)
                return e.NodeGone(0, action.node)
            case a.StartAttempt():
                if work is None:
                    raise Refused("what it runs was erased; submit it again")
                await self.start(action, work)
                return e.AttemptStarted(0, action.attempt)
            case a.StopAttempt():
                await self.stop(action.attempt, action.grace_ms)
                return None  # that it stopped, it says by itself
            case a.SetDeadline():
                move = self.capacity.extend if is_node(action.thing) else self.set_deadline
                stands = await move(action.thing, action.deadline_at)
                return e.DeadlineSet(0, action.thing, stands)
            case a.CopyData():
                return e.ReplicaLanded(0, action.data_set, action.site, await self.copy(action.data_set))
            case _:
                assert_never(action)


def no_capacity(action: a.Action, error: NoCapacity) -> e.Fact | None:
    """`NoCapacity` as a fact: the engine looks elsewhere. None: no fact says so, and the call has nothing to add."""
    match action:
        case a.LaunchNode():
            billed = isinstance(error, NeverReady)
            words = str(error) if error.shortage or billed else ""  # that an offer is full needs none
            return e.NodeRefused(0, action.node, error.retry_ms, words, error.shortage, billed)
        case a.StartAttempt():
            words = str(error) if error.shortage else ""  # that an offer is full needs none
            return e.AttemptRefused(0, action.attempt, error.retry_ms, words=words, shortage=error.shortage)
        case _:
            return None


def unstartable(action: a.Action, error: Unstartable) -> e.Fact | None:
    """`Unstartable` as a fact about this job. None: only a start says so; anything else is tried again."""
    if isinstance(action, a.StartAttempt):
        return e.AttemptRefused(0, action.attempt, error.retry_ms, error.obstacle, str(error), nodes=error.nodes)
    return None


def refused(action: a.Action, words: str) -> e.Fact | None:
    """`Refused` as a fact: the job is told. None: no fact says so; a person must look, and it is tried again."""
    match action:
        case a.LaunchNode():
            return e.NodeRefused(0, action.node, REFUSED_MS, words, "settings")
        case a.StartAttempt():
            return e.AttemptEnded(0, action.attempt, "failed", words)
        case _:
            return None
