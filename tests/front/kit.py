"""A whole Penstock behind a front door: a real API server for the home Jobs, a real journal on disk and a real plane;
the sites that run them are rehearsed, so that a test says how long a job runs and when a node is lost.

    async with Penstock(lab, namespace, tmp_path, runs={"j1": 2.0}) as penstock:
        penstock.apply(home_job("a"))
        await penstock.shows("a", complete)

Every wait ends on a change that the cluster tells of, or fails after LIMIT_S.
"""

import asyncio
import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from penstock.config.teams import Team
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import MINUTE, SECOND
from penstock.core.units import money as usd
from penstock.data.checkpoints import NoStore
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import Driver
from penstock.drivers.kubernetes.connection import KubernetesSettings
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.explain.story import tell
from penstock.front.binding_driver import BindingDriver
from penstock.front.home_cluster import ExecutionCluster, HomeCluster
from penstock.front.home_jobs import HomeJobs
from penstock.front.leave_file import import_leave_file
from penstock.front.manager import Manager
from penstock.journal.open import open_journal, open_reader
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import EVENTS, JOBS
from penstock.kube.informer import Informer
from penstock.kube.maps import Maps, has
from penstock.live.clock import Clock
from penstock.live.plane import Plane, Setup
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.world import Truth, World

LIMIT_S: Final = 60
DELAY: Final = "pod-complete.stage.kwok.x-k8s.io/delay"  #: on a pod: when it ends well; without it, it runs on
Json = dict[str, Any]


