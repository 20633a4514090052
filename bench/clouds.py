"""`python -m bench.clouds`: what renting by Karpenter costs beside what Karpenter itself takes.

    python -m bench.clouds [--nodes 500] [--asks 20]

A cluster without nodes and a real Karpenter with its kwok provider, whose machines boot at once. One by one: from
`ask` to its answer, and how much of that is the provider's own, from the first sight of the claim to the first sight of
a Node that shows its GPUs, by somebody who watches beside. All at once: so many nodes in one burst, and as many claims
made by hand before it, without Penstock. Then requests for each node, and what the idle ones cost.
"""

import argparse
import asyncio
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from penstock.capacity.cluster_nodes import RentingSite, is_ready
from penstock.capacity.karpenter import KarpenterNodes
from penstock.capacity.nodeclaim import node_claim
from penstock.core.model.actions import LaunchNode
from penstock.core.model.types import NodeShape, Offer
from penstock.core.units import HOUR, MINUTE
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, karpenter
from penstock.devcluster.plan import GPU
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import NODE_CLAIMS, NODES, Cluster, Obj
from penstock.kube.errors import AlreadyExists, NotFound, Unavailable
from penstock.kube.informer import Informer
from penstock.kube.node_selection import KarpenterWay, NodeSelection, RentedNodes
from penstock.site_answers import Unreachable

