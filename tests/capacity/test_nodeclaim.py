"""The NodeClaim of a rented node: its end, its marks, and what Karpenter's Events mean."""

from dataclasses import replace

import pytest

from penstock.capacity.cluster_nodes import deadline_of, is_ready
from penstock.capacity.contract import object_name
from penstock.capacity.karpenter import describe_conditions, is_launched
from penstock.capacity.nodeclaim import describe, lasts_seconds, node_claim, shortage_of
from penstock.core.model.actions import LaunchNode
from penstock.core.model.types import NodeShape, Offer
from penstock.core.units import DAY, HOUR, MINUTE, NEVER
from penstock.drivers.driver import Refused
from penstock.kube.node_selection import KarpenterWay, NodeSelection, RentedNodes, Taint

SPOT = Offer("east/spot", "east", "spot", (NodeShape(4, name="small"), NodeShape(8, name="large")), kill_ms=10 * MINUTE)
WAY = KarpenterWay("karpenter.k8s.aws", "EC2NodeClass", "gpu")
RENT = RentedNodes(WAY, zones=("a", "b"), labels=(("team", "x"),))
ASK = LaunchNode("j.1/n0", "east/spot", 8, "j.1", 5 * HOUR)


def test_a_claim_says_whose_it_is_what_it_needs_and_when_it_ends_without_us() -> None:
    place = NodeSelection(rent=replace(RENT, taints=(Taint("k", "v"),)))
    name = f"penstock-{object_name('home', 'j.1/n0')}"
    assert node_claim(ASK, SPOT, place, "home", 4 * HOUR) == {
        "metadata": {
            "name": name,
            "labels": {"team": "x", "penstock.dev/installation": "home", "penstock.dev/node": name},
            "annotations": {
                "penstock.dev/node-id": "j.1/n0",
                "penstock.dev/offer": "east/spot",
                "penstock.dev/asked-at": str(4 * HOUR),
                "penstock.dev/node-deadline": str(5 * HOUR),
            },
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"},
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
            ],
            "resources": {"requests": {"nvidia.com/gpu": "8"}},
            "taints": [
                {"key": "penstock.dev/rented", "value": "home", "effect": "NoSchedule"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
            ],
            "expireAfter": "3600s",
            "terminationGracePeriod": "300s",
        },
    }


def test_a_claim_of_slices_has_the_layout_that_the_gpu_operator_reads_and_asks_for_no_slices() -> None:
    """No instance type has slices before they are cut: Karpenter would find none that fits."""
    place = NodeSelection("nvidia.com/mig-1g.10gb", rent=RENT)
    claim = node_claim(ASK, replace(SPOT, mig_profile="1g.10gb"), place, "home", 4 * HOUR)
    assert claim["metadata"]["labels"]["nvidia.com/mig.config"] == "all-1g.10gb"
    assert "resources" not in claim["spec"]
    own = replace(RENT, labels=(("nvidia.com/mig.config", "all-balanced"),))
    mixed = node_claim(ASK, replace(SPOT, mig_profile="1g.10gb"), replace(place, rent=own), "home", 4 * HOUR)
    assert mixed["metadata"]["labels"]["nvidia.com/mig.config"] == "all-balanced"


def test_a_claim_always_has_an_end() -> None:
    place, offer = NodeSelection(rent=RENT), Offer("e/o", "e", "on_demand", (NodeShape(8, name="large"),))
    endless = node_claim(LaunchNode("j.1/n0", "e/o", 8, "j.1", NEVER), offer, place, "home", 0)
    assert lasts_seconds(endless) == 30 * DAY / 1000
    assert deadline_of(endless) == 30 * DAY
    late = node_claim(ASK, SPOT, place, "home", 6 * HOUR)  # its deadline has passed
    assert late["spec"]["expireAfter"] == "1s"
    assert offer.kill_ms == 0
    assert endless["spec"]["terminationGracePeriod"] == "1s"


def test_a_size_without_a_type_is_refused() -> None:
    with pytest.raises(Refused, match="no node type with 2 GPUs"):
        node_claim(LaunchNode("j.1/n0", "east/spot", 2, "j.1", HOUR), SPOT, NodeSelection(rent=RENT), "home", 0)


def test_events_tell_a_stock_out_from_a_quota_and_from_wrong_settings() -> None:
    def said(reason: str, message: str) -> str:
        return describe([{"reason": "Launched", "message": "x"}, {"reason": reason, "message": message}])

    assert shortage_of(said("InsufficientCapacityError", "none in zone a")) == "stock_out"
    assert shortage_of(said("InsufficientCapacityError", "VcpuLimitExceeded")) == "quota"
    assert shortage_of(said("NodeClassNotReady", "no subnet")) == "settings"
    assert describe([{"reason": "Nominated"}]) == ""


def test_a_node_is_ready_only_with_its_gpus() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}}
    assert is_ready({"status": ready}, "nvidia.com/gpu", 8)
    assert not is_ready({"status": {**ready, "allocatable": {"nvidia.com/gpu": "7"}}}, "nvidia.com/gpu", 8)
    assert not is_ready({"status": {**ready, "allocatable": {}}}, "nvidia.com/gpu", 8)
    assert not is_ready({"status": {**ready, "conditions": []}}, "nvidia.com/gpu", 8)
    taints = {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}
    assert not is_ready({"spec": taints, "status": ready}, "nvidia.com/gpu", 8)


def test_what_karpenter_says_of_a_claim_that_does_not_come() -> None:
    waits = {"type": "Launched", "status": "Unknown", "message": "no such image"}
    assert describe_conditions({"status": {"conditions": [waits]}}) == "Launched: no such image"
    assert not is_launched({"status": {"conditions": [waits]}})
    assert is_launched({"status": {"conditions": [{**waits, "status": "True"}]}})
    assert describe_conditions({}) == ""
