"""What happens, as pages and as server-sent events that can be taken up again."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2

from penstock.core.model import events as e
from penstock.core.model.governance import Governance, TeamRule
from penstock.core.model.types import DataSet
from tests.awaiting import story
from tests.web.kit import Penstock, running


async def heard(client: httpx2.AsyncClient, last: str = "") -> AsyncGenerator[dict[str, Any]]:
    """The events of a stream, each checked against its own id and kind."""
    async with client.stream("GET", "/v1/events/stream", headers={"Last-Event-ID": last} if last else {}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                name, _, text = line.partition(":")
                fields[name] = text.strip()
            elif "data" in fields:
                event: dict[str, Any] = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (event["id"], event["kind"])
                fields = {}
                yield event


async def until_kind(client: httpx2.AsyncClient, kind: str, last: str = "") -> list[dict[str, Any]]:
    seen = []
    async with aclosing(heard(client, last)) as events:
        async for event in events:
            seen.append(event)
            if event["kind"] == kind:
                break
    return seen


@story
async def test_a_stream_tells_the_whole_journal_from_the_beginning(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(name="n")
        await penstock.until(job)
        events = await until_kind(penstock.admin, "AttemptEnded", last="0")
        assert [event["id"] for event in events] == [
            f"{row.number}.{part}"
            for row in penstock.reader.steps(0)
            for part in range(len(row.inputs) + len(row.outputs))
        ][: len(events)]
        submitted = next(event for event in events if event["kind"] == "JobSubmitted")
        assert (submitted["job"], submitted["team"], submitted["event"]["spec"]["name"]) == (job, "default", "n")
        assert submitted["says"] == "Submitted by default: 1 GPU."
        assert [event["says"] for event in events if event["kind"] in ("AttemptStarted", "AttemptEnded")] == [
            "Running.",
            "Succeeded.",
        ]


@story
async def test_a_stream_that_breaks_is_taken_up_without_a_gap_or_a_double(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        for _ in range(3):
            await penstock.until(await penstock.submits())
        whole = await until_kind(penstock.admin, "AttemptEnded", last="0")
        pieces: list[str] = []
        while len(pieces) < len(whole):
            async with aclosing(heard(penstock.admin, pieces[-1] if pieces else "0")) as events:
                async for event in events:  # two of them, and the line breaks
                    pieces.append(event["id"])
                    if len(pieces) % 2 == 0:
                        break
        assert pieces[: len(whole)] == [event["id"] for event in whole]


@story
async def test_a_stream_tells_what_happens_while_it_is_open(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        listening = asyncio.create_task(until_kind(penstock.admin, "Resumed", last=str(penstock.plane.number)))
        await penstock.admin.post("/v1/pause")
        await penstock.admin.post("/v1/resume")
        assert [event["kind"] for event in await listening] == ["Paused", "Resumed"]


@story
async def test_fault_19_a_stream_tells_a_team_of_its_own_jobs_only(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"team:a": "1"}) as penstock:
        theirs = await penstock.submits(penstock.team("a"))
        await penstock.until(theirs)
        mine = await penstock.submits(penstock.team("b"))
        await penstock.until(mine)
        events = await until_kind(penstock.team("b"), "AttemptEnded", last="0")
        assert {event["job"] for event in events} == {"", mine}
        assert not any("CapSet" in event["kind"] for event in events)
        page = (await penstock.team("b").get("/v1/events", params={"limit": 200})).json()["events"]
        assert {event["job"] for event in page} == {"", mine}


@story
async def test_a_team_hears_nothing_of_the_policy_or_of_another_teams_wishes(tmp_path: Path) -> None:
    """Events without a job were for every team unless a list said otherwise, and that list had been forgotten four
    times: a team read the whole policy, other teams' wishes for money with their reasons, and names of data sets.
    """
    limits = Governance(teams=(TeamRule("beta", per_job=77_000_000, source="secret-policy.yaml:3"),))
    async with running(tmp_path, caps={"team:beta": "1"}, governance=limits) as penstock:
        await penstock.plane.tell(e.DataSetRegistered(0, DataSet("secret-faces", 1, "lab")))
        wish = {"scope": "team:beta", "per_month": 2_000_000_000, "reason": "secret reason"}
        assert (await penstock.team("beta").post("/v1/budget/raise", json=wish)).status_code == 200
        no = {"scope": "team:beta", "approved": False, "reason": "secret answer"}
        assert (await penstock.admin.post("/v1/budget/approval", json=no)).status_code == 200
        await penstock.admin.post("/v1/pause")
        heard = await until_kind(penstock.team("alpha"), "Paused", last="0")
        page = (await penstock.team("alpha").get("/v1/events", params={"limit": 200})).json()["events"]
        shown = (await penstock.team("alpha").get("/")).text
        for text in (json.dumps(heard), json.dumps(page), shown):
            assert "nowait" in text  # the policy's name is on every page
            assert not [word for word in ("secret", "beta", "77000000", "2000000000") if word in text]
        own = await until_kind(penstock.team("beta"), "Paused", last="0")
        assert "CapRaiseAsked" in {event["kind"] for event in own}


@story
async def test_a_revoked_token_hears_nothing_more(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        token, secret = penstock.token("viewer")
        listening = asyncio.create_task(until_kind(penstock.client(secret), "nothing of this kind", last="0"))
        await _connected(penstock)
        await penstock.guard.tokens.revoke(token.id)
        await penstock.admin.post("/v1/pause")
        kinds = [event["kind"] for event in await listening]  # the stream ends
        assert "Paused" not in kinds


async def _connected(penstock: Penstock) -> None:
    """The stream was let in: its answer is counted when it ends, but its token's bucket when it begins."""
    while len(penstock.guard.calls.left) < 1:
        await asyncio.sleep(0.01)
    await penstock.admin.get("/healthz")


@story
async def test_pages_of_events_go_back_to_the_beginning(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        await penstock.until(await penstock.submits())
        ids: list[str] = []
        before: dict[str, int] = {}
        while True:
            page = (await penstock.admin.get("/v1/events", params={"limit": 2, **before})).json()
            ids += [event["id"] for event in page["events"]]
            if page["next"] is None:
                break
            before = {"before": page["next"]}
        assert len(ids) == len(set(ids))
        assert ids[-1] == "1.0"


@story
async def test_an_id_that_is_none_is_a_problem_that_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        answer = await penstock.admin.get("/v1/events/stream", headers={"Last-Event-ID": "x"})
        assert answer.status_code == 422
        assert "like 1042.3" in answer.json()["detail"]
