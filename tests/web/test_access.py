"""Who may do what: tokens, roles, teams. Rows 19 and 20 of the table of faults."""

from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, WebSocket

from penstock.kube import exec_protocol
from penstock.web.access import TALK, Needs, check_routes, permissions
from penstock.web.app import Limits, build
from penstock.web.tokens import MAY, PREFIX, Role
from tests.awaiting import story
from tests.web.kit import WAITS, Penstock, python, running

ROLES: tuple[Role, ...] = ("admin", "operator", "approver", "member", "viewer")


# --- routes ----------------------------------------------------------------------------------------------------------


def test_a_route_without_a_permission_keeps_the_server_from_starting() -> None:
    app = FastAPI(openapi_url=None)

    @app.get("/open")
    async def forgotten() -> None: ...

    with pytest.raises(RuntimeError, match="GET /open; add Needs"):
        check_routes(app)


def test_what_is_mounted_without_a_permission_is_found_too() -> None:
    app = FastAPI(openapi_url=None)
    app.mount("/files", FastAPI())
    with pytest.raises(RuntimeError, match="/files"):
        check_routes(app)


def test_a_talk_without_a_permission_is_found_too() -> None:
    app = FastAPI(openapi_url=None)

    @app.websocket("/talk")
    async def forgotten(socket: WebSocket) -> None: ...

    with pytest.raises(RuntimeError, match="TALK /talk; add Needs"):
        check_routes(app)


def test_a_route_with_a_permission_is_fine() -> None:
    app = FastAPI(openapi_url=None)

    @app.get("/closed")
    async def closed(caller: Annotated[Any, Depends(Needs("read"))]) -> None: ...

    check_routes(app)
    assert list(permissions(app.routes)) == [("GET", "/closed", "read")]


def every_route(penstock: Penstock) -> list[tuple[str, str, str]]:
    app = build(penstock.plane, penstock.reader, penstock.guard, NoMetrics())
    return [(method, path, needs or "") for method, path, needs in permissions(app.routes)]


class NoMetrics:
    def observe(self, route: str, method: str, status: int, seconds: float) -> None: ...

    def text(self) -> tuple[bytes, str]:
        return b"", "text/plain"


#: A body for each route that needs one, so that nothing but the permission can be in the way.
BODIES: dict[str, Any] = {
    "/v1/jobs": {"gpus": 1, "command": "true"},
    "/v1/plan": {"gpus": 1, "command": "true"},
    "/v1/jobs/{job}/move": {"offer": "lab/owned"},
    "/v1/budget": {"scope": "team:a", "per_month": 1},
    "/v1/budget/raise": {"scope": "team:a", "per_month": 1},
    "/v1/budget/approval": {"scope": "team:a", "approved": True},
    "/v1/jobs/{job}/approval": {"approved": True, "amount": 1},
    "/v1/tokens": {"role": "viewer"},
}


async def ask(client: httpx2.AsyncClient, method: str, path: str, job: str = "none", **params: str) -> httpx2.Response:
    address = path.replace("{job}", job).replace("{token}", "none")
    if path.endswith("/stream"):  # never ends by itself: only its beginning is of interest
        async with client.stream(method, address, headers={"Last-Event-ID": "0"}) as answer:
            if answer.status_code >= 400:
                await answer.aread()
            return answer
    if method == TALK:
        return await client.get(address, params={"command": "true"}, headers=exec_protocol.upgrade())
    body = BODIES.get(path) if method in ("POST", "PUT") else None
    return await client.request(method, address, json=body, params=params)


