"""Routes that FastAPI's layers are left out of: they answer as all others do."""

from pathlib import Path

import pytest

from penstock.live.plane import Plane
from penstock.web.fast_route import FastRoute
from penstock.web.limits import MOST_BYTES
from tests.awaiting import story
from tests.web.kit import running

JOB = {"gpus": 1, "command": "true"}


@story
async def test_every_answer_of_a_fast_route_says_what_all_answers_say(tmp_path: Path) -> None:
    """What it is, and that nobody keeps it; also if it is a problem."""
    async with running(tmp_path) as penstock:
        answers = [
            await penstock.client("").get("/healthz"),
            await penstock.admin.get("/v1/jobs"),
            await penstock.admin.post("/v1/jobs", json=JOB),
            await penstock.admin.post("/v1/jobs", json={}),
            await penstock.client("").post("/v1/jobs", json=JOB),
            await penstock.admin.get("/v1/jobs", params={"limit": 1_000}),
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 201, 422, 401, 422]
        for answer in answers:
            assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]
            assert answer.headers.get_list("Cache-Control") == ["no-store"]
        assert answers[2].headers["Location"] == f"/v1/jobs/{answers[2].json()['job']}"
        counted = (await penstock.admin.get("/metrics")).text
        assert 'penstock_http_requests_total{method="POST",route="/v1/jobs",status="422"} 1.0' in counted


@story
async def test_a_fast_route_takes_nothing_from_a_page_of_another_site_and_no_huge_body(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        foreign = await penstock.admin.post("/v1/jobs", json=JOB, headers={"Origin": "https://elsewhere.example"})
        assert (foreign.status_code, foreign.json()["type"]) == (403, "urn:penstock:forbidden")
        huge = await penstock.admin.post("/v1/jobs", content=b" " * (MOST_BYTES + 1))
        assert (huge.status_code, huge.headers["Connection"]) == (413, "close")
        assert (await penstock.admin.get("/v1/jobs")).json()["jobs"] == []


@story
async def test_what_nobody_expected_is_a_problem_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as penstock:
        with monkeypatch.context() as broken:
            broken.setattr(Plane, "ready", property(lambda _: 1 // 0))
            answer = await penstock.client("").get("/readyz")
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:penstock:bug")
        assert "division" not in answer.text
        assert (await penstock.client("").get("/readyz")).status_code == 200


def test_a_fast_route_without_a_permission_is_refused() -> None:
    async def open_door() -> None: ...

    with pytest.raises(RuntimeError, match="declares no permission"):
        FastRoute("/open", open_door)
