"""A policy file applied to a running Penstock: all of it or nothing, with a history, and by its file."""

from pathlib import Path
from typing import Any

import httpx2

from penstock.core.units import MICRO
from penstock.policy.rules import PolicyRules
from tests.awaiting import story
from tests.web.kit import CLOUD, LAB, WAITS, Penstock, running

OPEN = "version: 1\n"
NO_CLOUD = """version: 1
rules:
  - {name: stay-home, deny: offer.rented, because: Nothing leaves}
"""
CAPPED = "version: 1\nteams:\n  a: {per_month: 50}\n"


def governed(home: Path, *sites: Any, **more: Any) -> Any:
    return running(home, *sites, rules=PolicyRules(), **more)


async def apply(penstock: Penstock, text: str, **more: Any) -> httpx2.Response:
    return await penstock.admin.post("/v1/policy", json={"text": text, "name": "policy.yaml", **more})


async def history(penstock: Penstock) -> list[dict[str, Any]]:
    revisions: list[dict[str, Any]] = (await penstock.admin.get("/v1/policy/history")).json()["revisions"]
    return revisions


@story
async def test_a_file_is_applied_listed_shown_and_rolled_back(tmp_path: Path) -> None:
    async with governed(tmp_path, LAB, CLOUD) as penstock:
        first = (await apply(penstock, OPEN, reason="begin")).json()
        assert (first["revision"], first["changed"], first["says"]) == (2, True, "Revision 2 is in force.")
        assert (await apply(penstock, NO_CLOUD, reason="audit week")).json()["revision"] == 3
        assert (await apply(penstock, NO_CLOUD)).json()["says"] == "Nothing changes: revision 3 says the same."
        rows = await history(penstock)
        assert [(row["revision"], row["reason"]) for row in rows] == [(3, "audit week"), (2, "begin"), (1, "")]
        theirs = (await penstock.team("a").get("/v1/policy/history")).json()["revisions"]
        assert [(row["revision"], row["by"], row["reason"]) for row in theirs] == [
            (3, "", ""),
            (2, "", ""),
            (1, "", ""),
        ]
        assert (await penstock.admin.get("/v1/policy/revisions/2")).json()["text"] == OPEN
        assert (await penstock.admin.get("/v1/policy/revisions/0")).json()["text"] == NO_CLOUD
        assert (await penstock.admin.get("/v1/policy/revisions/9")).status_code == 404
        assert (await apply(penstock, OPEN, reason="rolled back to revision 2")).json()["revision"] == 4
        entries = (await penstock.admin.get("/v1/audit", params={"did": "policy"})).json()["entries"]
        assert [(entry["before"], entry["after"]) for entry in entries] == [
            ("revision 3", "revision 4"), ("revision 2", "revision 3"), ("revision 1", "revision 2"),
        ]  # fmt: skip


@story
async def test_where_a_job_may_run_is_told_to_its_team(tmp_path: Path) -> None:
    async with governed(tmp_path, LAB, CLOUD) as penstock:
        await apply(penstock, NO_CLOUD)
        job = await penstock.submits(penstock.team("a"), gpus=1)
        verdicts = (await penstock.team("a").get(f"/v1/jobs/{job}/verdicts")).json()
        against = [{"rule": "rule stay-home: Nothing leaves", "where": "policy.yaml:3"}]
        assert (verdicts["job"], verdicts["team"], verdicts["gpus"]) == (job, "a", 1)
        assert verdicts["offers"] == [
            {"offer": "lab/owned", "allowed": True, "against": []},
            {"offer": "cloud/pods", "allowed": False, "against": against},
        ]
        assert (await penstock.team("b").get(f"/v1/jobs/{job}/verdicts")).status_code == 404
        assert (await penstock.admin.get("/v1/jobs/none/verdicts")).status_code == 404


@story
async def test_a_bad_file_is_one_answer_and_the_policy_in_force_stays(tmp_path: Path) -> None:
    async with governed(tmp_path) as penstock:
        for text in ("version: 99\n", "teams: [", "version: 1\nrules: [{name: a, deny: 'job.nothing > 1'}]\n"):
            answer = await apply(penstock, text)
            assert answer.status_code == 422, answer.text
        assert [row["revision"] for row in await history(penstock)] == [1]
        member = await penstock.team("a").post("/v1/policy", json={"text": OPEN})
        assert member.status_code == 403


