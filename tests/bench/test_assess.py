"""`bench.assess` in small: what the report states of generated months, against their truth."""

import pytest

from bench.assess import Held, as_text, counts, judged

MONTHS = 4


@pytest.fixture(scope="module")
def rows() -> list[Held]:
    return [row for seed in range(MONTHS) for row in judged(seed, jobs=120, days=4)]


def test_a_whole_month_s_waits_demand_and_savings_are_true_within_five_hundredths(rows: list[Held]) -> None:
    errors = [row.errors for row in rows if row.view == "whole"]
    assert len(errors) == MONTHS
    assert {name for row in errors for name in row} == {"waits, sum", "demand", "savings, burst", "savings, bought"}
    assert max(error for row in errors for error in row.values()) <= 0.05


def test_stated_ranges_of_cut_and_thinned_months_hold_the_truth_nine_times_in_ten(rows: list[Held]) -> None:
    held = [is_held for row in rows if row.view != "whole" for is_held in row.ranges.values()]
    assert sum(held) >= 0.9 * len(held)
    assert f"of {MONTHS}" in as_text(counts(rows), MONTHS)
