"""A home cluster whose nodes are not alike, as real ones are: zones, a node with RDMA and much CPU, one whose CPU is in
use, a team's tainted node. Every case is applied as a plain Job and as a home Job. `test_unequal` runs them.

There are two such clusters: the special nodes come first in the alphabet in one, and last in the other.
"""

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.plan import node_object
from penstock.kube import annotations
from penstock.kube.manifests import mutation
from tests.clusters import A100
from tests.conformance.playing import as_home_job, labelled

Json = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
GPUS: Final = 32
#: Names of the special node, the team's, and the one whose CPU is in use, by cluster.
NAMES: Final = {"first": ("a-special", "b-team", "c-busy"), "last": ("z-special", "y-team", "x-busy")}
WAYS: Final = ("applied", "label alone", "by hand")


def affinity(*rules: Json) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(rules)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def rule(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def near(key: str, **labels: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}, "namespaceSelector": {}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def apart(key: str, **labels: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str, **labels: str) -> Json:
    even = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**even, "labelSelector": {"matchLabels": labels}}]}


TOLERATES: Final = {"tolerations": [rule("dedicated", "Equal") | {"value": "vision", "effect": "NoSchedule"}]}
#: What a pod asks for beside one GPU: fields of its spec, its container's resources, and how many pods.
FITS: Final[dict[str, tuple[Json, Json, int]]] = {
    "plain": ({}, {}, 1),
    "zone-selector": ({"nodeSelector": {ZONE: "b"}}, {}, 1),
    "zone-affinity": (affinity(rule(ZONE, "In", "b", "c")), {}, 1),
    "zone-not-in": (affinity(rule(ZONE, "NotIn", "a")), {}, 1),
    "region-affinity": (affinity(rule(REGION, "In", "r2")), {}, 1),
    "disk-exists": (affinity(rule("disk", "Exists")), {}, 1),
    "generation": (affinity(rule("generation", "Gt", "3")), {}, 1),
    "hostname": ({"nodeSelector": {HOSTNAME: "SPECIAL"}}, {}, 1),
    "rdma": ({}, {"rdma/ib": 1}, 1),
    "widget": ({}, {"example.com/widget": 2}, 1),
    "cpu-60": ({}, {"cpu": 60}, 1),
    "memory-500": ({}, {"memory": "500Gi"}, 1),
    "cpu-in-use": ({}, {"cpu": 20}, 1),
    "tolerates": ({**TOLERATES, "nodeSelector": {"pool": "vision"}}, {}, 1),
    "tolerates-any": (TOLERATES, {}, 1),
    "near-partner": (near(ZONE, app="partner"), {}, 1),
    "apart": (apart(HOSTNAME, **{"job-name": "apart"}), {}, 2),
    "zone-spread": (spread(ZONE, **{"job-name": "zone-spread"}), {}, 2),
    "host-port": ({"PORT": 8080}, {}, 1),
    "zone-pair": ({"nodeSelector": {ZONE: "b"}}, {}, 2),
}
#: What no node here can take: plain Kubernetes leaves these pending, and Penstock says why.
NEVER: Final[dict[str, tuple[Json, Json, str]]] = {
    "zone-nowhere": ({"nodeSelector": {ZONE: "q"}}, {}, "lack node selector topology.kubernetes.io/zone=q"),
    "cpu-500": ({}, {"cpu": 500}, "have less than 500 cpu"),
    "rdma-9": ({}, {"rdma/ib": 9}, "have less than 9 rdma/ib"),
}
#: Of these the scheduler alone knows that no node will do.
UNKNOWN: Final[dict[str, tuple[Json, Json]]] = {"near-nobody": (near(ZONE, app="nobody"), {})}


def plans() -> list[ClusterPlan]:
    """Their nodes are made by `furnish`: they differ in what a plan does not say."""
    return [ClusterPlan(name) for name in NAMES]