@story
async def test_a_large_file_is_applied_and_one_that_is_too_large_or_too_dear_is_not(tmp_path: Path) -> None:
    """A file of more than 4 kB was refused, and a megabyte of it was parsed where everybody else waits."""
    async with governed(tmp_path) as penstock:
        large = OPEN + "# why we do this\n" * 50_000
        assert (await apply(penstock, large)).json()["says"] == "Revision 2 is in force."
        assert (await penstock.admin.get("/v1/policy/revisions/2")).json()["text"] == large
        assert (await apply(penstock, large * 2)).status_code == 413
        rules = [f'{{name: r{k}, deny: job.team == "{"t" * 1_800}"}}' for k in range(500)]
        answer = await apply(penstock, f"{OPEN}rules: [{', '.join(rules)}]\n")
        assert (answer.status_code, answer.json()["errors"][0]["message"]) == (
            422,
            "500 conditions in CEL with 907,000 characters; a file has at most 500 with 50,000.",
        )
        keys = b"{" + b",".join(b'"k%d":1' % k for k in range(90_000)) + b"}"
        assert (await penstock.admin.post("/v1/policy", content=keys)).json()["detail"] == "body.text: Field required."
        assert [row["revision"] for row in await history(penstock)] == [2, 1]


@story
async def test_running_jobs_that_it_would_strand_are_named_first(tmp_path: Path) -> None:
    async with governed(tmp_path, CLOUD) as penstock:
        job = await penstock.submits(penstock.team("a"), command=WAITS)
        await penstock.until_prints(job, "runs")
        asked = (await apply(penstock, NO_CLOUD)).json()
        assert (asked["changed"], asked["revision"]) == (False, 1)
        (row,) = asked["stranded"]
        assert (row["job"], row["team"], row["offer"], row["where"]) == (job, "a", "cloud/pods", "policy.yaml:3")
        assert asked["says"] == "1 running job would not be allowed where it is; it would not be stopped."
        done = (await apply(penstock, NO_CLOUD, yes=True)).json()
        assert (done["changed"], done["revision"]) == (True, 2)
        assert (await penstock.admin.get(f"/v1/jobs/{job}")).json()["state"] == "running"


@story
async def test_a_raised_cap_waits_for_a_person_and_a_lowered_one_holds_at_once(tmp_path: Path) -> None:
    async with governed(tmp_path, caps={"team:a": "10"}) as penstock:
        answer = (await apply(penstock, CAPPED)).json()
        assert len(answer["raised"]) == 1
        assert "penstock approvals approve team:a" in answer["raised"][0]
        assert await _cap(penstock) == 10 * MICRO
        approver = penstock.client(penstock.token("approver")[1])
        done = await approver.post(
            "/v1/budget/approval", json={"scope": "team:a", "approved": True, "per_month": 50_000_000}
        )
        assert done.status_code == 200, done.text
        assert await _cap(penstock) == 50 * MICRO
        assert (await apply(penstock, CAPPED.replace("50", "5"))).json()["raised"] == []
        assert await _cap(penstock) == 5 * MICRO


async def _cap(penstock: Penstock) -> int | None:
    rows = (await penstock.admin.get("/v1/budget")).json()["scopes"]
    cap: int | None = next(row["cap"] for row in rows if row["scope"] == "team:a")
    return cap


@story
async def test_the_file_is_reloaded_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    async with governed(tmp_path) as penstock:
        changes, file = penstock.policies, tmp_path / "policy.yaml"
        file.write_text(OPEN)
        assert await changes.reload() == "Revision 2 is in force."
        file.write_text("version: 99\n")
        message = await changes.reload()
        assert "is not in force" in message
        assert [row["revision"] for row in await history(penstock)] == [2, 1]
        assert [alarm.kind for alarm in penstock.plane.view.alarms] == ["policy"]
        file.write_text(OPEN)
        await changes.reload()
        assert penstock.plane.view.alarms == ()
        assert changes.drift() == ""
        await apply(penstock, NO_CLOUD)
        assert "Another policy is in force than" in changes.drift()
