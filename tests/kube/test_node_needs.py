"""What a pod asks of its node, as needs, and which nodes meet them."""

from typing import Any

import pytest

from penstock.kube.job_needs import job_needs
from penstock.kube.node_needs import amounts, meets, taints_of, thousandths_of, tolerations

Json = dict[str, Any]


def node(labels: Json | None = None, taints: tuple[str, ...] = (), name: str = "n1", **allocatable: str) -> Json:
    rows = [dict(zip(("key", "value", "effect"), text.split(":"), strict=True)) for text in taints]
    has = {key.replace("__", "/"): quantity for key, quantity in allocatable.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": rows},
        "status": {"allocatable": has},
    }


def asks(**resources: str) -> Json:
    return {"resources": {"requests": {key.replace("__", "/"): text for key, text in resources.items()}}}


def test_a_pod_asks_for_what_its_containers_hold_together_or_an_init_container_alone() -> None:
    pod = {
        "containers": [asks(cpu="40", memory="300Gi", rdma__ib="1"), asks(cpu="500m", memory="200Gi")],
        "initContainers": [asks(cpu="64"), {**asks(cpu="1"), "restartPolicy": "Always"}],
    }
    assert list(amounts(pod)) == ["a node with 64 cpu", "a node with 500Gi memory", "a node with 1 rdma/ib"]


def test_what_every_node_with_gpus_has_is_no_need_so_that_ordinary_jobs_stay_alike() -> None:
    pod = {
        "containers": [asks(cpu="2", memory="4Gi", nvidia_com="x"), {"resources": {"limits": {"nvidia.com/gpu": 8}}}]
    }
    assert list(amounts(pod)) == []


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [("60", 60_000), ("1500m", 1_500), ("0.5", 500), ("1Ki", 1_024_000), ("2M", 2_000_000_000), ("1e3", 1_000_000),
     ("", 0), ("-1", 0), ("lots", 0), (4, 4_000), ("9" * 40, 0)],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_does(quantity: object, thousandths: int) -> None:
    assert thousandths_of(quantity) == thousandths


@pytest.mark.parametrize(
    ("need", "meets_it"),
    [
        ("a node with 60 cpu", True),
        ("a node with 64 cpu", False),
        ("a node with 500Gi memory", True),
        ("a node with 600Gi memory", False),
        ("a node with 1 rdma/ib", True),
        ("a node with 1 rdma/roce", False),
        ("node selector zone=b", True),
        ("node selector zone=a", False),
        ("node selector zone=a or node selector zone=b or node selector affinity", True),
        ("node selector zone!=b or node selector affinity", False),
        ("node selector disk", True),
        ("node selector !disk", False),
        ("node selector !fast", True),
        ("node selector gen>3", True),
        ("node selector gen<3", False),
        ("node selector nodeName=n1", True),
        ("node selector nodeName=n2", False),
        ("node selector affinity", True),  # too much to compare: the scheduler alone knows
        ("GPU label nvidia.com/gpu.product=A100", True),
        ("GPU label nvidia.com/gpu.product=L4", False),
        ("architecture amd64", True),
        ("architecture arm64", False),
        ("config map settings", True),  # nothing of nodes
    ],
)
def test_a_node_meets_a_need_or_not(need: str, meets_it: bool) -> None:
    labels = {"zone": "b", "disk": "nvme", "gen": "4", "nvidia.com/gpu.product": "A100", "kubernetes.io/arch": "amd64"}
    assert meets(node(labels, cpu="63500m", memory="540Gi", rdma__ib="1"), need, []) == meets_it


@pytest.mark.parametrize(
    ("rows", "tolerates"),
    [
        ([], False),
        ([{"key": "dedicated", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}], True),
        ([{"key": "dedicated", "value": "vision"}], True),
        ([{"key": "dedicated", "operator": "Exists"}], True),
        ([{"operator": "Exists"}], True),
        ([{"key": "dedicated", "value": "audio", "effect": "NoSchedule"}], False),
        ([{"key": "dedicated", "value": "vision", "effect": "NoExecute"}], False),
        ([{"key": "other", "operator": "Exists"}, {"key": "dedicated", "operator": "Exists"}], True),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], False),
    ],
)
def test_a_taint_is_tolerated_as_the_scheduler_reads_it(rows: list[Json], tolerates: bool) -> None:
    tainted = node(
        taints=("dedicated:vision:NoSchedule", "soft:x:PreferNoSchedule", "node.kubernetes.io/x::NoSchedule")
    )
    assert meets(tainted, tolerations({"tolerations": rows}), taints_of(tainted)) == tolerates


def test_a_job_tells_what_it_asks_of_its_node() -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "60", "nvidia.com/gpu": 1}}}
    pod = {"containers": [container], "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    manifest = {"metadata": {"namespace": "n"}, "spec": {"template": {"spec": pod}}}
    assert job_needs(manifest).needs[2:] == ("a node with 60 cpu", "tolerates dedicated")
