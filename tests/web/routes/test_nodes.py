"""What is rented, over HTTP and by `penstock nodes`: each team sees its own, and only operators ask the sites."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import HOUR, SECOND, money
from tests.awaiting import story
from tests.web.kit import WAITS, running

SHAPES = (NodeShape(2, 1, list_per_hour=money("3.60")),)
RENTED = Site("cloud", (Offer("cloud/nodes", "cloud", "on_demand", SHAPES, "A100", kill_ms=5 * SECOND),))


@story
async def test_a_rented_node_is_listed_with_whom_it_is_for_until_when_and_at_what_price(tmp_path: Path) -> None:
    async with running(tmp_path, RENTED) as penstock:
        vision, speech = penstock.team("vision"), penstock.team("speech")
        assert (await vision.get("/v1/nodes")).json()["nodes"] == []
        job = await penstock.submits(vision, command=WAITS, team="vision")
        await penstock.until(job, "running")
        listing = (await vision.get("/v1/nodes")).json()
        (node,) = listing["nodes"]
        assert (node["id"], node["offer"], node["gpus"], node["phase"]) == (f"{job}.1/n0", "cloud/nodes", 2, "busy")
        assert (node["team"], node["on"], node["attempt"]) == ("vision", [f"{job}.1"], f"{job}.1")
        assert (node["price_per_hour"], node["renewable"]) == (money("3.60"), True)
        assert node["asked_at"] < node["deadline_at"] <= node["asked_at"] + 12 * HOUR
        assert node["because"]["kind"] == "PatienceOver"
        assert (await speech.get("/v1/nodes")).json()["nodes"] == []
        assert (await speech.get("/v1/leaks")).status_code == 403
        assert (await penstock.admin.get("/v1/leaks")).json() == {"leaks": []}


@story
async def test_the_command_shows_what_the_server_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, RENTED) as penstock:
        monkeypatch.setenv("PENSTOCK_URL", penstock.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", penstock.token("operator")[1])
        assert await asyncio.to_thread(main, ("nodes",)) == 0
        assert capsys.readouterr().out == "Nothing is rented.\n"
        job = await penstock.submits(command=WAITS)
        await penstock.until(job, "running")
        assert await asyncio.to_thread(main, ("nodes", "--json")) == 0
        assert [node["id"] for node in json.loads(capsys.readouterr().out)["nodes"]] == [f"{job}.1/n0"]
        assert await asyncio.to_thread(main, ("nodes", "-o", "wide")) == 0
        table = capsys.readouterr().out
        assert all(words in table for words in ("cloud/nodes", "busy", "default", "yes"))
