"""Forecasts of a library made for them, statsforecast, which `bench.forecast` compares with ours.

It is no dependency of Penstock: where it is not installed, the command says so and compares the others. Each model is
fitted anew for every forecast, on the last four weeks, and says its spread itself (its interval of 80 %).
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple

from penstock.forecast.demand import DAY_H, HourAhead

LIBRARY: Final = "statsforecast"
FIT_ON_H: Final = 4 * 7 * DAY_H
LEVEL: Final = 80  #: from P10 to P90


class LibraryModel(NamedTuple):
    name: str
    what: str
    made: Callable[[Any], Any]  #: of the library's `models`


#: After all of ours in simplicity: a library is a dependency, however short its call is.
MODELS: Final = (
    LibraryModel(
        "theta", "dynamic optimised theta by hour of the day", lambda m: m.DynamicOptimizedTheta(season_length=24)
    ),
    LibraryModel(
        "mstl",
        "hour of the day and of the week taken out by LOESS, the rest by AutoETS",
        lambda m: m.MSTL(season_length=[24, 168], trend_forecaster=m.AutoETS(model="ZZN")),
    ),
)


def installed() -> str:
    """The library's version; empty: it is not there."""
    try:
        return version(LIBRARY)
    except PackageNotFoundError:
        return ""


def library_hours(model: LibraryModel, history: Sequence[float], ahead: Sequence[int]) -> list[HourAhead]:
    """By all of `history`, which ends where the forecast begins."""
    numpy, models = import_module("numpy"), import_module(f"{LIBRARY}.models")
    recent = numpy.array(history[-FIT_ON_H:], dtype=float)
    predicted = model.made(models).forecast(y=recent, h=max(ahead), level=[LEVEL])
    lows, middles, highs = (predicted[key] for key in (f"lo-{LEVEL}", "mean", f"hi-{LEVEL}"))
    return [
        HourAhead(hours, *(max(0.0, float(numbers[hours - 1])) for numbers in (lows, middles, highs)))
        for hours in ahead
    ]
