"""Money is only a measure: prices at the same ratios decide the same, and offers nobody took change nothing."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from penstock.core.engine import Step
from penstock.core.model import events as e
from penstock.core.model.reasons import PatienceOver, WaitsForOwned
from penstock.core.model.types import EgressTier, Extras, NodeShape, Offer, Part, Policy, Site, Terms
from penstock.core.units import HOUR
from penstock.sim.scenario import Scenario
from tests.parity import chosen, scenario, steps_of

#: Fields that hold money, by the class they are in; a micro-unit a period for rounding is taken off apart.
ROUND = 100 * HOUR  # an hourly price that is a multiple of this costs a whole amount for every millisecond


def scaled_site(site: Site, k: int) -> Site:
    def shape(size: NodeShape) -> NodeShape:
        whole = -(-size.list_per_hour // ROUND) * ROUND * k
        most = None if size.most_per_hour is None else -(-size.most_per_hour // ROUND) * ROUND * k
        return replace(size, list_per_hour=whole, most_per_hour=most)

    offers = tuple(replace(offer, shapes=tuple(map(shape, offer.shapes))) for offer in site.offers)
    tiers = tuple(EgressTier(tier.up_to_gb, tier.per_gb * k) for tier in site.egress)
    return replace(site, offers=offers, egress=tiers)


def scaled(made: Scenario, k: int) -> Scenario:
    return replace(made, sites=tuple(scaled_site(site, k) for site in made.sites), caps=())


def totals(steps: Iterable[Step]) -> dict[str, int]:
    """What each thing was charged in all."""
    sums: dict[str, int] = {}
    for step in steps:
        for event in step.outputs:
            if isinstance(event, (e.Settled, e.LeaseRenewed)):
                sums[event.hold] = sums.get(event.hold, 0) + sum(part.amount for part in event.charged)
    return sums


def without_money(value: Any) -> Any:
    """The same value with every amount left out."""
    if isinstance(value, (Part, Terms, NodeShape, Extras, EgressTier)):
        return type(value).__name__
    if isinstance(value, tuple):
        return tuple(without_money(item) for item in value)
    if is_dataclass(value):
        skip = ("cost", "next_cost", "burst_cost", "returned", "gain", "saves", "value_per_hour", "price_per_hour")
        return tuple((f.name, without_money(getattr(value, f.name))) for f in fields(value) if f.name not in skip)
    return value


def valued(policy: Policy, k: int) -> Policy:
    """What an hour of waiting is worth is money, too; 0 where the policy does not weigh it."""
    return replace(policy, waiting=replace(policy.waiting, value_per_hour=policy.waiting.value_per_hour * k))


@pytest.mark.parametrize("name", ["compute", "nowait", "penstock-known"])
def test_prices_times_k_are_money_times_k_and_no_other_decision(name: str) -> None:
    made = scenario()
    unscaled, _ = steps_of(scaled(made, 1), valued(chosen(made, name), 1))
    three, _ = steps_of(scaled(made, 3), valued(chosen(made, name), 3))
    assert [without_money((step.inputs, step.outputs, step.actions)) for step in unscaled] == [
        without_money((step.inputs, step.outputs, step.actions)) for step in three
    ]
    paid = totals(unscaled)
    assert len(paid) > 20
    assert totals(three) == {thing: 3 * amount for thing, amount in paid.items()}


def test_an_offer_that_was_never_chosen_changes_nothing() -> None:
    made = scenario()
    beside = Offer("moon/gold", "moon", "on_demand", (NodeShape(8, list_per_hour=10**12),), start_ms=HOUR)
    more = replace(made, sites=(*made.sites, Site("moon", (beside,))))
    without, first = steps_of(made, chosen(made))
    with_it, second = steps_of(more, chosen(made))
    assert [_facts(step) for step in without] == [_facts(step) for step in with_it]
    assert [_promises(step) for step in without] == [_promises(step) for step in with_it]
    assert [step.actions for step in without] == [step.actions for step in with_it]
    assert first.state.ledger.exposure() == second.state.ledger.exposure()


def _facts(step: Step) -> list[e.Event]:
    return [event for event in step.inputs if not isinstance(event, e.SiteJoined)]


def _promises(step: Step) -> list[e.Event]:
    """Verdicts name every offer, and a reason its runner-up: apart from those, all is the same."""
    kept: list[e.Event] = []
    for event in step.outputs:
        if isinstance(event, e.ShapeJudged):
            continue
        because = getattr(event, "because", None)
        if isinstance(event, e.StartPromised) and isinstance(because, PatienceOver):
            event = replace(event, because=replace(because, next_offer="", next_cost=0))
        kept.append(event)
    return kept


def test_what_waits_says_the_same_of_bursting_whoever_else_sells() -> None:
    made = scenario()
    steps, _ = steps_of(made, chosen(made))
    reasons = [event.because for step in steps for event in step.outputs if isinstance(event, e.WaitPromised)]
    assert any(isinstance(because, WaitsForOwned) and because.burst_cost for because in reasons)
