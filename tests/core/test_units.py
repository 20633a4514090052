"""Money and time are whole numbers, and every rounding of money goes up."""

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BadInput
from penstock.core.units import HOUR, ceil_div, cost_of, money, step_up

AMOUNTS = st.integers(0, 10**12)
SPANS = st.integers(0, 10**11)


@given(AMOUNTS, SPANS)
def test_a_cost_is_the_exact_one_rounded_up(per_hour: int, ms: int) -> None:
    assert cost_of(per_hour, ms) == ceil(Fraction(per_hour * ms, HOUR))


@given(AMOUNTS, SPANS, SPANS)
def test_two_parts_never_cost_less_than_the_whole(per_hour: int, a: int, b: int) -> None:
    assert cost_of(per_hour, a) + cost_of(per_hour, b) >= cost_of(per_hour, a + b)


@given(SPANS, st.integers(1, 10**8))
def test_a_step_is_the_next_whole_one(ms: int, step: int) -> None:
    up = step_up(ms, step)
    assert up % step == 0
    assert up - step < ms <= up


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**9))
def test_ceil_div_rounds_up(a: int, b: int) -> None:
    assert ceil_div(a, b) == ceil(Fraction(a, b))


def test_an_amount_is_bounded_by_what_a_journal_stores() -> None:
    assert money("1000000000000") == 10**18
    with pytest.raises(BadInput, match="an amount is at most 1,000,000,000,000"):
        money("1000000000000.01")


@pytest.mark.parametrize(
    ("text", "amount"),
    [("3.10", 3_100_000), ("1500", 1_500_000_000), ("1,284.10", 1_284_100_000), (" 0.000001 ", 1), ("-2", -2_000_000)],
)
def test_money_is_what_a_person_typed(text: str, amount: int) -> None:
    assert money(text) == amount


@given(st.integers(-(10**15), 10**15))
def test_money_reads_back_what_was_written(amount: int) -> None:
    assert money(format(Decimal(amount) / 1_000_000, "f")) == amount


@pytest.mark.parametrize("text", ["", "ten", "1.0000001", "nan", "inf", "1.2.3", "$5"])
def test_what_is_not_money_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not an amount of money"):
        money(text)
