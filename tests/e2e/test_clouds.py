"""The tale of two clouds, the very same that `make demo-clouds` shows: a real Karpenter, and counted figures."""

import json
from pathlib import Path

import pytest

from penstock.demo.clouds import CLAIMS, JOBS, untrue
from penstock.demo.clusters import short
from penstock.demo.observer import Observer
from penstock.devcluster import karpenter, programs
from tests.conftest import Part
from tests.demos import play

LIMIT_S = 800  #: it takes about three minutes on two idle cores; a busy machine is not a broken tale


@pytest.mark.slow
def test_a_peak_rents_from_zero_at_two_clouds_and_all_of_it_is_given_back_and_billed(tmp_path: Path) -> None:
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if not karpenter.is_available():
        pytest.skip(Part.KARPENTER)
    done = play(tmp_path, LIMIT_S, "--clouds")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert untrue(figures) == []

    seen = Observer(tmp_path / "penstock-demo" / "demo.journal")
    seen.look()
    assert sorted(short(trail.spec.name) for trail in seen.jobs.values()) == sorted(JOBS)
    assert all(trail.done for trail in seen.jobs.values())
    assert "The bill:" in done.stdout


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_about_the_clouds_that_is_not_true_is_found(claim: str) -> None:
    figures = {**CLAIMS, "rented": 7, "stock_outs": 1}
    assert untrue(figures) == []
    assert untrue({**figures, claim: "otherwise"}) == [claim]
    for count in ("rented", "stock_outs"):
        assert untrue({**figures, count: 0}) == [count]
