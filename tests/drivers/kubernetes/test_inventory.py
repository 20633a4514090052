"""Which GPUs of a cluster's nodes are ours to use."""

from typing import Any

from penstock.drivers.kubernetes.inventory import headroom_at, is_tolerated, requested, usable
from penstock.kube.node_selection import NodeSelection, Taint, Toleration

A100 = NodeSelection(selector=(("product", "a100"),))


def node(name: str, gpus: int = 8, **more: Any) -> dict[str, Any]:
    ready = more.pop("ready", "True")
    resource = more.pop("resource", "nvidia.com/gpu")
    return {
        "metadata": {"name": name, "labels": {"product": more.pop("product", "a100")}},
        "spec": more,
        "status": {
            "capacity": {resource: str(gpus)},
            "allocatable": {resource: str(gpus)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def test_nodes_are_the_offers_by_label_and_by_having_such_gpus() -> None:
    nodes = [node("b"), node("a"), node("h", product="h100"), node("cpu", gpus=0)]
    assert usable(A100, nodes, {}) == (("a", 8), ("b", 8))
    mig = NodeSelection("nvidia.com/mig-1g.10gb")
    assert usable(mig, [node("a"), node("m", 7, resource=mig.resource)], {}) == (("m", 7),)


def test_what_other_people_hold_is_left_to_them() -> None:
    assert usable(A100, [node("a"), node("b")], {"a": 3, "b": 9}) == (("a", 5), ("b", 0))
    assert usable(A100, [node("a", gpus=16)], {}, most=8) == (("a", 8),)


def test_a_node_that_is_cordoned_unwell_or_avoided_is_there_with_nothing_for_us() -> None:
    """One with a taint keeps its GPUs, for jobs that tolerate it."""
    taint = [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]
    nodes = [
        node("cordoned", unschedulable=True),
        node("faulty"),
        node("tainted", taints=taint),
        node("unwell", ready="Unknown"),
        node("well"),
    ]
    free = dict(usable(A100, nodes, {}, avoided=["faulty"]))
    assert free == {"cordoned": 0, "faulty": 0, "tainted": 8, "unwell": 0, "well": 8}


def test_a_taint_keeps_off_unless_the_offer_tolerates_it() -> None:
    def keeps_off(*tolerations: Toleration) -> bool:
        return not is_tolerated(Taint("spot", "yes", "NoSchedule"), tolerations)

    assert keeps_off()
    assert not keeps_off(Toleration("spot"))
    assert not keeps_off(Toleration())
    assert not keeps_off(Toleration("spot", "Equal", "yes"))
    assert keeps_off(Toleration("spot", "Equal", "no"))
    assert keeps_off(Toleration("spot", effect="NoExecute"))


def test_headroom_is_kept_free_on_the_last_nodes_by_the_hour() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert usable(A100, nodes, {"c": 2}, keep_free=10) == (("a", 8), ("b", 4), ("c", 0))
    assert headroom_at(NodeSelection(), 3) == 0
    assert headroom_at(NodeSelection(headroom=(5,)), 3) == 5
    assert headroom_at(NodeSelection(headroom=tuple(range(24))), 23) == 23


def test_a_pod_holds_what_its_containers_ask_for_together_or_an_init_container_alone() -> None:
    def asks(gpus: str) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": gpus}}}

    assert requested({"spec": {"containers": [asks("2"), asks("1"), {}]}}, "nvidia.com/gpu") == 3
    spec = {"containers": [asks("1")], "initContainers": [asks("4")]}
    assert requested({"spec": spec}, "nvidia.com/gpu") == 4
    assert requested({"spec": {"containers": [asks("2")]}}, "nvidia.com/mig-1g.10gb") == 0
