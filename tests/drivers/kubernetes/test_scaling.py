"""What an autoscaler's Events mean for a start that has no node, in the words of those that there are."""

import pytest

from penstock.drivers.kubernetes.cluster_events import ClusterEvent
from penstock.drivers.kubernetes.scaling import CLOSED_MS, SENTENCES, meaning, newest

NEEDS = 'requirements=nvidia.com/gpu In [8], resources={"nvidia.com/gpu":"8"}'
SAID = [
    # Karpenter: on pods, then on claims
    ("Nominated", "Pod should schedule on: nodeclaim/gpu-x7k2p", "coming"),
    ("FailedScheduling", f"Failed to schedule pod, no instance type has the required offering, {NEEDS}", "stock_out"),
    (
        "FailedScheduling",
        (
            "Failed to schedule pod, no instance type which met the scheduling requirements and had enough resources, "
            f"had a required offering, {NEEDS}"
        ),
        "stock_out",
    ),
    ("FailedScheduling", f"Failed to schedule pod, no instance type has enough resources, {NEEDS}", "impossible"),
    ("FailedScheduling", "Failed to schedule pod, did not tolerate taint (taint=spot:NoSchedule)", "impossible"),
    (
        "FailedScheduling",
        (
            "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=gpu); "
            "did not tolerate taint (taint=spot:NoSchedule)"
        ),
        "limit",
    ),
    ("InsufficientCapacityError", "NodeClaim gpu-x7k2p event: no p4d.24xlarge in us-east-1a", "stock_out"),
    ("InsufficientCapacityError", "creating instance, VcpuLimitExceeded: more than your vCPU limit of 96", "quota"),
    ("NodeClassNotReady", "NodeClaim gpu-x7k2p event: SecurityGroups could not be resolved", "settings"),
    # cluster-autoscaler, and GKE's
    ("TriggeredScaleUp", "pod triggered scale-up: [{gpu 0->1 (max: 4)}]", "coming"),
    ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity", "impossible"),
    ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu", "impossible"),
    ("NotTriggerScaleUp", "pod didn't trigger scale-up (it wouldn't fit if a new node is added)", "impossible"),
    (
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 1 node(s) exceed max volume count, 2 Insufficient cpu",
        "impossible",
    ),
    *(
        ("NotTriggerScaleUp", f"pod didn't trigger scale-up: {words}", kind)
        for words, kind in {
            "1 max node group size reached": "limit",
            "1 Insufficient nvidia.com/gpu, 1 max node group size reached": "limit",
            "max total nodes in cluster reached": "limit",
            "2 max cluster cpu, memory limit reached": "limit",
            "1 max cluster nvidia-tesla-a100 limit reached": "limit",
            '1 exceeded quota: "cluster-wide", resources: nodes': "limit",
            "1 atomic scale-up exceeds cluster node count limit": "limit",
            "1 not all pods would fit and scale-up is using all-or-nothing strategy": "limit",
            "1 expansion options filtered out and no longer considered": "limit",
            "1 in backoff after failed scale-up": "stock_out",
            "1 max node group size reached, 1 in backoff after failed scale-up": "stock_out",
            "1 not ready for scale-up": "stock_out",
            "1 scale-up execution failed": "stock_out",
        }.items()
    ),
    ("FailedScaleUp", "Node scale up in zones europe-west4-a failed: GCE out of resources.", "stock_out"),
    ("FailedScaleUp", "Node scale up in zones europe-west4-a failed: GCE quota exceeded.", "quota"),
    # the scheduler's and the kubelet's
    ("FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", None),
    ("Pulling", 'Pulling image "train"', None),
]


@pytest.mark.parametrize(("reason", "message", "kind"), SAID)
def test_an_autoscalers_event_means_one_of_six_things_or_is_none_of_its(
    reason: str, message: str, kind: str | None
) -> None:
    verdict = meaning(ClusterEvent(reason, message, is_warning=True))
    assert (verdict.kind if verdict else None) == kind
    assert verdict is None or verdict.words == f"{SENTENCES[verdict.kind]} ({reason}: {message})"


def test_the_newest_event_of_an_autoscaler_counts() -> None:
    events = [ClusterEvent(reason, message, is_warning=True) for reason, message, _ in SAID]
    coming, failed, scheduler = events[0], events[3], events[-2]
    for heard, kind in [((failed, coming, scheduler), "coming"), ((coming, failed), "impossible")]:
        verdict = newest(heard)
        assert verdict is not None
        assert verdict.kind == kind
    assert newest((scheduler,)) is None


def test_the_limit_of_a_pool_that_an_offer_does_not_use_says_nothing_of_it() -> None:
    limit = "all available instance types exceed limits for nodepool (NodePool=spot)"
    event = ClusterEvent("FailedScheduling", f"Failed to schedule pod, no instance type has enough; {limit}", True)
    for pool, kind in {"": "limit", "spot": "limit", "gpu": "impossible"}.items():
        verdict = meaning(event, pool)
        assert verdict is not None
        assert verdict.kind == kind


def test_stock_comes_back_in_minutes_and_a_person_takes_hours() -> None:
    assert CLOSED_MS == {"stock_out": 300_000, "quota": 14_400_000, "settings": 3_600_000}
