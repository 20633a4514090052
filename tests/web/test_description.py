"""Random requests made from the API's own description: whatever comes, the server answers, and never with a 5xx."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from penstock.journal.rows import Filter
from tests.web.kit import Penstock, running

PARTS = 2  #: of the routes; a run of all tests asks one of them
EXAMPLES = 40  #: of each route; half of them as described, half of them not
CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
#: The first does not end by itself; the second would run what it made up; the third is what is asked from.
LEFT_OUT = ("/v1/events/stream", "/v1/resume", "/v1/openapi.json")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A Penstock in a thread of its own, paused: random jobs wait, and random commands are not run."""
    home: Path = tmp_path_factory.mktemp("home")
    there: list[Penstock] = []
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running(home) as penstock:
            await penstock.admin.post("/v1/pause")
            there.append(penstock)
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(60)
    yield there[0]
    down.set()
    thread.join(60)


def an_array(served: Penstock) -> str:
    """An array of two that waits, as the thread's own client sees it."""
    token = (served.home / "token").read_text().strip()
    job = {"gpus": 1, "command": "true", "count": 2}
    answer = httpx2.post(f"{served.url}/v1/jobs", json=job, headers={"Authorization": f"Bearer {token}"})
    return str(answer.json()["job"])


@pytest.mark.slow
@pytest.mark.turns(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_request_makes_the_server_fail(served: Penstock, part: int) -> None:
    described = schemathesis.openapi.from_url(f"{served.url}/v1/openapi.json")
    token = (served.home / "token").read_text().strip()
    tried: Counter[str] = Counter()
    waiting = f"{an_array(served)}/1"
    routes = sorted(
        f"{method.upper()} {path}"
        for path, some in described.raw_schema["paths"].items()
        for method in some
        if path not in LEFT_OUT
    )
    for result in described.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if f"{operation.method.upper()} {operation.path}" in routes[part::PARTS]:

            @given(
                case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
                | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
            )
            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
            def ask(case: "schemathesis.Case[Any]") -> None:
                tried[f"{case.method} {case.path}"] += 1
                if "job" in case.path_parameters and len(str(case)) % 2:  # a made-up id is never one that there is
                    case.path_parameters["job"] = waiting
                    case.query = {key: text for key, text in case.query.items() if key not in ("wait", "follow")}
                answer = case.call(base_url=served.url, headers={"Authorization": f"Bearer {token}"})
                case.validate_response(answer, checks=CHECKS)

            ask()
    assert sorted(tried) == routes[part::PARTS]
    assert len(served.reader.jobs(Filter())) > 0, "nothing random was ever a job"
