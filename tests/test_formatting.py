"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import formatting
from penstock.core import units


@pytest.mark.parametrize(
    ("micro", "currency", "text"),
    [
        (1_284_100_000, "USD", "$1,284.10"),
        (0, "USD", "$0.00"),
        (4_999, "USD", "$0.00"),
        (5_000, "USD", "$0.01"),
        (-300_000, "USD", "-$0.30"),
        (-4_999, "USD", "$0.00"),
        (20_900_000_000, "EUR", "€20,900.00"),
        (3_100_000, "GBP", "£3.10"),
        (1_000_000, "CHF", "CHF 1.00"),
        (-1_000_000, "SEK", "-SEK 1.00"),
    ],
)
def test_money(micro: int, currency: str, text: str) -> None:
    assert formatting.money(micro, currency) == text


def test_an_instant_is_told_to_the_second_where_a_minute_says_too_little() -> None:
    assert formatting.instant(50_705_000) == "day 1, 14:05"
    assert formatting.instant(50_705_000, seconds=True) == "day 1, 14:05:05"
    assert formatting.instant(1_800_000_005_000, seconds=True) == "2027-01-15 08:00:05 UTC"


@pytest.mark.parametrize(
    ("micro", "text"), [(1_284_100_000, "$1,284.10"), (9, "$0.000009"), (-1_500_001, "-$1.500001"), (0, "$0.00")]
)
def test_exact_money_hides_no_fraction_of_a_cent(micro: int, text: str) -> None:
    assert formatting.exact_money(micro, "USD") == text


@given(st.integers(-(10**15), 10**15))
def test_money_is_within_half_a_cent(micro: int) -> None:
    written = formatting.money(micro, "USD").replace("$", "").replace(",", "").replace(".", "")
    assert abs(int(written) * 10_000 - micro) <= 5_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (1, "under 1 s"),
        (41_000, "41 s"),
        (59_499, "59 s"),
        (59_500, "1 min"),
        (9 * 60_000, "9 min"),
        (60 * 60_000 - 1, "1 h"),
        (63 * 60_000, "1 h 3 min"),
        (134 * 60_000, "2 h 14 min"),
        (24 * 3_600_000 - 60_000, "23 h 59 min"),
        (24 * 3_600_000 - 1, "24 h"),
        (31 * 3_600_000 + 29 * 60_000, "31 h"),
        (1_284 * 3_600_000, "1,284 h"),
        (-9 * 60_000, "-9 min"),
    ],
)
def test_duration(ms: int, text: str) -> None:
    assert formatting.duration(ms) == text


def test_an_instant_counts_days_from_one() -> None:
    assert formatting.instant(2 * 86_400_000 + (14 * 60 + 5) * 60_000 + 59_999) == "day 3, 14:05"
    assert formatting.instant(1_795_000_000_000) == "2026-11-18 11:06 UTC"
    assert formatting.instant(1 << 62).startswith("day ")


@given(st.integers(0, 10**18))
def test_an_amount_for_a_command_is_read_back_as_it_was(micro: int) -> None:
    assert units.money(formatting.plain_money(micro)) == micro
