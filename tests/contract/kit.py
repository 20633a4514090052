"""Ground for drivers to stand on: one kind of site with things to do on it, for each driver that there is.

A `Ground` makes drivers of the same site again and again, as a control plane does that is killed and comes back. The
jobs have names that say what they do; a local site runs a real program for each, a rehearsal knows how long it takes,
and in a cluster of kwok's the pods say that they run for so long.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from penstock.capacity.cluster_nodes import ClusterNodes
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode, StartAttempt
from penstock.core.model.types import JobSpec, NodeShape, Offer, Site
from penstock.core.units import NEVER, SECOND, Instant, Millis
from penstock.data.checkpoints import FolderStore, NoStore, Store
from penstock.devcluster import cluster_api, karpenter
from penstock.drivers.driver import BaseDriver, SeenAttempt, Unreachable, Work
from penstock.drivers.kubernetes.connection import KubernetesSettings
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.local.store import LocalSettings
from penstock.kube import annotations as names
from penstock.kube.access import Access, connect
from penstock.kube.node_selection import ClusterApiWay, KarpenterWay, NodeSelection, RentedNodes
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.world import Truth, World

FOREVER: dict[str, str] = {}  #: a pod that says nothing of its end
#: How often spot nodes are lost: at once, nearly. A rehearsal has no other way to say so.
LOSS_PPM = 3_600_000 * 1_000_000 // 300

RUN_MS = {"quick": 200, "long": 600 * SECOND}
PROGRAMS = {
    "quick": "import time; print('ran', flush=True); time.sleep(0.2)",
    "long": "import time; print('ran', flush=True); time.sleep(600)",
}

Fact = TypeVar("Fact", bound=e.Fact)


def site(*, losses: bool = False) -> Site:
    return Site(
        "lab",
        (
            Offer("lab/owned", "lab", "owned", (NodeShape(2, 2),)),
            Offer("lab/nodes", "lab", "on_demand", (NodeShape(2, 1),), start_ms=150, kill_ms=2 * SECOND),
            Offer("lab/slow", "lab", "on_demand", (NodeShape(2, 1),), start_ms=600 * SECOND),
            Offer(
                "lab/spot", "lab", "spot", (NodeShape(1, 4),), loss_ppm_per_hour=LOSS_PPM if losses else 0, kill_ms=500
            ),
            Offer("lab/pods", "lab", "on_demand", (NodeShape(2, 2),), sold_by="attempt", start_ms=150, kill_ms=500),
        ),
    )


class Watch:
    """A driver that is open, and all that it said."""

    def __init__(self, driver: BaseDriver, work: Callable[[str], Work]) -> None:
        self.driver, self.work = driver, work
        self.said: list[e.Fact] = []
        self.rooms: list[e.NodesSeen] = []  #: what a cluster says of its nodes, apart: that may come at any time
        self.unsuited: list[e.NodesUnsuited] = []  #: likewise
        self.news = asyncio.Event()

    def hear(self, fact: e.Fact) -> None:
        if isinstance(fact, e.NodesSeen):
            self.rooms.append(fact)
        elif isinstance(fact, e.NodesUnsuited):
            self.unsuited.append(fact)
        else:
            self.said.append(fact)
        self.news.set()

    async def hears(self, kind: type[Fact], about: str) -> Fact:
        """The next such fact, or the one that was said already."""
        while True:
            self.news.clear()
            for fact in self.said:
                if isinstance(fact, kind) and about in (getattr(fact, "attempt", None), getattr(fact, "node", None)):
                    return fact
            try:
                await self.news.wait()
            except asyncio.CancelledError as given_up:
                given_up.add_note(f"No {kind.__name__} of {about} was said, only {self.said}")
                raise

    async def start(self, job: str, number: int = 1, **more: Any) -> str:
        ask = start(job, number, **more)
        await self.driver.start(ask, self.work(job))
        return ask.attempt

    async def set_deadline(self, attempt: str, at: Instant) -> Instant:
        """Asked again as the control plane does: whoever writes to the Job at the same time makes this one fail."""
        while True:
            with suppress(Unreachable):
                return await self.driver.set_deadline(attempt, at)
            await asyncio.sleep(0.1)

    async def sees(self, attempt: str) -> SeenAttempt | None:
        return next((one for one in (await self.driver.look()).attempts if one.attempt == attempt), None)


class Ground(Protocol):
    kind: str

    def driver(self) -> BaseDriver: ...

    def clock(self) -> Instant: ...

    def work(self, job: str) -> Work: ...


class LocalGround:
    kind = "local"

    def __init__(self, folder: Path, store: Store | None = None, **settings: Any) -> None:
        self.folder, self.site = folder, site()
        self.store = store or FolderStore({"lab": folder / "checkpoints"})
        self.settings = LocalSettings(**{"tick_ms": 20, "devices": (), "notice_ms": 300, "seed": 1, **settings})
        self.zero = time.monotonic()

    def clock(self) -> Instant:
        return int((time.monotonic() - self.zero) * 1000)

    def driver(self) -> LocalDriver:
        return LocalDriver(self.site, self.folder, "home", self.store, self.clock, self.settings)

    def work(self, job: str) -> Work:
        return work(job)


class RehearsalGround:
    kind = "rehearsal"

    def __init__(self, site: Site) -> None:
        truths = {name: Truth(run_ms, JobSpec(1, checkpoint_every_ms=100)) for name, run_ms in RUN_MS.items()}
        self.zero = time.monotonic()
        self.stage = Stage(World([site], truths, seed=1), self.clock)

    def clock(self) -> Instant:
        return int((time.monotonic() - self.zero) * 1000)

    def driver(self) -> Rehearsal:
        return Rehearsal("lab", self.stage)

    def work(self, job: str) -> Work:
        return work(job)


class KubernetesGround:
    """A namespace of a cluster that others use at the same time."""

    kind = "kubernetes"

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, **settings: Any) -> None:
        self.access, self.folder, self.site = Access(str(kubeconfig)), folder, site()
        self.settings = KubernetesSettings(**{"namespace": namespace, "shared": True, **settings})
        self.store: Store = NoStore()
        self.installation = "home"
        self.zero = time.monotonic()

    def clock(self) -> Instant:
        return int((time.monotonic() - self.zero) * 1000)

    def driver(self) -> KubernetesDriver:
        made = KubernetesDriver(
            self.site,
            self.folder,
            self.installation,
            self.store,
            self.clock,
            lambda: connect(self.access),
            self.settings,
        )
        if isinstance(made.capacity, ClusterNodes):
            made.capacity.late_seconds = 0.0  # nobody led before
        return made

    def work(self, job: str) -> Work:
        """Kwok's pods do not run, so there is no image to name; how long they say they run is written on them."""
        lasts = {"pod-complete.stage.kwok.x-k8s.io/delay": f"{RUN_MS[job]}ms"} if job in RUN_MS else {}
        return Work((), manifest=json.dumps(home_job(job, lasts)))


