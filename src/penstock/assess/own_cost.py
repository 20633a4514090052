"""What an hour of an owned GPU costs: price, life, power, space, people. Each part has a stated default, and
`--own-cost KEY=VALUE` replaces it. `docs/claims.md` takes the leaner `LEAN`, and shows this one beside it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.assess.gpus import BY_MODEL, UNKNOWN, GpuFact
from penstock.assess.prices import DOLLARS, ReportCurrency, amount_of
from penstock.core.errors import BadInput
from penstock.core.units import MICRO, Money
from penstock.core.values import value

HOURS_A_YEAR: Final = 8_760
HOURS_A_MONTH: Final = 730


@value
class OwnCost:
    """Of one GPU, in the report's currency. A GPU is paid for in every hour, busy or not."""

    price: Money  # its share of the server, network included
    life_years: float = 4.0
    watts: int = 1_275  # its share of the server, at full load
    pue: float = 1.5
    kwh: Money = 200_000
    space_kw_month: Money = 217_300_000
    people_year: Money = 1_200_000_000
    notes: tuple[str, ...] = ()  # a sentence for each part

    @property
    def parts(self) -> tuple[tuple[str, Money], ...]:
        """What an hour costs, part by part."""
        return (
            ("price", round(self.price / (self.life_years * HOURS_A_YEAR))),
            ("power", round(self.watts * self.pue * self.kwh / 1_000)),
            ("space", round(self.watts * self.space_kw_month / 1_000 / HOURS_A_MONTH)),
            ("people", round(self.people_year / HOURS_A_YEAR)),
        )

    @property
    def gpu_hour(self) -> Money:
        return sum(amount for _, amount in self.parts)


#: A server of 8 GPUs for $250,000, PUE 1.3, $0.15 a kWh; space, network and people a tenth of its price a year: $1.50.
#: `docs/claims.md` takes it instead of an H100's default of $2.00, because it rents at $2.50, which is less than the
#: table's median cloud asks for an H100, too: the two prices belong together. It also shows figures at $1.00 and $2.00.
LEAN: Final = OwnCost(
    price=31_250 * MICRO, watts=1_275, pue=1.3, kwh=150_000, space_kw_month=0, people_year=3_125 * MICRO
)


def leaner(own: OwnCost) -> Money:
    """What an hour would cost if it were as much less as by `LEAN`: a quarter, for any model."""
    return own.gpu_hour * LEAN.gpu_hour // default_cost(UNKNOWN).gpu_hour


def default_cost(model: str, to: ReportCurrency = DOLLARS) -> OwnCost:
    fact = BY_MODEL.get(model, BY_MODEL[UNKNOWN])
    price, source = _price(fact)
    usual = OwnCost(price)
    return OwnCost(
        price=to.of(price * MICRO),
        watts=fact.node_watts,
        kwh=to.of(usual.kwh),
        space_kw_month=to.of(usual.space_kw_month),
        people_year=to.of(usual.people_year),
        notes=(
            f"price: {source}",
            "life: four years, as many finance departments write servers off",
            f"watts: {fact.watts_source}; taken as drawn in every hour",
            "pue: 1.5, near the average that the Uptime Institute's yearly survey has found since 2018",
            "kwh: 0.20 dollars, near the European Union's price for firms in 2024",
            "space: 217.30 dollars for a kW and month (CBRE, first quarter of 2025, world average)",
            "people: 1,200 dollars for a GPU and year, an engineer for about 125 GPUs; our guess",
        ),
    )


def _price(fact: GpuFact) -> tuple[int, str]:
    if fact.price is not None:
        return fact.price, fact.price_source
    known = BY_MODEL[UNKNOWN]
    guess = round((known.price or 0) * fact.speed_permille / known.speed_permille)
    return guess, f"none found for {fact.model}; an {UNKNOWN}'s by speed, a guess"


#: Numbers that are no money, with their bounds. `hour` replaces everything.
NUMBERS: Final = {"life": (0.5, 30.0), "pue": (1.0, 5.0), "watts": (1.0, 100_000.0)}
KEYS: Final = ("price", "life", "watts", "pue", "kwh", "space", "people", "hour")


def own_cost(model: str, given: Iterable[str], to: ReportCurrency = DOLLARS) -> OwnCost:
    """The defaults for this model with what a person said of it, in the report's currency."""
    cost = default_cost(model, to)
    for text in given:
        key, equals, amount = (part.strip() for part in text.partition("="))
        if not equals or key not in KEYS:
            raise BadInput(f"--own-cost is KEY=VALUE with a key of {', '.join(KEYS)}, not '{text}'.")
        cost = replace(_with(cost, key, amount), notes=(*_others(cost.notes, key), f"{key}: {amount}, as told"))
    return cost


def _with(cost: OwnCost, key: str, text: str) -> OwnCost:
    amount = 0 if key in NUMBERS else amount_of(f"--own-cost {key}", text)
    match key:
        case "price":
            return replace(cost, price=amount)
        case "life":
            return replace(cost, life_years=_number(key, text))
        case "watts":
            return replace(cost, watts=round(_number(key, text)))
        case "pue":
            return replace(cost, pue=_number(key, text))
        case "kwh":
            return replace(cost, kwh=amount)
        case "space":
            return replace(cost, space_kw_month=amount)
        case "people":
            return replace(cost, people_year=amount)
        case _:  # an hour
            return replace(cost, price=0, watts=0, people_year=amount * HOURS_A_YEAR)


def _others(notes: tuple[str, ...], key: str) -> tuple[str, ...]:
    return () if key == "hour" else tuple(note for note in notes if not note.startswith(f"{key}:"))


def _number(key: str, text: str) -> float:
    least, most = NUMBERS[key]
    try:
        number = float(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadInput(f"--own-cost {key} is a number from {least:g} to {most:g}, not '{text}'.")
    return number