def home_job(name: str, gpus: int = 8, team: str = "vision", **more: Any) -> Json:
    """`spec`, `pod`, `annotations`, `labels` are merged in."""
    container = {
        "name": "train",
        "image": "busybox",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
    }
    pod = {"restartPolicy": "Never", "containers": [container], **more.get("pod", {})}
    spec = {"suspend": True, "managedBy": annotations.MANAGER, "template": {"spec": pod}, **more.get("spec", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {annotations.QUEUE: team, **more.get("labels", {})},
            "annotations": {f"penstock.dev/{key}": text for key, text in more.get("annotations", {}).items()},
        },
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


class Runs(Mapping[str, Truth]):
    """Seconds that jobs run, by their number; the others run on."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds

    def __getitem__(self, job: str) -> Truth:
        return Truth(int(self.seconds.get(job, 3600) * SECOND), JobSpec(1, checkpoint_every_ms=200))

    def __iter__(self) -> Iterator[str]:
        return iter(self.seconds)

    def __len__(self) -> int:
        return len(self.seconds)


#: One owned node of eight GPUs, and as many rented ones as one likes.
SITES: Final = (
    Site("lab", (Offer("lab/a100", "lab", "owned", (NodeShape(8, 1),), gpu_model="A100"),), front_door=True),
    Site(
        "cloud",
        (Offer("cloud/a100", "cloud", "on_demand", (NodeShape(8, None, usd("16")),), "A100", start_ms=100),),
        has=("*",),
    ),
)
POLICY: Final = Policy("test")


class Penstock:
    def __init__(self, cluster: ExternalCluster, namespace: str, folder: Path, **more: Any) -> None:
        self.given, self.namespace, self.folder = cluster, namespace, folder
        self.sites: tuple[Site, ...] = more.get("sites", SITES)
        self.clock = Clock()
        self.world = World(self.sites, Runs(more.get("runs", {})))
        self.stage = Stage(self.world, self.clock.now)
        self.policy: Policy = more.get("policy", POLICY)
        self.teams: tuple[Team, ...] = more.get("teams", ())
        self.kept = folder / "leaving"
        self.others: dict[str, ExternalCluster] = more.get("others", {})  #: further home clusters
        self.namespaces = (namespace, *more.get("also", ()))
        self.kubeconfig: Path = more.get("kubeconfig", cluster.kubeconfig)

    async def __aenter__(self) -> Self:
        self.cluster = connect(Access(kubeconfig=str(self.kubeconfig)))
        self.homes = {"lab": self.cluster}
        for site, other in self.others.items():
            self.homes[site] = connect(Access(kubeconfig=str(other.kubeconfig)))
        self.looker = connect(Access(kubeconfig=str(self.given.kubeconfig)))
        self.changed = asyncio.Event()
        self.jobs = Informer(self.looker, JOBS, self._note, namespace=self.namespace)
        self.events = Informer(self.looker, EVENTS, self._note, namespace=self.namespace)
        self.looking = [asyncio.create_task(informer.run()) for informer in (self.jobs, self.events)]
        await self.comes_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.goes_down()
        await self.stage.halt()
        for task in self.looking:
            task.cancel()
        await asyncio.gather(*self.looking, return_exceptions=True)
        await self.looker.close()
        for cluster in self.homes.values():
            await cluster.close()

    async def comes_up(self) -> None:
        where = str(self.folder / "journal.db")
        self.journal = open_journal(where)
        self.reader = open_reader(where)
        homes = {site: HomeJobs(HomeCluster(site, cluster, self.namespaces)) for site, cluster in self.homes.items()}
        drivers = {site: BindingDriver(driver, homes, self.reader.story) for site, driver in self.drivers().items()}
        joined: list[e.Fact] = [e.SiteJoined(0, site) for site in self.sites]
        opening = (*joined, e.PolicySet(0, 0, self.policy))
        setup = Setup(opening=opening, look_ms=MINUTE, teams=self.teams, queued=self.reader.queued)
        self.plane = Plane(self.journal, drivers, setup, self.clock)
        await self.plane.start()
        self.manager = Manager(homes.values(), self.plane, self.reader, self.elsewhere())
        await import_leave_file(self.kept, self.manager)
        self.open = asyncio.create_task(self.manager.run())

    def elsewhere(self) -> list[ExecutionCluster]:
        """Clusters that are no home."""
        return []

    def drivers(self) -> dict[str, Driver]:
        return {site.id: Rehearsal(site.id, self.stage) for site in self.sites}

    async def goes_down(self) -> None:
        self.open.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.open
        await self.plane.stop()
        self.reader.close()
        self.journal.close()

    def loses(self, node: str) -> None:
        """The provider takes a rented node back."""
        self.world._later(self.clock.now(), self.world._lose_node, node)
        self.stage.poked.set()

    def phase(self, job: str) -> str:
        row = self.reader.job(job)
        return row.phase if row else ""

    # --- what people do and see ---------------------------------------------------------------------------------------

    def apply(self, *jobs: Json) -> None:
        self.given.apply(*(self.placed(job) for job in jobs))

    def placed(self, job: Json) -> Json:
        job = copy.deepcopy(job)
        job["metadata"].setdefault("namespace", self.namespace)
        return job

    def delete(self, name: str) -> None:
        self.given.kubectl("-n", self.namespace, "delete", "job", name, "--wait=false")

    async def shows(self, name: str, so: Callable[[Json], object]) -> Json:
        """Wait until the Job looks like this."""
        shown: Json = await self._until(lambda: (job := self.jobs.get(name, self.namespace)) and so(job) and job)
        return shown

    async def shows_all(self, so: Callable[[Json], object]) -> None:
        """Wait until every Job in the namespace looks like this."""
        await self._until(lambda: all(so(job) for job in self.jobs))

    async def is_gone(self, name: str) -> None:
        await self._until(lambda: self.jobs.in_step.is_set() and self.jobs.get(name, self.namespace) is None)

    async def says(self, name: str, reason: str) -> Json:
        """Wait for an Event about it."""
        first: Json = await self._until(
            lambda: next((event for event in self.told(name) if event["reason"] == reason), None)
        )
        return first

    def told(self, name: str) -> list[Json]:
        events = [event for event in self.events if event["involvedObject"]["name"] == name]
        return sorted(events, key=lambda event: _place(event["metadata"]["name"]))

    def text(self, name: str) -> str:
        """All Events about it, one after another: those that came together are one."""
        return " ".join(event["message"] for event in self.told(name))

    async def ends(self, job: str, phase: str) -> None:
        """Wait until the journal says so."""
        while (row := self.reader.job(job)) is None or row.phase != phase:
            async with asyncio.timeout(LIMIT_S):
                await self.plane.heard(self.plane.number)

    async def starts(self, job: str, site: str) -> None:
        """Wait until the journal says that it runs there."""
        async with asyncio.timeout(LIMIT_S):
            while not any(attempt.site == site and attempt.phase == "running" for attempt in self.reader.attempts(job)):
                await self.plane.heard(self.plane.number)

    async def counts(self, wanted: Mapping[str, int]) -> None:
        """Wait until the journal has so many jobs in each state, and no others."""
        async with asyncio.timeout(LIMIT_S):
            while {count.state: count.jobs for count in self.reader.counts()} != wanted:
                await self.plane.heard(self.plane.number)

    def why(self, job: str) -> list[str]:
        return [line.text for line in tell(self.reader.story(job), job)]

    async def _until(self, look: Callable[[], Any]) -> Any:
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (seen := look()):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            jobs = json.dumps([{"metadata": _brief(job), "status": job.get("status")} for job in self.jobs], indent=1)
            raise AssertionError(f"it never came to that: {self.plane.alarms.now()} {jobs}") from None
        return seen

    def _note(self, _before: Json | None, _now: Json | None) -> None:
        self.changed.set()


def _brief(job: Json) -> Json:
    return {key: value for key, value in job["metadata"].items() if key != "managedFields"}


class Clustered(Penstock):
    """The same, with nothing rehearsed: `lab` is what one owns and where Jobs are at home, `east` is rented."""

    def __init__(self, lab: ExternalCluster, east: ExternalCluster, namespace: str, folder: Path, **more: Any) -> None:
        self.clusters = {"lab": lab, "east": east}
        self.limited: dict[str, Path] = more.pop("limited", {})  #: kubeconfigs of accounts with fewer rights
        maps = Maps("east", namespaces=((namespace, namespace),), **more.pop("maps", {}))
        self.settings = {
            "lab": KubernetesSettings(namespace=namespace, maps=Maps("lab"), shared=True),
            "east": KubernetesSettings(namespace=namespace, maps=maps, shared=True),
        }
        owned = Offer("lab/a100", "lab", "owned", (NodeShape(8, None),), gpu_model="A100")
        rented = Offer(
            "east/a100", "east", "on_demand", (NodeShape(8, None, usd("16")),), "A100", sold_by="attempt", start_ms=100
        )
        sites = (
            Site("lab", (owned,), front_door=True, has=has(Maps("lab"))),
            Site("east", (rented,), has=has(maps)),
        )
        super().__init__(lab, namespace, folder, sites=sites, **more)

    def drivers(self) -> dict[str, Driver]:
        return {site.id: self._driver(site) for site in self.sites}

    def elsewhere(self) -> list[ExecutionCluster]:
        self.far = connect(Access(kubeconfig=str(self.limited.get("east", self.clusters["east"].kubeconfig))))
        return [ExecutionCluster("east", self.far, self.namespaces)]

    async def goes_down(self) -> None:
        await super().goes_down()
        await self.far.close()

    def _driver(self, site: Site) -> Driver:
        access = Access(kubeconfig=str(self.limited.get(site.id, self.clusters[site.id].kubeconfig)))
        folder = self.folder / site.id
        settings = self.settings[site.id]
        return KubernetesDriver(
            site, folder, self.journal.installation, NoStore(), self.clock.now, lambda: connect(access), settings
        )

    def finish(self, site: str) -> None:
        """Whatever runs there ends well, now."""
        kept = ("-n", self.namespace, "annotate", "pods", "--all", "--overwrite", f"{DELAY}=0s")
        self.clusters[site].kubectl(*kept)

    def executions(self, site: str) -> list[Json]:
        jobs = self.clusters[site].get("-n", self.namespace, "jobs", "-l", annotations.EXECUTION)["items"]
        return list(jobs)


def _place(name: str) -> int:
    """Of a line in its story: the end of its Event's name."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def condition(job: Json, kind: str) -> Json:
    conditions: list[Json] = (job.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), {})


def complete(job: Json) -> bool:
    return bool(condition(job, "Complete"))


def failed(job: Json) -> bool:
    return bool(condition(job, "Failed"))


def running(job: Json) -> bool:
    return bool((job.get("status") or {}).get("ready"))


def binding(job: Json) -> Json:
    bound: Json = json.loads((job["metadata"].get("annotations") or {}).get(annotations.BINDING) or "{}")
    return bound


def ours(job: Json) -> list[str]:
    """Every mark of ours on it."""
    metadata = job["metadata"]
    marks = [*(metadata.get("annotations") or {}), *(metadata.get("finalizers") or [])]
    return [mark for mark in marks if mark.startswith(annotations.DOMAIN)]