class KarpenterGround(KubernetesGround):
    """The same, where Karpenter rents the nodes. Its node classes have the namespace's name."""

    kind = "karpenter"

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, **settings: Any) -> None:
        super().__init__(kubeconfig, namespace, folder, **settings)
        rented = [offer for offer in self.site.offers if offer.sold_by == "node" and offer.term != "owned"]
        self.site = replace(self.site, offers=tuple(replace(offer, kill_ms=10 * SECOND) for offer in rented))
        classes = {"lab/slow": f"{namespace}-slow"}
        places = [(offer.id, _rent(classes.get(offer.id, namespace))) for offer in rented]
        self.settings = replace(self.settings, places=tuple(places))
        self.installation = namespace  # so that each test sees its own nodes alone

    def classes(self) -> list[dict[str, Any]]:
        slow = karpenter.node_class(f"{self.settings.namespace}-slow", joins_after="10m")
        return [karpenter.node_class(self.settings.namespace), slow]


class ClusterApiGround(KubernetesGround):
    """The same, where Cluster API rents the nodes: of its namespace's pools "a100" and "slow"."""

    kind = "cluster_api"

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, **settings: Any) -> None:
        super().__init__(kubeconfig, namespace, folder, **settings)
        rented = [offer for offer in self.site.offers if offer.sold_by == "node" and offer.term != "owned"]
        offers = tuple(replace(offer, kill_ms=10 * SECOND, guarantee="watchman") for offer in rented)
        self.site = replace(self.site, offers=offers)
        pools = {"lab/slow": "slow"}
        places = [(offer.id, self.place(pools.get(offer.id, "a100"))) for offer in rented]
        self.settings = replace(self.settings, places=tuple(places))
        self.installation = namespace  # so that each test sees its own nodes alone

    def place(self, pool: str) -> NodeSelection:
        namespace = self.settings.namespace
        return NodeSelection(rent=RentedNodes(ClusterApiWay(pool, namespace, watchman=namespace)))

    def pools(self) -> list[dict[str, Any]]:
        return cluster_api.pool("slow", self.settings.namespace, "own", gpus=8, boot_ms=600_000)


#: Of a pod that an autoscaler should leave alone.
NEVER_DISRUPT = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def no_evictions(namespace: str) -> dict[str, Any]:
    """A budget of 0 disruptions for all pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "never", "namespace": namespace},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {}}},
    }


def _rent(node_class: str) -> NodeSelection:
    way = KarpenterWay(karpenter.GROUP, "KWOKNodeClass", node_class)
    return NodeSelection(rent=RentedNodes(way, instance_types=("a100-8x",)))


def home_job(name: str, annotations: Mapping[str, str] = FOREVER, **spec: Any) -> dict[str, Any]:
    """A Job as a person applies it, wanting one GPU."""
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": dict(annotations)}, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "annotations": {names.HOME: "lab"}},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


@asynccontextmanager
async def opened(ground: Ground) -> AsyncIterator[Watch]:
    watch = Watch(ground.driver(), ground.work)
    await watch.driver.open(watch.hear)
    try:
        yield watch
    finally:
        await watch.driver.close()


def start(
    job: str,
    number: int = 1,
    offer: str = "lab/owned",
    slots: tuple[tuple[int, int], ...] = ((0, 1),),
    nodes: tuple[str, ...] = (),
    deadline_at: Instant = NEVER,
    resume_ms: Millis = 0,
    speed_permille: int = 1000,
    width: int = 1,
    earlier: str = "",
) -> StartAttempt:
    slots = slots if offer == "lab/owned" else ()
    attempt = f"{job}.{number}"
    return StartAttempt(attempt, job, offer, width, speed_permille, resume_ms, slots, nodes, deadline_at, earlier)


def launch(node: str, offer: str = "lab/nodes", gpus: int = 2, deadline_at: Instant = NEVER) -> LaunchNode:
    return LaunchNode(node, offer, gpus, node.partition("/")[0], deadline_at)


def work(job: str) -> Work:
    return python(PROGRAMS.get(job, PROGRAMS["long"]))


def python(program: str, **env: str) -> Work:
    return Work((sys.executable, "-c", program), tuple(env.items()))
