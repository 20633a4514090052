"""One dev cluster: API server, controllers, scheduler, and kwok or real kubelets. `testbed` starts it.

Tests break it on purpose: a stopped API server is a partition, a killed one a restart.
"""

import http.client
import json
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from penstock.core.errors import BadInput
from penstock.devcluster import (
    autoscaler,
    cluster_api,
    dns,
    jobset,
    karpenter,
    kubelet_nodes,
    kueue,
    network,
    plane,
    toy_trainer,
)
from penstock.devcluster.access import AdminApi, ClusterAccess, write_kubeconfig
from penstock.devcluster.external import ExternalCluster, Refusal, random_name
from penstock.devcluster.network import Network
from penstock.devcluster.plan import ClusterPlan, NodePlan, gpus_of, node_object
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import program

TRAINER: Final = "toy-trainer"  #: a process beside Kueue
READY_S: Final = 120  #: generous, for a busy machine
#: What `get` asks the API server itself for: kind, then its group, and whether it is in a namespace.
ASKED: Final = {"job": ("/apis/batch/v1", True), "pod": ("/api/v1", True), "node": ("/api/v1", False)}


class DevCluster(ExternalCluster):
    """All its data is in its folder: any process with the folder can use the cluster."""

    def __init__(self, folder: Path, plan: ClusterPlan, mark: str) -> None:
        super().__init__(plan.name, folder / "kubeconfig")
        self.folder, self.plan, self.mark = folder, plan, mark
        self._api: AdminApi | None = None

    @property
    def url(self) -> str:
        return str(self._note()["url"])

    @property
    def token(self) -> str:
        return str(self._note()["token"])

    @property
    def ca(self) -> Path:
        return plane.certificate(self.folder)

    @property
    def api(self) -> AdminApi:
        if self._api is None:
            self._api = AdminApi(ClusterAccess(self.name, self.url, self.token, self.ca))
        return self._api

    # --- quicker than by kubectl, which takes a fifth of a second of CPU to say anything ------------------------------

    def get(self, *args: str) -> dict[str, Any]:
        """As kubectl prints it; tests ask until something is so."""
        path = _path(args)
        try:
            if path is None:
                return super().get(*args)
            answer = self.api.ask("GET", path)
        except (OSError, http.client.HTTPException):
            return super().get(*args)  # somebody broke it: kubectl says how
        if answer.code >= 400:
            reason, message = answer.body.get("reason"), answer.body.get("message")
            raise Refusal(f"kubectl get {' '.join(args)} -o json: Error from server ({reason}): {message}")
        for item in answer.body.get("items", ()):
            item |= {"kind": answer.body["kind"].removesuffix("List"), "apiVersion": answer.body["apiVersion"]}
        for item in answer.body.get("items", [answer.body]):
            item["metadata"].pop("managedFields", None)  # kubectl shows them only if asked
        return answer.body

    def new_namespace(self, name: str = "") -> str:
        name = name or random_name()
        self._made("/api/v1/namespaces", {"metadata": {"name": name}})
        if self.plan.real:
            self._until(lambda: self._exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"), f"namespace {name}")
        return name

    def drop_namespace(self, name: str) -> None:
        self.api.ask("DELETE", f"/api/v1/namespaces/{name}")

    def let_go(self, namespace: str) -> None:
        jobs = _jobs(namespace)
        for name in [item["metadata"]["name"] for item in self._items(jobs) if item["metadata"].get("finalizers")]:
            self.api.ask("PATCH", f"{jobs}/{name}", {"metadata": {"finalizers": None}})

    def empty_namespace(self, name: str) -> None:
        """Delete its Jobs and pods and wait for it, so that their GPUs are free. Deleting the namespace would take
        longer: Kubernetes looks again only after half of its pods' grace.
        """
        jobs, pods = _jobs(name), f"/api/v1/namespaces/{name}/pods"
        self.let_go(name)
        self.api.ask("DELETE", jobs, {"propagationPolicy": "Background"})
        self._until(lambda: not self._items(jobs), f"the Jobs of {name} to go")
        self.api.ask("DELETE", pods, {"gracePeriodSeconds": 0})
        self._until(lambda: not self._items(pods), f"the pods of {name} to go")

    def _items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.api.ask("GET", path).body["items"]
        return items

    def _made(self, path: str, *objects: Mapping[str, Any]) -> None:
        for answer in self.api.ask_all("POST", path, objects):
            if answer.code >= 300:
                raise BadInput(f"Cluster {self.name} refused it: {answer.body.get('message', answer.code)}")

    # --- breaking it -------------------------------------------------------------------------------------------------

    def pause_api(self) -> None:
        """A network partition: connections stay open and nothing answers."""
        self.server.signal(signal.SIGSTOP)

    def resume_api(self) -> None:
        self.server.signal(signal.SIGCONT)

    def kill_api(self) -> None:
        self.server.kill()

    def start_api(self) -> None:
        """Start at the same address with the same keys; returns when it answers."""
        self._start("kube-apiserver")
        self.wait_for_api()

    def start_karpenter(self) -> None:
        """Also again, after a test has killed it."""
        karpenter.start(self.karpenter, self)

    def start_cluster_api(self) -> None:
        """Also again, after a test has killed its core."""
        cluster_api.start(self.cluster_api, self, urlsplit(self.url).hostname or "", self.ca)
        if not self._process(cluster_api.PROVIDER).pid:
            cluster_api.start_provider(self._process(cluster_api.PROVIDER), self)

    def mend(self) -> None:
        """Restart everything that was stopped or killed, except nodes."""
        self.resume_api()
        for name in plane.programs(real=self.plan.real):
            if not self._process(name).pid:
                self._start(name)
        self.wait_for_api()

    def add_node(self, name: str, plan: NodePlan) -> None:
        """Returns when the node is ready."""
        self._begin_nodes([(name, plan)])
        self._finish_nodes([(name, plan)])

    def _begin_nodes(self, nodes: Sequence[tuple[str, NodePlan]]) -> None:
        self._made("/api/v1/nodes", *(node_object(name, plan, real=self.plan.real) for name, plan in nodes))
        if self.plan.real:
            for name, _ in nodes:
                domain = dns.DOMAIN if self.plan.dns else ""
                kubelet_nodes.start(self.node(name), self.network, self.kubeconfig, domain)

    def _finish_nodes(self, nodes: Sequence[tuple[str, NodePlan]]) -> None:
        wanted = {name for name, _ in nodes}
        self._until(lambda: wanted <= self._ready_nodes(), "its nodes", *(self.node(name).process for name in wanted))
        for name, plan in nodes if self.plan.real else ():
            # Only now: a new kubelet drops GPUs that no device plugin registered.
            gpus = {"status": {"capacity": gpus_of(plan), "allocatable": gpus_of(plan)}}
            self.api.ask("PATCH", f"/api/v1/nodes/{name}/status", gpus)

    def delete_node(self, name: str) -> None:
        """As a cloud reclaims a spot node: its pods stay Running for a minute."""
        self.kill_node(name)
        self.api.ask("DELETE", f"/api/v1/nodes/{name}")
        shutil.rmtree(self.node(name).folder, ignore_errors=True)

    def kill_node(self, name: str) -> None:
        """A power cut: every process of the node is gone, and Kubernetes is not told. Real nodes only."""
        if self.plan.real:
            kubelet_nodes.kill(self.node(name))

    def node(self, name: str) -> kubelet_nodes.KubeletNode:
        return kubelet_nodes.KubeletNode(name, self.folder / name, self.mark)

    @property
    def network(self) -> Network:
        """Of a real cluster; pods reach this machine at its `host`."""
        return Network(*self._note()["network"])

    # --- starting it, called by `testbed` in this order
    # ------------------------------------------------------------------

    def begin(self, etcd: str, number: int) -> None:
        """Start the API server; it needs a second or two, in which others can start."""
        self.folder.mkdir(parents=True)
        net = network.make(self.mark, number) if self.plan.real else None
        url = f"https://{net.api}:443" if net else f"https://127.0.0.1:{free_port()}"
        note = {"url": url, "etcd": etcd, "token": secrets.token_hex(16), "network": net}
        _write_private(self.folder / "cluster.json", json.dumps(note))
        _write_private(self.folder / "tokens.csv", f"{note['token']},admin,admin,system:masters\n")
        self._start("kube-apiserver")

    def complete(self) -> None:
        """Once the API server answers: start everything that uses it."""
        self.wait_for_api()
        write_kubeconfig(self.kubeconfig, [self.api.access])
        for name in plane.programs(real=self.plan.real)[1:]:
            self._start(name)
        self._begin_nodes(self.plan.numbered())
        if self.plan.dns:
            dns.start(self._process("coredns"), self.network, self.kubeconfig)
        if self.plan.multikueue:
            toy_trainer.install(self)
            self._process(TRAINER).start(toy_trainer.command(self.kubeconfig))
        if self.plan.kueue:
            host = urlsplit(self.url).hostname or ""
            kueue.start(self._process("kueue"), self, host, self.ca, multikueue=self.plan.multikueue)
        if self.plan.jobset:
            jobset.start(self._process("jobset"), self, urlsplit(self.url).hostname or "", self.ca)
        if self.plan.karpenter:
            karpenter.install(self)
            self.start_karpenter()
        if self.plan.cluster_api:
            cluster_api.install(self)
            self.start_cluster_api()
        if self.plan.autoscaler:
            autoscaler.install(self)
            autoscaler.start(self.autoscaler, self)

    def wait(self) -> None:
        """Wait until every node is ready and pods can be created."""
        self._finish_nodes(self.plan.numbered())
        self._until(lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"), "its controllers")
        if self.plan.kueue:
            self._until(lambda: kueue.answers(self), "Kueue")
        if self.plan.jobset:
            self._until(lambda: jobset.answers(self), "JobSet")
        if self.plan.karpenter:
            self._until(lambda: karpenter.answers(self.karpenter), "Karpenter")
        if self.plan.cluster_api:
            self._until(lambda: cluster_api.answers(self), "Cluster API")
        if self.plan.autoscaler:
            self._until(lambda: autoscaler.answers(self.autoscaler), "cluster-autoscaler")

    def wait_for_api(self) -> None:
        self._until(self._answers, "its API server")

    # --- its processes -----------------------------------------------------------------------------------------------

    @property
    def server(self) -> Process:
        return self._process("kube-apiserver")

    @property
    def karpenter(self) -> Process:
        return self._process("karpenter")

    @property
    def cluster_api(self) -> Process:
        return self._process("cluster-api")

    @property
    def autoscaler(self) -> Process:
        return self._process("cluster-autoscaler")

    def processes(self) -> list[Process]:
        """Processes that must run while the cluster does; tests may end nodes."""
        also = {"kueue": self.plan.kueue, "jobset": self.plan.jobset, "karpenter": self.plan.karpenter}
        also |= {"coredns": self.plan.dns, "cluster-api": self.plan.cluster_api}
        also[cluster_api.PROVIDER] = self.plan.cluster_api
        also[TRAINER] = self.plan.multikueue
        also["cluster-autoscaler"] = self.plan.autoscaler
        wanted = [name for name, wanted in also.items() if wanted]
        return [self._process(name) for name in (*plane.programs(real=self.plan.real), *wanted)]

    def _process(self, name: str) -> Process:
        return Process(self.folder, name, self.mark)

    def _start(self, name: str) -> None:
        flags = plane.flags_of(name, self.folder, self._note())
        self._process(name).start([str(program(name)), *(f"--{flag}={value}" for flag, value in flags.items())])

    # --- looking at it -----------------------------------------------------------------------------------------------

    def _note(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return note

    def _answers(self) -> bool:
        return self.ca.exists() and self.api.ask("GET", "/readyz", timeout_s=5).code == 200

    def _ready_nodes(self) -> set[str]:
        nodes = self.api.ask("GET", "/api/v1/nodes?resourceVersion=0").body.get("items", [])
        return {node["metadata"]["name"] for node in nodes if _is_ready(node)}

    def _exists(self, path: str) -> bool:
        return self.api.ask("GET", path).code == 200

    def _until(self, holds: Callable[[], bool], what: str, *needed: Process) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            try:
                if holds():
                    return
            except (OSError, http.client.HTTPException):
                pass  # not yet; if it died, the next line says so
            for process in (*self.processes(), *needed):
                if process.log.exists():
                    process.check()
            time.sleep(0.05)
        raise BadInput(f"Cluster {self.name}: waited {READY_S} s for {what}. {self.server.last_words()}")


def _path(args: Sequence[str]) -> str | None:
    """Of what `kubectl get` would ask for; None: more than a kind, a name, a namespace and labels is said."""
    left, named = list(args), list[str]()
    options = {"-n": "default", "-l": ""}
    while left:
        word = left.pop(0)
        if word in options and left:
            options[word] = left.pop(0)
        elif word.startswith("-"):
            return None
        else:
            named += word.split("/")
    kind = named[0].removesuffix("s") if named else ""
    if kind not in ASKED or len(named) > 2:
        return None
    group, has_namespace = ASKED[kind]
    where = f"/namespaces/{options['-n']}" if has_namespace else ""
    labels = f"?labelSelector={quote(options['-l'])}" if options["-l"] else ""
    return "/".join([f"{group}{where}/{kind}s", *named[1:]]) + labels


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
