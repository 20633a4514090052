"""One cluster of a bed: an API server, its controllers, a scheduler, and kwok or real kubelets. `bed` starts it.

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
from urllib.parse import urlsplit

from penstock.core.errors import BadInput
from penstock.devcluster import kueue, network, real
from penstock.devcluster.access import Access, Api, write_kubeconfig
from penstock.devcluster.given import GivenCluster
from penstock.devcluster.network import Network
from penstock.devcluster.plan import ClusterPlan, NodePlan, gpus_of, node_object
from penstock.devcluster.ports import free_port
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import program

READY_S: Final = 120  #: generous: the machine may be busy with other things
STAGES: Final = Path(__file__).with_name("stages.yaml")
#: What a cluster for Jobs needs; the others cost memory, and nobody here asks for them.
CONTROLLERS: Final = (
    "job", "garbage-collector", "namespace", "node-lifecycle", "taint-eviction", "ttl-after-finished",
    "pod-garbage-collector", "serviceaccount", "disruption", "root-ca-certificate-publisher", "clusterrole-aggregation",
)  # fmt: skip


class Cluster(GivenCluster):
    """Its folder holds all there is to know: whoever has the folder has the cluster, in any process."""

    def __init__(self, folder: Path, plan: ClusterPlan, mark: str) -> None:
        super().__init__(plan.name, folder / "kubeconfig")
        self.folder, self.plan, self.mark = folder, plan, mark
        self._api: Api | None = None

    @property
    def url(self) -> str:
        return str(self._note()["url"])

    @property
    def token(self) -> str:
        return str(self._note()["token"])

    @property
    def ca(self) -> Path:
        """The certificate that the API server wrote for itself, with the authority that signed it."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def api(self) -> Api:
        if self._api is None:
            self._api = Api(Access(self.name, self.url, self.token, self.ca))
        return self._api

    # --- breaking it -------------------------------------------------------------------------------------------------

    def pause_api(self) -> None:
        """As if the network were cut: connections stand, and nobody answers."""
        self.server.signal(signal.SIGSTOP)

    def resume_api(self) -> None:
        self.server.signal(signal.SIGCONT)

    def kill_api(self) -> None:
        self.server.kill()

    def start_api(self) -> None:
        """At the same address, with the same keys; returns when it answers."""
        self._start_server()
        self.wait_for_api()

    def add_node(self, name: str, plan: NodePlan) -> None:
        """Returns when it is ready."""
        self._begin_nodes([(name, plan)])
        self._finish_nodes([(name, plan)])

    def _begin_nodes(self, nodes: Sequence[tuple[str, NodePlan]]) -> None:
        objects = [node_object(name, plan, real=self.plan.real) for name, plan in nodes]
        for answer in self.api.ask_all("POST", "/api/v1/nodes", objects):
            if answer.code >= 300:
                raise BadInput(f"A node of {self.name} was refused: {answer.body.get('message', answer.code)}")
        if self.plan.real:
            for name, _ in nodes:
                real.start(self.node(name), self.network, self.kubeconfig)

    def _finish_nodes(self, nodes: Sequence[tuple[str, NodePlan]]) -> None:
        wanted = {name for name, _ in nodes}
        self._until(lambda: wanted <= self._ready_nodes(), "its nodes", *(self.node(name).process for name in wanted))
        for name, plan in nodes if self.plan.real else ():
            # Not before: a new kubelet drops all GPUs that no device plugin told it of.
            gpus = {"status": {"capacity": gpus_of(plan), "allocatable": gpus_of(plan)}}
            self.api.ask("PATCH", f"/api/v1/nodes/{name}/status", gpus)

    def delete_node(self, name: str) -> None:
        """As a cloud does when it takes a spot node back: its pods stay Running for a minute."""
        self.kill_node(name)
        self.api.ask("DELETE", f"/api/v1/nodes/{name}")
        shutil.rmtree(self.node(name).folder, ignore_errors=True)

    def kill_node(self, name: str) -> None:
        """The power is cut: every process on it is gone, and Kubernetes hears no more of it. Real ones only."""
        if self.plan.real:
            real.kill(self.node(name))

    def node(self, name: str) -> real.Node:
        return real.Node(name, self.folder / name, self.mark)

    @property
    def network(self) -> Network:
        """Of a real cluster; pods reach this machine at its `host`."""
        return Network(*self._note()["network"])

    # --- starting it, called by `bed` in this order ------------------------------------------------------------------

    def begin(self, etcd: str, number: int) -> None:
        """The API server; it needs a second or two, and others begin meanwhile."""
        self.folder.mkdir(parents=True)
        net = network.make(self.mark, number) if self.plan.real else None
        url = f"https://{net.api}:443" if net else f"https://127.0.0.1:{free_port()}"
        note = {"url": url, "etcd": etcd, "token": secrets.token_hex(16), "network": net}
        _write_private(self.folder / "cluster.json", json.dumps(note))
        _write_private(self.folder / "tokens.csv", f"{note['token']},admin,admin,system:masters\n")
        self._start_server()

    def complete(self) -> None:
        """Once the API server answers: everything that speaks to it."""
        self.wait_for_api()
        write_kubeconfig(self.kubeconfig, [self.api.access])
        self._start_controllers()
        self._start("kube-scheduler", {"kubeconfig": self.kubeconfig, "leader-elect": "false", "secure-port": 0})
        if not self.plan.real:
            self._start_kwok()
        self._begin_nodes(self.plan.numbered())
        if self.plan.kueue:
            kueue.start(self._process("kueue"), self, urlsplit(self.url).hostname or "", self.ca)

    def wait(self) -> None:
        """Until every node is ready and pods can be made."""
        self._finish_nodes(self.plan.numbered())
        self._until(lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"), "its controllers")
        if self.plan.kueue:
            self._until(lambda: kueue.answers(self), "Kueue")

    def wait_for_api(self) -> None:
        self._until(self._answers, "its API server")

    # --- its processes -----------------------------------------------------------------------------------------------

    @property
    def server(self) -> Process:
        return self._process("kube-apiserver")

    def processes(self) -> list[Process]:
        """Those that must run while the cluster does; tests may end nodes."""
        more = {"kwok": not self.plan.real, "kueue": self.plan.kueue}
        names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", *(name for name in more if more[name])]
        return [self._process(name) for name in names]

    def _process(self, name: str) -> Process:
        return Process(self.folder, name, self.mark)

    def _start_server(self) -> None:
        where, note = urlsplit(self.url), self._note()
        key = self.ca.with_suffix(".key")  # also signs service accounts' tokens: one key less to make
        flags = {
            "etcd-servers": note["etcd"],
            "etcd-prefix": f"/{self.name}",
            "bind-address": where.hostname,
            "advertise-address": where.hostname,
            "secure-port": where.port,
            "cert-dir": self.ca.parent,
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": self.network.services if self.plan.real else "10.96.0.0/16",
            "disable-admission-plugins": "" if self.plan.real else "ServiceAccount",
            "kubelet-preferred-address-types": "InternalIP",
        }
        self._start("kube-apiserver", flags)

    def _start_controllers(self) -> None:
        flags = {
            "kubeconfig": self.kubeconfig,
            "leader-elect": "false",
            "secure-port": 0,
            "controllers": ",".join(f"{name}-controller" for name in CONTROLLERS),
            "root-ca-file": self.ca,
        }
        self._start("kube-controller-manager", flags)

    def _start_kwok(self) -> None:
        flags = {
            "kubeconfig": self.kubeconfig,
            "manage-all-nodes": "true",
            "node-lease-duration-seconds": 40,
            "server-address": "",
            "config": STAGES,
        }
        self._start("kwok", flags)

    def _start(self, name: str, flags: Mapping[str, object]) -> None:
        self._process(name).start([str(program(name)), *(f"--{flag}={value}" for flag, value in flags.items())])

    # --- looking at it -----------------------------------------------------------------------------------------------

    def _note(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return found

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


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