def furnish(cluster: DevCluster) -> None:
    special, team, busy = NAMES[cluster.name]
    where = {ZONE: "a", REGION: "r1", "generation": "3"}
    far = {ZONE: "b", REGION: "r2", "generation": "4", "disk": "nvme"}
    small, large = (
        {"cpu": "32", "memory": "256Gi"},
        {"cpu": "128", "memory": "1Ti", "rdma/ib": "4", "example.com/widget": "4"},
    )
    cluster.apply(
        _node(special, far, large),
        _node(team, {**where, "pool": "vision"}, small, "dedicated=vision:NoSchedule"),
        _node(busy, where, small),
        *(_node(f"m-{number}", where, small) for number in range(2)),
    )
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "node", "--all")
    cluster.apply(*mutation(beta=True))


def _node(name: str, labels: Json, has: Json, *taints: str) -> Json:
    made = node_object(name, NodePlan(1, gpus=GPUS, model=A100, labels=labels, taints=taints), real=False)
    for key in ("allocatable", "capacity"):
        made["status"][key] = {**made["status"][key], **has}
    return made


def others(cluster: DevCluster, namespace: str) -> None:
    """Pods of others: one uses a node's CPU, one is what another wants to be near, one has a port of a node."""
    special, _, busy = NAMES[cluster.name]
    cpu, port = {"resources": {"requests": {"cpu": "30"}}}, {"ports": [{"containerPort": 8080, "hostPort": 8080}]}
    made: list[tuple[str, str, Json]] = [("busy", busy, cpu), ("partner", special, {}), ("port", "m-0", port)]
    cluster.apply(
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}, "annotations": RUNS},
                "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox:1.36", **more}]},
            }
            for name, node, more in made
        )
    )
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod", "--all", "-n", namespace)


RUNS: Final = {"pod-complete.stage.kwok.x-k8s.io/delay": "1h"}


def job(cluster: str, name: str, namespace: str, pod: Json, resources: Json, pods: int = 1) -> Json:
    pod = json.loads(json.dumps(pod).replace("SPECIAL", NAMES[cluster][0]))
    port = pod.pop("PORT", None)
    container: Json = {
        "name": "main",
        "image": "busybox:1.36",
        "resources": {"limits": {"nvidia.com/gpu": 1, **resources}},
        **({"ports": [{"containerPort": port, "hostPort": port}]} if port else {}),
    }
    ends = {"pod-complete.stage.kwok.x-k8s.io/delay": "2s"}
    template = {"metadata": {"annotations": ends}, "spec": {"restartPolicy": "Never", "containers": [container], **pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template},
    }


def as_applied(made: Json, way: str) -> Json:
    """As one of the three ways of docs/kubernetes.md leaves it in the cluster."""
    if way == "label alone":
        return labelled(made)
    applied = copy.deepcopy(as_home_job(made))
    if way == "applied":
        applied["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "penstock-home"
    return applied


@contextmanager
def penstock(bed: ClusterGroup, folder: Path, namespace: str) -> Iterator[None]:
    """`penstock up` over both clusters."""
    sites = folder / "sites.yaml"
    offer = {"name": "a100", "term": "owned", "gpu": "A100", "gpus_per_node": GPUS}
    made = [
        {
            "name": name, "driver": "kubernetes", "front_door": True, "offers": [offer],
            "kubernetes": {"kubeconfig": str(bed.cluster(name).kubeconfig), "namespace": namespace, "room": "10s"},
        }
        for name in NAMES
    ]  # fmt: skip
    sites.write_text(json.dumps({"currency": "EUR", "sites": made}))  # JSON is YAML
    env = os.environ | {"PENSTOCK_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "penstock.cli", "up", "--sites", str(sites), "--port", "0", "--json"]
    with (folder / "penstock.log").open("w") as said:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=env)
        assert server.stdout is not None
        try:
            while line := server.stdout.readline():
                if line.rstrip() == "}":
                    break
            assert line, f"penstock up ended with {server.wait()}: {(folder / 'penstock.log').read_text()}"
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
            server.stdout.close()


def tries(cluster: DevCluster, namespace: str, name: str) -> list[str]:
    """The execution Jobs of a home Job."""
    jobs = cluster.get("jobs", "-n", namespace)["items"]
    uid = next(found["metadata"]["uid"] for found in jobs if found["metadata"]["name"] == name)
    origins = [(found["metadata"].get("annotations") or {}).get(annotations.ORIGIN) for found in jobs]
    return [found["metadata"]["name"] for found, origin in zip(jobs, origins, strict=True) if origin == uid]
