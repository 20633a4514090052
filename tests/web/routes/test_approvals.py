"""Approvals over the API: who may answer, what they see, and that nobody answers their own request."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from penstock.core.model.governance import ApprovalRule, Governance
from penstock.core.units import HOUR, MICRO
from penstock.policy.rules import PolicyRules
from tests.awaiting import story
from tests.core.asking import AskingRules
from tests.web.kit import CLOUD, Penstock, running

RULE = ApprovalRule("all", "always", "role:approver", within_ms=4 * HOUR, because="Ask first", source="policy.yaml:3")
ASKING = Governance(approvals=(RULE,), version=1)


def asking(home: Path, **more: Any) -> Any:
    return running(home, CLOUD, governance=ASKING, rules=AskingRules(), **more)


async def answers(client: httpx2.AsyncClient, job: str, approved: bool, **more: Any) -> httpx2.Response:
    """An approval of whatever the job asks for, unless told otherwise."""
    seen = {"amount": 10**12} if approved else {}
    return await client.post(f"/v1/jobs/{job}/approval", json={"approved": approved, **seen, **more})


async def waits(penstock: Penstock, what: str, count: int) -> list[dict[str, Any]]:
    """What waits for a person, once the view shows so many: it is published just after a request is answered."""
    while True:
        listed: list[dict[str, Any]] = (await penstock.admin.get("/v1/approvals")).json()[what]
        if len(listed) == count:
            return listed
        await asyncio.sleep(0.01)


async def asks(penstock: Penstock, client: httpx2.AsyncClient, jobs: int = 1, **job: Any) -> str:
    """A job that was submitted and waits for approval."""
    name = await penstock.submits(client, **job)
    await waits(penstock, "jobs", jobs)
    return name


async def cap_of(penstock: Penstock, scope: str) -> int | None:
    rows = (await penstock.admin.get("/v1/budget")).json()["scopes"]
    cap: int | None = next(row["cap"] for row in rows if row["scope"] == scope)
    return cap


async def named(penstock: Penstock, role: str, name: str, team: str = "") -> tuple[str, httpx2.AsyncClient]:
    """A token that was made for somebody."""
    made = await penstock.admin.post("/v1/tokens", json={"role": role, "team": team, "name": name})
    assert made.status_code == 201, made.text
    return made.json()["id"], penstock.client(made.json()["secret"])


@story
async def test_what_waits_is_listed_with_its_quote_and_rule(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"), gpus=2, run_time="1h", name="finetune")
        approvals = (await penstock.team("a", "viewer").get("/v1/approvals")).json()
        (approval,) = approvals["jobs"]
        shown = {
            key: approval[key] for key in ("job", "name", "team", "rule", "source", "role", "words", "offer", "gpus")
        }
        assert shown == {
            "job": job, "name": "finetune", "team": "a", "rule": "all", "source": "policy.yaml:3",
            "role": "role:approver", "words": "Ask first", "offer": "cloud/pods", "gpus": 2,
        }  # fmt: skip
        assert approval["amount"] == approval["cost"] == 3_600_000
        assert approval["until_at"] - approval["at"] == 4 * HOUR
        assert approval["says"] == (
            "Bursting to cloud/pods for about $3.60 needs approval by an approver (rule all, policy.yaml:3)."
        )
        assert (await penstock.team("b", "viewer").get("/v1/approvals")).json()["jobs"] == []
        detail = (await penstock.admin.get(f"/v1/jobs/{job}")).json()
        assert (detail["state"], detail["because"]["kind"]) == ("queued", "AwaitsApproval")
        page = await penstock.admin.get("/")
        assert f"penstock approvals approve {job}" in page.text
        metrics = (await penstock.admin.get("/metrics")).text
        assert "penstock_approvals_pending 1.0" in metrics
        assert "penstock_approvals_oldest_seconds" in metrics


@story
async def test_an_approver_approves_and_it_runs_and_the_audit_says_who(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"), run_time="1h")
        ada, client = await named(penstock, "approver", "Ada")
        answer = await answers(client, job, True, reason="for the paper")
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"job": job, "so": True, "says": "Approved up to $3.60; it starts now."}
        assert (await penstock.until(job))["state"] == "succeeded"
        (entry,) = (await penstock.admin.get("/v1/audit", params={"did": "approve"})).json()["entries"]
        assert (entry["who"], entry["name"], entry["about"]) == (ada, "Ada", job)
        assert (entry["before"], entry["after"], entry["reason"]) == ("", "$3.60", "for the paper")
        await waits(penstock, "jobs", 0)
        again = await answers(client, job, True)
        assert again.status_code == 409
        lines = [line["text"] for line in (await penstock.admin.get(f"/v1/jobs/{job}/story")).json()["lines"]]
        assert f"{ada} approved it, up to $3.60: for the paper." in lines


@story
async def test_a_denied_job_that_no_owned_gpus_can_run_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"))
        ada, client = await named(penstock, "approver", "Ada")
        assert (await answers(client, job, False, reason="Too dear")).json()["says"] == "Denied: it does not burst."
        shown = await penstock.until(job)
        assert shown["state"] == "refused"
        assert f"{ada} denied bursting to cloud/pods" in shown["because"]["says"]


@story
async def test_nobody_answers_for_their_own_job(tmp_path: Path) -> None:
    """Neither by the token it was submitted with, nor by another one that was made for the same name."""
    async with asking(tmp_path) as penstock:
        _, operator = await named(penstock, "operator", "Ada")
        _, approver = await named(penstock, "approver", "Ada")
        job = await asks(penstock, operator)
        for client in (operator, approver):
            answer = await answers(client, job, True)
            assert (answer.status_code, answer.json()["detail"]) == (
                403, f"{job} is your own job; another person must answer."
            )  # fmt: skip
        _, other = await named(penstock, "approver", "Bob")
        assert (await answers(other, job, True)).status_code == 200


@story
async def test_only_the_named_role_answers_and_only_for_its_teams(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"))
        answer = await answers(penstock.client(penstock.token("operator")[1]), job, True)
        assert (answer.status_code, answer.json()["detail"]) == (
            403, "This needs an approver, and your token is of role operator."
        )  # fmt: skip
        assert (await answers(penstock.team("b", "approver"), job, True)).status_code == 404
        assert (await answers(penstock.team("a", "member"), job, True)).status_code == 403
        assert (await answers(penstock.team("a", "approver"), job, True)).status_code == 200


@story
async def test_an_array_is_answered_as_a_whole(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"), jobs=2, count=2)
        client = penstock.client(penstock.token("approver")[1])
        assert (await answers(client, "none", True)).status_code == 404
        assert (await answers(client, job, True)).status_code == 200
        assert (await penstock.until(f"{job}/1"))["state"] == "succeeded"


@story
async def test_another_teams_array_is_not_found_like_one_that_nobody_submitted(tmp_path: Path) -> None:
    """The answer named the array's first job, `j0/0`, and so told that there is one."""
    async with running(tmp_path, CLOUD) as penstock:
        theirs = await penstock.submits(penstock.team("a"), gpus=1, count=2)
        approver = (await named(penstock, "approver", "bea", "b"))[1]
        for job in (theirs, "j77"):
            reply = await answers(approver, job, approved=False)
            assert (reply.status_code, job in reply.text, "/0" in reply.text) == (404, True, False)


