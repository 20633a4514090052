"""A server on loopback that answers what no Prometheus does: whatever it is, the month is read as far as it goes, in
bounded time and memory, and what is missing is a sentence.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.assess.join import join
from penstock.assess.report import assess
from penstock.assess.sources import promql
from penstock.assess.sources.prometheus import read_prometheus
from penstock.assess.sources.promql import Prometheus
from penstock.cli.main import main
from penstock.core.units import DAY, HOUR

FROM = 20_000 * DAY
TO = FROM + 6 * HOUR
POD = {"namespace": "vision", "pod": "a-0"}
#: What an honest server says of each metric, once: 8 GPUs for an hour, half of them used.
HONEST = {
    "start_time": FROM / 1000,
    "completion_time": FROM / 1000 + 3600,
    "created": FROM / 1000 - 60,
    "allocatable": 16.0,
    "count by": 8.0,
    "DCGM_FI_DEV_GPU_UTIL": 400.0,
    "DCGM_FI_DEV_FB": 0.5,
    "resource_requests": 8.0,
}
Body = Callable[[dict[str, str]], "bytes | Iterator[bytes]"]


def honest(asked: dict[str, str]) -> float:
    return next((number for word, number in HONEST.items() if word in asked["query"]), 1.0)


def times(asked: dict[str, str]) -> list[float]:
    begin, end, step = (float(asked[key]) for key in ("start", "end", "step"))
    return [at for k in range(int((end - begin) // step) + 1) if (at := begin + k * step) < FROM / 1000 + 7200]


def answer(result: object, **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}).encode()


def saying(number: Callable[[dict[str, str]], object], labels: object = POD, **more: object) -> Body:
    """One pod, and this number at each time of the window."""
    return lambda asked: answer([{"metric": labels, "values": [[at, number(asked)] for at in times(asked)]}], **more)


def drip(asked: dict[str, str]) -> Iterator[bytes]:  # noqa: ARG001 - it answers all alike
    for _ in range(1_000):
        yield b" "
        time.sleep(0.1)


def large(asked: dict[str, str]) -> Iterator[bytes]:  # noqa: ARG001 - likewise
    yield b'{"status": "'
    for _ in range(40):
        yield b"x" * (1 << 20)


DEEP = b'{"data":' * 100_000
ANSWERS: dict[str, Body] = {
    "NaN": saying(lambda _: "NaN"),
    "+Inf": saying(lambda _: "+Inf"),
    "-Inf": saying(lambda _: "-Inf"),
    "NaN now and then": saying(lambda asked: "NaN" if "allocatable" in asked["query"] else str(honest(asked))),
    "a googol": saying(lambda _: "1e100"),
    "as large as floats are": saying(lambda _: "1.7e308"),
    "negative": saying(lambda _: "-8"),
    "all since 1970": saying(lambda asked: "1" if "time" in asked["query"] else str(honest(asked))),
    "times of another age": lambda _: answer([{"metric": POD, "values": [[1e17, "8"], [-1e17, "8"], ["NaN", "8"]]}]),
    "deep": lambda _: DEEP,
    "deep in a value": lambda _: b'{"data":{"resultType":"matrix","result":' + b"[" * 100_000,
    "numbers as lists": saying(lambda _: [8]),
    "nothing as numbers": saying(lambda _: None),
    "labels that are none": saying(lambda asked: str(honest(asked)), labels=5),
    "labels of control characters": saying(lambda asked: str(honest(asked)), labels={"pod": "\x1b[2J"}),
    "another kind of result": lambda _: answer([], data={"resultType": ["vector"] * 1_000, "result": 5}),
    "warnings that are a number": saying(lambda asked: str(honest(asked)), warnings=5),
    "ten thousand warnings": saying(lambda asked: str(honest(asked)), warnings=[f"w{k}" for k in range(10_000)]),
    "a byte now and then": drip,
    "a body without end": large,
}  # fmt: skip


@contextmanager
def server(body: Body) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = {key: words[0] for key, words in parse_qs(urlsplit(self.path).query).items()}
            content = body(asked)
            try:
                self.send_response(200)
                if isinstance(content, bytes):
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                    return
                self.send_header("Connection", "close")
                self.end_headers()
                for piece in content:
                    self.wfile.write(piece)
            except OSError:  # it had enough of us
                self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_answer_of_a_server_ends_in_a_traceback_or_never(kind: str) -> None:
    """NaN, infinity and deep JSON ended the assessment in a traceback; a byte a second was never given up."""
    began = time.monotonic()
    with server(ANSWERS[kind]) as url:
        asked = Prometheus(url, sleep=lambda _: None, answer_seconds=0.5)
        reading = read_prometheus(asked, FROM, TO)
        asked.close()
    assert time.monotonic() - began < 30
    for job in reading.jobs:
        assert 0 <= job.gpus <= 1_000_000
        assert job.run_ms is None or 0 <= job.run_ms <= TO - FROM + HOUR
        assert "\x1b" not in job.id
    assert all(0 <= row.gpus <= 1_000_000 for row in reading.owned)
    if reading.coverage.from_at is None:
        assert reading.coverage.missing
    else:
        assess(join([reading]), gpu_hour=None, currency="USD")


def test_an_honest_server_is_read_whole() -> None:
    """The bounds above leave an honest month as it is."""
    with server(saying(lambda asked: str(honest(asked)))) as url:
        asked = Prometheus(url)
        reading = read_prometheus(asked, FROM, TO)
        asked.close()
    (job,) = reading.jobs
    assert (job.gpus, job.started_at, job.ended_at, job.submitted_at) == (8, FROM, FROM + HOUR, FROM - 60_000)
    assert job.used_gpu_ms == pytest.approx(job.measured_gpu_ms / 2)
    assert [row.gpus for row in reading.owned] == [16]


def test_where_nothing_can_be_read_the_command_says_so_and_ends_with_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promql, "PAUSE_SECONDS", 0.0)
    with server(ANSWERS["deep"]) as url:
        code = main(["assess", "--prometheus", url, "--days", "1"])
    said = capsys.readouterr()
    assert code == 2
    assert "not JSON" in said.out + said.err
