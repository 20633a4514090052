"""Real pods: programs run, with the GPUs, accounts and network that a job expects, and leave nothing behind."""

import json
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup, DevCluster, NodePlan
from penstock.devcluster.images import PYTHON

pytestmark = pytest.mark.slow

TAKES_ITS_TIME = """
import signal, sys, time
def told(*_):
    time.sleep(1)
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("ready")
signal.pause()
"""
LISTENS = """
import http.server
http.server.HTTPServer(("", 9), http.server.SimpleHTTPRequestHandler).handle_request()
"""
# Again until it works: a pod is "ready" as soon as its process runs.
ASKS = """
import time, urllib.request
for _ in range(100):
    try:
        print(urllib.request.urlopen("http://ADDRESS:9/").status)
        break
    except OSError:
        time.sleep(0.1)
"""
USES_ITS_ACCOUNT = """
import os, ssl, urllib.error, urllib.request
at = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = {"Authorization": "Bearer " + open(at + "token").read()}
nodes = urllib.request.Request("https://" + os.environ["KUBERNETES_SERVICE_HOST"] + "/api/v1/nodes", headers=token)
try:
    urllib.request.urlopen(nodes, context=ssl.create_default_context(cafile=at + "ca.crt"))
except urllib.error.HTTPError as error:
    print(error.code)
"""


def job(name: str, program: str, pods: int = 1, gpus: int = 1, **more: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", program],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **more}}
    spec = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def run(cluster: DevCluster, namespace: str, job: dict[str, Any], ends: str = "Complete") -> str:
    """What its pod printed."""
    name = job["metadata"]["name"]
    cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(job))
    cluster.kubectl("-n", namespace, "wait", f"job/{name}", f"--for=condition={ends}", "--timeout=55s")
    return cluster.kubectl("-n", namespace, "logs", f"job/{name}")


def begin(cluster: DevCluster, namespace: str, job: dict[str, Any]) -> None:
    """Returns when its pod runs."""
    name = job["metadata"]["name"]
    cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(job))
    cluster.kubectl("-n", namespace, "wait", f"job/{name}", "--for=jsonpath={.status.ready}=1", "--timeout=55s")


@pytest.fixture
def real_namespace(real_bed: ClusterGroup) -> str:
    """Of the same name in both clusters; it ends with the bed."""
    name = real_bed.cluster("lab").new_namespace()
    return real_bed.cluster("east").new_namespace(name)


def test_a_program_runs_and_its_words_come_back(real_bed: ClusterGroup, real_namespace: str) -> None:
    said = run(
        real_bed.cluster("lab"), real_namespace, job("hello", "import penstock.sdk, sys; print(sys.version_info[0])")
    )
    assert said == "3\n"


def test_two_clusters_run_at_once_and_each_has_its_own(real_bed: ClusterGroup, real_namespace: str) -> None:
    names = [
        run(real_bed.cluster(name), real_namespace, job("where", f"print({name!r})")).strip()
        for name in ("lab", "east")
    ]
    assert names == ["lab", "east"]


def test_a_pod_that_wants_more_gpus_than_there_are_waits(real_bed: ClusterGroup, real_namespace: str) -> None:
    lab = real_bed.cluster("lab")
    lab.kubectl("-n", real_namespace, "create", "-f", "-", stdin=json.dumps(job("wide", "pass", gpus=5)))
    path = "--for=jsonpath={.status.conditions[0].reason}=Unschedulable"
    lab.kubectl("-n", real_namespace, "wait", "pod", "-l", "job-name=wide", path, "--timeout=55s")
    lab.kubectl("-n", real_namespace, "delete", "job", "wide")


def test_a_program_that_is_stopped_hears_of_it_and_has_time(real_bed: ClusterGroup, real_namespace: str) -> None:
    lab = real_bed.cluster("lab")
    begin(lab, real_namespace, job("patient", TAKES_ITS_TIME))
    (pod,) = lab.get("-n", real_namespace, "pods", "-l", "job-name=patient")["items"]
    with lab.follow("-n", real_namespace, "logs", "-f", pod["metadata"]["name"]) as lines:
        assert next(lines) == "ready"
        lab.kubectl("-n", real_namespace, "patch", "job/patient", "-p", '{"spec": {"activeDeadlineSeconds": 1}}')
        assert list(lines) == ["saved"]


def test_pods_of_two_nodes_meet_over_the_network(real_bed: ClusterGroup, real_namespace: str) -> None:
    """As the ranks of a gang do: the first listens, the second finds its address by asking Kubernetes."""
    east = real_bed.cluster("east")
    begin(east, real_namespace, job("listens", LISTENS, gpus=4))
    (pod,) = east.get("-n", real_namespace, "pods", "-l", "job-name=listens")["items"]
    asks = ASKS.replace("ADDRESS", pod["status"]["podIP"])
    assert run(east, real_namespace, job("asks", asks, gpus=4)) == "200\n"
    nodes = {one["spec"]["nodeName"] for one in east.get("-n", real_namespace, "pods")["items"]}
    assert len(nodes) == 2


def test_a_pod_speaks_to_the_api_with_its_own_account(real_bed: ClusterGroup, real_namespace: str) -> None:
    """Known, and not allowed."""
    assert run(real_bed.cluster("lab"), real_namespace, job("who-am-i", USES_ITS_ACCOUNT)) == "403\n"


def test_one_can_go_into_a_running_pod(real_bed: ClusterGroup, real_namespace: str) -> None:
    lab = real_bed.cluster("lab")
    begin(lab, real_namespace, job("open", "import signal; signal.pause()"))
    assert lab.kubectl("-n", real_namespace, "exec", "job/open", "--", "echo", "in") == "in\n"
    lab.kubectl("-n", real_namespace, "delete", "job/open", "--wait=false")


def test_a_node_comes_and_goes_as_a_spot_node_does(real_bed: ClusterGroup, real_namespace: str) -> None:
    """At once and with all that ran on it; Kubernetes itself believes in its pods for another minute."""
    east = real_bed.cluster("east")
    east.add_node("spare", NodePlan(gpus=1, labels={"term": "spot"}))
    begin(east, real_namespace, job("lost", "import signal; signal.pause()", nodeSelector={"term": "spot"}))
    east.delete_node("spare")
    assert not east.node("spare").process.pid
    assert len(east.get("nodes")["items"]) == 2
