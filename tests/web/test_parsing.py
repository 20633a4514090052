"""Job files are parsed where they hold up nobody: workers have limits, end alone, and are shared fairly."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from penstock.config import read_sites
from penstock.config.jobs import parse_job
from penstock.core.errors import BadFile, BadInput
from penstock.policy.file import governed, parse_policy
from penstock.web import parsing as module
from penstock.web.parsing import Parsing, Worker, is_small
from penstock.web.problems import Problem
from tests.conftest import ROOT

YAML = b"""
command: [a]
gpus: 2
env: {A: b}
deadline: 2h
gpu: [{model: A100, speed: 0.5}]
scaling: [{gpus: 4, speed: 1.5}]
"""


@asynccontextmanager
async def workers() -> AsyncIterator[Parsing]:
    parsing = Parsing()
    try:
        yield parsing
    finally:
        while parsing.idle:
            parsing.idle.pop().end()


def test_a_worker_reads_what_we_read() -> None:
    async def story() -> None:
        async with workers() as parsing:
            assert await parsing.job("a", YAML, as_json=False) == parse_job(YAML, "The job")
            with pytest.raises(BadFile) as here:
                parse_job(b"gpus: no\nnome: x\n", "The job")
            with pytest.raises(BadFile) as there:
                await parsing.job("a", b"gpus: no\nnome: x\n", as_json=False)
            assert there.value.errors == here.value.errors

    asyncio.run(story())


def test_a_worker_reads_a_policy_file_as_we_do() -> None:
    text = (ROOT / "examples/policy.yaml").read_text()
    sites = replace(read_sites(str(ROOT / "examples/sites.yaml")), moved=())
    here = parse_policy(text.encode(), "policy.yaml", sites)

    async def story() -> None:
        async with workers() as parsing:
            body = {"text": text, "name": "policy.yaml", "reason": "a test"}
            asked, there = await parsing.policy("a", json.dumps(body).encode(), sites)
            assert (asked.text, asked.reason, asked.yes) == (text, "a test", False)
            assert governed(sites, there) == governed(sites, here)
            with pytest.raises(BadFile, match="headroom"):  # it knows the sites
                await parsing.policy("a", json.dumps(body).encode(), replace(sites, sites=()))
            for wrong, says in ((b"{}", "body.text: Field required"), (b"[", "body: Invalid JSON")):
                with pytest.raises(Problem, match=says):
                    await parsing.policy("a", wrong, sites)

    asyncio.run(story())


def test_a_worker_that_was_killed_is_replaced() -> None:
    async def story() -> None:
        async with workers() as parsing:
            await parsing.job("a", YAML, as_json=False)
            (worker,) = parsing.idle
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()
            assert (await parsing.job("a", YAML, as_json=False)).spec.gpus == 2
            assert worker not in parsing.idle

    asyncio.run(story())


def test_a_body_has_its_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds of it, whatever the parser does with them."""
    code = "import penstock.web.parse_worker as w; w._parsed = lambda *_: sum(iter(int, 1)); w.main()"
    monkeypatch.setattr(Worker, "COMMAND", [sys.executable, "-c", code])

    async def story() -> None:
        async with workers() as parsing:
            with pytest.raises(BadInput, match="too long to be read"):
                await parsing.job("a", YAML, as_json=False)

    asyncio.run(story())


def test_bodies_of_one_token_wait_for_each_other_and_not_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        parsing = Parsing()
        order, go = list[str](), asyncio.Event()

        async def threads(_: Callable[..., object], __: dict[str, object], raw: bytes) -> dict[str, object]:
            order.append(raw.decode())
            await go.wait()
            return {"says": "no"}

        monkeypatch.setattr(module, "run_in_threadpool", threads)
        asked = [("greedy", f"{k}") for k in range(module.MOST_WAITING)] + [("other", "other")]
        tasks = [asyncio.ensure_future(parsing.job(who, what.encode(), as_json=False)) for who, what in asked]
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == ["0", "other"]  # one of each, though the other came last
        with pytest.raises(Problem, match="Too many large bodies"):
            await parsing.job("greedy", b"one more", as_json=False)
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (parsing.waiting, parsing.locks) == ({}, {})

    asyncio.run(story())


def test_what_is_small_has_few_marks() -> None:
    assert is_small(json.dumps({"gpus": 1, "command": ["python", "train.py"], "env": {"A": "b"}}).encode())
    assert not is_small(b"{" + b"[" * 300)
    assert not is_small(b'{"command": ["' + b"a" * 9_000 + b'"]}')


@pytest.mark.parametrize(
    ("raw", "as_json", "count"),
    [
        (b'{"gpus": 1, "command": ["a"]}', True, 0),
        (b'{"gpus": 1, "command": [' + b'"a",' * 300 + b'"a"]}', True, 1),
        (b'{"gpus": 1, "command": ["' + b"a" * 9_000 + b'"]}', True, 1),
        (b"gpus: 1\ncommand: a\n", False, 1),
    ],
)
def test_only_small_json_is_parsed_here(raw: bytes, as_json: bool, count: int) -> None:
    async def story() -> None:
        async with workers() as parsing:
            assert (await parsing.job("a", raw, as_json=as_json)).spec.gpus == 1
            job = await parsing.job_or_home_job("a", raw, as_json=as_json, home="lab", at=0, known=())
            assert job.spec.gpus == 1
            assert len(parsing.idle) == count

    asyncio.run(story())
