"""`make bench-kube`: Jobs on three Kubernetes clusters under a real `penstock up`, journal on disk. FAST=1 for few.

    python -m bench.kube [--fast] [--json] [--jobs 10000]

The clusters are the test bed's (docs/dev-cluster.md): real API servers, controllers and schedulers, and kwok's nodes.
`lab` is owned and where Jobs are created; `east` and `west` are rented as soon as it is full, for waiting is dear here.
First other people's Jobs, without our label: what the clusters do by themselves, and how fast. Then Penstock with
nothing to do; then a Job a second, on free GPUs; then many at once, with Penstock stopped every few seconds: what the
clusters do beside it; then very many at once. A Job's time runs from just before it is created until its pod runs, and
until the home Job says so, as somebody sees it who watches both. The watch's lag is the time from the API server's
answer to whoever created a Job until Penstock has it in hand (bench/heard.py). Requests and processors are counted
until all is quiet again: Events come last.

All of it shares this machine's processors. What each side took of them is said, too, with what it takes when idle: that
is what another machine would show again.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.live import cpu, up
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan
from penstock.kube import annotations as names
from penstock.kube import client
from penstock.kube.access import Access, connect
from penstock.kube.informer import Informer

MODEL: Final = "A100"
PEOPLE: Final = "research"  #: the namespace at home where Jobs are created
OURS: Final = "penstock"  #: the namespace abroad where they run
LABEL: Final = "bench"  #: on a Job and on its pods wherever they run: the Job's name
ENDS: Final = "pod-complete.stage.kwok.x-k8s.io/delay"
LIMIT_S: Final = 3600
PACED: Final = 30  #: Jobs, one a second
WRITERS: Final = 16  #: who create Jobs side by side
PROGRESS_S: Final = 20
TURN_S: Final = 6  #: shorter than a lease
QUIET_S: Final = 5  #: in which fewer requests than one a second are quiet
EVERYTHING: Final = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)
#: Service accounts are counted apart by an API server, and Penstock has the only one that asks for anything.
REQUESTS: Final = re.compile(
    r'^apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts".*} (\S+)$', re.MULTILINE
)
SITES: Final = """
currency: USD
sites:
  - name: lab
    front_door: true
    driver: kubernetes
    kubernetes: {{kubeconfig: {lab}, namespaces: [research]}}
    offers: [{{name: owned, term: owned, gpu: A100, gpus_per_node: {gpus}}}]
  - name: east
    driver: kubernetes
    kubernetes: {{kubeconfig: {east}}}
    maps: {{namespaces: {{research: penstock}}, images: {{busybox: busybox}}}}
    offers: [{{name: east, price: {{per: gpu_hour, list: 2}}, {rented}}}]
  - name: west
    driver: kubernetes
    kubernetes: {{kubeconfig: {west}}}
    maps: {{namespaces: {{research: penstock}}, images: {{busybox: busybox}}}}
    offers: [{{name: west, price: {{per: gpu_hour, list: 2.5}}, {rented}}}]
caps: [{{scope: org, per_month: 100000000}}]
policy: {{value_of_waiting: 1000000}}
"""
RENTED: Final = (
    "term: on_demand, gpu: A100, gpus_per_node: {gpus}, nodes: {nodes}, sold_by: attempt, billing_step: 1s, kill: 30s, "
    "guarantee: expire_after"
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Of each of the three clusters, and what is asked of them. Nodes have as many GPUs as it takes for all Jobs to
    run at once, with the lab too small for them."""

    nodes: int
    gpus: int  #: of a node
    others: int  #: pods of other people in the lab; every other one holds a GPU
    jobs: int
    idle_s: int


FULL: Final = Size(nodes=250, gpus=16, others=2_000, jobs=10_000, idle_s=60)
FAST: Final = Size(nodes=50, gpus=3, others=200, jobs=300, idle_s=20)


@dataclass(frozen=True)
class Figure:
    what: str
    measured: str
    aim: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--jobs", type=int, help="created at once")
    args = parser.parse_args()
    size = FAST if args.fast else FULL
    size = replace(size, jobs=args.jobs or size.jobs)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it leaves no cluster behind
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    machine = f"Python {platform.python_version()}, {os.cpu_count()} processors, load average {load} before"
    say(machine)
    with tempfile.TemporaryDirectory(prefix="penstock-kube-") as folder:
        figures = asyncio.run(measure(Path(folder), size))
    show(machine, figures, as_json=args.as_json)