GPUS: Final = 8
IDLE_S: Final = 30.0
OFFER: Final = Offer(
    "cloud/a100", "cloud", "on_demand", (NodeShape(GPUS, 1_000),), start_ms=10 * MINUTE, kill_ms=MINUTE
)
PLACE: Final = NodeSelection(
    rent=RentedNodes(KarpenterWay(karpenter.GROUP, "KWOKNodeClass", "bench"), instance_types=("a100-8x",))
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--asks", type=int, default=20)
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-clouds-"))
        group = stack.enter_context(ClusterGroup(Path(folder) / "bed", [ClusterPlan("cloud", karpenter=True)]))
        print(json.dumps(asyncio.run(measure(group.cluster("cloud"), args.nodes, args.asks))), flush=True)
    return 0


async def measure(cluster: DevCluster, nodes: int, asks: int) -> dict[str, Any]:
    cluster.apply(karpenter.node_class("bench"))
    async with AsyncExitStack() as stack:
        aside, ours = (connect(Access(str(cluster.kubeconfig))) for _ in range(2))
        stack.push_async_callback(aside.close)
        stack.push_async_callback(ours.close)
        watcher = Watcher(aside)
        stack.push_async_callback(watcher.close)
        await watcher.open()
        site = RentingSite("cloud", "bench", _now_ms, lambda: ours, lambda: {OFFER.id: (OFFER, PLACE)})
        capacity = KarpenterNodes(site)
        capacity.late_seconds = 0.0  # nobody led before
        stack.push_async_callback(capacity.close)
        await capacity.open(lambda _: None)
        single = await one_by_one(capacity, watcher, asks)
        print(json.dumps(single), flush=True)
        bare = await by_hand(aside, watcher, nodes)
        return {**single, **bare, **await all_at_once(capacity, ours, nodes)}


async def one_by_one(capacity: KarpenterNodes, watcher: "Watcher", asks: int) -> dict[str, Any]:
    """How much longer than the provider an `ask` takes."""
    overheads, totals = [], []
    for number in range(asks):
        node, began = f"single{number}.1/n0", time.monotonic()
        await capacity.ask(launch(node))
        totals.append(time.monotonic() - began)
        name = capacity.name_of(node)
        await watcher.until(lambda name=name: name in watcher.ready)
        overheads.append(totals[-1] - watcher.took(name))
        await capacity.release(node)
    return {
        "asks": asks, "ask_to_ready_s": summary(totals), "overhead_s": summary(overheads),
    }  # fmt: skip


async def by_hand(cluster: Cluster, watcher: "Watcher", nodes: int) -> dict[str, Any]:
    """The same burst without Penstock: claims are created, and somebody waits until all Nodes are ready."""
    claims = [node_claim(launch(f"bare{number}.1/n0"), OFFER, PLACE, "bare", _now_ms()) for number in range(nodes)]
    began = time.monotonic()
    await asyncio.gather(*(_create(cluster, claim) for claim in claims))
    names = [claim["metadata"]["name"] for claim in claims]
    await watcher.until(lambda: all(name in watcher.ready for name in names))
    took_s = time.monotonic() - began
    await asyncio.gather(*(cluster.delete(NODE_CLAIMS, name) for name in names))
    await watcher.until(lambda: not any(watcher.has(name) for name in names))
    return {"nodes": nodes, "burst_by_hand_s": round(took_s, 1)}


async def _create(cluster: Cluster, claim: Obj) -> None:
    """As often as it takes: a busy API server may not answer in time."""
    while True:
        with suppress(Unavailable, AlreadyExists):
            await cluster.create(NODE_CLAIMS, claim)
        with suppress(Unavailable, NotFound):
            await cluster.get(NODE_CLAIMS, claim["metadata"]["name"])
            return


async def _ask(capacity: KarpenterNodes, node: str) -> None:
    """The same: dispatch asks again, too."""
    while True:
        with suppress(Unreachable):
            await capacity.ask(launch(node))
            return


async def all_at_once(capacity: KarpenterNodes, cluster: Cluster, nodes: int) -> dict[str, Any]:
    names = [f"burst{number}.1/n0" for number in range(nodes)]
    before, began = sum(cluster.requests.values()), time.monotonic()
    await asyncio.gather(*(_ask(capacity, name) for name in names))
    took_s, asked = time.monotonic() - began, sum(cluster.requests.values()) - before
    idle = await _idle(cluster)
    before, began = sum(cluster.requests.values()), time.monotonic()
    await asyncio.gather(*(capacity.release(name) for name in names))
    gone_s, released = time.monotonic() - began, sum(cluster.requests.values()) - before
    return {
        "burst_s": round(took_s, 1), "release_s": round(gone_s, 1),
        "requests_a_node": round(asked / nodes, 2), "requests_a_release": round(released / nodes, 2), **idle,
    }  # fmt: skip


async def _idle(cluster: Cluster) -> dict[str, Any]:
    """While all of them are there, and nothing happens."""
    requests, used = sum(cluster.requests.values()), _cpu_s()
    await asyncio.sleep(IDLE_S)
    return {
        "idle_requests_a_minute": round((sum(cluster.requests.values()) - requests) * 60 / IDLE_S, 1),
        "idle_cpu_percent": round((_cpu_s() - used) * 100 / IDLE_S, 2),
    }


class Watcher:
    """Sees claims and Nodes come, on a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.came: dict[str, float] = {}  #: claims, by name
        self.ready: dict[str, float] = {}  #: their Nodes, with GPUs
        self.claims = Informer(cluster, NODE_CLAIMS, self._claim)
        self.nodes = Informer(cluster, NODES, self._node)
        self.news = asyncio.Event()

    async def open(self) -> None:
        self.tasks = [asyncio.create_task(informer.run()) for informer in (self.claims, self.nodes)]
        for informer in (self.claims, self.nodes):
            await informer.in_step.wait()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    def _claim(self, _: Obj | None, now: Obj | None) -> None:
        if now is not None:
            self.came.setdefault(now["metadata"]["name"], time.monotonic())
        self.news.set()

    def _node(self, _: Obj | None, now: Obj | None) -> None:
        if now is not None and is_ready(now, GPU, GPUS):
            self.ready.setdefault(_claim_of(now), time.monotonic())
        self.news.set()

    def took(self, name: str) -> float:
        return self.ready[name] - self.came[name]

    def has(self, name: str) -> bool:
        return self.claims.get(name) is not None or any(_claim_of(node) == name for node in self.nodes)

    async def until(self, true: Any) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()


def launch(node: str) -> LaunchNode:
    return LaunchNode(node, OFFER.id, GPUS, node.partition("/")[0], _now_ms() + 2 * HOUR)


def summary(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"p50": round(statistics.median(ordered), 3), "p95": round(p95, 3), "most": round(ordered[-1], 3)}


def _claim_of(node: Obj) -> str:
    return str((node["metadata"].get("labels") or {}).get(annotations.NODE, ""))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
