"""Penstock itself, places and money over HTTP."""

import asyncio
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.model import events as e
from penstock.core.units import HOUR, money
from penstock.drivers.driver import Unreachable
from penstock.journal.journal import Unwritable
from penstock.live.plane import NotReady, Quarantined
from penstock.live.view import View
from penstock.telemetry import Metrics
from penstock.web.problems import problem_of
from tests.awaiting import story
from tests.conftest import ROOT
from tests.web.kit import CLOUD, LAB, WAITS, running


@story
async def test_health_is_answered_while_the_engine_thinks(tmp_path: Path) -> None:
    """The engine is kept busy in its thread for as long as it takes to be asked."""
    async with running(tmp_path) as penstock:
        asked, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def thinks() -> None:
            loop.call_soon_threadsafe(asked.set)
            go_on.wait(30)

        thinking = penstock.plane.thread.call(thinks)
        await asked.wait()
        assert (await penstock.client("").get("/healthz")).json() == {"ok": True, "says": ""}
        assert (await penstock.admin.get("/v1/jobs")).status_code == 200
        assert (await penstock.admin.get("/v1/sites")).status_code == 200
        go_on.set()
        await thinking


@story
async def test_paused_nothing_starts_and_resumed_it_does(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        assert (await penstock.admin.post("/v1/pause")).status_code == 200
        job = await penstock.submits()
        shown = (await penstock.admin.get(f"/v1/jobs/{job}")).json()
        assert shown["state"] == "queued"
        await penstock.admin.post("/v1/resume")
        assert (await penstock.until(job))["state"] == "succeeded"
        status = (await penstock.admin.get("/v1/status")).json()
        assert (status["paused"], status["ready"], status["policy"]) == (False, True, "nowait")


@story
async def test_sites_and_offers_show_what_is_busy_and_what_it_costs(tmp_path: Path) -> None:
    async with running(tmp_path, LAB, CLOUD) as penstock:
        job = await penstock.submits(command=WAITS)
        await penstock.until_prints(job, "runs")
        await _drawn(penstock)
        cloud, lab = (await penstock.admin.get("/v1/sites")).json()["sites"]
        owned, pods = lab["offers"][0], cloud["offers"][0]
        assert (owned["gpus"], owned["busy"], owned["idle"], owned["free"]) == (2, 1, 1, [1])
        assert (pods["gpus"], pods["busy"], pods["guarantee"], pods["closed_until_at"]) == (4, 0, "hard", None)
        offers = (await penstock.admin.get("/v1/offers")).json()["offers"]
        assert [(offer["id"], offer["sizes"][0]["price_per_hour"]) for offer in offers] == [
            ("cloud/pods", money("3.60")),
            ("lab/owned", money("1")),
        ]


async def _drawn(penstock: Any) -> None:
    """The picture is drawn after what made it necessary was answered; one more step makes sure of it."""
    await penstock.admin.post("/v1/resume")
    while penstock.plane.view.number < penstock.plane.number:
        await asyncio.sleep(0.01)


@story
async def test_who_was_answered_sees_it_however_much_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the inbox was never empty, the view was up to 200 ms behind: a cap that had just been set was not there."""
    monkeypatch.setattr("penstock.live.published_view.DRAWN_MS", HOUR)
    monkeypatch.setattr("penstock.live.published_view.LONG_MS", HOUR)
    async with running(tmp_path) as penstock:

        async def write() -> None:
            while True:
                await penstock.plane.tell(e.CapSet(0, "team:others", 1))

        async def status() -> Any:
            return (await penstock.admin.get("/v1/status")).json()

        writing = [asyncio.ensure_future(write()) for _ in range(3)]
        await penstock.admin.post("/v1/pause")
        assert (await status())["paused"]
        for jobs in (1, 2, 3):
            await penstock.submits()
            assert (await status())["queued"] == jobs
            await penstock.admin.put("/v1/budget", json={"scope": "team:a", "per_month": jobs * 1_000_000})
            wish = {"scope": "team:a", "per_month": jobs * 1_000_000, "per_hour": None, "reason": "the same"}
            assert (await penstock.admin.post("/v1/budget/raise", json=wish)).status_code == 409
        for task in writing:
            task.cancel()


@story
async def test_a_rented_job_is_held_exposed_and_charged(tmp_path: Path) -> None:
    async with running(tmp_path, CLOUD, caps={"team:a": "500", "org": "1000"}) as penstock:
        job = await penstock.submits(penstock.team("a"), command=WAITS, grace="1s")
        await penstock.until_prints(job, "runs")
        await _drawn(penstock)
        scopes = {scope["scope"]: scope for scope in (await penstock.admin.get("/v1/budget")).json()["scopes"]}
        mine = scopes["team:a"]
        assert mine["cap"] == money("500")
        assert mine["held"] > 0
        assert mine["free"] == mine["cap"] - mine["held"] - mine["spent"]
        exposure = (await penstock.admin.get("/v1/exposure")).json()
        assert exposure["most"] == mine["held"] == exposure["teams"][0]["most"] == exposure["sites"][0]["most"]
        assert (exposure["teams"][0]["name"], exposure["sites"][0]["name"], exposure["soft"]) == ("a", "cloud", 0)
        theirs = (await penstock.team("b").get("/v1/exposure")).json()
        assert (theirs["most"], theirs["teams"], theirs["sites"]) == (0, [], [])
        await penstock.admin.post(f"/v1/jobs/{job}/cancel")
        ended = await penstock.until(job)
        assert ended["spent"] > 0
        costs = (await penstock.admin.get("/v1/costs")).json()
        assert costs["spent"] == ended["spent"] == sum(row["spent"] for row in costs["rows"])
        assert [(row["offer"], row["team"], row["term"]) for row in costs["rows"]] == [("cloud/pods", "a", "on_demand")]


@story
async def test_a_cap_is_set_binds_and_is_taken_away(tmp_path: Path) -> None:
    async with running(tmp_path, CLOUD) as penstock:
        cap = {"scope": "team:a", "per_month": 1}
        assert (await penstock.admin.put("/v1/budget", json=cap)).json()["says"] == "The cap of team:a is set."
        job = await penstock.submits(penstock.team("a"))
        shown = await penstock.until(job, "queued")
        assert (shown["short_of"], shown["because"]["kind"]) == ("team:a", "CapBinds")
        assert shown["because"]["says"].startswith("Budget reached: team:a may spend $0.00 in ")
        await _drawn(penstock)
        rows = (await penstock.admin.get("/v1/budget")).json()["scopes"]
        assert {row["scope"]: row["waiting"] for row in rows}["team:a"] == 1
        for client in (penstock.admin, penstock.team("a", "viewer")):  # 45 jobs waited for a month, and no line said so
            page = (await client.get("/")).text
            assert "1\u00a0job waits for money of team:a: $0.00 is free this month." in page
        assert "for money of" not in (await penstock.team("b", "viewer").get("/")).text
        await penstock.admin.put("/v1/budget", json={"scope": "team:a"})
        assert (await penstock.until(job))["state"] == "succeeded"


@pytest.mark.parametrize(
    "cap",
    [{"scope": "everybody", "per_month": 1}, {"scope": "org", "per_month": -1}, {"scope": "org", "per_moth": 1}, {}],
)
def test_a_cap_that_is_none_is_refused(cap: dict[str, Any]) -> None:
    from pydantic import ValidationError

    from penstock.web.schemas import Cap

    with pytest.raises(ValidationError):
        Cap.model_validate(cap)


@story
async def test_while_the_journal_cannot_be_written_people_are_told_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:

        def full(*_: object) -> None:
            raise Unwritable("the disk is full")

        keeper: Any = penstock.plane.journal
        keeper.append = full
        keeper.renew = full
        answer = await penstock.admin.post("/v1/jobs", json={"gpus": 1, "command": "true"})
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "Free space on its disk" in answer.json()["detail"]
        ready = await penstock.client("").get("/readyz")
        assert (ready.status_code, ready.json()["ok"]) == (503, False)
        assert (await penstock.client("").get("/healthz")).status_code == 200
        assert (await penstock.admin.get("/v1/jobs")).json()["jobs"] == []
        del keeper.append, keeper.renew
        while (await penstock.client("").get("/readyz")).status_code != 200:
            await asyncio.sleep(0.1)
        await penstock.until(await penstock.submits())


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NotReady("x"), 503, "not-ready"),
        (Unwritable("x"), 503, "not-ready"),
        (Unreachable("x"), 503, "unreachable"),
        (Quarantined("x"), 500, "quarantined"),
        (ZeroDivisionError("secret"), 500, "bug"),
    ],
)
def test_what_is_raised_becomes_a_problem(error: Exception, status: int, kind: str) -> None:
    problem = problem_of(error).body()
    assert (problem["status"], problem["type"]) == (status, f"urn:penstock:{kind}")
    assert "secret" not in str(problem)


@story
async def test_an_address_that_is_none_is_a_problem_too(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        for method, path, status in (
            ("GET", "/v1/none", 404),
            ("PATCH", "/v1/jobs", 405),
            ("GET", "/v1/jobs/a/b/c", 404),
        ):
            answer = await penstock.admin.request(method, path)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


@story
async def test_the_description_has_every_route_with_an_example_of_a_job(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        description = (await penstock.client("").get("/v1/openapi.json")).json()
        body = description["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]
        assert set(body) == {"application/json", "application/yaml"}
        assert all("example" in content for content in body.values())
        assert description["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
        for path, routes in description["paths"].items():
            for route in routes.values():
                assert route["summary"], path


# --- metrics ---------------------------------------------------------------------------------------------------------


@story
async def test_metrics_say_what_there_is(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"org": "100"}) as penstock:
        await penstock.until(await penstock.submits(penstock.team("a")))
        await _drawn(penstock)
        text = (await penstock.admin.get("/metrics")).text
        lines = set(text.splitlines())
        assert 'penstock_jobs{state="succeeded",team="a"} 1.0' in lines
        assert 'penstock_gpus{offer="lab/owned",site="lab",state="idle",term="owned"} 2.0' in lines
        assert "penstock_ready 1.0" in lines
        assert 'penstock_http_requests_total{method="POST",route="/v1/jobs",status="201"} 1.0' in lines


@story
async def test_addresses_do_not_become_metrics(tmp_path: Path) -> None:
    """Otherwise anybody could fill the memory with them."""
    async with running(tmp_path) as penstock:
        for k in range(5):
            await penstock.admin.get(f"/v1/jobs/j{k}")
            await penstock.admin.get(f"/nowhere/{k}")
            await penstock.admin.request(f"ODD{k}", "/v1/jobs")
        text = (await penstock.admin.get("/metrics")).text
        assert "nowhere" not in text
        assert "j3" not in text
        assert "ODD" not in text


def test_the_documentation_names_every_metric_and_no_other() -> None:
    view = SimpleNamespace(
        **dict.fromkeys(("paused", "waiting", "running", "exposure", "number", "revision"), 0),
        **dict.fromkeys(("alarms", "sites", "budgets", "ended", "approvals", "raises"), ()),
        period="",
    )
    metrics = Metrics(lambda: cast("View", view), lambda: True, list)
    named = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in metrics.registry.collect()
    }
    text = (ROOT / "docs" / "operations.md").read_text("utf-8").split("### Metrics")[1].split("\n## ")[0]
    assert set(re.findall(r"`(penstock_\w+)`", text)) == named
