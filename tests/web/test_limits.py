"""One noisy client is not felt by the others: rows 14, 22 and 25 of the table of faults."""

import asyncio
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.web.app import Limits
from penstock.web.limits import MOST_BYTES, MOST_STREAMS, MOST_STREAMS_WITH_BROWSERS, Buckets, Streams
from penstock.web.problems import Problem
from tests.awaiting import story
from tests.web.kit import running

JOB = {"gpus": 1, "command": "true"}


@given(st.lists(st.floats(0, 5), max_size=60))
def test_a_bucket_grants_its_burst_and_its_rate_and_no_more(gaps: list[float]) -> None:
    clock = [0.0]
    buckets = Buckets(2.0, 3.0, lambda: clock[0])
    granted = 0
    for gap in gaps:
        clock[0] += gap
        wait = buckets.take("a")
        granted += not wait
        assert granted <= 3 + 2 * clock[0] + 1e-6
        assert 0 <= wait <= 0.5


def test_streams_of_few_tokens_leave_room_for_everybody_else() -> None:
    """Five tokens with browsers had all 1,000 streams; everybody else was told to have 50 open."""
    streams = Streams()
    with ExitStack() as opened:
        for k in range(40):
            for _ in range(MOST_STREAMS):
                try:
                    opened.enter_context(streams.take(f"browser-{k}", f"token-{k % 10}"))
                except Problem:
                    break
        opened.enter_context(streams.take("admin", "admin"))
        assert max(streams.each.used.values()) == MOST_STREAMS
        assert max(streams.with_browsers.used.values()) == MOST_STREAMS_WITH_BROWSERS


def test_buckets_of_clients_long_gone_are_forgotten() -> None:
    buckets = Buckets(1, 1, lambda: 0.0)
    for k in range(20_000):
        buckets.take(str(k))
    assert len(buckets.left) <= 10_000


# --- row 14 ----------------------------------------------------------------------------------------------------------


@story
async def test_fault_14_the_same_submit_twenty_times_in_parallel_is_one_job(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        key = {"Idempotency-Key": "k1"}
        answers = await asyncio.gather(*(penstock.admin.post("/v1/jobs", json=JOB, headers=key) for _ in range(20)))
        assert {answer.json()["job"] for answer in answers} == {answers[0].json()["job"]}
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len((await penstock.admin.get("/v1/jobs")).json()["jobs"]) == 1
        other = await penstock.admin.post("/v1/jobs", json={**JOB, "gpus": 2}, headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "urn:penstock:key-reused")
        assert len((await penstock.admin.get("/v1/jobs")).json()["jobs"]) == 1


@story
async def test_the_same_key_of_another_token_is_another_job(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        key = {"Idempotency-Key": "k1"}
        mine = await penstock.team("a").post("/v1/jobs", json=JOB, headers=key)
        theirs = await penstock.team("b").post("/v1/jobs", json=JOB, headers=key)
        assert mine.json()["job"] != theirs.json()["job"]


# --- row 22 ----------------------------------------------------------------------------------------------------------

NASTY = "$(touch owned); `touch owned` <script>alert(1)</script> =cmd|' /C calc'!A0 ${jndi:x} ' OR 1=1 -- {{7*7}} %s"


@story
async def test_fault_22_what_people_name_is_shown_literally_and_nothing_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        job = await penstock.submits(
            name=NASTY, env={"NASTY": NASTY + "\nsecond line"}, command=["sh", "-c", 'printf %s "$NASTY"']
        )
        shown = await penstock.until(job)
        assert shown["name"] == NASTY
        log = await penstock.admin.get(f"/v1/jobs/{job}/log")
        assert log.text == NASTY + "\nsecond line"
        assert log.headers["content-type"] == "text/plain; charset=utf-8"
        listed = await penstock.admin.get("/v1/jobs", params={"text": NASTY[:40]})
        assert [row["name"] for row in listed.json()["jobs"]] == [NASTY]
        assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\x00b", "a\rb", "\u202eevil"])
def test_fault_22_names_that_would_move_a_cursor_are_refused(name: str) -> None:
    import json

    from penstock.config.jobs import parse_json_job
    from penstock.core.errors import BadInput

    with pytest.raises(BadInput, match="name: "):
        parse_json_job(json.dumps({**JOB, "name": name}).encode(), "The job")


# --- row 25 ----------------------------------------------------------------------------------------------------------


@story
async def test_fault_25_a_body_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(penstock.url.rpartition(":")[2]))
        token = (penstock.home / "token").read_text().strip()
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Content-Length: 100000000\r\n\r\n".encode())
        answer = (await reader.read()).decode()  # to the end: the server closes
        assert answer.startswith("HTTP/1.1 413")
        assert "larger than 1,000,000 bytes" in answer
        writer.close()


@story
async def test_fault_25_a_body_without_a_length_is_cut_off(tmp_path: Path) -> None:
    async def endless() -> Any:
        for _ in range(50):
            yield os.urandom(MOST_BYTES // 10)

    async with running(tmp_path) as penstock:
        try:
            answer = await penstock.admin.post("/v1/jobs", content=endless())
            assert answer.status_code == 413
        except httpx2.TransportError:  # the server closed while we were still sending, as it should
            assert (await penstock.admin.get("/healthz")).status_code == 200


@story
async def test_fault_25_a_body_that_is_too_slow_is_not_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(body_seconds=0.2)) as penstock:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(penstock.url.rpartition(":")[2]))
        token = (penstock.home / "token").read_text().strip()
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b"{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


