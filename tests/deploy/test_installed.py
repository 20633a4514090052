"""The chart on real pods, with the image of this tree: installed, upgraded while jobs run, left and uninstalled."""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main
from penstock.devcluster import ClusterGroup, cluster_api, kubelet_nodes, penstock_image, programs
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.images import BUSYBOX
from penstock.kube import annotations, manifests
from penstock.kube.client import MACHINE_DEPLOYMENTS
from tests.conftest import ROOT, Part
from tests.deploy.helm import CHART, helm
from tests.front.kit import binding, home_job
from tests.postgres import Server, found_or_skip

pytestmark = pytest.mark.slow
Json = dict[str, Any]
WAITS = "until [ -e /tmp/open ]; do sleep 0.1; done; echo ended"
MARKED = "jobs,pods,configmaps,leases,secrets,services,serviceaccounts,deployments,roles,rolebindings"


@pytest.fixture(scope="session")
def image(real_bed: ClusterGroup, tmp_path_factory: pytest.TempPathFactory) -> str:
    """This tree's, on every node of the lab."""
    return on_nodes(real_bed.cluster("lab"), tmp_path_factory.mktemp("image"))


def on_nodes(lab: DevCluster, folder: Path) -> str:
    """This tree's image on every node; returns its name without the tag."""
    wheel = penstock_image.build_wheel(ROOT, folder)
    made = penstock_image.archive(folder / "penstock.tar", wheel, ROOT / "requirements" / "image.txt")
    for name, _ in lab.plan.numbered():
        kubelet_nodes.add_image(lab.node(name), made)
    return penstock_image.NAME.rpartition(":")[0]


@pytest.fixture
def volume(real_bed: ClusterGroup) -> Iterator[None]:
    with disk_of(real_bed.cluster("lab"), "1Gi"):
        yield


