"""`bench.forecast`: no forecaster knows more than was known, and the page says what the stored run measured."""

import json
import math

import pytest

from bench import forecast
from bench.forecasters import FIT_FROM_H, FORECASTERS, Forecaster
from bench.library_forecasts import MODELS, installed
from penstock.forecast.demand import DAY_H, usual_hours
from tests.conftest import ROOT

HISTORY = [
    200 + 80 * math.sin(hour / DAY_H * 2 * math.pi) + 40 * (hour // DAY_H % 7 >= 5) + hour * 7919 % 31
    for hour in range(FIT_FROM_H + 6 * DAY_H)
]

each = pytest.mark.parametrize("forecaster", FORECASTERS, ids=lambda forecaster: forecaster.name)


@each
def test_a_forecaster_uses_only_what_was_known(forecaster: Forecaster) -> None:
    known = FIT_FROM_H + 2 * DAY_H + 5
    all_told = forecaster.expects([*HISTORY[:known], *(0.0 for _ in HISTORY[known:])])
    by_then = forecaster.expects(HISTORY[:known])
    for ahead in forecast.AHEAD:
        assert by_then(known, ahead) == all_told(known, ahead)
        assert by_then(known - 40, ahead) == all_told(known - 40, ahead)


@each
def test_a_forecaster_scales_with_the_demand(forecaster: Forecaster) -> None:
    double = forecaster.expects([2 * gpus for gpus in HISTORY])
    for ahead in forecast.AHEAD:
        assert double(len(HISTORY), ahead) == pytest.approx(2 * forecaster.expects(HISTORY)(len(HISTORY), ahead))


def test_forecasts_are_scored_and_one_is_kept() -> None:
    result = forecast.compared({"made up": HISTORY}, every=24)
    compared = (*FORECASTERS, *(MODELS if installed() else ()))
    assert list(result["rows"]) == [forecaster.name for forecaster in compared]
    losses = {name: by_trace["made up"]["p90"] for name, by_trace in result["rows"].items()}
    assert losses[result["kept"]] <= 1.03 * min(losses.values())
    assert f"**{result['kept']}**" in forecast.tables(result)


def test_of_those_within_3_percent_the_simplest_is_kept() -> None:
    assert forecast.kept({"plain": {"t": {"p90": 1.02}}, "clever": {"t": {"p90": 1.0}}}) == "plain"
    assert forecast.kept({"plain": {"t": {"p90": 1.04}}, "clever": {"t": {"p90": 1.0}}}) == "clever"


def test_a_loss_counts_what_is_missed_nine_times_what_is_left_over() -> None:
    assert forecast.pinball(10, 8, 0.9) == pytest.approx(1.8)
    assert forecast.pinball(8, 10, 0.9) == pytest.approx(0.2)


def test_the_page_says_what_the_stored_run_measured_and_the_package_has_the_one_that_was_kept() -> None:
    result = json.loads(forecast.STORED.read_text("utf-8"))
    page = (ROOT / "docs" / "forecast.md").read_text("utf-8")
    assert forecast.tables(result) in page, "python -m bench.forecast --write"
    assert next(forecaster for forecaster in FORECASTERS if forecaster.name == result["kept"]).expects is usual_hours


def test_bad_words_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    bad = [(["--traces", "mars"], "no trace mars"), (["--fast", "--write"], "a whole run")]
    if not installed():
        bad.append((["--write"], "statsforecast is not installed, so its models are left out."))
    for words, why in bad:
        with pytest.raises(SystemExit) as end:
            forecast.main(words)
        assert end.value.code == 2
        assert why in capsys.readouterr().err
