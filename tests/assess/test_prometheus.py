"""Prometheus: a real one tells the month; one that refuses, fails or redirects is said and never guessed over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.assess.demo_month import generated_month
from penstock.assess.history import SourceReading
from penstock.assess.join import join
from penstock.assess.report import assess
from penstock.assess.sources import promql
from penstock.assess.sources.prometheus import read_prometheus
from penstock.assess.sources.promql import Prometheus, token_of
from penstock.cli.main import main
from penstock.core.errors import BadInput
from penstock.core.units import DAY, HOUR, MINUTE, SECOND
from tests.assess import months
from tests.assess.prometheus_server import programs_or_skip, prometheus

FROM = 20_000 * DAY
TO = FROM + DAY
Answer = Callable[[dict[str, str]], httpx2.Response]


# --- a real one -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_prometheus_tells_waits_demand_and_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    month = generated_month(3, jobs=40, days=3, load=0.6)
    from_at = month.jobs[0].submitted_at // HOUR * HOUR
    to_at = max(job.ended_at for job in month.jobs) + HOUR
    metrics = months.open_metrics(month, 2 * MINUTE, from_at, to_at)
    with prometheus(programs_or_skip(tmp_path / "deb"), tmp_path, metrics) as url:
        server = Prometheus(url)
        reading = read_prometheus(server, from_at, to_at)
        server.close()
        days = str(-(-(to_at - from_at) // DAY))
        assert main(["assess", "--prometheus", url, "--days", days, "--until", months.zulu(to_at)]) == 0
    assert server.missing == []
    seen = {job.id: job for job in reading.jobs}
    # Pods that lived and were listed only between two scrapes cannot be seen by anybody.
    assert len(seen) == len(month.jobs)
    for job in month.jobs:
        record = seen[f"{job.job.spec.team}/{job.job.id}"]
        assert (record.gpus, record.submitted_at, record.started_at, record.ended_at, record.cut) == (
            *(job.job.spec.gpus, job.submitted_at, job.started_at, job.ended_at, ""),
        )
    history = join([reading])
    months.assert_true(history, month)
    use = assess(history, gpu_hour=None, currency="USD").use
    used = sum(job.job.spec.gpus * job.job.run_ms * job.used_permille for job in month.jobs) / 1000 / HOUR
    months.near(use.total.used, used, 0.05)
    months.near(use.total.measured, months.gpu_hours(month), 0.05)
    assert {row.gpus for row in reading.owned} == {month.owned_gpus}
    assert {job.memory_permille for job in reading.jobs if job.measured_gpu_ms} == {750}
    stdout = capsys.readouterr().out
    assert f"{month.owned_gpus} owned GPUs, by kube_node_status_allocatable." in stdout


# --- one that does not do as it is asked ------------------------------------------------------------------------------


def matrix(*rows: dict[str, Any], **more: Any) -> httpx2.Response:
    data = {"resultType": "matrix", "result": list(rows)}
    return httpx2.Response(200, json={"status": "success", "data": data, **more})


def pod(asked: dict[str, str]) -> httpx2.Response:
    """One pod of 8 GPUs all the time; no other series."""
    if not asked["query"].startswith("sum by") or "resource_requests" not in asked["query"]:
        return matrix()
    begin, end, step = (float(asked[key]) for key in ("start", "end", "step"))
    values = [[begin + k * step, "8"] for k in range(int((end - begin) // step) + 1)]
    return matrix({"metric": {"namespace": "vision", "pod": "a-0"}, "values": values})


def asked_of(answer: Answer, token: str = "") -> tuple[SourceReading, list[dict[str, str]]]:
    asked: list[dict[str, str]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked.append(dict(request.url.params))
        return answer(asked[-1])

    server = Prometheus(
        "https://prometheus.example", token, transport=httpx2.MockTransport(handle), sleep=lambda _: None
    )
    try:
        return read_prometheus(server, FROM, TO), asked
    finally:
        server.close()


def missing(answer: Answer) -> str:
    return " ".join(asked_of(answer)[0].coverage.missing)


def test_without_gpu_metrics_or_starts_only_that_is_missing() -> None:
    reading, _ = asked_of(pod)
    (job,) = reading.jobs
    assert (job.id, job.gpus, job.cut, job.wait_ms, job.used_gpu_ms) == ("vision/a-0", 8, "both", None, None)
    gaps = " ".join(reading.coverage.missing)
    assert "It has no DCGM_FI_DEV_GPU_UTIL of these pods, so how GPUs were used is not known." in gaps
    assert "It has no kube_pod_created of these pods, so submissions and waits are not known." in gaps


def test_a_month_is_asked_for_in_windows_that_do_not_overlap() -> None:
    _, asked = asked_of(pod)
    windows = [(float(params["start"]), float(params["end"])) for params in asked if "sum by" in params["query"][:8]]
    assert windows[:4] == [((FROM + k * 6 * HOUR) / SECOND, (FROM + (k + 1) * 6 * HOUR - 1) / SECOND) for k in range(4)]


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_is_said_and_nothing_else_is_asked(code: int) -> None:
    reading, asked = asked_of(lambda _: httpx2.Response(code, text="no entry"))
    assert len(asked) == 1
    whole = f"prometheus.example refuses us ({code}); give a token that may read: --prometheus-token."
    assert whole in " ".join(reading.coverage.missing)
    with pytest.raises(BadInput, match=r"No job with GPUs was seen.*refuses us"):
        join([reading])


def test_a_window_that_is_too_large_is_asked_for_in_halves() -> None:
    def small_only(asked: dict[str, str]) -> httpx2.Response:
        if float(asked["end"]) - float(asked["start"]) > 2 * 3600:
            return httpx2.Response(
                422, json={"status": "error", "error": "query processing would load too many samples"}
            )
        return pod(asked)

    reading, asked = asked_of(small_only)
    assert reading.jobs[0].gpus == 8
    assert "missing for" not in " ".join(reading.coverage.missing)
    assert any(float(params["end"]) - float(params["start"]) <= 2 * 3600 for params in asked)


def test_a_window_that_stays_too_large_is_missing_with_its_hours() -> None:
    def never(asked: dict[str, str]) -> httpx2.Response:
        if float(asked["start"]) * SECOND < FROM + 6 * HOUR:
            return httpx2.Response(422, json={"status": "error", "error": "too many samples"})
        return pod(asked)

    gaps = missing(never)
    assert "kube_pod_container_resource_requests is missing for 6.0 h of 24.0 h" in gaps
    assert "refuses the window as too large (422): too many samples" in gaps


def test_a_stumble_is_asked_again_once() -> None:
    fails = iter([True])

    def stumbles(asked: dict[str, str]) -> httpx2.Response:
        return httpx2.Response(502, text="<html>") if next(fails, False) else pod(asked)

    assert "missing for" not in missing(stumbles)


def test_a_server_that_does_not_answer_is_left_alone_after_a_few_windows() -> None:
    def silent(_: dict[str, str]) -> httpx2.Response:
        raise httpx2.ReadTimeout("slow")

    reading, asked = asked_of(silent)
    assert "prometheus.example did not answer in 60 s" in " ".join(reading.coverage.missing)
    assert len(asked) == 6  # two windows, and the halves of each


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda _: httpx2.Response(200, text='{"status": "succ'), "not JSON, or was cut short"),
        (lambda _: httpx2.Response(200, json=[]), "the answer is no object"),
        (lambda _: httpx2.Response(200, json={"status": "success", "data": {}}), "a form that is not Prometheus's"),
        (lambda _: httpx2.Response(404, text="nothing"), "has no Prometheus API under this address"),
        (lambda _: httpx2.Response(302, headers={"Location": "https://evil.example/"}), "redirects to evil.example"),
    ],
)
def test_a_strange_answer_is_one_sentence(answer: Answer, why: str) -> None:
    assert why in missing(answer)


def test_a_partial_answer_says_so_in_the_servers_words() -> None:
    def partial(asked: dict[str, str]) -> httpx2.Response:
        response = pod(asked)
        return httpx2.Response(200, json={**response.json(), "warnings": ["store east is down"]})

    assert "Some answers are partial: store east is down." in missing(partial)


def test_a_token_goes_to_its_server_only_and_never_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.host, request.headers.get("Authorization", "")))
        return httpx2.Response(307, headers={"Location": "https://evil.example/api/v1/query_range"})

    server = Prometheus("https://prometheus.example", "secret", transport=httpx2.MockTransport(handle))
    read_prometheus(server, FROM, TO)
    server.close()
    assert seen == [("prometheus.example", "Bearer secret")]
    with pytest.raises(BadInput, match="by https only"):
        Prometheus("http://prometheus.example", "secret")
    with pytest.raises(BadInput, match="use a token file"):
        Prometheus("https://me:secret@prometheus.example")
    (tmp_path / "token").write_text("abc\n")
    assert token_of(str(tmp_path / "token")) == "abc"
    monkeypatch.setenv(promql.TOKEN_VARIABLE, "def")
    assert token_of(None) == "def"
    (tmp_path / "token").write_text("two words")
    with pytest.raises(BadInput, match="no token"):
        token_of(str(tmp_path / "token"))
