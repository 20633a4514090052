"""The ground a run stands on: two clusters, a Penstock that was started as people start it, and what is seen of both.

`lab` is what one owns and where Jobs are applied; `east` is rented. Each mode has a namespace of its own, of the same
name in both clusters.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.images import BUSYBOX
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import EVENTS, JOBS, PODS, Cluster
from penstock.kube.informer import Informer
from penstock.kube.manifests import mutation
from tests.clusters import A100

Json = dict[str, Any]
T = TypeVar("T")
MODES: Final = ("home", "burst", "moved")
LIMIT_S: Final = 60
NODES: Final = 24
MIG: Final = "1g.10gb"
LABELS: Final = {
    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
    "node.kubernetes.io/instance-type": "p4d.24xlarge",
}
CLAIM: Final = "scratch"  #: the volume claim of the manifests
MAPPED: Final = {
    "config_maps": "copy",
    "services": "copy",
    "secrets": {"hub-token": "hub-token"},
    "volumes": {CLAIM: "emptyDir"},
    "service_accounts": {"trainer": "trainer"},
    "priority_classes": {"conformance-high": "conformance-high"},
    "scheduling_gates": {"example.com/data-is-there": "example.com/data-is-there"},
    "node_selectors": {"topology.kubernetes.io/zone": "", "affinity": ""},
}


def plans(*, real: bool = False) -> list[ClusterPlan]:
    """Clusters with room for all manifests at once. On real ones the GPUs are numbers, too, and a node is dear."""
    if real:
        return [
            ClusterPlan(name, (NodePlan(1, gpus=64, model=A100, labels=LABELS),), real=True) for name in ("lab", "east")
        ]
    return [
        ClusterPlan(
            name,
            (
                NodePlan(NODES, gpus=8, model=A100, labels={**LABELS, "topology.kubernetes.io/zone": f"{name}-a"}),
                NodePlan(1, mig={MIG: 7}, model=A100, labels=LABELS, name=f"{name}-mig"),
            ),
        )
        for name in ("lab", "east")
    ]


class View:
    """One cluster as its users see it, kept up to date by watches."""

    def __init__(self, cluster: DevCluster, changed: Callable[[], None]) -> None:
        self.given = cluster
        self.cluster: Cluster = connect(Access(kubeconfig=str(cluster.kubeconfig)))
        self.jobs, self.pods, self.events = (
            Informer(self.cluster, kind, lambda *_: changed()) for kind in (JOBS, PODS, EVENTS)
        )
        self.tasks = [asyncio.create_task(informer.run()) for informer in (self.jobs, self.pods, self.events)]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.cluster.close()

    def job(self, uid: str) -> Json | None:
        return next((job for job in self.jobs if job["metadata"]["uid"] == uid), None)

    def executions(self, home: str) -> list[Json]:
        """Execution Jobs of the home Job with this uid."""
        return [job for job in self.jobs if _notes(job).get(annotations.ORIGIN) == home]

    def pods_of(self, uid: str) -> list[Json]:
        """Of a Job, the oldest first."""
        owned = [pod for pod in self.pods if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences", ()))]
        return sorted(
            owned, key=lambda pod: (pod["metadata"]["creationTimestamp"], index_of(pod), pod["metadata"]["name"])
        )

    def events_of(self, uid: str) -> list[Json]:
        return [event for event in self.events if event["involvedObject"].get("uid") == uid]


class Ground:
    def __init__(self, bed: ClusterGroup, folder: Path, *, real: bool = False) -> None:
        self.lab, self.east, self.folder, self.real = bed.cluster("lab"), bed.cluster("east"), folder, real
        self.env = os.environ | {"PENSTOCK_HOME": str(folder / "home"), "KUBECONFIG": str(self.lab.kubeconfig)}
        self.namespaces: dict[str, str] = {}
        self.noticed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for mode in ("plain", *MODES):
            self.namespaces[mode] = name = self.lab.new_namespace()
            self.east.new_namespace(name)
        self.own = self.lab.new_namespace()  # whatever fills the lab is here
        for cluster in (self.lab, self.east):
            cluster.apply(*_shared(self.namespaces.values(), in_lab=cluster is self.lab))
        self.lab.apply(*mutation(beta=True))
        self.views = {cluster.name: View(cluster, self.noticed.set) for cluster in (self.lab, self.east)}
        for view in self.views.values():
            for informer in (view.jobs, view.pods, view.events):
                await informer.in_step.wait()
        try:
            await asyncio.to_thread(self._up)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._down)
        await self._close()

    async def _close(self) -> None:
        for view in self.views.values():
            await view.close()
        for cluster in (self.lab, self.east):
            for name in (*self.namespaces.values(), self.own):
                await asyncio.to_thread(_drop, cluster, name)

    async def until(self, look: Callable[[], T], limit_s: float = LIMIT_S) -> T:
        """Wait for a true answer; the last one, if none comes in time."""
        by = time.monotonic() + limit_s
        while not (value := look()) and time.monotonic() < by:
            self.noticed.clear()
            with suppress(TimeoutError):  # also without a change: some answers depend on the time
                await asyncio.wait_for(self.noticed.wait(), 0.5)
        return value

    # --- Penstock ----------------------------------------------------------------------------------------------------

    def _up(self) -> None:
        sites = self.folder / "sites.yaml"
        sites.write_text(json.dumps(self._sites()))  # JSON is YAML
        command = [sys.executable, "-m", "penstock.cli", "up", "--sites", str(sites), "--port", "0", "--json"]
        self.said = (self.folder / "penstock.log").open("w")
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.said, text=True, env=self.env)
        assert self.server.stdout is not None
        line = ""
        while line.rstrip() != "}":
            line = self.server.stdout.readline()
            assert line, f"penstock up ended with {self.server.wait()}"

    def _down(self) -> None:
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(timeout=LIMIT_S)
        assert self.server.stdout is not None
        self.server.stdout.close()
        self.said.close()

    def types(self, *words: str) -> str:
        """What `penstock ...` prints."""
        command = [sys.executable, "-m", "penstock.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=LIMIT_S, check=False)
        return done.stdout + done.stderr

    def _sites(self) -> Json:
        names = list(self.namespaces.values())

        def cluster(dev: DevCluster) -> Json:
            return {"kubeconfig": str(dev.kubeconfig), "namespace": names[1], "namespaces": names[2:], "shared": True}

        whole: Json = {"name": "a100", "gpu": "A100", "gpus_per_node": 64 if self.real else 8}
        slices: Json = {"name": "mig", "gpu": "A100", "mig": MIG, "gpus_per_node": 7}
        offers = [whole] if self.real else [whole, slices]
        rented = {"term": "on_demand", "sold_by": "attempt", "billing_step": "1s", "kill": "10s", "start": "1s"}
        price = {"per": "gpu_hour", "list": 2}
        return {
            "currency": "EUR",
            "sites": [
                {
                    "name": "lab", "driver": "kubernetes", "front_door": True, "kubernetes": cluster(self.lab),
                    "offers": [{**offer, "term": "owned"} for offer in offers],
                },
                {
                    "name": "east", "driver": "kubernetes", "kubernetes": cluster(self.east),
                    "maps": {**MAPPED, "namespaces": {name: name for name in names[1:]}},
                    "offers": [{**offer, **rented, "price": price} for offer in offers],
                },
            ],
            "policy": {"cost_of_delay": 100000},
        }  # fmt: skip

    # --- what fills the lab ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def full(self) -> AsyncIterator[Callable[[], None]]:
        """Somebody else uses every owned GPU, until the block ends or the function is called."""
        nodes = self.lab.get("nodes")["items"]
        self.lab.apply(*(_hog(node, self.own) for node in nodes))
        await self.until(lambda: all(_runs(pod) for pod in self._hogs()) and len(self._hogs()) == len(nodes))
        await asyncio.sleep(2)  # Penstock watches the same pods
        try:
            yield self._empty
        finally:
            self._empty()

    def _hogs(self) -> list[Json]:
        return [pod for pod in self.views["lab"].pods if pod["metadata"]["namespace"] == self.own]

    def _empty(self) -> None:
        self.lab.api.ask("DELETE", f"/api/v1/namespaces/{self.own}/pods", {"gracePeriodSeconds": 0})

    async def cleared(self, mode: str) -> None:
        """Whatever a mode left running is gone, and its GPUs are free."""
        for cluster in (self.lab, self.east):
            await asyncio.to_thread(_emptied, cluster, self.namespaces[mode])


def _emptied(cluster: DevCluster, namespace: str) -> None:
    """Delete its Jobs as a user would, and let Penstock end what runs for them; then the rest."""
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.api.ask("DELETE", jobs, {"propagationPolicy": "Background"})
    by = time.monotonic() + 20
    while cluster.api.ask("GET", jobs).body.get("items") and time.monotonic() < by:
        time.sleep(0.3)
    cluster.empty_namespace(namespace)


def _drop(cluster: DevCluster, namespace: str) -> None:
    cluster.empty_namespace(namespace)
    cluster.drop_namespace(namespace)


def _shared(namespaces: Any, *, in_lab: bool) -> list[Json]:
    """What manifests refer to and nobody applies with a Job: a priority class; elsewhere also what the maps name."""
    objects: list[Json] = [
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "conformance-high"},
            "value": 1000, "preemptionPolicy": "Never",
        }
    ]  # fmt: skip
    for namespace in () if in_lab else namespaces:
        metadata = {"namespace": namespace}
        objects += [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**metadata, "name": "hub-token"},
                "stringData": {"token": "x"},
            },
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "name": "trainer"}},
        ]
    return objects


def _hog(node: Json, namespace: str) -> Json:
    has = node["status"]["allocatable"]
    gpus = {key: count for key, count in has.items() if key.startswith("nvidia.com/")}
    name = node["metadata"]["name"]
    container = {"name": "hog", "image": BUSYBOX, "imagePullPolicy": "Never", "resources": {"limits": gpus}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"hog-{name}", "namespace": namespace},
        "spec": {"nodeName": name, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


def index_of(pod: Json) -> str:
    """Its completion index; empty for a Job without."""
    return str(_notes(pod).get("batch.kubernetes.io/job-completion-index", ""))


def _notes(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _runs(pod: Json) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def brief(job: Json) -> str:
    """For whoever reads why a wait failed."""
    return json.dumps(job.get("status") or {})
