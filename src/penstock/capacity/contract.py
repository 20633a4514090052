"""What rents nodes. A site's driver has one `Capacity` beside what runs its workloads, and passes on what is about
nodes; `tests/contract/test_capacity.py` is the suite that every way to rent passes.

The contract, in words:

- **Named by what it is for.** The provider's object has the name `object_name(installation, node)`, and carries
  installation, node and deadline. Asked twice, or again after a crash, there is one node. An object of that name with
  other marks is not ours: it is not touched, and a person is told.
- **A call returns when the thing is so.** `ask`: the node is there, with the GPUs that its offer promises. `release`:
  the provider's object and the node are both gone, so nothing is billed any more. A call may be cancelled at any
  instant and told again. One that can no longer be answered is cancelled, because its end is said as a fact.
- **Only whoever leads asks for anything.** A process may sleep between any two lines and be replaced meanwhile: whether
  it still leads is asked in the instant that a request leaves (`site_answers.check_leads`); else it raises
  `Unreachable`, and nothing is rented.
- **What was released stays released**: a late `ask` rents nothing, and says that the node is gone.
- **A failed list is never "none".** `list` raises `Unreachable`; only a provider that answers can say what is not
  there. It names all nodes of this installation, also those that the journal does not know: the caller releases these.
- **A rented node outlives us, and ends without us** at its deadline. `extend` returns the deadline that truly stands:
  where it is fixed for life, that is the first one.
- **A gang is all or nothing.** Each of its nodes is asked for by a call of its own; at the first refusal the engine
  gives the others back.
- **Three refusals are told apart**, each with its own pause: a stock-out (`NoCapacity`: minutes, and other offers
  meanwhile), a quota (`NoCapacity`: an hour, and an alarm), wrong settings (`Refused`: until a person mends them). A
  node that never became usable is given back at our own deadline, and what it cost is booked.
- **What happens by itself is said**: a node was lost, is gone, or will be taken away soon.
"""

from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Final

from penstock.core.model.actions import LaunchNode
from penstock.core.units import NEVER, Instant
from penstock.core.values import value
from penstock.site_answers import Refused, Say, Unreachable, to_nobody

NAME_CHARS: Final = 20  #: of a digest, in hexadecimal: enough that no two nodes ever share one


@value
class SeenNode:
    """A node that the provider has now, by our marks on it."""

    node: str
    deadline_at: Instant = NEVER


class Capacity(ABC):
    """Renting nodes one by one."""

    def __init__(self) -> None:
        self.say: Say = to_nobody

    async def open(self, say: Say) -> None:
        """From now on say what happens. The site is connected and known to be ours."""
        self.say = say

    async def close(self) -> None:
        """Let go. Nothing that is rented is touched."""
        self.say = to_nobody

    def tell_all(self) -> None:  # noqa: B027 - most have nothing to say
        """Say again what the engine must know of the offers: it has just heard of them."""

    def warns(self) -> str:
        """What a person should mend, in a sentence, though nodes come and go; empty: nothing."""
        return ""

    @abstractmethod
    async def ask(self, ask: LaunchNode) -> None:
        """Returns when the node is ready."""

    @abstractmethod
    async def list(self) -> tuple[SeenNode, ...]:
        """All nodes of ours that are there, starting ones included."""

    @abstractmethod
    async def release(self, node: str) -> None:
        """Returns when the provider bills it no more."""

    @abstractmethod
    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        """Returns the deadline that stands now."""


class NoNodes(Capacity):
    """A site that rents no nodes: it sells by the attempt, or only has nodes of its own."""

    async def ask(self, ask: LaunchNode) -> None:
        raise Refused(f"{ask.offer}: nodes are not rented one by one there; write 'sold_by: attempt'")

    async def list(self) -> tuple[SeenNode, ...]:
        return ()

    async def release(self, node: str) -> None:
        """There is none."""

    async def extend(self, node: str, deadline_at: Instant) -> Instant:  # noqa: ARG002 - there is none
        raise Unreachable(f"{node} is not here, or not yet")


def object_name(installation: str, node: str, most: int = NAME_CHARS) -> str:
    """The name of a node's object at its provider: the same whenever it is asked for, and nobody else's."""
    digest = sha256(f"{len(installation)}:{installation}{node}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[: min(most, NAME_CHARS)]