@contextmanager
def disk_of(lab: DevCluster, size: str) -> Iterator[None]:
    """A disk of the lab's node: real clusters make one when it is asked for."""
    node = lab.plan.numbered()[0][0]
    (lab.node(node).folder / "journal").mkdir(exist_ok=True)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    lab.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "journal"},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": "/run/node/journal"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
    )
    yield
    lab.kubectl("patch", "pv", "journal", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    lab.kubectl("delete", "pv", "journal", "--ignore-not-found", "--wait=false")


class ForPods(Server):
    """It also listens where pods of a cluster reach this machine."""

    def __init__(self, programs: Path, folder: Path, host: str) -> None:
        super().__init__(programs, folder)
        self.host = host
        with open(folder / "data" / "pg_hba.conf", "a") as rules:
            rules.write("host all all 10.0.0.0/8 trust\n")

    def start(self) -> None:
        where = f"-c listen_addresses=127.0.0.1,{self.host} -c unix_socket_directories={self.folder}"
        options = ["-D", str(self.folder / "data"), "-w", "-o", f"-p {self.port} {where}", "-l", f"{self.folder}/log"]
        self._run("pg_ctl", *options, "start")


@pytest.fixture
def database(real_bed: ClusterGroup) -> Iterator[str]:
    """The address of an empty one, for pods of the lab."""
    host = real_bed.cluster("lab").network.host
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as folder:
        made = ForPods(found_or_skip(), Path(folder), host)
        made.start()
        yield made.new_database().replace("127.0.0.1", host)
        made.stop()


class Installation:
    """A release in a restricted namespace of the lab, a namespace of people beside it, and the east to burst to."""

    def __init__(self, bed: ClusterGroup, folder: Path, image: str) -> None:
        self.lab, self.east, self.folder, self.image = bed.cluster("lab"), bed.cluster("east"), folder, image
        self.people = self.lab.new_namespace()
        self.own = self.lab.new_namespace(f"{self.people}-penstock")
        self.release = self.own
        level = "pod-security.kubernetes.io/enforce=restricted"
        self.lab.kubectl("label", "namespace", self.own, level)

    def connect_east(self) -> None:
        """As people do, and its kubeconfig into a Secret."""
        sites = self.folder / "sites.yaml"
        words = ["connect", str(self.east.kubeconfig), "--act", "--name", "east", "--price", "2", "--also", self.people]
        own = ["-n", self.own, "--account", self.own, "--sites", str(sites), "--json"]
        assert main([*words, *own]) == 0
        file = yaml.safe_load(sites.read_text())
        kubeconfig = file["sites"][0]["kubernetes"].pop("kubeconfig")
        file["sites"][0]["kubernetes"] |= {"kubeconfig_secret": "east", "shared": True}
        lab = {"in_cluster": True, "namespace": self.own, "namespaces": [self.people], "shared": True}
        offer = {"name": "a100", "term": "owned", "gpu": "A100-SXM4-80GB", "gpus_per_node": 4}
        home = {"name": "lab", "front_door": True, "kubernetes": lab, "offers": [offer]}
        self.sites = yaml.safe_dump({**file, "sites": [home, *file["sites"]], "policy": {"cost_of_delay": 100_000}})
        data = f"--from-file=kubeconfig={self.folder / kubeconfig}"
        self.lab.kubectl("-n", self.own, "create", "secret", "generic", "east", data)

    def values(self, **more: Any) -> Json:
        return {
            "image": {"repository": self.image, "pullPolicy": "Never"},
            "sites": self.sites,
            "rights": {"role": "home", "namespaces": [self.people], "kubeconfigSecrets": ["east"]},
            "journal": {"volume": {"size": "1Gi", "keep": False}},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            **more,
        }

    def helm(self, verb: str, **more: Any) -> None:
        words = [verb, self.release, str(CHART), "-n", self.own, "--wait", "--timeout=120s"]
        done = helm(*words, values=self.values(**more), kubeconfig=self.lab.kubeconfig)
        assert done.returncode == 0, done.stderr + self.what_happened()

    def penstock(self, *words: str) -> str:
        return self.lab.kubectl(
            "-n", self.own, "exec", f"deploy/{self.release}", "-c", "penstock", "--", "penstock", *words
        )

    def leader(self, but: str = "") -> str:
        """The pod that is ready, once there is one: those that stand by are not."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            for pod in self.lab.get("-n", self.own, "pods")["items"]:
                ready = [condition for condition in pod["status"].get("conditions", []) if condition["type"] == "Ready"]
                if ready and ready[0]["status"] == "True" and pod["metadata"]["name"] != but:
                    return str(pod["metadata"]["name"])
            time.sleep(0.2)
        raise AssertionError(self.what_happened())

    def what_happened(self) -> str:
        log = ["logs", f"deploy/{self.release}", "--all-containers", "--ignore-errors"]
        return "".join(
            subprocess.run(
                self.lab._command(["-n", self.own, *command]), capture_output=True, text=True, check=False
            ).stdout
            for command in (log, ["get", "events"], ["get", "pods,pvc"])
        )

    def apply(self, name: str, gpus: int, does: str) -> None:
        made = home_job(name, gpus, annotations={"run-time": "4h"})
        (container,) = made["spec"]["template"]["spec"]["containers"]
        container |= {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", does]}
        made["metadata"]["namespace"] = self.people
        self.lab.apply(made)

    def waits(self, name: str, what: str) -> None:
        self.lab.kubectl("-n", self.people, "wait", f"job/{name}", f"--for={what}", "--timeout=90s")

    def opens(self, cluster: DevCluster) -> None:
        """Whatever runs there may end now."""
        for pod in cluster.get("-n", self.people, "pods", "-l", annotations.EXECUTION)["items"]:
            cluster.kubectl("-n", self.people, "exec", pod["metadata"]["name"], "--", "touch", "/tmp/open")

    def end(self) -> None:
        helm("uninstall", self.release, "-n", self.own, "--ignore-not-found", kubeconfig=self.lab.kubeconfig)
        for cluster in (self.lab, self.east):
            cluster.empty_namespace(self.people)
            cluster.drop_namespace(self.people)
            cluster.drop_namespace(self.own)


@pytest.fixture
def installation(real_bed: ClusterGroup, tmp_path: Path, image: str) -> Iterator[Installation]:
    made = Installation(real_bed, tmp_path, image)
    yield made
    made.end()


@pytest.mark.usefixtures("volume")
def test_installed_upgraded_while_jobs_run_and_uninstalled_without_a_trace(installation: Installation) -> None:
    i = installation
    i.connect_east()
    i.helm("install")
    sites = json.loads(i.penstock("sites", "--json"))["sites"]
    assert {site["id"]: site["reachable"] for site in sites} == {"lab": True, "east": True}, sites
    i.apply("at-home", 4, WAITS)
    i.waits("at-home", "jsonpath={.status.ready}=1")
    i.apply("away", 2, WAITS)
    i.waits("away", "jsonpath={.status.ready}=1")
    assert binding(i.lab.get("-n", i.people, "job", "away"))["site"] == "east"

    i.helm("upgrade", podAnnotations={"upgraded": "yes"})
    for cluster in (i.lab, i.east):
        i.opens(cluster)
    for name in ("at-home", "away"):
        i.waits(name, "condition=Complete")
    assert i.penstock("why", "j1").count("Running on") == 1

    output = i.penstock("leave")
    assert output.count("of Penstock is left there") == 2, output
    done = helm("uninstall", i.release, "-n", i.own, "--wait", "--timeout=60s", kubeconfig=i.lab.kubeconfig)
    assert done.returncode == 0, done.stderr
    assert [traces(cluster, i) for cluster in (i.lab, i.east)] == [[], []]


def test_with_postgresql_a_standby_takes_over_while_a_job_runs(
    installation: Installation, database: str, real_bed: ClusterGroup
) -> None:
    i = installation
    i.connect_east()
    i.lab.kubectl("-n", i.own, "create", "secret", "generic", "database", f"--from-literal=url={database}")
    i.helm("install", journal={"postgresSecret": "database"}, replicas=2)
    leader = i.leader()
    i.apply("at-home", 4, WAITS)
    i.waits("at-home", "jsonpath={.status.ready}=1")
    i.lab.kubectl("-n", i.own, "delete", "pod", leader, "--grace-period=0", "--force")
    assert i.leader(but=leader) != leader
    i.opens(real_bed.cluster("lab"))
    i.waits("at-home", "condition=Complete")


def traces(cluster: DevCluster, i: Installation) -> list[str]:
    """Our marks on people's things, and what the chart made."""
    marked = [item["metadata"] for item in cluster.get("-n", i.people, MARKED)["items"]]
    words = [
        word
        for metadata in marked
        for part in ("labels", "annotations", "finalizers")
        for word in metadata.get(part) or ()
    ]
    label = f"app.kubernetes.io/instance={i.release}"
    kinds = f"{MARKED},clusterroles,clusterrolebindings,persistentvolumeclaims,networkpolicies"
    left = cluster.get("-A", kinds, "-l", label)["items"]
    return [*(word for word in words if annotations.DOMAIN in word), *(item["metadata"]["name"] for item in left)]


# --- the watchman -----------------------------------------------------------------------------------------------------


def test_the_watchman_is_a_restricted_pod_that_ends_what_is_past_its_deadline(
    real_bed: ClusterGroup, image: str
) -> None:
    """With its image, its account and its rights, and nobody else's."""
    if not cluster_api.is_available():
        pytest.skip(Part.CLUSTER_API)
    lab = real_bed.cluster("lab")
    own = lab.new_namespace()
    lab.kubectl("label", "namespace", own, "pod-security.kubernetes.io/enforce=restricted")
    definition = programs.program("cluster-api-definitions") / "crds/cluster.x-k8s.io_machinedeployments.yaml"
    lab.kubectl("apply", "--server-side", "-f", str(definition))
    try:
        lab.until_served("machinedeployments.cluster.x-k8s.io")
        lab.apply(_rented("past", own, "2026-01-01T00:00:00Z"), _rented("later", own, "2126-01-01T00:00:00Z"))
        lab.apply(*manifests.watchman(f"{image}:{penstock_image.NAME.rpartition(':')[2]}", own))
        until(
            lambda: [_name(deployment) for deployment in lab.get("machinedeployments", "-n", own)["items"]] == ["later"]
        )
        lease = ["get", "lease", annotations.WATCHMAN, "-n", own, "--ignore-not-found", "-o", "json"]
        until(lambda: lab.kubectl(*lease) != "")
        watches = json.loads(lab.kubectl(*lease))["metadata"]["annotations"][annotations.WATCHES]
        assert watches == MACHINE_DEPLOYMENTS.resource
    finally:
        lab.kubectl("delete", "-f", str(definition), "--wait=false")
        for kind in ("clusterrole", "clusterrolebinding"):
            lab.kubectl("delete", kind, f"{own}.{annotations.WATCHMAN}", "--ignore-not-found")
        lab.kubectl("delete", "deployment", annotations.WATCHMAN, "-n", own, "--ignore-not-found")
        lab.drop_namespace(own)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def _rented(name: str, namespace: str, ends_at: str) -> Json:
    """As Penstock makes it; nobody rents anything here."""
    _, deployment = cluster_api.pool(name, namespace, "own", gpus=8)
    marks = {"labels": {annotations.INSTALLATION: "home"}, "annotations": {annotations.ENDS_AT: ends_at}}
    return {**deployment, "metadata": {**deployment["metadata"], **marks}}


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])
