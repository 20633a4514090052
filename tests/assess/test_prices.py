"""The price table and what an owned GPU costs: every fact has its source and date, and nothing is guessed silently."""

import re
from dataclasses import replace

import pytest

from penstock.assess.demo_month import demo_reading, generated_month
from penstock.assess.gpus import FACTS, NEWER, model_of
from penstock.assess.history import OwnedGpus
from penstock.assess.join import join
from penstock.assess.own_cost import LEAN, default_cost, own_cost
from penstock.assess.prices import DOLLARS, TABLE, quote, report_currency
from penstock.assess.report import assess
from penstock.core.errors import BadInput
from penstock.core.units import MICRO, money


def test_each_price_has_a_source_and_a_date() -> None:
    assert {"AWS", "Azure", "GCP"} <= {row.cloud for row in TABLE}
    assert len({row.cloud for row in TABLE if row.european}) >= 3
    for row in TABLE:
        assert row.source
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.dated)
        assert row.on_demand or row.spot
        assert row.gpu in {fact.model for fact in FACTS}
        if row.on_demand_gpu_hour and row.spot_gpu_hour:
            assert row.spot_gpu_hour <= row.on_demand_gpu_hour


def test_a_quote_is_the_median_cloud_or_the_named_one() -> None:
    h100 = quote("H100")
    assert h100 is not None
    assert (h100.source, h100.on_demand) == ("AWS p5.48xlarge, eu-north-1, 2026-08-22", money("7.3616"))
    assert (h100.low, h100.high) == (money("3.25"), money("12.29"))
    named = quote("H100", "nebius")
    assert named is not None
    assert (named.on_demand, named.spot) == (money("3.85"), money("2.15"))
    assert quote("A0") is None
    with pytest.raises(BadInput, match="no H100 of 'Mars'; it has Verda, Nebius"):
        quote("H100", "Mars")


def test_a_cloud_without_spot_is_given_the_usual_discount() -> None:
    h100 = quote("H100", "Azure")
    assert h100 is not None
    assert h100.spot is not None
    assert 0.3 < h100.spot / h100.on_demand < 0.6


def test_another_currency_needs_a_rate() -> None:
    assert report_currency("usd", None) == DOLLARS
    assert report_currency("EUR", "0.9").of(money("2")) == money("1.8")
    with pytest.raises(BadInput, match=r"say how many EUR a dollar is, like --rate 0\.9"):
        report_currency("EUR", None)
    with pytest.raises(BadInput, match="not 0"):
        report_currency("EUR", "0")


def test_an_owned_gpu_costs_its_parts() -> None:
    cost = own_cost("H100", ("price=35040", "life=4", "watts=1000", "pue=1.5", "kwh=0.20", "space=146", "people=876"))
    assert dict(cost.parts) == {
        "price": money("1"),
        "power": money("0.3"),
        "space": money("0.2"),
        "people": money("0.1"),
    }
    assert cost.gpu_hour == money("1.6")


def test_an_hour_as_told_replaces_everything() -> None:
    cost = own_cost("A100", ("hour=1.50",))
    assert cost.gpu_hour == money("1.5")
    assert cost.notes == ("hour: 1.50, as told",)


def test_each_default_says_where_it_is_from() -> None:
    for fact in FACTS:
        assert {note.partition(":")[0] for note in default_cost(fact.model).notes} == {
            "price", "life", "watts", "pue", "kwh", "space", "people",
        }  # fmt: skip


@pytest.mark.parametrize("text", ["price", "colour=3", "life=0", "life=soon", "pue=9", "price=-1", "price=much"])
def test_a_cost_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        own_cost("H100", (text,))


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("a100", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA L40S", "L40S"),
        ("nvidia_a10g", "A10"),
        ("H100", "H100"),
        ("GTX 1080", ""),
        ("", ""),
    ],
)
def test_models_are_known_by_many_names(text: str, model: str) -> None:
    assert model_of(text) == model


def test_a_newer_generation_is_faster() -> None:
    speed = {fact.model: fact.speed_permille for fact in FACTS}
    assert all(speed[new] > speed[old] for old, new in NEWER.items())


def test_an_owned_gpu_hour_has_one_source() -> None:
    """The plain report took 2.00 for every model, the decision another figure, and the claims a third."""
    truth = generated_month(1, jobs=40, days=2)
    v100 = replace(demo_reading(truth), owned=(OwnedGpus(0, truth.owned_gpus, "V100"),))
    history = join([replace(v100, jobs=tuple(replace(job, gpu_model="V100") for job in v100.jobs))])
    plain = assess(history, gpu_hour=None, currency="USD")
    assert (plain.gpu_hour, plain.gpu_hour_is_assumed) == (default_cost("V100").gpu_hour, True)
    assert round(LEAN.gpu_hour / MICRO, 2) == 1.50
    assert round(default_cost("H100").gpu_hour / MICRO, 2) == 2.00
