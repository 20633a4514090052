"""A log that breaks off goes on where it was; where no kubelet answers, few ask."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path

import httpx2
import pytest

from penstock.drivers.kubernetes import pod_logs
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.pod_logs import Kubelets, PodLog
from penstock.kube.client import Cluster
from tests.awaiting import story
from tests.kube.told import Told

BEGAN = datetime.fromisoformat("2026-11-16T07:00:00Z")
LINES = [
    "2026-11-16T07:00:01.100000000Z begins",
    "2026-11-16T07:00:02.200000000Z penstock: step 3 of 9",
    "2026-11-16T07:00:11.000000001Z x penstock: checkpoint",
    "2026-11-16T07:00:12.500000000Z penstock: step 9 of 9",
]


@pytest.fixture(autouse=True)
def _try_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "FIRST_RETRY_SECONDS", 0.001)


def cluster_of(answer: Callable[[httpx2.Request], httpx2.Response]) -> Cluster:
    return Cluster(Told(answer), "c", "n")


async def follow(log: PodLog, cluster: Cluster, over: Callable[[], bool]) -> None:
    log.follow(cluster, "pod", {"namespace": "n", "container": "main"}, BEGAN, over)
    assert log.task is not None
    await log.task


@story
async def test_a_log_that_breaks_off_is_read_on_and_nothing_is_doubled(tmp_path: Path) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        """Each time one line more, with the last second's lines once again, as kubelet does it."""
        asked.append(request)
        return httpx2.Response(200, text="\n".join(LINES[max(0, len(asked) - 2) : len(asked)]) + "\n")

    news: list[int] = []
    cluster = cluster_of(answer)
    log = PodLog(tmp_path / "log", 1000, Kubelets(), lambda: news.append(1))
    await follow(log, cluster, lambda: len(asked) > len(LINES))
    text, size = log.kept.read(0, 1000)
    assert text.decode().splitlines() == [line.partition(" ")[2] for line in LINES]
    assert size == len(text)
    assert asked[1].url.params["sinceTime"] == LINES[0].partition(" ")[0]
    assert (log.marks["checkpoint_ms"], log.marks["checkpoint_step"]) == (10_000, 3)
    assert log.finished
    assert len(news) == 3
    again = PodLog(tmp_path / "log", 1000, Kubelets(), lambda: None)  # the next control plane
    assert again.marks == log.marks
    await cluster.close()


@story
async def test_of_a_log_without_end_a_part_is_kept_and_all_is_read(tmp_path: Path) -> None:
    cluster = cluster_of(lambda _: httpx2.Response(200, text="\n".join(LINES) + "\n"))
    log = PodLog(tmp_path / "log", 10, Kubelets(), lambda: None)
    await follow(log, cluster, lambda: True)
    assert log.kept.read(0, 1000)[0].startswith(b"begins\npen\npenstock: this log is longer")
    assert log.finished
    await cluster.close()


@story
async def test_what_the_kubelet_says_of_a_log_that_it_cannot_read_is_not_the_log(tmp_path: Path) -> None:
    """It answers 200 with its own words; taken for a line with a timestamp, they hid all that came later."""
    unreadable = 'failed to try resolving symlinks in path "/var/log/pods/n_pod/main/0.log": no such file or directory'
    said = [
        unreadable,
        f"{LINES[0]}\n",
        f"{LINES[0]}\nunable to retrieve container logs for containerd://1",
        *LINES[1:],
    ]
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, text=said[len(asked) - 1])

    cluster = cluster_of(answer)
    log = PodLog(tmp_path / "log", 1000, Kubelets(), lambda: None)
    await follow(log, cluster, lambda: len(asked) == len(said))
    assert log.kept.read(0, 1000)[0].decode().splitlines() == [line.partition(" ")[2] for line in LINES]
    await cluster.close()


