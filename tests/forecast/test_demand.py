"""Forecasts of demand: ordered quantiles, in the demand's own unit, by the past alone."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import BadInput
from penstock.forecast.demand import DAY_H, MOST_HOURS, HourAhead, forecast, quantile, usual_hours, with_spread

histories = st.lists(st.floats(0, 2_000, allow_nan=False), min_size=90, max_size=200)


def office(days: int, *, noise: float = 0.0, seed: int = 0) -> list[float]:
    """80 GPUs at night, up to 240 at noon."""
    random = Random(seed)
    hours = (160 - 80 * math.cos(2 * math.pi * hour / DAY_H) for hour in range(days * DAY_H))
    return [gpus * (1 + noise * (2 * random.random() - 1)) for gpus in hours]


def numbers(ahead: list[HourAhead]) -> list[tuple[float, float, float]]:
    return [(hour.p10, hour.p50, hour.p90) for hour in ahead]


@given(histories, st.integers(1, 40))
@settings(max_examples=30)
def test_quantiles_are_ordered_and_no_demand_is_below_zero(history: list[float], hours: int) -> None:
    ahead = forecast(history, hours)
    assert [hour.ahead for hour in ahead] == list(range(1, hours + 1))
    assert all(0 <= hour.p10 <= hour.p50 <= hour.p90 for hour in ahead)


@given(histories, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
@settings(max_examples=30)
def test_twice_the_demand_is_twice_the_forecast(history: list[float], factor: float) -> None:
    """Powers of two, so that floats scale exactly."""
    scaled = forecast([gpus * factor for gpus in history], 6)
    assert numbers(scaled) == [
        pytest.approx((p10 * factor, p50 * factor, p90 * factor)) for p10, p50, p90 in numbers(forecast(history, 6))
    ]


@given(histories, histories)
@settings(max_examples=20)
def test_what_comes_later_changes_nothing(history: list[float], later: list[float]) -> None:
    known = len(history)
    by_then, afterwards = usual_hours(history), usual_hours([*history, *later])
    assert [by_then(known, ahead) for ahead in (1, 24, 40)] == [afterwards(known, ahead) for ahead in (1, 24, 40)]


def test_a_demand_that_repeats_every_day_is_known_exactly() -> None:
    history = office(10)
    for hour, actual in zip(forecast(history[:-48], 48), history[-48:], strict=True):
        assert (hour.p10, hour.p50, hour.p90) == pytest.approx((actual, actual, actual))


def test_a_level_that_rose_just_now_is_half_forgotten_after_a_day() -> None:
    expect = usual_hours([100.0] * 72 + [180.0])
    assert expect(73, 24) == pytest.approx(108 + 40)  # one day moves the usual by a tenth
    assert expect(73, 12) == pytest.approx(100 + 80 * 0.5**0.5)


def test_nine_of_ten_hours_are_at_most_p90() -> None:
    """On 40 noisy days, each hour forecast a day ahead."""
    history = office(40, noise=0.5, seed=4)
    days = range(20 * DAY_H, 39 * DAY_H)
    forecasts = [with_spread(history[:known], 24, usual_hours(history), first=DAY_H + 1) for known in days]
    below = sum(history[known + 23] <= hour.p90 for known, hour in zip(days, forecasts, strict=True))
    assert 0.86 <= below / len(forecasts) <= 0.94


def test_no_demand_is_a_forecast_of_none() -> None:
    assert numbers(forecast([0.0] * 60, 3)) == [(0.0, 0.0, 0.0)] * 3


@pytest.mark.parametrize(
    ("history", "hours", "why"),
    [
        ([1.0] * 71, 24, "A forecast of 24 hours needs 72 hours of history, and there are 71."),
        ([1.0] * 72, 0, "A forecast looks 1 to 336 hours ahead, not 0."),
        ([1.0] * 9_999, MOST_HOURS + 1, "A forecast looks 1 to 336 hours ahead, not 337."),
        ([1.0] * 71 + [-1.0], 24, "A demand is zero or more GPUs in each hour."),
        ([1.0] * 71 + [math.nan], 24, "A demand is zero or more GPUs in each hour."),
    ],
)
def test_what_cannot_be_forecast_is_said_in_one_sentence(history: list[float], hours: int, why: str) -> None:
    with pytest.raises(BadInput, match=f"^{why}$"):
        forecast(history, hours)


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert quantile([], 0.9) == 0.0
