"""What one team owns, another never reads: words are planted in everything that a team can name, and looked for in all
answers, streams and pages that a member and a viewer of another team get. Routes are taken from the app, so that a new
one is read, too.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from penstock.core.model import events as e
from penstock.core.model.governance import ApprovalRule, Governance, TeamRule
from penstock.core.model.types import DataSet, Policy
from penstock.core.units import HOUR
from penstock.web.access import permissions
from penstock.web.app import build
from tests.awaiting import story
from tests.core.asking import AskingRules
from tests.web.kit import CLOUD, LAB, WAITS, Penstock, python, running
from tests.web.test_access import NoMetrics

#: What is planted, and nowhere else: words of team beta, and its amounts as the journal and as people write them.
PLANTED: Final = (
    "zqname", "zqcommand", "ZQVARIABLE", "zqproject", "zqdata", "zqwish", "zqdenied", "zqperson", "zqlog", "zqpolicy",
    "zqrevision", "zqanswer", "987654321", "987.65", "876543210", "876.54", "765432109",
)  # fmt: skip
#: Routes whose answers do not end by themselves, and what is told last.
STREAMS: Final = {"/v1/events/stream": "Resumed", "/news/stream": "data:"}
#: What else each route may be asked, so that filters and pages are tried, too.
QUERIES: Final = ("", "limit=200", "text=zq", "team=beta", "all=true", "did=cap", "show=ended", "after=0")
RULE: Final = ApprovalRule("all", "always", "role:approver", within_ms=4 * HOUR, because="Ask first", source="p.yaml:3")


@asynccontextmanager
async def two_teams(home: Path) -> AsyncIterator[tuple[Penstock, str, str]]:
    """Team alpha with one job, and team beta with all it can have; beta's job has preempted alpha's."""
    limits = (TeamRule("beta", per_job=765_432_109, source="zqpolicy.yaml:3"),)
    governance = Governance(approvals=(RULE,), teams=limits, version=1)
    async with running(
        home, LAB, CLOUD, caps={"team:beta": "987.654321"}, governance=governance, rules=AskingRules()
    ) as penstock:
        policy = Policy("thrift", preempt=True, ordering="priority", governance=governance)
        await penstock.plane.tell(e.PolicySet(0, 2, policy, by="zqperson", reason="zqrevision"))
        await penstock.plane.tell(e.DataSetRegistered(0, DataSet("zqdata", 1, "lab")))
        mine = await penstock.submits(penstock.team("alpha"), gpus=2, command=WAITS, priority=-5, grace="1s")
        await penstock.until_prints(mine, "runs")
        theirs = await plant(penstock)
        await penstock.until(mine, "queued")
        await penstock.admin.post("/v1/pause")
        await penstock.admin.post("/v1/resume")
        yield penstock, mine, theirs


async def plant(penstock: Penstock) -> str:
    """Beta's words, in all that a team can write. Returns its running job."""
    made = await penstock.admin.post("/v1/tokens", json={"role": "member", "team": "beta", "name": "zqperson"})
    beta = penstock.client(made.json()["secret"])
    says = python("import time; print('zqlog', flush=True); time.sleep(600) # zqcommand")
    own: dict[str, Any] = {"name": "zqname", "project": "zqproject", "env": {"ZQVARIABLE": "1"}}
    job = await penstock.submits(beta, gpus=2, command=says, priority=9, data=["zqdata"], **own)
    await penstock.until_prints(job, "zqlog")
    asks = await penstock.submits(beta, gpus=2, command=says, run_time="1h", **own)
    while asks not in str((await penstock.admin.get("/v1/approvals")).json()["jobs"]):
        await asyncio.sleep(0.01)
    answer = {"approved": False, "reason": "zqanswer"}
    assert (await penstock.admin.post(f"/v1/jobs/{asks}/approval", json=answer)).status_code == 200
    for reason in ("zqwish", "zqwish again"):
        wish = {"scope": "team:beta", "per_month": 987_876_543_210, "reason": reason}
        assert (await beta.post("/v1/budget/raise", json=wish)).status_code == 200
        if reason == "zqwish":
            no = {"scope": "team:beta", "approved": False, "reason": "zqdenied"}
            assert (await penstock.admin.post("/v1/budget/approval", json=no)).status_code == 200
    return job


async def all_answers(penstock: Penstock, client: httpx2.AsyncClient, jobs: tuple[str, ...]) -> dict[str, str]:
    """By address: what this client is answered everywhere, but for what it asked for itself."""
    app = build(penstock.plane, penstock.reader, penstock.guard, NoMetrics())
    answers = dict[str, str]()
    for path in [path for method, path, _ in permissions(app.routes) if method == "GET"]:
        for address in addresses(path, jobs):
            answer = await _text(client, path, address)
            answers[address] = answer.replace(address, "").replace(_asked_job(address, jobs), "")
    return answers


def addresses(path: str, jobs: tuple[str, ...]) -> list[str]:
    named = [path.replace("{job}", job) for job in jobs] if "{job}" in path else [path]
    named = [re.sub(r"\{[a-z]+\}", "0", address) for address in named]
    return [f"{address}?{query}" if query else address for address in named for query in QUERIES]


def _asked_job(address: str, jobs: tuple[str, ...]) -> str:
    return next((job for job in jobs if job in address), "\0")


async def _text(client: httpx2.AsyncClient, path: str, address: str) -> str:
    if not path.endswith("/stream"):
        return (await client.get(address, headers={"Accept": "text/html, application/json"})).text
    text = ""
    async with client.stream("GET", path, headers={"Last-Event-ID": "0"}) as answer:
        async for part in answer.aiter_text():
            text += part
            if STREAMS[path] in text or answer.status_code >= 400:
                break
    return text


@story
async def test_no_word_of_one_team_reaches_another_by_any_route(tmp_path: Path) -> None:
    """Events showed every team the whole policy and others' wishes; reasons named the jobs that took one's place."""
    async with two_teams(tmp_path) as (penstock, mine, theirs):
        shown = await all_answers(penstock, penstock.admin, (mine, theirs))
        whole, secret = "\n".join(shown.values()), [*map(re.escape, PLANTED), rf"\b{theirs}\b"]
        assert [word for word in secret if not re.search(word, whole)] == []  # it is there to be found
        assert "Preempted" in shown[f"/v1/jobs/{mine}/story"]
        for role in ("member", "viewer"):
            found = await all_answers(penstock, penstock.team("alpha", role), (mine, theirs))
            leaks = {
                where: words for where, text in found.items() if (words := [w for w in secret if re.search(w, text)])
            }
            assert leaks == {}, role