@story
async def test_less_than_a_burst_costs_is_no_approval(tmp_path: Path) -> None:
    """It counted as a denial: "Approved up to $1.00.", and the job ended as refused, denied by whoever approved it."""
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"), run_time="1h")
        client = penstock.client(penstock.token("approver")[1])
        answer = await answers(client, job, True, amount=1 * MICRO)
        assert (answer.status_code, "$1.00 would not let it start" in answer.json()["detail"]) == (409, True)
        assert [approval["job"] for approval in await waits(penstock, "jobs", 1)] == [job]
        enough = (await waits(penstock, "jobs", 1))[0]["cost"]
        assert (await answers(client, job, True, amount=enough)).json()["so"]


# --- caps ------------------------------------------------------------------------------------------------------------


@story
async def test_raising_ones_own_teams_cap_takes_a_second_person(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"team:a": "10"}) as penstock:
        _, member = await named(penstock, "member", "Ada", team="a")
        _, same = await named(penstock, "approver", "Ada")
        bob, other = await named(penstock, "approver", "Bob")
        wish = {"scope": "team:a", "per_month": 20 * MICRO, "reason": "a deadline"}
        assert (await member.put("/v1/budget", json={"scope": "team:a", "per_month": 20 * MICRO})).status_code == 403
        assert (await member.post("/v1/budget/raise", json={**wish, "scope": "team:b"})).status_code == 404
        assert (await member.post("/v1/budget/raise", json={**wish, "per_month": 5 * MICRO})).status_code == 409
        response = await member.post("/v1/budget/raise", json=wish)
        assert response.json()["says"] == (
            "Asked: the cap of team:a stays as it is until another person approves (penstock approvals)."
        )
        (cap,) = await waits(penstock, "caps", 1)
        assert (cap["scope"], cap["reason"], cap["per_month"]) == ("team:a", "a deadline", 20 * MICRO)
        assert cap["says"] == "Ada asks for $20.00 a month for team:a, instead of $10.00 a month."
        assert cap["in_force_per_month"] == 10 * MICRO
        answer = {"scope": "team:a", "approved": True, "per_month": 20 * MICRO, "reason": "the board said yes"}
        assert (await same.post("/v1/budget/approval", json=answer)).status_code == 403
        assert (await other.post("/v1/budget/approval", json=answer)).json()["says"] == (
            "Approved: the cap of team:a is raised."
        )
        assert await cap_of(penstock, "team:a") == 20 * MICRO
        assert (await waits(penstock, "caps", 0)) == []
        (entry,) = (await penstock.admin.get("/v1/audit", params={"did": "cap approved"})).json()["entries"]
        assert (entry["who"], entry["before"], entry["after"]) == (bob, "$10.00 a month", "$20.00 a month")
        assert (entry["asked_by_name"], entry["reason"]) == ("Ada", "the board said yes")
        (asked,) = (await penstock.admin.get("/v1/audit", params={"did": "cap asked"})).json()["entries"]
        assert (asked["name"], asked["reason"]) == ("Ada", "a deadline")


