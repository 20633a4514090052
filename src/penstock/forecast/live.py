"""The forecast of an engine's own demand, told once an hour to an engine with a pool that wants it. Sequencer and
simulator call it, in the same way, so that both decide alike.
"""

from typing import Final

from penstock.core.fold.state import State
from penstock.core.model.events import DemandForecast
from penstock.core.units import HOUR, PERMILLE, Instant
from penstock.forecast.demand import DAY_H, forecast

MOST_AHEAD_H: Final = 24


def due(state: State, now: Instant) -> list[DemandForecast]:
    """Of the hours from now on, as many as a node may take to start. Nothing while the last one is of this hour, or too
    little is known: two days and a bit.
    """
    starts = [offer.start_ms for offer in state.warm.offers.values() if offer.warm is not None and offer.warm.forecast]
    this_hour = now // HOUR * HOUR
    if not starts or (state.warm.forecast is not None and state.warm.forecast.starts_at >= this_hour):
        return []
    history = state.demand.until(now)
    ahead = min(MOST_AHEAD_H, 2 + max(starts) // HOUR)
    if len(history) < ahead + 2 * DAY_H:
        return []
    quantiles = [(hour.p10, hour.p50, hour.p90) for hour in forecast([gpus / PERMILLE for gpus in history], ahead)]
    hours = tuple([(_thousandths(p10), _thousandths(p50), _thousandths(p90)) for p10, p50, p90 in quantiles])
    return [DemandForecast(now, this_hour, hours)]


def _thousandths(gpus: float) -> int:
    return round(gpus * PERMILLE)