@story
async def test_a_line_that_is_too_long_is_kept_in_pieces_and_hides_nothing_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a progress bar prints it: no line end for hours. Its pieces have no timestamps of their own."""
    monkeypatch.setattr(pod_logs, "LONGEST_LINE", 60)
    bar = b"zero " * 8

    async def pieces() -> AsyncIterator[bytes]:
        yield f"{LINES[0]}\n{LINES[1]} ".encode()
        for _ in range(3):
            yield bar + b"\r" + bar
        yield f"\n{LINES[2]}\n".encode()

    cluster = cluster_of(lambda _: httpx2.Response(200, content=pieces()))
    log = PodLog(tmp_path / "log", 1000, Kubelets(), lambda: None)
    await follow(log, cluster, lambda: True)
    kept = log.kept.read(0, 1000)[0]
    assert kept.startswith(b"begins\npenstock: step 3 of 9 zero ")
    assert kept.endswith(b"\nx penstock: checkpoint\n")
    assert kept.count(b"zero") == 3 * 16
    await cluster.close()


@story
async def test_where_no_kubelet_answers_few_ask_and_later_one_asks_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(502, text="no such host")

    cluster, kubelets = cluster_of(answer), Kubelets()
    logs = [PodLog(tmp_path / str(number), 1000, kubelets, lambda: None) for number in range(100)]
    for log in logs:
        log.follow(cluster, "pod", {"namespace": "n", "container": "main"}, BEGAN, lambda: True)
        await asyncio.wait([log.task] if log.task else [asyncio.create_task(asyncio.sleep(0))])
    assert len(asked) <= Kubelets.TRIES + 1
    before = len(asked)
    monkeypatch.setattr(kubelets, "again_at", 0.0)
    for log in logs[50:]:
        log.follow(cluster, "pod", {"namespace": "n", "container": "main"}, BEGAN, lambda: True)
    await asyncio.wait([log.task for log in logs if log.task])
    assert len(asked) == before + 1
    await cluster.close()


async def others_come() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@story
async def test_where_no_kubelet_answers_few_logs_are_opened_at_a_time_and_fewer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 pods began at once: the API server had 34 requests a second that took it 12 s each, and bound no pods."""
    monkeypatch.setattr(Kubelets, "TRIES", 60)
    monkeypatch.setattr(pod_logs, "FIRST_RETRY_SECONDS", 0.0)
    open_now, most, turn = 0, [0, 0], asyncio.Event()

    async def answer(_: httpx2.Request) -> httpx2.Response:
        nonlocal open_now
        open_now += 1
        again = len([log for log in logs if log.failed]) == len(logs)
        most[again] = max(most[again], open_now)
        await turn.wait()
        await others_come()
        open_now -= 1
        return httpx2.Response(502, text="no such host")

    cluster, kubelets = Cluster(Told(answer), "c", "n"), Kubelets()
    logs = [PodLog(tmp_path / str(number), 1000, kubelets, lambda: None) for number in range(40)]
    for log in logs:
        log.follow(cluster, "pod", {"namespace": "n", "container": "main"}, BEGAN, lambda: False)
    await others_come()
    assert open_now == Kubelets.OPENING
    turn.set()
    await asyncio.wait([log.task for log in logs if log.task])
    assert most[0] <= Kubelets.OPENING + Kubelets.RETRIED
    assert most[1] == Kubelets.RETRIED
    await cluster.close()


def execution_of(tmp_path: Path, *pods: tuple[str, str, str], mode: str = "Indexed", parallelism: int = 2) -> Execution:
    """Pods by name, age and index."""
    job = {"metadata": {}, "spec": {"parallelism": parallelism, "completionMode": mode}}
    execution = Execution(job, PodLog(tmp_path, 1, Kubelets(), lambda: None))
    for name, age, index in pods:
        execution.pods[name] = {"metadata": {"name": name, "creationTimestamp": age}, "index": index}
    return execution


def ranks(execution: Execution) -> dict[int, str]:
    return {rank: pod["metadata"]["name"] for rank, pod in sorted(execution.ranks().items())}


def test_a_rank_is_its_newest_pod(tmp_path: Path) -> None:
    assert ranks(execution_of(tmp_path, ("b", "2", "1"), ("a", "1", "0"), ("c", "3", "0"))) == {0: "c", 1: "b"}
    retried = execution_of(tmp_path, ("a", "1", ""), ("b", "2", ""), mode="", parallelism=1)
    assert ranks(retried) == {0: "b"}


def test_pods_without_numbers_are_counted_as_they_come(tmp_path: Path) -> None:
    pods = (("y", "1", ""), ("x", "1", ""), ("z", "2", ""))
    assert ranks(execution_of(tmp_path, *pods, mode="NonIndexed", parallelism=3)) == {0: "x", 1: "y", 2: "z"}
