"""The whole assessment of one month: each part of the report from the history, in the order of the page. `penstock
assess` calls `assess`; `page` shows it, and its fields are the JSON.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

from penstock.assess import carbon
from penstock.assess.buy_or_rent import BuyOrRent, buy_or_rent, newer_model
from penstock.assess.decision import OWNED_SHARES, SLICE_JOBS, Decision, decision_of
from penstock.assess.history import MonthHistory
from penstock.assess.own_cost import OwnCost, own_cost
from penstock.assess.pilot import PilotReport, pilot_of
from penstock.assess.portable import Portability, portability_of
from penstock.assess.prices import DOLLARS, TABLE, PriceRow, RentQuote, ReportCurrency, amount_of, quote
from penstock.assess.replay import Replayable, other_guesses, replayable, unseen
from penstock.assess.report import AssessReport
from penstock.assess.report import assess as report_of
from penstock.assess.waits import WaitReport
from penstock.assess.ways import WaysReport, nearer_order, replays, setting_of, ways_of
from penstock.assess.ways_words import WaysSetting
from penstock.core.errors import BadInput
from penstock.core.model.types import STANDING, Site
from penstock.core.units import DAY, HOUR, SECOND, Instant, Money
from penstock.core.values import value
from penstock.front.burst_report import BurstReport
from penstock.policy.presets import DEFAULT_VALUE


@value
class DecisionOptions:
    """What a person said beside the sources. Made by keyword."""

    currency: ReportCurrency = DOLLARS
    own_cost: tuple[str, ...] = ()
    cloud: str = ""
    cost_of_delay: str = DEFAULT_VALUE
    cap: str | None = None  # for 30 days
    buy: int | None = None
    grid: int | None = None  # grams for a kWh at home
    cloud_grid: int | None = None
    rented: tuple[Site, ...] = ()  # of a sites file
    burst_report: BurstReport | None = None  # likewise


@value
class Assessment:
    """Everything on the page. Amounts of money are in units of the currency where they are floats."""

    report: AssessReport  # what was seen, use and waits
    gpu_model: str
    owned_gpus: int
    ways: WaysReport
    buy_or_rent: BuyOrRent
    portability: Portability | None
    pilot: PilotReport
    decision: Decision
    own_cost: OwnCost
    quote: RentQuote
    prices: tuple[PriceRow, ...]


def assess(
    history: MonthHistory, asked: DecisionOptions, advance: Callable[[int], None] = lambda _: None, zone: tzinfo = UTC
) -> Assessment:
    """Raises `BadInput` if nothing of the month can be replayed, or what a person said makes no sense."""
    portability = portability_of(history, asked.burst_report)
    tied = portability.tied if portability else frozenset[str]()
    month = replayable(history, tied)
    setting = _setting(month, asked)
    report = report_of(history, gpu_hour=setting.own.gpu_hour, currency=setting.currency, zone=zone, month=month)
    known, was = report.waits.all, None
    if known.jobs:
        setting, was = nearer_order(month, setting, known.sum_ms / known.jobs / HOUR, advance)
    ways = ways_of(month, setting, other_guesses(history, month, tied), advance, was=was)
    return Assessment(
        report=report,
        gpu_model=month.gpu_model,
        owned_gpus=month.owned_gpus,
        ways=ways,
        buy_or_rent=_buy_or_rent(report.waits, month, setting, asked),
        portability=portability,
        pilot=pilot_of(history, tied, setting.quote.on_demand, portability is not None),
        decision=decision_of(month, ways, advance),
        own_cost=setting.own,
        quote=setting.quote,
        prices=tuple(row for row in TABLE if row.gpu in (month.gpu_model, newer_model(month.gpu_model))),
    )


def work(history: MonthHistory) -> int:
    """How many jobs `assess` replays in all, for a progress bar."""
    jobs = sum((job.run_ms or 0) > 0 or job.outcome == "queued" for job in history.jobs)
    measured = any(job.idle_gpu_ms for job in history.jobs)
    return replays(jobs, measured, unseen(history)) + 3 * len(OWNED_SHARES) * min(SLICE_JOBS, jobs)


def _setting(month: Replayable, asked: DecisionOptions) -> WaysSetting:
    own = own_cost(month.gpu_model, asked.own_cost, asked.currency)
    rent = _quote(month, asked)
    cap = None if asked.cap is None else amount_of("--cap", asked.cap)
    if amount_of("--cost-of-delay", asked.cost_of_delay) <= 0:
        raise BadInput(f"--cost-of-delay is what an hour of delay costs, more than nothing, not {asked.cost_of_delay}.")
    setting = setting_of(month, rent, own, asked.cost_of_delay, cap, asked.buy)
    return replace(
        setting,
        currency=asked.currency.name,
        rented=asked.rented,
        own_grid=asked.grid,
        cloud_grid=asked.cloud_grid if asked.cloud_grid is not None else carbon.GRIDS.get(rent.grid),
    )


def _quote(month: Replayable, asked: DecisionOptions) -> RentQuote:
    if asked.rented:
        return _quote_of_file(asked.rented, month.gpu_model)
    quoted = quote(month.gpu_model, asked.cloud, asked.currency)
    if quoted is None:
        raise BadInput(f"The price table has no {month.gpu_model}; say with --sites what could be rented.")
    return quoted


def _quote_of_file(sites: Iterable[Site], model: str) -> RentQuote:
    """The cheapest on demand of a sites file; there is a range only if it has several."""
    rented = [offer for site in sites for offer in site.offers if offer.term not in STANDING]
    by_term: dict[str, list[Money]] = {"on_demand": [], "spot": []}
    for offer in rented:
        by_term[offer.term] += [-(-shape.price_per_hour // shape.gpus) for shape in offer.shapes]
    if not by_term["on_demand"]:
        raise BadInput("The sites file has no offer with 'term: on_demand', so there is nothing to rent.")
    prices = sorted(by_term["on_demand"])
    return RentQuote(
        gpu=model,
        on_demand=prices[0],
        spot=min(by_term["spot"], default=None),
        source="the sites file",
        low=prices[0],
        high=prices[-1],
    )


def _buy_or_rent(waits: WaitReport, month: Replayable, setting: WaysSetting, asked: DecisionOptions) -> BuyOrRent:
    name = newer_model(month.gpu_model)
    rent = quote(name, asked.cloud if _sells(asked.cloud, name) else "", asked.currency) if name else None
    newer = None if rent is None or asked.rented else (rent, own_cost(name, (), asked.currency))
    hours = [wanted for _, wanted, _ in waits.demand.by_hour]
    return buy_or_rent(hours, month.owned_gpus, setting.quote, setting.own, newer)


def _sells(cloud: str, model: str) -> bool:
    return any(row.cloud.lower() == cloud.lower() and row.gpu == model and row.on_demand for row in TABLE)


def day_of(calendar: bool) -> Callable[[Instant], str]:
    """An instant's day as a chart names it."""

    def named(at: Instant) -> str:
        if not calendar:
            return f"day {at // DAY + 1}"
        moment = datetime.fromtimestamp(at // SECOND, UTC)
        return f"{moment.day} {moment:%b}"

    return named
