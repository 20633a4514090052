"""The nouns' own arithmetic: which nodes a width takes, and what leaving costs."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.types import EgressTier, JobSpec, NodeShape, egress_cost, fill
from penstock.core.units import GB

SIZES = st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=4, unique=True).map(sorted)
TIERS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**6)), max_size=4)


@given(SIZES, st.integers(1, 100))
def test_a_width_takes_whole_nodes_of_the_largest_and_the_smallest_for_the_rest(sizes: list[int], width: int) -> None:
    shapes = tuple(NodeShape(gpus) for gpus in sizes)
    nodes = [shape.gpus for shape, count in fill(shapes, width) for _ in range(count)]
    whole, rest = divmod(width, sizes[-1])
    assert nodes == [sizes[-1]] * whole + ([min(size for size in sizes if size >= rest)] if rest else [])


@given(SIZES, st.integers(1, 100))
def test_a_wider_job_never_takes_fewer_gpus(sizes: list[int], width: int) -> None:
    shapes = tuple(NodeShape(gpus) for gpus in sizes)

    def total(wide: int) -> int:
        return sum(shape.gpus * count for shape, count in fill(shapes, wide))

    assert width <= total(width) <= total(width + 1)


def graduated(parts: list[tuple[int, int]]) -> tuple[EgressTier, ...]:
    tops = [sum(size for size, _ in parts[: k + 1]) for k in range(len(parts))]
    tiers = [EgressTier(top, per_gb) for top, (_, per_gb) in zip(tops, parts, strict=True)]
    return (*tiers, EgressTier(None, 1_000))


@given(TIERS, st.integers(0, 300 * GB), st.integers(0, 300 * GB))
def test_more_never_costs_less(parts: list[tuple[int, int]], a: int, b: int) -> None:
    tiers = graduated(parts)
    assert egress_cost(tiers, a) <= egress_cost(tiers, a + b)


@given(TIERS, st.integers(0, 300))
def test_each_gigabyte_is_priced_by_the_tier_it_falls_into(parts: list[tuple[int, int]], size: int) -> None:
    tiers = graduated(parts)
    prices = [next(tier.per_gb for tier in tiers if tier.up_to_gb is None or gb < tier.up_to_gb) for gb in range(size)]
    assert egress_cost(tiers, size * GB) == sum(prices)


def test_nothing_costs_nothing_to_leave_where_nobody_charges() -> None:
    assert egress_cost((), 10**15) == 0


def test_values_are_frozen_in_tests() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        JobSpec(1).gpus = 2  # type: ignore[misc]  # that it cannot be is the point


def test_a_contract_price_goes_before_the_list() -> None:
    assert NodeShape(8, list_per_hour=20).price_per_hour == 20
    assert NodeShape(8, list_per_hour=20, contract_per_hour=0).price_per_hour == 0
