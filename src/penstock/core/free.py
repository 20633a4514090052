"""Free GPUs of one standing offer, as sets of nodes by how much they have free.

`having[k]` has a bit for each node that is up and has at least `k` GPUs free, so that "does it fit" and "the lowest
node with room" are single operations on whole numbers, whatever the size of the cluster.
"""

from typing import Literal, TypeAlias

Slots: TypeAlias = tuple[tuple[int, int], ...]  # (node, GPUs)


class Pool:
    __slots__ = ("free", "free_gpus", "having", "open", "per_node", "size", "up")

    def __init__(self, per_node: int, size: int) -> None:
        self.per_node = per_node
        self.size = size
        self.free = [per_node] * size
        self.up = (1 << size) - 1
        self.having = [self.up] * (per_node + 1)
        self.free_gpus = per_node * size  #: free on nodes that are up
        self.open = True  #: False while its site is out of reach or refuses: nothing fits

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

    def take(self, slots: Slots) -> None:
        free, having = self.free, self.having
        for node, gpus in slots:
            left = free[node]
            bit = 1 << node
            for level in range(left - gpus + 1, left + 1):
                having[level] &= ~bit
            free[node] = left - gpus
            self.free_gpus -= gpus

    def give(self, slots: Slots) -> None:
        free, having = self.free, self.having
        for node, gpus in slots:
            had = free[node]
            free[node] = had + gpus
            bit = 1 << node
            if self.up & bit:
                for level in range(had + 1, had + gpus + 1):
                    having[level] |= bit
                self.free_gpus += gpus

    def withdraw(self, node: int) -> None:
        """The node is down: what is free on it cannot be used, what runs there is somebody else's to end."""
        bit = 1 << node
        if self.up & bit:
            self.up &= ~bit
            self.having = [mask & ~bit for mask in self.having]
            self.free_gpus -= self.free[node]

    def restore(self, node: int) -> None:
        bit = 1 << node
        if not self.up & bit:
            self.up |= bit
            for level in range(self.free[node] + 1):
                self.having[level] |= bit
            self.free_gpus += self.free[node]

    def check(self) -> None:
        """What must always be true: the sets say what the counts say."""
        for node, free in enumerate(self.free):
            assert 0 <= free <= self.per_node, f"node {node} has {free} of {self.per_node} GPUs free"
            up = bool(self.up >> node & 1)
            for level in range(1, self.per_node + 1):
                assert bool(self.having[level] >> node & 1) == (up and free >= level), f"node {node}, level {level}"
        counted = sum(free for node, free in enumerate(self.free) if self.up >> node & 1)
        assert self.free_gpus == counted, f"{self.free_gpus} GPUs free, but {counted} counted"
