"""What the kwok clusters of the bed do: Jobs run, end as they are told to, and what a test breaks it can mend."""

import json
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup, NodePlan
from penstock.devcluster.external import ExternalCluster, Refusal


def job(name: str, **annotations: str) -> dict[str, Any]:
    """One pod with one GPU, for as long as its annotations say."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


RUNS_FOR = "pod-complete.stage.kwok.x-k8s.io/delay"
ENDS_WITH = "penstock.dev/exit-code"
CREATE = ("create", "-f", "-")


def test_nodes_have_the_gpus_and_labels_they_were_planned_with(shared_bed: ClusterGroup) -> None:
    node = shared_bed.cluster("lab").get("node", "lab-gpu-1")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"


def test_nodes_have_the_taints_they_were_planned_with(shared_bed: ClusterGroup) -> None:
    node = shared_bed.cluster("east").get("node", "east-gpu-3")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["spot"]


def test_a_job_completes_after_the_time_in_its_annotation(lab: ExternalCluster, namespace: str) -> None:
    lab.kubectl("-n", namespace, *CREATE, stdin=json.dumps(job("short", **{RUNS_FOR: "300ms"})))
    lab.kubectl("-n", namespace, "wait", "job/short", "--for=condition=Complete", "--timeout=50s")


def test_a_job_without_it_runs_until_it_is_stopped(lab: ExternalCluster, namespace: str) -> None:
    lab.kubectl("-n", namespace, *CREATE, stdin=json.dumps(job("long")))
    lab.kubectl("-n", namespace, "wait", "job/long", "--for=jsonpath={.status.ready}=1", "--timeout=50s")
    lab.kubectl("-n", namespace, "patch", "job/long", "-p", '{"spec": {"activeDeadlineSeconds": 1}}')
    lab.kubectl("-n", namespace, "wait", "job/long", "--for=condition=Failed", "--timeout=50s")
    (reason,) = [
        c["reason"] for c in lab.get("-n", namespace, "job/long")["status"]["conditions"] if c["type"] == "Failed"
    ]
    assert reason == "DeadlineExceeded"


def test_an_evicted_pod_ends_and_its_job_hears_of_it(shared_bed: ClusterGroup) -> None:
    """With kwok's own stages both waited for ever: the Job for the pod's end, the pod for the Job's finalizer."""
    lab = shared_bed.cluster("lab")
    name = lab.new_namespace()
    evicted = job("evicted")
    on = [{"type": "DisruptionTarget", "status": "True"}]
    evicted["spec"]["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onPodConditions": on}]}
    lab.kubectl("-n", name, *CREATE, stdin=json.dumps(evicted))
    lab.kubectl("-n", name, "wait", "job/evicted", "--for=jsonpath={.status.ready}=1", "--timeout=50s")
    (pod,) = lab.get("-n", name, "pods")["items"]
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    lab.api.ask("POST", f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}/eviction", about)
    lab.kubectl("-n", name, "wait", "job/evicted", "--for=condition=Failed", "--timeout=50s")
    (reason,) = [
        c["reason"] for c in lab.get("-n", name, "job/evicted")["status"]["conditions"] if c["type"] == "Failed"
    ]
    assert reason == "PodFailurePolicy"


def test_a_job_fails_with_the_exit_code_in_its_annotation(lab: ExternalCluster, namespace: str) -> None:
    ends = job("wrong", **{RUNS_FOR: "100ms", ENDS_WITH: "3"})
    lab.kubectl("-n", namespace, *CREATE, stdin=json.dumps(ends))
    lab.kubectl("-n", namespace, "wait", "job/wrong", "--for=condition=Failed", "--timeout=50s")
    (pod,) = lab.get("-n", namespace, "pods")["items"]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


LOOKS = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]}]


def test_an_account_may_do_what_its_rules_say_and_no_more(lab: ExternalCluster, namespace: str) -> None:
    reader = ExternalCluster("reader", lab.token_for(f"reader-{namespace}", LOOKS))
    assert reader.get("-n", namespace, "jobs")["items"] == []
    with pytest.raises(Refusal, match="cannot create resource"):
        reader.kubectl("-n", namespace, *CREATE, stdin=json.dumps(job("mine")))


@pytest.mark.slow
def test_a_revoked_token_is_refused(lab: ExternalCluster, namespace: str) -> None:
    reader = ExternalCluster("reader", lab.token_for(f"gone-{namespace}", LOOKS))
    lab.revoke(f"gone-{namespace}")
    with pytest.raises(Refusal, match=r"logged in|Unauthorized"):
        reader.get("-n", namespace, "jobs")


@pytest.mark.slow
def test_an_api_server_that_was_killed_comes_back_as_it_was(bed: ClusterGroup) -> None:
    lab = bed.cluster("lab")
    name = lab.new_namespace()
    lab.kill_api()
    with pytest.raises(Refusal, match="refused"):
        lab.kubectl("get", "nodes")
    lab.start_api()
    assert lab.get("namespace", name)["status"]["phase"] == "Active"


@pytest.mark.slow
def test_a_paused_api_server_answers_nobody_until_it_is_resumed(bed: ClusterGroup) -> None:
    lab = bed.cluster("lab")
    lab.pause_api()
    with pytest.raises(Refusal, match=r"imeout|deadline"):
        lab.kubectl("get", "nodes", "--request-timeout=1s")
    lab.resume_api()
    assert len(lab.get("nodes")["items"]) == 2


@pytest.mark.slow
def test_nodes_come_and_go(bed: ClusterGroup) -> None:
    lab = bed.cluster("lab")
    lab.add_node("late", NodePlan(gpus=4, mig={"1g.10gb": 7}, labels={"zone": "b"}))
    node = lab.get("node", "late")
    assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert node["metadata"]["labels"]["zone"] == "b"
    lab.delete_node("late")
    assert len(lab.get("nodes")["items"]) == 2


@pytest.mark.slow
def test_a_bed_tells_which_of_its_parts_died_and_is_mended(bed: ClusterGroup) -> None:
    kwok = next(part for part in bed.processes() if part.name == "kwok")
    kwok.kill()
    assert [part.name for part in bed.processes() if not part.pid] == ["kwok"]
    bed.mend()
    assert all(part.pid for part in bed.processes())


ASKED = (
    "jobs", "job a", "job/a", "pods -l job-name=a", "pods -l job-name!=a,!x", "pods -l job-name=nobody", "nodes",
    "node lab-gpu-0", "job nothing",
)  # fmt: skip


def test_get_says_what_kubectl_says(lab: ExternalCluster, namespace: str) -> None:
    """It asks the API server itself, because kubectl takes long."""
    by_kubectl = ExternalCluster(lab.name, lab.kubeconfig)

    def said(cluster: ExternalCluster, asked: str) -> dict[str, Any] | str:
        try:
            found = cluster.get(*asked.split(), "-n", namespace)
        except Refusal as refusal:
            return str(refusal)
        return {"items": found["items"]} if "items" in found else found  # kubectl makes one list of all kinds

    lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(job("a")))
    lab.kubectl("wait", "-n", namespace, "--for=create", "pod", "-l", "job-name=a", "--timeout=100s")
    for asked in ASKED:
        pairs = ((said(lab, asked), said(by_kubectl, asked)) for _ in range(10))
        ours, theirs = next((pair for pair in pairs if pair[0] == pair[1]), ("changes all the time", ""))
        assert ours == theirs, asked
