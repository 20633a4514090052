"""Transient clusters over HTTP and by `penstock cluster`: all may look, operators ask."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.web.routes.clusters import _seen_by
from tests.awaiting import story
from tests.stories.kit import cap, given, submitted
from tests.stories.test_transient import burst
from tests.web.kit import running


def test_a_team_sees_its_own_attempts_in_a_cluster_and_money_only_of_its_own_budget() -> None:
    """Every team saw the attempts of all others there, and what the cluster's budget had spent."""
    penstock = given(burst(), cap("team:platform", "500"))
    for job, team in (("a", "vision"), ("b", "speech")):
        penstock.hears(submitted(job, run="1h", team=team), at="09:00")
    (whole,) = _seen_by("", penstock.engine.state)
    assert whole.used_by == ("a.1", "b.1")
    assert whole.held
    for team, attempts in (("vision", ("a.1",)), ("speech", ("b.1",)), ("audio", ())):
        (seen,) = _seen_by(team, penstock.engine.state)
        assert (seen.used_by, seen.budget, seen.spent, seen.held, seen.because) == (attempts, "", None, None, None)
        assert (seen.site, seen.cluster, seen.state) == (whole.site, whole.cluster, whole.state)
    (own,) = _seen_by("platform", penstock.engine.state)
    assert (own.used_by, own.budget, own.held) == ((), "team:platform", whole.held)


ALWAYS_THERE = Site("cloud", (Offer("cloud/nodes", "cloud", "on_demand", (NodeShape(2, 1, list_per_hour=1_000_000),)),))


@story
async def test_who_asks_for_a_cluster_where_none_comes_and_goes_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, ALWAYS_THERE) as penstock:
        assert (await penstock.team("vision").get("/v1/clusters")).json()["clusters"] == []
        assert (await penstock.team("vision").post("/v1/clusters/cloud/up", json={"hours": 1})).status_code == 403
        monkeypatch.setenv("PENSTOCK_URL", penstock.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", penstock.token("operator")[1])
        assert await asyncio.to_thread(main, ("cluster", "ls")) == 0
        assert capsys.readouterr().out == "No site has a transient cluster.\n"
        assert await asyncio.to_thread(main, ("cluster", "ls", "--json")) == 0
        assert json.loads(capsys.readouterr().out)["clusters"] == []
        for words in (("up", "cloud"), ("down", "cloud")):
            assert await asyncio.to_thread(main, ("cluster", *words)) == 2
            assert "There is no site 'cloud' with a transient cluster; with one: none." in capsys.readouterr().err
        for wrong in ("3x", "40d", "0s"):
            assert await asyncio.to_thread(main, ("cluster", "up", "cloud", "--for", wrong)) == 2
            assert "--for: " in capsys.readouterr().err
