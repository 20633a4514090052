"""GPUs that a DRA driver publishes, as the API server has them."""

from typing import Any

from penstock.drivers.kubernetes.inventory import usable
from penstock.kube.connect.gpu_survey import gpus_of
from penstock.kube.node_selection import NodeSelection
from penstock.kube.resource_slices import FOR_A_NUMBER, Supply

Json = dict[str, Any]


def device(name: str, kind: str = "gpu", **more: Any) -> Json:
    attributes = {"type": {"string": kind}, "productName": {"string": "NVIDIA A100-SXM4-80GB"}}
    return {"name": name, "attributes": attributes, **more}


def published(node: str, *devices: Json, generation: int = 1, driver: str = "gpu.nvidia.com") -> Json:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def node(name: str, **numbers: str) -> Json:
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name}, "status": {"conditions": ready, "capacity": numbers, "allocatable": numbers}}


def claim(node: str, *devices: str, **notes: str) -> Json:
    rows = [{"driver": "gpu.nvidia.com", "pool": node, "device": name} for name in devices]
    return {"metadata": {"annotations": notes}, "status": {"allocation": {"devices": {"results": rows}}}}


FOUR = published("n1", *(device(f"gpu-{number}") for number in range(4)))


def test_a_node_whose_gpus_are_devices_is_counted_like_any_other() -> None:
    """With DRA's extended resources its status names no GPU: such a cluster "had no GPUs", and none of its Jobs ran."""
    supply = Supply([FOUR])
    whole = supply.of(node("n1", cpu="64"))
    assert usable(NodeSelection(), [whole, supply.of(node("n2", cpu="64"))], {}) == (("n1", 4),)
    assert usable(
        NodeSelection(), [whole], supply.held([claim("n1", "gpu-0"), claim("n1", "gpu-3")])["nvidia.com/gpu"]
    ) == (("n1", 2),)
    (surveyed,) = gpus_of([whole])
    assert (surveyed.gpus_per_node, surveyed.nodes, surveyed.model) == (4, 1, "A100-SXM4-80GB")


def test_a_device_plugins_number_stands_and_a_claim_made_for_a_number_is_counted_once() -> None:
    supply = Supply([FOUR])
    assert supply.of(node("n1", **{"nvidia.com/gpu": "8"}))["status"]["capacity"] == {"nvidia.com/gpu": "8"}
    assert supply.held([claim("n1", "gpu-0", **{FOR_A_NUMBER: "true"})]) == {}


def test_slices_of_gpus_tainted_ones_and_those_of_an_older_generation_are_no_whole_gpus() -> None:
    keep_off: Json = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
    now = published("n1", device("gpu-0"), device("gpu-0-mig-1", "mig"), device("gpu-1", **keep_off), generation=2)
    other = published("n1", device("rdma-0"), driver="nics.example.com")
    assert Supply([FOUR, now, other]).counts == {"n1": {"nvidia.com/gpu": 1}}


def test_the_first_beta_has_one_level_more() -> None:
    whole = device("gpu-0")
    wrapped = {"name": whole["name"], "basic": {"attributes": whole["attributes"]}}
    assert Supply([published("n1", wrapped)]).counts == {"n1": {"nvidia.com/gpu": 1}}