@story
async def test_who_applies_a_file_with_a_higher_cap_does_not_approve_it(tmp_path: Path) -> None:
    """One token applied the file that raised the organisation's cap, and approved it with a reason. The audit had an
    id, amounts in micro-units, no reason, and "sites file" for what the policy file said.
    """
    text = "version: 1\norganisation:\n  per_month: 20\n"
    async with running(tmp_path, caps={"org": "10"}, rules=PolicyRules()) as penstock:
        _, writer = await named(penstock, "operator", "Ada")
        _, same = await named(penstock, "approver", "Ada")
        bob, other = await named(penstock, "approver", "Bob")
        file = {"text": text, "name": "policy.yaml", "reason": "the new year"}
        (says,) = (await writer.post("/v1/policy", json=file)).json()["raised"]
        assert says.startswith(
            "policy.yaml:2 says $20.00 a month for org. $10.00 a month stays in force until another "
        )
        (cap,) = await waits(penstock, "caps", 1)
        assert (cap["by_name"], cap["source"]) == ("Ada", "policy.yaml:2")
        answer = {"scope": "org", "approved": True, "per_month": 20 * MICRO, "reason": "the board said yes"}
        refused = await same.post("/v1/budget/approval", json=answer)
        assert (refused.status_code, refused.json()["detail"]) == (
            403, "You applied policy.yaml:2; another person must answer."
        )  # fmt: skip
        await writer.post("/v1/policy", json={**file, "text": text + "# again\n"})
        assert (await same.post("/v1/budget/approval", json=answer)).status_code == 403
        assert (await other.post("/v1/budget/approval", json=answer)).status_code == 200
        assert await cap_of(penstock, "org") == 20 * MICRO
        (entry,) = (await penstock.admin.get("/v1/audit", params={"did": "cap approved"})).json()["entries"]
        assert (entry["who"], entry["before"], entry["after"]) == (bob, "$10.00 a month", "$20.00 a month")
        assert (entry["asked_by_name"], entry["reason"]) == ("Ada", "the board said yes")


@story
async def test_an_approval_is_for_the_amount_that_its_author_saw(tmp_path: Path) -> None:
    """An approver saw $150 and approved $900,000: the asker had changed the wish, and yes meant the newest."""
    async with running(tmp_path, caps={"team:a": "10"}) as penstock:
        member, approver = penstock.team("a"), penstock.client(penstock.token("approver")[1])
        for dollars in (150, 900_000):
            wish = {"scope": "team:a", "per_month": dollars * MICRO}
            assert (await member.post("/v1/budget/raise", json=wish)).status_code == 200
        seen = {"scope": "team:a", "approved": True, "per_month": 150 * MICRO}
        for stale in (seen, {"scope": "team:a", "approved": True}, {**seen, "per_hour": MICRO}):
            refused = await approver.post("/v1/budget/approval", json=stale)
            assert refused.status_code == 409
            assert "the request is for $900,000.00 a month now" in refused.json()["detail"]
        assert await cap_of(penstock, "team:a") == 10 * MICRO
        newest = {**seen, "per_month": 900_000 * MICRO}
        assert (await approver.post("/v1/budget/approval", json=newest)).status_code == 200


