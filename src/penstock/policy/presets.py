"""Policies by name. The baselines are the waiting policies of Starburst (USENIX ATC'24), each a few parameters of the
one engine: first come first served, first fit, and a patience that is a share of a job's size."""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from typing import Final, Protocol

from penstock.core.errors import BadInput
from penstock.core.model.types import JobSpec, Policy, Waiting
from penstock.core.units import DAY, HOUR, Millis, Money, money

BASELINES: Final = ("nowait", "constant", "compute", "compute-q30", "power")
DEFAULT_KNOB: Final = "0.25"
#: Ours, ours without moves, and ours where run times are declared and right. The knob is the cost of delay: what an
#: hour of it costs, for one job.
OURS: Final = ("penstock", "penstock-no-moves", "penstock-known")
DEFAULT_VALUE: Final = "20"
#: A day, less what starting, restarting and lost work may add: nobody is delayed by more than a day because of us.
MOST_MS: Final = 23 * HOUR
#: Who says how long it runs is told when it will start, and may be asked to wait as long as its bill buys.
MOST_KNOWN_MS: Final = 30 * DAY


class HasRun(Protocol):
    """A job of a trace, as far as the baselines look at it."""

    @property
    def run_ms(self) -> Millis: ...

    @property
    def spec(self) -> JobSpec: ...


def policy(
    name: str, knob: str | None, jobs: Sequence[HasRun], *, target_delay_ms: Millis = 0, target_spend: Money = 0
) -> Policy:
    """`knob` is the paper's waiting budget: the mean patience over the trace, as a share of the mean run time."""
    if name in OURS:
        return ours(name, knob or DEFAULT_VALUE, target_delay_ms, target_spend)
    if target_delay_ms or target_spend:
        raise BadInput(f"'{name}' has no cost of delay that could follow a target; choose --policy penstock.")
    if name not in BASELINES:
        raise BadInput(f"There is no policy '{name}'; choose one of {', '.join(OURS + BASELINES)}.")
    budget = _budget(knob or DEFAULT_KNOB)
    kind = "compute" if name == "compute-q30" else name
    waiting = _waiting(kind, budget, jobs, 30 if name == "compute-q30" else None)
    return Policy(name, knob=str(knob or DEFAULT_KNOB), backfill=kind in ("compute", "power"), waiting=waiting)


def ours(name: str, value: str, target_delay_ms: Millis = 0, target_spend: Money = 0) -> Policy:
    """Burst when delay costs more than renting; come home when that pays."""
    if target_delay_ms and target_spend:
        raise BadInput("Name one target, --target-delay or --target-spend: the cost of delay cannot follow two.")
    per_hour = money(value)
    if per_hour < 0:
        raise BadInput(f"--cost-of-delay is what an hour of delay costs and cannot be negative, but is {value}.")
    moves = name == "penstock"
    known = name == "penstock-known"
    waiting = Waiting(
        "worth",
        value_per_hour=per_hour,
        most_ms=MOST_KNOWN_MS if known else MOST_MS,
        target_delay_ms=target_delay_ms,
        target_spend=target_spend,
    )
    return Policy(
        name,
        knob=value,
        ordering="priority" if known else "fair",
        packing="ends_alike" if known else "best_fit",
        waiting=waiting,
        estimator="declared" if known else "life_table",
        home=moves,
        defragment=moves,
        displace=moves,
        share_nodes=True,
        reserve=True,
    )


def at_cost_of_delay(chosen: Policy, value: str | None, target_delay_ms: Millis = 0, target_spend: Money = 0) -> Policy:
    """One of ours at another cost of delay, or one that follows a target; None: at its own."""
    asked = ours("penstock", value or DEFAULT_VALUE, target_delay_ms, target_spend).waiting
    per_hour = chosen.waiting.value_per_hour if value is None else asked.value_per_hour
    waiting = replace(
        chosen.waiting, value_per_hour=per_hour, target_delay_ms=target_delay_ms, target_spend=target_spend
    )
    return replace(chosen, knob=chosen.knob if value is None else value, waiting=waiting)


def _waiting(kind: str, budget: Fraction, jobs: Sequence[HasRun], queue_cap: int | None) -> Waiting:
    match kind:
        case "nowait":
            return Waiting("nowait")
        case "constant":
            shapes = len(jobs)
            return Waiting("constant", *_factor(budget, jobs, shapes), queue_cap)
        case "compute":
            shapes = sum(job.spec.gpus * job.run_ms for job in jobs)
            return Waiting("compute", *_factor(budget, jobs, shapes), queue_cap)
        case _:
            shapes = sum(isqrt((job.spec.gpus * job.run_ms) ** 3) for job in jobs)
            return Waiting("power", *_factor(budget, jobs, shapes), queue_cap)


def _factor(budget: Fraction, jobs: Sequence[HasRun], shapes: int) -> tuple[int, int]:
    """Patience x shape sums up to budget x run time over the trace; the division is left to the very end."""
    return budget.numerator * sum(job.run_ms for job in jobs), max(1, budget.denominator * shapes)


def _budget(text: str) -> Fraction:
    if not re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", text):  # plain decimals: 1e999999999 would be a number, too
        raise BadInput(f"--knob is a waiting budget like 0.25, not '{text}'.")
    if text.startswith("-"):
        raise BadInput(f"--knob is a waiting budget and cannot be negative, but is {text}.")
    return Fraction(text)
