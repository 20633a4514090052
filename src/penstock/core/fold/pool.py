"""Free GPUs of one standing offer, as sets of nodes by how much they have free.

`having[k]` has a bit for each node that is up, kept for nobody, and has at least `k` GPUs free, so that "does it fit"
and "the lowest node with room" are single operations on whole numbers, whatever the size of the cluster.
"""

from typing import Literal, TypeAlias

from penstock.core.model.lifecycle import Broken

Slots: TypeAlias = tuple[tuple[int, int], ...]  # (node, GPUs)


class Pool:
    __slots__ = (
        "barred", "free", "free_gpus", "having", "kept", "names", "open", "others", "owed", "per_node", "size",
        "unsuited", "up",
    )  # fmt: skip

    def __init__(self, per_node: int, size: int) -> None:
        self.per_node = per_node
        self.size = size
        self.free = [per_node] * size
        self.up = (1 << size) - 1
        self.kept = 0  #: nodes that are kept for one job, and take no other
        self.having = [self.up] * (per_node + 1)
        self.free_gpus = per_node * size  #: free on nodes that are up and not kept
        self.open = True  #: False while its site is out of reach or refuses: nothing fits
        self.names: list[str] = []  #: the site's own, of the first so many nodes; empty where it has none
        self.others: dict[int, int] = {}  #: node -> GPUs that are not ours to use
        self.owed: dict[int, int] = {}  #: of these, those that jobs of ours still hold
        #: Need -> nodes that do not meet it, or that alone do; and the same as a set. Empty where nodes are alike.
        self.unsuited: dict[str, tuple[tuple[str, ...], bool]] = {}
        self.barred: dict[str, int] = {}

    def fits(self, width: int) -> bool:
        having, per_node = self.having, self.per_node
        if not self.open:
            return False
        if width <= per_node:
            return having[width] != 0
        whole, rest = divmod(width, per_node)
        empty = having[per_node].bit_count()
        return empty >= whole and (not rest or empty > whole or having[rest].bit_count() > whole)

    def choose(self, width: int, packing: Literal["first_fit", "best_fit"]) -> Slots:
        """The slots a job that fits would take. A gang takes whole empty nodes, and the rest on one more."""
        having, per_node = self.having, self.per_node
        if width <= per_node:
            return ((self._node(width, packing, 0), width),)
        whole, rest = divmod(width, per_node)
        empty, used, slots = having[per_node], 0, []
        for _ in range(whole):
            lowest = empty & -empty
            empty ^= lowest
            used |= lowest
            slots.append((lowest.bit_length() - 1, per_node))
        if rest:
            slots.append((self._node(rest, packing, used), rest))
        return tuple(slots)

    def _node(self, gpus: int, packing: Literal["first_fit", "best_fit"], used: int) -> int:
        having = self.having
        mask = having[gpus] & ~used
        if packing == "best_fit":
            for level in range(gpus, self.per_node):
                tight = mask & ~having[level + 1]
                if tight:
                    mask = tight
                    break
        return (mask & -mask).bit_length() - 1

    def scratch(self) -> "Pool":
        """A copy to play with: what would be free if."""
        copy = Pool(self.per_node, self.size)
        copy.free, copy.having, copy.owed = self.free.copy(), self.having.copy(), self.owed.copy()
        copy.up, copy.kept, copy.free_gpus, copy.open = self.up, self.kept, self.free_gpus, self.open
        return copy

    def without(self, nodes: int) -> "Pool":
        """A copy to play with, for jobs that these nodes do not suit."""
        copy = self.scratch()
        for node in range(self.size):
            if nodes >> node & 1:
                copy.withdraw(node)
        return copy

    def fits_without(self, nodes: int, width: int) -> bool:
        """Whether it fits for jobs that these nodes do not suit."""
        having, per_node, others = self.having, self.per_node, ~nodes
        if not self.open:
            return False
        if width <= per_node:
            return having[width] & others != 0
        whole, rest = divmod(width, per_node)
        empty = (having[per_node] & others).bit_count()
        return empty >= whole and (not rest or empty > whole or (having[rest] & others).bit_count() > whole)

    def holds_without(self, nodes: int, width: int) -> bool:
        """Whether it would ever fit, if all the other nodes were free."""
        left = self.size - (nodes & ((1 << self.size) - 1)).bit_count()
        return left * self.per_node >= width

    def slots_on(self, nodes: tuple[int, ...], width: int) -> Slots:
        """The slots of these very nodes that such a job would take; none while they are not all free enough."""
        whole, rest = divmod(width, self.per_node)
        empty = [node for node in nodes if self.free[node] == self.per_node][:whole]
        other = [node for node in nodes if node not in empty and self.free[node] >= rest][:1] if rest else []
        if len(empty) < whole or (rest and not other):
            return ()
        return (*((node, self.per_node) for node in empty), *((node, rest) for node in other))

    def take(self, slots: Slots) -> None:
        free, having = self.free, self.having
        for node, gpus in slots:
            left = free[node]
            if left < gpus:
                raise Broken(f"node {node} has {left} GPUs free, and {gpus} of it were promised")
            bit = 1 << node
            for level in range(left - gpus + 1, left + 1):
                having[level] &= ~bit
            free[node] = left - gpus
            if not self.kept & bit:  # otherwise a backfill, on GPUs that do not count as free
                self.free_gpus -= gpus

    def put(self, node: int, gpus: int) -> None:
        """So many GPUs of the node are in use by us, whatever we believed of them: what was not free is owed."""
        usable, here = self.usable >> node & 1, min(gpus, self.free[node])
        if usable:
            self._close(node)
        self.free[node] -= here
        _note(self.owed, node, self.owed.get(node, 0) + gpus - here)
        if usable:
            self._open(node)

    def give(self, slots: Slots) -> None:
        free, having = self.free, self.having
        for node, gpus in self._paid(slots) if self.owed else slots:
            had = free[node]
            free[node] = had + gpus
            bit = 1 << node
            if self.up & ~self.kept & bit:
                for level in range(had + 1, had + gpus + 1):
                    having[level] |= bit
                self.free_gpus += gpus

    def _paid(self, slots: Slots) -> Slots:
        """What is left of these when others have got what is theirs."""
        left: list[tuple[int, int]] = []
        for node, gpus in slots:
            pays = min(gpus, self.owed.get(node, 0))
            _note(self.owed, node, self.owed.get(node, 0) - pays)
            left.append((node, gpus - pays))
        return tuple(left)

    def leave(self, node: int, gpus: int) -> None:
        """So many GPUs of the node are not ours: others have them, or it is cordoned or gone. What our jobs still hold
        of them comes off as they leave."""
        usable = self.usable >> node & 1
        if usable:
            self._close(node)
        ours = self.per_node - self.free[node] - self.others.get(node, 0) + self.owed.get(node, 0)
        left = self.per_node - ours - gpus
        self.free[node] = max(0, left)
        _note(self.others, node, gpus)
        _note(self.owed, node, max(0, -left))
        if usable:
            self._open(node)

    def call(self, node: int, name: str) -> None:
        """The node has this name from now on. One beyond the last is new."""
        if node == self.size:
            self.size += 1
            self.free.append(self.per_node)
            self.up |= 1 << node
            self._open(node)
        self.names[node : node + 1] = [name]

    @property
    def usable(self) -> int:
        return self.up & ~self.kept

    def withdraw(self, node: int) -> None:
        """The node is down: what is free on it cannot be used, what runs there is somebody else's to end."""
        if self.usable >> node & 1:
            self._close(node)
        self.up &= ~(1 << node)

    def restore(self, node: int) -> None:
        before = self.usable
        self.up |= 1 << node
        if self.usable != before:
            self._open(node)

    def keep(self, node: int) -> None:
        """For one job that waited longest: what comes free on it is nobody else's."""
        if self.usable >> node & 1:
            self._close(node)
        self.kept |= 1 << node

    def let_go(self, node: int) -> None:
        bit = 1 << node
        if self.kept & bit:
            self.kept ^= bit
            if self.up & bit:
                self._open(node)

    def _close(self, node: int) -> None:
        bit = 1 << node
        self.having = [mask & ~bit for mask in self.having]
        self.free_gpus -= self.free[node]

    def _open(self, node: int) -> None:
        for level in range(self.free[node] + 1):
            self.having[level] |= 1 << node
        self.free_gpus += self.free[node]

    def check(self) -> None:
        """What must always be true: the sets say what the counts say."""
        for node, free in enumerate(self.free):
            assert 0 <= free <= self.per_node, f"node {node} has {free} of {self.per_node} GPUs free"
            usable = bool(self.usable >> node & 1)
            for level in range(1, self.per_node + 1):
                assert bool(self.having[level] >> node & 1) == (usable and free >= level), f"node {node}, level {level}"
        counted = sum(free for node, free in enumerate(self.free) if self.usable >> node & 1)
        assert self.free_gpus == counted, f"{self.free_gpus} GPUs free, but {counted} counted"


def _note(numbers: dict[int, int], key: int, number: int) -> None:
    """Zeros are not kept, so that an empty table means none."""
    if number:
        numbers[key] = number
    else:
        numbers.pop(key, None)
