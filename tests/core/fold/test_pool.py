"""Pools of free GPUs, against a list of nodes that is searched from the left."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.state import State

Packing = Literal["first_fit", "best_fit"]


class Naive:
    """What a pool claims to do, written as one would say it."""

    def __init__(self, per_node: int, size: int) -> None:
        self.per_node = per_node
        self.free = [per_node] * size
        self.up = [True] * size
        self.others = [0] * size
        self.ours = [0] * size

    def hold(self, slots: Slots, sign: int) -> None:
        for node, gpus in slots:
            self.ours[node] += sign * gpus
            self.count(node)

    def count(self, node: int) -> None:
        self.free[node] = max(0, self.per_node - self.ours[node] - self.others[node])

    def usable(self) -> list[tuple[int, int]]:
        return [(node, free) for node, free in enumerate(self.free) if self.up[node]]

    def choose(self, width: int, packing: Packing) -> Slots | None:
        whole, rest = divmod(width, self.per_node) if width > self.per_node else (0, width)
        empty = [node for node, free in self.usable() if free == self.per_node]
        if len(empty) < whole:
            return None
        taken = [(node, self.per_node) for node in empty[:whole]]
        if rest:
            left = [(node, free) for node, free in self.usable() if free >= rest and node not in empty[:whole]]
            if not left:
                return None
            tightest = min(left, key=lambda pair: (pair[1], pair[0])) if packing == "best_fit" else left[0]
            taken.append((tightest[0], rest))
        return tuple(taken)


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, int, list[tuple[str, int]]]:
    per_node, size = draw(st.sampled_from([1, 2, 4, 7, 8])), draw(st.integers(1, 6))
    kinds = st.sampled_from(["take", "take", "take", "give", "give", "withdraw", "restore", "leave", "leave"])
    return per_node, size, draw(st.lists(st.tuples(kinds, st.integers(1, 20)), max_size=40))


@given(lives(), st.sampled_from(["first_fit", "best_fit"]))
def test_a_pool_does_what_its_words_say(life: tuple[int, int, list[tuple[str, int]]], packing: Packing) -> None:
    per_node, size, steps = life
    pool, naive = Pool(per_node, size), Naive(per_node, size)
    taken: list[Slots] = []
    for kind, number in steps:
        node = number % size
        match kind:
            case "take":
                expected = naive.choose(number, packing)
                assert pool.fits(number) == (expected is not None)
                if expected is None:
                    continue
                slots = pool.choose(number, packing)
                assert slots == expected
                pool.take(slots)
                taken.append(slots)
                naive.hold(slots, 1)
            case "give" if taken:
                slots = taken.pop(number % len(taken))
                pool.give(slots)
                naive.hold(slots, -1)
            case "leave":
                naive.others[node] = min(number // size, per_node)
                naive.count(node)
                pool.leave(node, naive.others[node])
            case "withdraw":
                pool.withdraw(node)
                naive.up[node] = False
            case "restore":
                pool.restore(node)
                naive.up[node] = True
        pool.check()
        assert pool.free == naive.free
        assert pool.free_gpus == sum(free for _, free in naive.usable())


def test_withdrawing_and_restoring_twice_changes_nothing() -> None:
    pool = Pool(8, 2)
    pool.withdraw(0)
    pool.withdraw(0)
    assert pool.free_gpus == 8
    pool.restore(0)
    pool.restore(0)
    assert pool.free_gpus == 16
    pool.check()


def test_a_state_with_very_many_nodes_has_a_digest() -> None:
    """The set of 20,000 nodes is a number of 6,000 digits, which Python refuses to write."""
    state = State()
    state.pools["lab/own"] = Pool(8, 20_000)
    assert len(state.digest()) == 64