@story
async def test_every_route_refuses_every_role_that_may_not(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        for role in ROLES:
            client = penstock.client(penstock.token(role)[1])
            for method, path, needs in every_route(penstock):
                answer = await ask(client, method, path)
                allowed = needs == "nothing" or needs in MAY[role]
                assert (answer.status_code == 403) == (not allowed), f"{role} {method} {path}: {answer.status_code}"


@story
async def test_every_route_but_the_open_ones_wants_a_token(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        strangers = [penstock.client(secret) for secret in ("", "pst_forged")]
        for method, path, needs in every_route(penstock):
            for client in strangers:
                answer = await ask(client, method, path)
                assert (answer.status_code == 401) == (needs != "nothing"), f"{method} {path}: {answer.status_code}"
                if needs != "nothing":
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert "Bearer TOKEN" in answer.json()["detail"]


# --- teams (row 19) --------------------------------------------------------------------------------------------------


@story
async def test_fault_19_another_teams_job_is_not_found_on_every_route(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(penstock.team("a"), command=WAITS, name="secret-name")
        await penstock.until_prints(job, "runs")
        about_jobs = [route for route in every_route(penstock) if "{job}" in route[1]]
        assert len(about_jobs) >= 6
        for role in ("member", "viewer"):
            other = penstock.team("b", role)
            for method, path, needs in about_jobs:
                theirs, nobodys = await ask(other, method, path, job), await ask(other, method, path, "none")
                expected = 404 if needs in MAY[role] else 403
                assert theirs.status_code == nobodys.status_code == expected, f"{role} {method} {path}"
                assert theirs.json()["detail"].replace(job, "none") == nobodys.json()["detail"]
        assert (await penstock.until(job, "starting", "running"))["state"] in ("starting", "running")


@story
async def test_fault_19_nothing_that_a_team_can_read_names_another_team(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"team:alpha": "100", "team:beta": "100", "org": "1000"}) as penstock:
        job = await penstock.submits(
            penstock.team("alpha"), command=WAITS, name="secret-name", project="secret-project"
        )
        await penstock.until_prints(job, "runs")
        for role in ("member", "viewer"):
            other = penstock.team("beta", role)
            for method, path, needs in every_route(penstock):
                if method == "GET" and needs == "read" and "{" not in path and not path.endswith("/stream"):
                    answer = await ask(other, method, path)
                    for word in ("alpha", "secret", f'"{job}"'):
                        assert word not in answer.text, f"{path} tells {role}s of team beta: {answer.text}"
        asked = await penstock.team("beta").get("/v1/jobs", params={"team": "alpha"})
        assert asked.json()["jobs"] == []
        asked = await penstock.team("beta").get("/v1/costs", params={"team": "alpha"})
        assert asked.json()["rows"] == []


@story
async def test_a_job_cannot_be_booked_to_somebody_elses_team(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        answer = await penstock.team("a").post("/v1/jobs", json={"gpus": 1, "command": "true", "team": "b"})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:penstock:forbidden")
        job = await penstock.submits(penstock.team("a"))
        assert (await penstock.until(job))["team"] == "a"


@story
async def test_a_team_has_no_admins_of_its_own(tmp_path: Path) -> None:
    """An admin or operator acts on all teams, so a token for one team cannot be either."""
    async with running(tmp_path) as penstock:
        for role in ("admin", "operator"):
            answer = await penstock.admin.post("/v1/tokens", json={"role": role, "team": "a"})
            assert answer.status_code == 422


# --- tokens (row 20) -------------------------------------------------------------------------------------------------


@story
async def test_fault_20_forged_expired_and_revoked_tokens_are_refused_and_audited(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        expired = penstock.token("member", "a", expires_at=1)[1]
        token, good = penstock.token("member", "a")
        assert (await penstock.client(good).get("/v1/jobs")).status_code == 200
        assert (await penstock.admin.delete(f"/v1/tokens/{token.id}")).json()["revoked"]
        bad = [expired, good, "pst_forged", good[:-1], good + "x", f"{token.id}", token.digest]
        for secret in bad:
            assert (await penstock.client(secret).get("/v1/jobs")).status_code == 401
        (denied,) = (await penstock.admin.get("/v1/audit/denials")).json()["denied"]
        assert (denied["source"], denied["requests"], denied["asked"]) == ("127.0.0.1", len(bad), "GET /v1/jobs")
        assert not any(secret in str(denied) for secret in bad)


@story
async def test_fault_20_an_attempt_has_no_token_that_another_could_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports by what it prints and by files, so it needs none; and ours is not passed on by mistake."""
    async with running(tmp_path) as penstock:
        monkeypatch.setenv("PENSTOCK_TOKEN", penstock.token("admin")[1])
        job = await penstock.submits(command=python("import os; print(dict(os.environ), 'all of it')"))
        await penstock.until_prints(job, "all of it")
        log = (await penstock.admin.get(f"/v1/jobs/{job}/log")).text
        assert "PENSTOCK_ATTEMPT" in log
        assert ("PENSTOCK_TOKEN" in log, PREFIX in log) == (False, False)


@story
async def test_what_operators_change_is_audited_with_their_token(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        token, secret = penstock.token("operator")
        await penstock.client(secret).post("/v1/pause")
        entries = (await penstock.admin.get("/v1/audit", params={"who": token.id})).json()["entries"]
        assert [(entry["did"], entry["address"]) for entry in entries] == [("pause", "127.0.0.1")]


@story
async def test_the_token_in_use_cannot_revoke_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        (token,) = (await penstock.admin.get("/v1/tokens")).json()["tokens"]
        assert (await penstock.admin.delete(f"/v1/tokens/{token['id']}")).status_code == 409
        assert (await penstock.admin.delete("/v1/tokens/none")).status_code == 404


@story
async def test_a_cookie_may_look_and_never_change_anything(tmp_path: Path) -> None:
    """A browser sends cookies along with requests that other people's pages make."""
    async with running(tmp_path) as penstock:
        client = penstock.client("")
        cookie = {"Cookie": f"penstock_token={penstock.token('admin')[1]}"}
        assert (await client.get("/v1/jobs", headers=cookie)).status_code == 200
        assert (await client.post("/v1/pause", headers=cookie)).status_code == 401


# --- too often -------------------------------------------------------------------------------------------------------


@story
async def test_strangers_who_guess_are_slowed_down(tmp_path: Path) -> None:
    limits = Limits(strangers_per_second=0.001, strangers_burst=3)
    async with running(tmp_path, limits=limits) as penstock:
        client = penstock.client("pst_guess")
        assert [(await client.get("/v1/jobs")).status_code for _ in range(5)] == [401, 401, 401, 429, 429]
        assert (await penstock.admin.get("/v1/jobs")).status_code == 200
