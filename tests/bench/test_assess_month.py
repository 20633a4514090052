"""`bench.assess_month` in small: it makes the whole report of a month, and says what that took."""

import json

import pytest

from bench import assess_month
from bench.assess import VIEWS


@pytest.mark.parametrize("view", VIEWS)
def test_a_whole_report_is_made_of_each_view(view: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert assess_month.main(["--jobs", "40", "--view", view, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["engine"], result["view"]) == ("plain", view)
    assert 30 <= result["jobs"] <= 40
    assert result["cpu_s"] > 0
    assert result["page_kb"] > 50
    assert f"{result['jobs']} jobs on {result['owned_gpus']} GPUs ({view}" in assess_month.as_text(result)