async def measure(folder: Path, size: Size) -> list[Figure]:
    nodes = (NodePlan(size.nodes, gpus=size.gpus, model=MODEL),)
    with ClusterGroup(folder / "bed", [ClusterPlan(name, nodes) for name in ("lab", "east", "west")]) as bed:
        say(f"three clusters of {size.nodes} nodes with {size.gpus} GPUs each")
        sites = furnish(bed, size)
        async with watching(bed, folder / "heard") as run:
            figures = await alone(run, size)
            program = ("bench.heard", str(run.heard_file))
            with up(str(folder / "journal.db"), sites, program) as (_, process):
                run.penstock = process.pid
                await run.shows(await run.create(["first"]))
                figures += await idle(run, size)
                figures += await paced(run)
                figures += await beside(run, size)
                figures += await burst(run, size)
    return figures


def show(machine: str, figures: Sequence[Figure], *, as_json: bool) -> None:
    load = f"{os.getloadavg()[0]:.1f}"
    if as_json:
        print(
            json.dumps(
                {"machine": machine, "load_after": load, "figures": [vars(figure) for figure in figures]}, indent=2
            )
        )
        return
    what, measured = (max(len(getattr(figure, part)) for figure in figures) for part in ("what", "measured"))
    for row in figures:
        print(f"{row.what:<{what}}  {row.measured:<{measured}}  {row.aim}".rstrip())
    print(f"{machine}, {load} after")


def say(words: str) -> None:
    """How far it is, for whoever waits for it."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


# --- what is measured ------------------------------------------------------------------------------------------------


async def alone(run: "Run", size: Size) -> list[Figure]:
    """Other people's Jobs, in the lab only and without Penstock: what a cluster needs for one."""
    say(f"{size.others} Jobs of other people")
    before, began = run.clusters_cpu(), time.monotonic()
    jobs = [plain_job(f"other-{number}", gpus=number % 2) for number in range(size.others)]
    made = await run.create_all(jobs)
    await run.shows(made)
    took, used = run.shown.last(made) - began, run.clusters_cpu() - before
    return [
        Figure("Jobs a second, one cluster without Penstock", f"{size.others / took:.1f}"),
        Figure("the clusters' processors for each of them", f"{used / size.others * 1000:.0f} ms"),
    ]


async def idle(run: "Run", size: Size) -> list[Figure]:
    say(f"nothing to do for {size.idle_s} s")
    requests, ours, theirs = run.requests("lab"), cpu(run.penstock), run.clusters_cpu()
    await asyncio.sleep(size.idle_s)
    asked, took = run.requests("lab") - requests, cpu(run.penstock) - ours
    theirs = run.clusters_cpu() - theirs
    return [
        Figure(f"idle, {size.nodes} nodes and {size.others} pods: our requests to the lab's API server",
               f"{asked / size.idle_s:.2f}/s", "under 1/s"),
        Figure("idle: our CPU, three clusters", f"{took / size.idle_s:.1%} of a core", "2 %"),
        Figure("idle: the three clusters' own CPU", f"{theirs / size.idle_s:.0%} of a core"),
    ]  # fmt: skip


async def paced(run: "Run") -> list[Figure]:
    """One a second on free GPUs; each runs for some seconds."""
    say(f"a Job a second, {PACED} s")
    made: list[str] = []
    begin = time.monotonic()
    for number in range(PACED):
        await asyncio.sleep(max(0.0, begin + number - time.monotonic()))
        made += await run.create([f"paced-{number}"], runs="5s")
    await run.shows(made)
    return [
        Figure("a Job a second on free GPUs: created until its pod runs", spread(run.took(made, run.ran)), "p95 5 s"),
        Figure("the same until the home Job says so", spread(run.took(made, run.shown))),
        Figure("the same: the watch's lag", tail(run.lag(made))),
    ]


