"""`python -m bench.clouds`: what renting nodes costs beside what the provider itself takes.

    python -m bench.clouds [--way karpenter | cluster_api] [--nodes 500] [--asks 20] [--patience 900] [--parts burst]

A cluster without nodes, and a real Karpenter with its kwok provider, or Cluster API's core with a toy provider; their
machines boot at once. One by one: from `ask` to its answer, and how much of that is the provider's own, from the first
sight of the object to the first sight of a Node that shows its GPUs, by somebody who watches beside. All at once: as
many objects made by hand, without Penstock, and then as many nodes asked for. Then API requests for each node, by kind,
what the idle ones cost, and whose processor time it was. A burst that does not end in its patience says how far it
came.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.capacity.cluster_api import ClusterApiNodes
from penstock.capacity.cluster_nodes import ClusterNodes, RentingSite, is_ready, label_of
from penstock.capacity.karpenter import KarpenterNodes
from penstock.capacity.machine_deployment import UNINITIALIZED, deadline_marks, machine_deployment, node_name_of
from penstock.capacity.nodeclaim import node_claim
from penstock.core.model.actions import LaunchNode
from penstock.core.model.types import NodeShape, Offer
from penstock.core.units import HOUR, MINUTE
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, cluster_api, karpenter
from penstock.devcluster.plan import GPU
from penstock.kube.access import Access, connect
from penstock.kube.client import MACHINE_DEPLOYMENTS, MACHINES, NODE_CLAIMS, NODES, Cluster, Kind, Obj
from penstock.kube.errors import AlreadyExists, NotFound, Unavailable
from penstock.kube.informer import Informer
from penstock.kube.node_selection import ClusterApiWay, KarpenterWay, NodeSelection, RentedNodes
from penstock.site_answers import Unreachable

GPUS: Final = 8
IDLE_S: Final = 30.0
PARTS: Final = ("one_by_one", "by_hand", "burst")
POOL: Final = "bench"  #: a node class, or a MachineDeployment of size 0
OFFER: Final = Offer(
    "cloud/a100", "cloud", "on_demand", (NodeShape(GPUS, 1_000),), start_ms=10 * MINUTE, kill_ms=MINUTE
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=WAYS, default="karpenter")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--asks", type=int, default=20)
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for each burst")
    parser.add_argument("--parts", choices=PARTS, nargs="+", default=list(PARTS))
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-clouds-"))
        plan = ClusterPlan("cloud", karpenter=args.way == "karpenter", cluster_api=args.way == "cluster_api")
        group = stack.enter_context(ClusterGroup(Path(folder) / "bed", [plan]))
        made = WAYS[args.way](group.cluster("cloud"))
        bed = Path(folder) / "bed"
        asyncio.run(measure(group.cluster("cloud"), made, bed, args))
    return 0


@dataclass(frozen=True)
class BenchWay:
    """What differs between ways."""

    kind: Kind
    namespace: str
    place: NodeSelection
    capacity: Callable[[RentingSite], ClusterNodes]
    by_hand: Callable[[LaunchNode], Obj]  # its object as we would make it, for an installation "bare"


def _by_karpenter(cluster: DevCluster) -> BenchWay:
    cluster.apply(karpenter.node_class(POOL))
    way = KarpenterWay(karpenter.GROUP, "KWOKNodeClass", POOL)
    place = NodeSelection(rent=RentedNodes(way, instance_types=("a100-8x",)))
    return BenchWay(
        NODE_CLAIMS, "", place, KarpenterNodes, lambda ask: node_claim(ask, OFFER, place, "bare", _now_ms())
    )


def _by_cluster_api(cluster: DevCluster) -> BenchWay:
    namespace = cluster.new_namespace("machines")
    pool = cluster_api.pool(POOL, namespace, "own", gpus=GPUS)
    cluster.apply(*cluster_api.toy_cluster("own", namespace), *pool)
    place = NodeSelection(rent=RentedNodes(ClusterApiWay(POOL, namespace)))

    def by_hand(ask: LaunchNode) -> Obj:
        there = connect(Access(str(cluster.kubeconfig))).time_there
        return machine_deployment(pool[1], ask, OFFER, place, "bare", 0, deadline_marks(ask.deadline_at, 0, there))

    return BenchWay(MACHINE_DEPLOYMENTS, namespace, place, ClusterApiNodes, by_hand)


WAYS: Final = {"karpenter": _by_karpenter, "cluster_api": _by_cluster_api}


async def measure(cluster: DevCluster, way: BenchWay, bed: Path, args: argparse.Namespace) -> None:
    """Each part is printed when it is known."""
    async with AsyncExitStack() as stack:
        aside, ours = (connect(Access(str(cluster.kubeconfig))) for _ in range(2))
        stack.push_async_callback(aside.close)
        stack.push_async_callback(ours.close)
        watcher = Watcher(aside, way)
        stack.push_async_callback(watcher.close)
        await watcher.open()
        site = RentingSite("cloud", "bench", _now_ms, lambda: ours, lambda: {OFFER.id: (OFFER, way.place)})
        capacity = way.capacity(site)
        capacity.late_seconds = 0.0  # nobody led before
        stack.push_async_callback(capacity.close)
        await capacity.open(lambda _: None)
        bench = Burst(way, capacity, ours, aside, watcher, bed, args.patience)
        if "one_by_one" in args.parts:
            _tell(await bench.one_by_one(args.asks))
        if "by_hand" in args.parts:
            _tell(await bench.by_hand(args.nodes))
        if "burst" in args.parts:
            _tell(await bench.all_at_once(args.nodes))


def _tell(figures: dict[str, Any]) -> None:
    print(json.dumps({**figures, "load": round(os.getloadavg()[0], 1)}), flush=True)


@dataclass(frozen=True)
class Burst:
    way: BenchWay
    capacity: ClusterNodes
    ours: Cluster
    aside: Cluster
    watcher: "Watcher"
    bed: Path
    patience_s: float

    async def one_by_one(self, asks: int) -> dict[str, Any]:
        """How much longer than the provider an `ask` takes."""
        overheads, totals, before = [], [], self.ours.requests.copy()
        for number in range(asks):
            node, began = f"single{number}.1/n0", time.monotonic()
            await self.capacity.ask(launch(node))
            totals.append(time.monotonic() - began)
            name = self.capacity.name_of(node)
            await self.watcher.until(partial(self.watcher.ready.__contains__, name))
            overheads.append(totals[-1] - self.watcher.took(name))
            await self.capacity.release(node)
        requests = _by_kind(self.ours.requests - before, asks)
        return {
            "asks": asks, "ask_to_ready_s": summary(totals), "overhead_s": summary(overheads),
            "requests_a_node_and_release": requests,
        }  # fmt: skip

    async def by_hand(self, nodes: int) -> dict[str, Any]:
        """The same burst without Penstock: objects are created, and somebody waits until all Nodes are ready."""
        objects = [self.way.by_hand(launch(f"bare{number}.1/n0")) for number in range(nodes)]
        names, used, began = [obj["metadata"]["name"] for obj in objects], cpu_by_program(self.bed), time.monotonic()
        await asyncio.gather(*(self._create(obj) for obj in objects))
        made_s = time.monotonic() - began
        ready = await self._until_all(lambda: sum(name in self.watcher.ready for name in names), nodes)
        took_s, used = time.monotonic() - began, cpu_by_program(self.bed) - used
        await asyncio.gather(*(self._delete(name) for name in names))
        left = await self._until_all(lambda: sum(not self.watcher.has(name) for name in names), nodes)
        return {
            "nodes": nodes, "by_hand_created_s": round(made_s, 1), "by_hand_ready": ready,
            "by_hand_s": round(took_s, 1), "by_hand_gone": left, "by_hand_gone_s": round(time.monotonic() - began, 1),
            "cpu_s": _most(used),
        }  # fmt: skip

    async def _until_all(self, count: Callable[[], int], all_of_them: int) -> int:
        """How many it came to, within the patience."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self.watcher.until(lambda: count() == all_of_them)
        return count()

    async def _create(self, obj: Obj) -> None:
        """As often as it takes: a busy API server may not answer in time."""
        kind, namespace = self.way.kind, self.way.namespace
        while True:
            with suppress(Unavailable, AlreadyExists):
                await self.aside.create(kind, obj, namespace)
            with suppress(Unavailable, NotFound):
                await self.aside.get(kind, obj["metadata"]["name"], namespace)
                return

    async def _delete(self, name: str) -> None:
        while True:
            with suppress(Unavailable):
                with suppress(NotFound):
                    await self.aside.delete(self.way.kind, name, self.way.namespace)
                return

    async def all_at_once(self, nodes: int) -> dict[str, Any]:
        """Own processor time is that of this process: Penstock's, and of the watcher beside it."""
        names = [f"burst{number}.1/n0" for number in range(nodes)]
        used, own, before, began = cpu_by_program(self.bed), _cpu_s(), _counted(self.ours), time.monotonic()
        asked = await self._all(self._ask(name) for name in names)
        came = [self.watcher.came[name] for name in map(self.capacity.name_of, names) if name in self.watcher.came]
        figures = {
            "nodes": nodes, "burst_created": len(came), "burst_created_s": round(max(came, default=began) - began, 1),
            "burst_ready": asked[0], "burst_s": asked[1],
            "requests_a_node": _by_kind(_counted(self.ours) - before, nodes),
            "cpu_s": _most(cpu_by_program(self.bed) - used), "own_cpu_s": round(_cpu_s() - own, 1),
        }  # fmt: skip
        _tell(figures)
        idle = await self._idle() if asked[0] == nodes else {}
        used, own, before = cpu_by_program(self.bed), _cpu_s(), _counted(self.ours)
        released = await self._all(self.capacity.release(name) for name in names)
        return {
            **idle, "released": released[0], "release_s": released[1],
            "requests_a_release": _by_kind(_counted(self.ours) - before, nodes),
            "release_cpu_s": _most(cpu_by_program(self.bed) - used), "own_release_cpu_s": round(_cpu_s() - own, 1),
        }  # fmt: skip

    async def _all(self, work: Iterable[Any]) -> tuple[int, float]:
        """How many were done within the patience, and how long that took."""
        began, tasks = time.monotonic(), [asyncio.ensure_future(call) for call in work]
        done, late = await asyncio.wait(tasks, timeout=self.patience_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()
        return len(done), round(time.monotonic() - began, 1)

    async def _ask(self, node: str) -> None:
        """As often as it takes: dispatch asks again, too."""
        while True:
            with suppress(Unreachable):
                await self.capacity.ask(launch(node))
                return

    async def _idle(self) -> dict[str, Any]:
        """While all of them are there, and nothing happens."""
        requests, used = _counted(self.ours), _cpu_s()
        await asyncio.sleep(IDLE_S)
        return {
            "idle_requests_a_minute": round((_counted(self.ours) - requests).total() * 60 / IDLE_S, 1),
            "idle_cpu_percent": round((_cpu_s() - used) * 100 / IDLE_S, 2),
        }


class Watcher:
    """Sees objects and Nodes come, on a connection of its own."""

    def __init__(self, cluster: Cluster, way: BenchWay) -> None:
        self.came: dict[str, float] = {}  #: objects, by name
        self.ready: dict[str, float] = {}  #: their Nodes, with GPUs
        self.names: dict[str, str] = {}  #: by Node: the object that it belongs to, if only its Machine says it
        self.namespace = way.namespace
        self.objects = Informer(cluster, way.kind, self._object, namespace=way.namespace)
        self.nodes = Informer(cluster, NODES, self._node)
        self.machines = Informer(cluster, MACHINES, self._machine, namespace=way.namespace)
        self.by_machine = way.kind is MACHINE_DEPLOYMENTS
        self.news = asyncio.Event()

    async def open(self) -> None:
        informers = [self.objects, self.nodes, *([self.machines] if self.by_machine else [])]
        self.tasks = [asyncio.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.in_step.wait()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    def _object(self, _: Obj | None, now: Obj | None) -> None:
        if now is not None:
            self.came.setdefault(now["metadata"]["name"], time.monotonic())
        self.news.set()

    def _machine(self, _: Obj | None, now: Obj | None) -> None:
        if now is not None and node_name_of(now):
            self.names[node_name_of(now)] = label_of(now)
            if (node := self.nodes.get(node_name_of(now))) is not None:
                self._node(None, node)

    def _node(self, before: Obj | None, now: Obj | None) -> None:
        name = self._belongs_to(now or before)
        if now is not None and name and is_ready(now, GPU, GPUS) and not _is_new(now):
            self.ready.setdefault(name, time.monotonic())
        self.news.set()

    def _belongs_to(self, node: Obj | None) -> str:
        assert node is not None
        return self.names.get(node["metadata"]["name"], "") if self.by_machine else label_of(node)

    def took(self, name: str) -> float:
        return self.ready[name] - self.came[name]

    def has(self, name: str) -> bool:
        """The object, which goes after its Node."""
        return self.objects.get(name, self.namespace) is not None

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()


def _is_new(node: Obj) -> bool:
    """Cluster API's core has not seen to it yet."""
    return any(taint.get("key") == UNINITIALIZED for taint in node["spec"].get("taints") or ())


def launch(node: str) -> LaunchNode:
    return LaunchNode(node, OFFER.id, GPUS, node.partition("/")[0], _now_ms() + 2 * HOUR)


def summary(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"p50": round(statistics.median(ordered), 3), "p95": round(p95, 3), "most": round(ordered[-1], 3)}


def _counted(cluster: Cluster) -> Counter[str]:
    return cluster.requests.copy()


def _by_kind(requests: Counter[str], nodes: int) -> dict[str, float]:
    counted = {what: round(number / nodes, 2) for what, number in requests.most_common()}
    return {"all": round(requests.total() / nodes, 2), **counted}


def _now_ms() -> int:
    return int(time.time() * 1000)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_by_program(bed: Path) -> Counter[str]:
    """Hundredths of a second that each program of a test bed has used."""
    used: Counter[str] = Counter()
    for note in bed.rglob("*.pid"):
        with suppress(OSError):
            fields = Path(f"/proc/{note.read_text().split()[0]}/stat").read_text().rpartition(") ")[2].split()
            used[note.stem] += int(fields[11]) + int(fields[12])
    return used


def _most(used: Counter[str]) -> dict[str, float]:
    return {name: round(number / 100, 1) for name, number in used.most_common(6)}


if __name__ == "__main__":
    raise SystemExit(main())
