"""Where `bench.kill_clouds` rents: one cluster without nodes of its own, in which home Jobs are applied, and a provider
that makes Nodes of it. `PENSTOCK_BENCH_WAY` says which: `karpenter`, or `cluster_api` with its watchman.
"""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.devcluster import ClusterPlan, DevCluster, cluster_api, karpenter
from penstock.kube import annotations
from penstock.kube.client import MACHINE_DEPLOYMENTS, MACHINES, NODE_CLAIMS, Cluster, Kind
from penstock.kube.errors import NotFound

WAY: Final = "PENSTOCK_BENCH_WAY"
Json = dict[str, Any]
SITES: Final = """
currency: USD
policy: {{value_of_waiting: 1000000, stay: 1s, least_left: 1s, least_lease: 6s}}
caps:
  - {{scope: org, per_month: 100000}}
  - {{scope: "team:poor", per_month: 30}}
teams:
  - {{name: rich, namespaces: [{people}]}}
  - {{name: poor, namespaces: [{people}]}}
sites:
  - name: cloud
    driver: kubernetes
    front_door: true
    kubernetes: {{kubeconfig: {kubeconfig}, namespace: {ours}, namespaces: [{people}], room: 20s, grace: 1s}}
    offers:
{offers}
"""
OFFER: Final = """\
      - {{name: {name}, term: on_demand, gpu: A100, gpus_per_node: {gpus}, nodes: {nodes}, start: 2s, billing_step: 1s,
         kill: {kill_s}s, price: {{per: gpu_hour, list: {price}}}, rent: {{{rent}}}{more}}}
"""
WARM: Final = "warm"
#: Name, how many, price. `blind` is the cheapest, so that it is tried; its nodes never show a GPU. One of `warm` is
#: kept ready, and jobs with half of a node's GPUs take it.
OFFERS: Final = (("blind", 1, 30), (WARM, 2, 33), ("a100", 2, 36), ("spare", 2, 90))


class CloudGround(ABC):
    people, ours = "research", "penstock"
    plan: ClusterPlan
    kind: Kind  #: of a rented node's object
    namespace: str = ""  #: of these
    kill_ms: int

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster, self.sites = cluster, folder / "sites.yaml"
        for name in (self.ours, self.people):
            cluster.new_namespace(name)
        self.prepare()
        offers = "".join(
            OFFER.format(
                name=name,
                nodes=nodes,
                gpus=4 if name == WARM else 8,
                price=price,
                kill_s=self.kill_ms // 1000,
                rent=self.rent(name),
                more=', warm: {nodes: 1, budget: "team:rich"}' if name == WARM else "",
            )
            for name, nodes, price in OFFERS
        )
        proxied = folder / "proxied.kubeconfig"
        self.sites.write_text(SITES.format(people=self.people, ours=self.ours, kubeconfig=proxied, offers=offers))

    @abstractmethod
    def prepare(self) -> None:
        """What a platform engineer prepares."""

    @abstractmethod
    def rent(self, offer: str) -> str:
        """The keys of its `rent`."""

    @abstractmethod
    def stock(self, words: str) -> None:
        """What the cloud says when it is asked for a node of the usual kind; empty: it gives one."""

    @abstractmethod
    def strange(self, name: str, lasts_s: int) -> Json:
        """An object that rents a node, without marks."""

    @abstractmethod
    async def take(self, cluster: Cluster, name: str) -> None:
        """As a spot node is reclaimed."""

    def end(self) -> None:  # noqa: B027 - most have nothing
        """Let go of what is beside the cluster."""


class KarpenterGround(CloudGround):
    plan = ClusterPlan("cloud", karpenter=True)
    kind = NODE_CLAIMS
    kill_ms = 20_000
    types: Final = {"blind": "a100-blind", WARM: "a100-8x", "a100": "a100-8x", "spare": "h100-8x"}

    def prepare(self) -> None:
        self.cluster.apply(*(karpenter.node_class(name) for name, *_ in OFFERS))

    def rent(self, offer: str) -> str:
        node_class = f"{{group: {karpenter.GROUP}, kind: KWOKNodeClass, name: {offer}}}"
        return f"way: karpenter, instance_types: [{self.types[offer]}], node_class: {node_class}"

    def stock(self, words: str) -> None:
        self.cluster.apply(karpenter.node_class("a100", stock_out=words))

    def strange(self, name: str, lasts_s: int) -> Json:
        asked = {"node.kubernetes.io/instance-type": "cpu-8", "karpenter.sh/capacity-type": "on-demand"}
        return {
            "metadata": {"name": name},
            "spec": {
                "nodeClassRef": {"group": karpenter.GROUP, "kind": "KWOKNodeClass", "name": "spare"},
                "requirements": [{"key": key, "operator": "In", "values": [text]} for key, text in asked.items()],
                "expireAfter": f"{lasts_s}s",
            },
        }

    async def take(self, cluster: Cluster, name: str) -> None:
        """The claim is deleted, and Karpenter ends its node."""
        with suppress(NotFound):
            await cluster.delete(NODE_CLAIMS, name)


class ClusterApiGround(CloudGround):
    """Its watchman lives all the time, as a pod would: nobody else ends a machine when Penstock is dead."""

    plan = ClusterPlan("cloud", cluster_api=True)
    kind = MACHINE_DEPLOYMENTS
    namespace = "machines"
    kill_ms = 60_000
    gpus: Final = {"blind": 0, WARM: 4, "a100": 8, "spare": 8}

    def prepare(self) -> None:
        self.cluster.new_namespace(self.namespace)
        pools = [obj for name, *_ in OFFERS for obj in self._pool(name)]
        self.cluster.apply(*cluster_api.toy_cluster("own", self.namespace), *pools)
        command = [sys.executable, "-m", "penstock.cli", "watchman", f"--namespace={self.ours}"]
        self.watchman = subprocess.Popen([*command, f"--kubeconfig={self.cluster.kubeconfig}"])

    def _pool(self, name: str) -> list[Json]:
        return cluster_api.pool(name, self.namespace, "own", gpus=self.gpus[name])

    def rent(self, offer: str) -> str:
        return f"way: cluster_api, deployment: {offer}, namespace: {self.namespace}, watchman: {self.ours}"

    def stock(self, words: str) -> None:
        cluster_api.set_machine(self.cluster.api, "a100", self.namespace, refused=words)

    def strange(self, name: str, lasts_s: int) -> Json:  # noqa: ARG002 - the watchman ends nothing without marks
        like = self._pool("spare")[1]["spec"]
        labels = {annotations.NODE: name}
        template = {**like["template"], "metadata": {"labels": labels}}
        spec = {**like, "replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        return {"metadata": {"name": name}, "spec": {**spec, "rollout": {"strategy": {"type": "OnDelete"}}}}

    async def take(self, cluster: Cluster, name: str) -> None:
        """Its Machine is deleted; the deployment would replace it."""
        machines, _ = await cluster.list(MACHINES, self.namespace, labels=f"{annotations.NODE}={name}")
        for machine in machines:
            with suppress(NotFound):
                await cluster.delete(MACHINES, machine["metadata"]["name"], self.namespace)

    def end(self) -> None:
        self.watchman.kill()
        self.watchman.wait()


GROUNDS: Final[dict[str, type[CloudGround]]] = {"karpenter": KarpenterGround, "cluster_api": ClusterApiGround}


def way() -> str:
    return os.environ.get(WAY, "karpenter")