async def beside(run: "Run", size: Size) -> list[Figure]:
    """What the clusters do while many starts wait for their nodes, with Penstock running and stopped in turns: it asks
    about what hangs, and must not slow down what it asks about.
    """
    say(f"{size.jobs // 3} Jobs at once, with Penstock stopped every other {TURN_S} s")
    made = await run.create([f"beside-{number}" for number in range(size.jobs // 3)], runs="10s")
    await run.bound.until(made)
    placed, took, stopped = [0, 0], [0.0, 0.0], False
    while True:
        before, began = len(run.placed), time.monotonic()
        async with pause(run.penstock if stopped else 0):
            await asyncio.sleep(TURN_S)
        if not set(made) - run.placed.keys():
            break
        placed[stopped] += len(run.placed) - before
        took[stopped] += time.monotonic() - began
        stopped = not stopped
    await run.ran.until(made)  # a Job that ran while Penstock was stopped was never seen to run at home
    rates = [
        f"{many / seconds:.1f}/s" if seconds else "not measured" for many, seconds in zip(placed, took, strict=True)
    ]
    return [
        Figure("pods given a node while Penstock runs", rates[False], "as while it is stopped"),
        Figure("the same while it is stopped", rates[True]),
    ]


@asynccontextmanager
async def pause(pid: int) -> AsyncIterator[None]:
    """Stop a process meanwhile; 0: none."""
    if not pid:
        yield
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def burst(run: "Run", size: Size) -> list[Figure]:
    say(f"{size.jobs} Jobs at once")
    ours, theirs, asked = cpu(run.penstock), run.clusters_cpu(), run.all_requests()
    made = await run.create([f"burst-{number}" for number in range(size.jobs)])
    say(f"created at {size.jobs / (run.created.last(made) - run.created.first(made)):.0f} a second")
    await run.shows(made)
    say("all run, and their home Jobs say so")
    theirs = run.clusters_cpu() - theirs
    await run.quiet()
    ours, asked = cpu(run.penstock) - ours, run.all_requests() - asked
    began, many = run.created.first(made), len(made)
    lag = [max(0.0, run.shown[name] - run.ran[name]) for name in made]
    return [
        Figure(f"{many:,} Jobs at once: created", f"{many / (run.created.last(made) - began):.1f}/s"),
        Figure("running, and the home Job says so", f"{many / (run.shown.last(made) - began):.1f}/s", "100/s"),
        Figure("created until its pod runs", spread(run.took(made, run.ran))),
        Figure("created until the home Job says so", spread(run.took(made, run.shown))),
        Figure("its pod runs until the home Job says so", spread(lag)),
        Figure("the watch's lag", tail(run.lag(made))),
        Figure("where they ran", run.where(made)),
        Figure("our processor for each Job", f"{ours / many * 1000:.1f} ms"),
        Figure("the clusters' processors for each Job, home Job included", f"{theirs / many * 1000:.0f} ms"),
        Figure("our requests for each Job, three API servers", f"{asked / many:.1f}"),
        Figure("our memory at its most", f"{peak(run.penstock)} MB"),
    ]


def spread(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return f"p50 {statistics.median(ordered):.2f} s p95 {p95:.2f} s"


def tail(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"p50 {statistics.median(ordered):.2f} s p99 {p99:.2f} s"


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


# --- the clusters ----------------------------------------------------------------------------------------------------


def furnish(bed: ClusterGroup, size: Size) -> str:
    """What a platform engineer does once; returns the sites file."""
    for cluster in bed.clusters():
        cluster.new_namespace(OURS)
    bed.cluster("lab").new_namespace(PEOPLE)
    paths = {member.name: member.token_for("penstock", EVERYTHING) for member in bed.clusters()}
    return SITES.format(**paths, gpus=size.gpus, rented=RENTED.format(gpus=size.gpus, nodes=size.nodes))


def home_job(name: str, runs: str) -> Json:
    """An hour's training, as far as anybody knows; `runs`: how long it really runs, otherwise on and on."""
    job = plain_job(name, gpus=1, annotations={ENDS: runs} if runs else {})
    job["metadata"]["labels"][names.QUEUE] = "vision"
    job["metadata"]["annotations"] = {"penstock.dev/run-time": "1h"}
    job["spec"] |= {"suspend": True, "managedBy": names.MANAGER}
    return job


def plain_job(name: str, gpus: int, annotations: dict[str, str] | None = None) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "train", "image": "busybox", "resources": {"limits": limits}}
    template = {
        "metadata": {"labels": {LABEL: name}, "annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": name, "namespace": PEOPLE, "labels": {LABEL: name}},
        "spec": {"backoffLimit": 0, "template": template},
    }


# --- looking on ------------------------------------------------------------------------------------------------------


class Times(dict[str, float]):
    """When something was first seen of each Job, by this process's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited: set[str] = set()
        self.all_seen = asyncio.Event()

    def note(self, name: str) -> None:
        self.setdefault(name, time.monotonic())
        self.awaited.discard(name)
        if not self.awaited:
            self.all_seen.set()

    async def until(self, wanted: Iterable[str]) -> None:
        self.awaited = set(wanted) - self.keys()
        self.all_seen.clear()
        if not self.awaited:
            return
        try:
            await asyncio.wait_for(self.all_seen.wait(), LIMIT_S)
        except TimeoutError:
            late = sorted(self.awaited)
            raise SystemExit(f"After {LIMIT_S} s {len(late):,} Jobs do not run: {', '.join(late[:3])}") from None

    def first(self, wanted: Iterable[str]) -> float:
        return min(self[name] for name in wanted)

    def last(self, wanted: Iterable[str]) -> float:
        return max(self[name] for name in wanted)


class Run:
    """Creates Jobs, and sees what becomes of them."""

    def __init__(self, bed: ClusterGroup, lab: client.Cluster, heard: Path) -> None:
        self.lab, self.heard_file, self.clusters = lab, heard, {cluster.name: cluster for cluster in bed.clusters()}
        self.pids = [process.pid for process in bed.processes()]
        self.created, self.answered, self.ran, self.shown = Times(), Times(), Times(), Times()
        self.bound, self.placed = Times(), Times()  #: home Jobs that are bound; pods that have a node
        self.places: dict[str, str] = {}  #: Job -> the cluster where its pod ran
        self.penstock = 0  #: its process

    async def create(self, wanted: Sequence[str], runs: str = "") -> list[str]:
        return await self.create_all([home_job(name, runs) for name in wanted])

    async def create_all(self, jobs: Sequence[Json]) -> list[str]:
        left = iter(jobs)
        await asyncio.gather(*(self._write(left) for _ in range(WRITERS)))
        return [job["metadata"]["name"] for job in jobs]

    async def _write(self, jobs: Iterable[Json]) -> None:
        for job in jobs:
            self.created.note(job["metadata"]["name"])
            await self.lab.create(client.JOBS, job)
            self.answered.note(job["metadata"]["name"])

    async def shows(self, wanted: Sequence[str]) -> None:
        """Until each was seen to run, here and there."""
        await self.ran.until(wanted)
        await self.shown.until(wanted)

    async def tell_progress(self) -> None:
        """Of all Jobs so far, for whoever waits: until it is cancelled."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            created, ran, shown = (f"{len(times):,}" for times in (self.answered, self.ran, self.shown))
            say(f"{created} Jobs created, {ran} run, {shown} say so; load {os.getloadavg()[0]:.1f}")

    async def quiet(self) -> None:
        """Until Penstock asks for nothing any more: what it tells of all this is told."""
        before = -1.0
        while (asked := self.all_requests()) - before > QUIET_S:
            before = asked
            await asyncio.sleep(QUIET_S)

    def lag(self, wanted: Iterable[str]) -> list[float]:
        """From the server's answer until Penstock had it in hand; it may hear of it before the answer comes."""
        lines = (line.split() for line in self.heard_file.read_text("utf-8").splitlines())
        heard = {name: float(at) for name, at in lines}
        return [max(0.0, heard[name] - self.answered[name]) for name in wanted]

    def took(self, wanted: Iterable[str], until: Times) -> list[float]:
        return [until[name] - self.created[name] for name in wanted]

    def where(self, wanted: Iterable[str]) -> str:
        sites = [self.places[name] for name in wanted]
        return ", ".join(f"{site} {sites.count(site):,}" for site in self.clusters)

    def clusters_cpu(self) -> float:
        return sum(cpu(pid) for pid in self.pids)

    def all_requests(self) -> float:
        return sum(self.requests(name) for name in self.clusters)

    def requests(self, name: str) -> float:
        """Of Penstock to this API server so far, as the server counts them; watches count when they begin."""
        text = str(self.clusters[name].api.ask("GET", "/metrics").body["text"])
        counts = [float(count) for count in REQUESTS.findall(text)]
        if not counts:
            raise SystemExit(f"The API server of {name} does not say how often service accounts ask it.")
        return sum(counts)

    def saw_job(self, _before: Json | None, now: Json | None) -> None:
        if now and now["is_bound"]:
            self.bound.note(now["name"])
        if now and now["status"].get("ready"):
            self.shown.note(now["name"])

    def saw_pod(self, site: str, now: Json | None) -> None:
        if now and now["has_node"]:
            self.placed.note(now["name"])
        if now and now["status"].get("phase") == "Running":
            self.places.setdefault(now["name"], site)
            self.ran.note(now["name"])


@asynccontextmanager
async def watching(bed: ClusterGroup, heard: Path) -> AsyncIterator[Run]:
    ways = {cluster.name: connect(Access(kubeconfig=str(cluster.kubeconfig))) for cluster in bed.clusters()}
    run = Run(bed, ways["lab"], heard)
    mirrors = [Informer(ways["lab"], client.JOBS, run.saw_job, namespace=PEOPLE, labels=LABEL, keep=_kept)]
    mirrors += [_pods_of(site, way, run) for site, way in ways.items()]
    tasks = [asyncio.create_task(mirror.run()) for mirror in mirrors] + [asyncio.create_task(run.tell_progress())]
    try:
        await asyncio.gather(*(mirror.in_step.wait() for mirror in mirrors))
        yield run
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for way in ways.values():
            await way.close()


def _pods_of(site: str, way: client.Cluster, run: Run) -> Informer:
    return Informer(way, client.PODS, lambda _, now: run.saw_pod(site, now), labels=LABEL, keep=_kept)


def _kept(obj: Json) -> Json:
    """Ten thousand of them are watched: what is asked for, and what a mirror needs."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "name": metadata["labels"][LABEL],
        "is_bound": names.BINDING in (metadata.get("annotations") or {}),
        "has_node": bool(obj["spec"].get("nodeName")),
        "status": {key: status.get(key) for key in ("phase", "ready")},
    }


if __name__ == "__main__":
    main()
