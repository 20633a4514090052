"""The report's fourth part: what a year costs by how many GPUs are owned, when owning pays, and what a newer generation
changes.

What is wanted above the owned GPUs is rented at once, hour by hour, so this has no queues: the ways have those. A
newer generation does the same work on fewer GPUs; its curve counts them in GPUs of today's speed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil
from typing import Final

from penstock.assess.gpus import BY_MODEL, NEWER
from penstock.assess.own_cost import HOURS_A_YEAR, OwnCost, leaner
from penstock.assess.prices import RentQuote
from penstock.core.units import MICRO, Money
from penstock.core.values import value

POINTS: Final = 60
BASE_SHARE: Final = 0.8  #: the field's rule: own what serves 80 % of the GPU-hours, rent the rest


@value
class YearCurve:
    """Yearly cost by owned GPUs, of one generation."""

    gpu: str
    points: tuple[tuple[float, float], ...]  # owned GPUs in today's speed, cost of a year
    best_gpus: float
    best_cost: float
    break_even: float  # the share of hours in which a GPU must be busy to be cheaper owned than rented
    own_gpu_hour: float
    rent_gpu_hour: float
    speed: float  # against today's GPU


@value
class BaseSplit:
    """Base and peak for one number of owned GPUs."""

    gpus: int
    served: float  # share of the GPU-hours that these serve
    cost: float
    utilisation: float  # of these


@value
class BuyOrRent:
    today: YearCurve
    newer: YearCurve | None
    owned: BaseSplit  # what is owned now
    best: BaseSplit
    eighty: BaseSplit  # the least that serves 80 % of the GPU-hours
    lean: BaseSplit  # the best where an owned GPU costs as much less as by `LEAN`
    lean_gpu_hour: float
    all_rented: float
    all_owned: float  # for the peak hour
    peak: float
    notes: tuple[str, ...] = ()


def buy_or_rent(
    hours: Sequence[float], owned_gpus: int, quote: RentQuote, own: OwnCost, newer: tuple[RentQuote, OwnCost] | None
) -> BuyOrRent:
    """`hours`: mean GPUs wanted in each hour of the month."""
    load, lean = HourlyLoad(hours), leaner(own)
    today = _curve(load, quote, own, 1.0)
    return BuyOrRent(
        today=today,
        newer=_newer(load, quote, newer),
        owned=_split(load, owned_gpus, quote, own),
        best=_split(load, round(today.best_gpus), quote, own),
        eighty=_split(load, load.serving(BASE_SHARE), quote, own),
        lean=_split(load, round(load.best(quote.on_demand / MICRO, lean / MICRO)), quote, own, lean),
        lean_gpu_hour=lean / MICRO,
        all_rented=load.cost(0, quote.on_demand / MICRO, own.gpu_hour / MICRO),
        all_owned=load.cost(load.peak, quote.on_demand / MICRO, own.gpu_hour / MICRO),
        peak=load.peak,
        notes=tuple(_notes(quote, newer)),
    )


class HourlyLoad:
    """Hourly demand, sorted once: what is above a level is a look-up."""

    def __init__(self, hours: Sequence[float]) -> None:
        self.levels = sorted(hours) or [0.0]
        self.peak = self.levels[-1]
        self.total = sum(self.levels)
        self.per_year = HOURS_A_YEAR / len(self.levels)

    def above(self, gpus: float) -> float:
        """GPU-hours of the month above so many GPUs."""
        return sum(level - gpus for level in self.levels if level > gpus)

    def cost(self, gpus: float, rent_hour: float, own_hour: float) -> float:
        """Of a year like this month."""
        return gpus * own_hour * HOURS_A_YEAR + self.above(gpus) * rent_hour * self.per_year

    def serving(self, share: float) -> int:
        """The least number of GPUs that serve this share of the GPU-hours."""
        most = range(ceil(self.peak) + 1)
        return bisect_left(most, share * self.total, key=lambda gpus: self.total - self.above(gpus))

    def best(self, rent_hour: float, own_hour: float) -> float:
        """Owning one more pays while it is busy for longer than the break-even share: a quantile of the levels."""
        share = min(1.0, own_hour / rent_hour) if rent_hour else 1.0
        place = int(len(self.levels) * (1 - share))
        return self.levels[place] if share < 1 and place < len(self.levels) else 0.0


def _curve(load: HourlyLoad, quote: RentQuote, own: OwnCost, speed: float) -> YearCurve:
    """Prices over speed: what today's GPU-hour of work costs on that generation."""
    rent, owned = quote.on_demand / MICRO / speed, own.gpu_hour / MICRO / speed
    most = max(load.peak * 1.15, 1.0)
    best = load.best(rent, owned)
    steps = sorted({*(most * k / POINTS for k in range(POINTS + 1)), best})
    return YearCurve(
        gpu=quote.gpu,
        points=tuple((gpus, load.cost(gpus, rent, owned)) for gpus in steps),
        best_gpus=best,
        best_cost=load.cost(best, rent, owned),
        break_even=min(1.0, own.gpu_hour / quote.on_demand) if quote.on_demand else 1.0,
        own_gpu_hour=own.gpu_hour / MICRO,
        rent_gpu_hour=quote.on_demand / MICRO,
        speed=speed,
    )


def _newer(load: HourlyLoad, quote: RentQuote, newer: tuple[RentQuote, OwnCost] | None) -> YearCurve | None:
    if newer is None:
        return None
    speed = BY_MODEL[newer[0].gpu].speed_permille / BY_MODEL[quote.gpu].speed_permille
    return _curve(load, *newer, speed)


def _split(load: HourlyLoad, gpus: int, quote: RentQuote, own: OwnCost, gpu_hour: Money | None = None) -> BaseSplit:
    """`gpu_hour`: of an owned GPU, if it is another than its parts come to."""
    hour = own.gpu_hour if gpu_hour is None else gpu_hour
    served = load.total - load.above(gpus)
    return BaseSplit(
        gpus=gpus,
        served=served / load.total if load.total else 1.0,
        cost=load.cost(gpus, quote.on_demand / MICRO, hour / MICRO),
        utilisation=served / (gpus * len(load.levels)) if gpus else 0.0,
    )


def newer_model(model: str) -> str:
    return NEWER.get(model, "")


def _notes(quote: RentQuote, newer: tuple[RentQuote, OwnCost] | None) -> list[str]:
    if newer is None:
        return [f"No newer generation than {quote.gpu} is in the tables."]
    new, old = BY_MODEL[newer[0].gpu], BY_MODEL[quote.gpu]
    times = new.speed_permille / old.speed_permille
    return [f"{new.model} is taken as {times:.1f} times as fast as {old.model}: {new.speed_source}."]
