"""Which taints and conditions of a Node say that it will be taken away soon."""

import pytest

from penstock.kube.node_notices import notice_of


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("karpenter.sh/disrupted", "Karpenter ends its node"),
        ("aws-node-termination-handler/spot-itn", "the cloud takes its node back"),
        ("aws-node-termination-handler/scheduled-maintenance", "the cloud takes its node back"),
        ("cloud.google.com/impending-node-termination", "the cloud takes its node back"),
        ("remediator.kubernetes.azure.com/unschedulable", "the cloud takes its node back"),
        ("node.cloudprovider.kubernetes.io/shutdown", "its node was shut down"),
        ("ToBeDeletedByClusterAutoscaler", "the cluster autoscaler removes its node"),
    ],
)
def test_a_taint_of_a_cloud_s_handler_or_an_autoscaler_is_a_notice_with_its_key(key: str, words: str) -> None:
    mine = {"key": "penstock.dev/rented", "effect": "NoSchedule"}
    node = {"spec": {"taints": [mine, {"key": key, "effect": "NoSchedule", "value": "soon"}]}}
    assert notice_of(node) == f"{words} ({key})"


@pytest.mark.parametrize(
    "key",
    [
        "DeletionCandidateOfClusterAutoscaler",  # it may stay after all
        "kubernetes.azure.com/scalesetpriority",  # every spot node has it from the beginning
        "node.kubernetes.io/unschedulable",  # a cordon lets pods end in peace
        "karpenter.sh/unregistered",
        "nvidia.com/gpu",
    ],
)
def test_other_taints_are_no_notices(key: str) -> None:
    assert notice_of({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}) == ""


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (("VMEventScheduled", "True", "PreemptScheduled", ""), "the cloud takes its node back (PreemptScheduled)"),
        (("VMEventScheduled", "True", "TerminateScheduled", ""), "the cloud takes its node back (TerminateScheduled)"),
        (("VMEventScheduled", "True", "FreezeScheduled", ""), ""),
        (("VMEventScheduled", "False", "NoVMEventScheduled", ""), ""),
        (("Ready", "False", "KubeletNotReady", "node is shutting down"), "its node is shutting down"),
        (("Ready", "False", "KubeletNotReady", "container runtime is down"), ""),
        (("Ready", "True", "KubeletReady", ""), ""),
    ],
)
def test_a_condition_is_a_notice_if_the_machine_ends(condition: tuple[str, str, str, str], words: str) -> None:
    fields = dict(zip(("type", "status", "reason", "message"), condition, strict=True))
    assert notice_of({"spec": {}, "status": {"conditions": [fields]}}) == words


def test_a_node_that_says_nothing_has_no_notice() -> None:
    assert notice_of({"metadata": {"name": "a"}}) == ""
    assert notice_of({"spec": {"taints": None}, "status": {"conditions": None}}) == ""
