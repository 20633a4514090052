"""Events are heard by one watch for all starts that hang, and few of them are kept."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.core.model.types import Site
from penstock.drivers.kubernetes import cluster_events
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.cluster_events import ClusterEvent, ClusterEvents
from penstock.drivers.kubernetes.connection import Connection, KubernetesSettings
from penstock.drivers.kubernetes.pod_logs import Kubelets, PodLog
from penstock.drivers.kubernetes.trouble import TroubleReporter
from penstock.kube.client import Cluster
from tests.awaiting import story
from tests.kube.told import Told

Json = dict[str, Any]
MOUNT = ClusterEvent("FailedMount", "no such disk", is_warning=True)


def event(number: int, pod: str, reason: str = "FailedMount", **more: Any) -> Json:
    """An Event about a pod whose uid is its name."""
    return {
        "metadata": {"name": f"{pod}.{number}", "namespace": "n", "uid": f"e{number}", "resourceVersion": str(number)},
        "involvedObject": {"kind": "Pod", "name": pod, "uid": pod},
        "reason": reason,
        "message": "no such disk",
        "type": "Warning",
        "lastTimestamp": "2026-11-16T07:00:00Z",
        **more,
    }


class Server:
    """An API server that says these Events, and then nothing more."""

    def __init__(self, *events: Json) -> None:
        self.lines = [json.dumps({"type": "ADDED", "object": said}).encode() + b"\n" for said in events]
        self.asked: list[httpx2.Request] = []
        self.said = asyncio.Event()
        self.cluster = Cluster(Told(self.answer), "c", "n")

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return httpx2.Response(200, content=self.pieces())

    async def pieces(self) -> AsyncIterator[bytes]:
        for line in self.lines:
            yield line
        self.said.set()
        await asyncio.Event().wait()


def about(events: ClusterEvents, pod: str) -> list[ClusterEvent]:
    return events.about({"namespace": "n", "uid": pod})


@story
async def test_a_thousand_starts_that_hang_cost_the_cluster_one_watch_and_no_list() -> None:
    """Each of them listed all Events of its namespace every 30 s: 14.5 s a list, and pods were bound at a tenth."""
    server = Server(event(8, "ps-a", "FailedScheduling"), event(7, "ps-a"), event(9, "ps-b"), event(5, "theirs"))
    events = ClusterEvents(server.cluster, ours="ps-")
    assert [about(events, f"ps-{number}") for number in range(1000)] == [[]] * 1000
    await server.said.wait()
    assert [said.reason for said in about(events, "ps-a")] == ["FailedMount", "FailedScheduling"]
    assert about(events, "ps-b") == [MOUNT]
    assert about(events, "theirs") == []
    (asked,) = server.asked
    assert (asked.url.params["watch"], asked.url.params["resourceVersion"]) == ("true", "")
    assert "reason!=Created" in asked.url.params["fieldSelector"]
    await events.close()


@story
async def test_the_oldest_events_go_first_and_one_that_is_repeated_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_events, "MOST_EVENTS", 3)
    again = event(30, "ps-1")
    again["metadata"] |= {"name": "ps-1.1", "uid": "e1"}
    server = Server(*(event(number, f"ps-{number}") for number in (1, 2, 3)), again, event(40, "ps-4"))
    events = ClusterEvents(server.cluster, ours="ps-")
    about(events, "")
    await server.said.wait()
    assert [len(about(events, f"ps-{number}")) for number in (1, 2, 3, 4)] == [1, 0, 1, 1]
    assert set(events.follow("n").by_object) == {"ps-1", "ps-3", "ps-4"}
    await events.close()


@story
async def test_an_account_that_may_not_watch_events_says_so_and_asks_once_a_minute() -> None:
    """Rights that an earlier release printed let it list them only."""
    asked = asyncio.Event()

    def answer(_: httpx2.Request) -> httpx2.Response:
        assert not asked.is_set()
        asked.set()
        words = (
            'events is forbidden: User "penstock" cannot watch resource "events" in API group "" in the namespace "n"'
        )
        return httpx2.Response(403, json={"message": words, "reason": "Forbidden"})

    events = ClusterEvents(Cluster(Told(answer), "c", "n"))
    watch = events.follow("n")
    await asked.wait()
    while not watch.is_denied:
        await asyncio.sleep(0)
    assert events.warns().startswith("our account may not watch events in namespace n; ")
    await events.close()


@story
async def test_a_warning_that_comes_with_every_pod_is_not_told_as_what_hinders_it(tmp_path: Path) -> None:
    """A start that merely took 6 s was said to hang for "MissingClusterDNS: ... Falling back"."""
    server = Server(event(1, "ps-dns", "MissingClusterDNS"), event(2, "ps-vol"), event(3, "ps-vol", "DNSConfigForming"))
    here = Connection(Site("lab", ()), "home", lambda: 0, lambda: server.cluster, KubernetesSettings())
    here.cluster, here.events = server.cluster, ClusterEvents(server.cluster)
    about(here.events, "")
    await server.said.wait()

    def looked_at(name: str) -> Execution:
        meta = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "annotations": {}}
        job = {"metadata": meta, "spec": {"parallelism": 1}, "status": {}}
        execution = Execution(job, PodLog(tmp_path, 1, Kubelets(), lambda: None))
        pod = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}}
        execution.pods[name] = pod
        execution.begun = True  # nobody follows it: this test looks
        TroubleReporter(here)._look_at_events(execution)
        return execution

    assert looked_at("ps-dns").event is None
    hindered = looked_at("ps-vol").event
    assert hindered is not None
    assert hindered.words == "FailedMount: no such disk"
    await here.events.close()