@story
async def test_a_job_is_approved_up_to_an_amount_that_somebody_named(tmp_path: Path) -> None:
    async with asking(tmp_path) as penstock:
        job = await asks(penstock, penstock.team("a"), gpus=2, run_time="1h")
        approver = penstock.client(penstock.token("approver")[1])
        refused = await answers(approver, job, True, amount=None)
        assert (refused.status_code, "Say which amount you approve" in refused.json()["detail"]) == (422, True)
        assert f"penstock approvals approve {job} --up-to " in (await approver.get("/")).text
        (asked,) = await waits(penstock, "jobs", 1)
        more = await answers(approver, job, True, amount=asked["amount"] + MICRO)
        assert more.json()["says"].startswith(f"Approved up to ${asked['amount'] / MICRO:.2f}")


@story
async def test_nobody_answers_for_themselves_by_a_name_that_looks_the_same(tmp_path: Path) -> None:
    """A token for "ada  lovelace" approved what a token for "Ada Lovelace" had asked for."""
    async with running(tmp_path, caps={"team:a": "10"}) as penstock:
        _, member = await named(penstock, "member", "Ada Lovelace", team="a")
        await member.post("/v1/budget/raise", json={"scope": "team:a", "per_month": 20 * MICRO})
        answer = {"scope": "team:a", "approved": True, "per_month": 20 * MICRO}
        for name in ("ada lovelace", " Ada  Lovelace ", "AdaLovelace", "Ａda Lovelace", "Ada\u00a0Lovelace"):
            _, same = await named(penstock, "approver", name)
            assert (await same.post("/v1/budget/approval", json=answer)).status_code == 403
        _, other = await named(penstock, "approver", "Ada Byron")
        assert (await other.post("/v1/budget/approval", json=answer)).status_code == 200


@story
async def test_a_period_that_is_no_month_is_an_error(tmp_path: Path) -> None:
    """`penstock budget --period October` said that there were no caps, and nothing spent."""
    async with running(tmp_path, caps={"team:a": "10"}) as penstock:
        for period in ("October", "2026-1", "2026-13", "x"):
            answer = await penstock.admin.get("/v1/budget", params={"period": period})
            assert (answer.status_code, answer.json()["detail"]) == (
                422, f"A period is a month like 2026-10, not '{period}'."
            )  # fmt: skip
        assert (await penstock.admin.get("/v1/budget", params={"period": "2026-10"})).status_code == 200


@story
async def test_where_the_policy_wants_two_an_operator_does_not_raise_a_cap_alone(tmp_path: Path) -> None:
    """`penstock budget --set` raised the organisation's cap at once, by one token, whatever waited for four eyes."""
    two = Governance(version=1, caps_take_two=True)
    async with running(tmp_path, caps={"org": "10"}, governance=two) as penstock:
        _, operator = await named(penstock, "operator", "Ada")
        _, other = await named(penstock, "operator", "Bob")
        cap = {"scope": "org", "per_month": 20 * MICRO, "reason": "the new year"}
        assert (await operator.put("/v1/budget", json=cap)).json()["says"].startswith("Asked: the cap of org stays")
        assert await cap_of(penstock, "org") == 10 * MICRO
        await waits(penstock, "caps", 1)
        answer = {"scope": "org", "approved": True, "per_month": 20 * MICRO}
        assert (await operator.post("/v1/budget/approval", json=answer)).status_code == 403
        assert (await other.post("/v1/budget/approval", json=answer)).status_code == 200
        assert await cap_of(penstock, "org") == 20 * MICRO
        lower = await operator.put("/v1/budget", json={**cap, "per_month": 5 * MICRO, "reason": "less work"})
        assert lower.json()["says"] == "The cap of org is set."
        assert await cap_of(penstock, "org") == 5 * MICRO
        (entry,) = (await penstock.admin.get("/v1/audit", params={"did": "cap", "who": ""})).json()["entries"][:1]
        assert (entry["after"], entry["reason"]) == ("$5.00 a month", "less work")


@story
async def test_a_denied_cap_stays_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"team:a": "10"}) as penstock:
        member, approver = penstock.team("a"), penstock.client(penstock.token("approver")[1])
        await member.post("/v1/budget/raise", json={"scope": "team:a", "per_month": 20 * MICRO})
        await waits(penstock, "caps", 1)
        answer = await approver.post("/v1/budget/approval", json={"scope": "team:a", "approved": False})
        assert answer.json()["says"] == "Denied: the cap of team:a stays as it is."
        assert await cap_of(penstock, "team:a") == 10 * MICRO
        await waits(penstock, "caps", 0)
        again = await approver.post("/v1/budget/approval", json={"scope": "team:a", "approved": True})
        assert again.status_code == 409