@story
async def test_fault_25_a_team_that_submits_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    limits = Limits(submits_per_second=0.001, submits_burst=5)
    async with running(tmp_path, limits=limits) as penstock:
        noisy, other = penstock.team("noisy"), penstock.team("other")
        answers = await asyncio.gather(*(noisy.post("/v1/jobs", json=JOB) for _ in range(20)))
        assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 15
        late = next(answer for answer in answers if answer.status_code == 429)
        assert int(late.headers["Retry-After"]) > 1
        # A second token of the same team does not help it; another team is not concerned.
        assert (await penstock.team("noisy").post("/v1/jobs", json=JOB)).status_code == 429
        assert (await other.post("/v1/jobs", json=JOB)).status_code == 201
        assert (await noisy.get("/v1/jobs")).status_code == 200


@pytest.mark.slow
@story
async def test_fault_25_a_flood_is_turned_away_and_the_others_get_their_answers(tmp_path: Path) -> None:
    """How much slower the others are is printed, not judged: here all of theirs succeed."""
    limits = replace(Limits(), submits_per_second=5, submits_burst=40)
    async with running(tmp_path, limits=limits) as penstock:
        noisy, other = penstock.team("noisy"), penstock.team("other")
        await penstock.admin.post("/v1/pause")
        done = asyncio.Event()

        async def flood() -> list[int]:
            codes: list[int] = []
            while not done.is_set() or 429 not in codes:  # on a slow machine, as long as it takes to be turned away
                codes.append((await noisy.post("/v1/jobs", json=JOB)).status_code)
            return codes

        async def asks() -> float:
            """How long the other team waits for a submit and some looks, at the 95th percentile."""
            times = []
            for _ in range(20):
                began = perf_counter()
                assert (await other.post("/v1/jobs", json=JOB)).status_code == 201
                for path in ("/healthz", "/v1/jobs", "/v1/sites"):
                    assert (await other.get(path)).status_code == 200
                times.append(perf_counter() - began)
            return quantiles(times, n=20)[-1] * 1000

        quiet = await asks()
        began = perf_counter()
        floods = [asyncio.create_task(flood()) for _ in range(8)]
        flooded = await asks()
        done.set()
        codes = [code for flood in floods for code in await flood]
        assert set(codes) == {201, 429}
        assert codes.count(201) <= 40 + 5 * (perf_counter() - began) + 1
        print(f"p95 of the others: {quiet:.0f} ms; while {len(codes)} requests flood in: {flooded:.0f} ms")
