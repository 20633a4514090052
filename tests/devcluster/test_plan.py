"""What is asked for becomes what Kubernetes is told."""

import pytest

from penstock.core.errors import BadInput
from penstock.devcluster import ClusterPlan, NodePlan
from penstock.devcluster.plan import as_plain, from_plain, node_object

PLAN = ClusterPlan(
    "lab",
    (
        NodePlan(2, gpus=8, model="NVIDIA-A100-SXM4-80GB", taints=("spot=yes:NoSchedule",)),
        NodePlan(mig={"1g.10gb": 7}, labels={"zone": "a"}),
        NodePlan(name="door"),
    ),
)


def test_nodes_are_numbered_through_and_named_by_what_they_have() -> None:
    assert [name for name, _ in PLAN.numbered()] == ["lab-gpu-0", "lab-gpu-1", "lab-gpu-2", "door"]


def test_a_node_says_what_the_gpu_operator_would_say() -> None:
    (name, plan), *_ = PLAN.numbered()
    node = node_object(name, plan, real=False)
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert node["spec"]["taints"] == [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]


def test_mig_slices_are_resources_of_their_own() -> None:
    name, plan = PLAN.numbered()[2]
    has = node_object(name, plan, real=False)["status"]["allocatable"]
    assert has["nvidia.com/mig-1g.10gb"] == "7"
    assert "nvidia.com/gpu" not in has


def test_a_real_node_measures_itself() -> None:
    name, plan = PLAN.numbered()[0]
    assert node_object(name, plan, real=True)["status"]["capacity"] == {"nvidia.com/gpu": "8"}


def test_a_plan_survives_being_written_down() -> None:
    assert from_plain(as_plain(PLAN)) == PLAN


@pytest.mark.parametrize("name", ["Lab", "lab-1", "", "averyveryverylongname"])
def test_a_name_that_no_device_could_carry_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="small letters and digits"):
        ClusterPlan(name)
