"""Which nodes of an offer do not meet a need, kept up to date as nodes change."""

from typing import Any

from penstock.drivers.kubernetes.suitability import MOST_NEEDS, Suitability
from penstock.kube.node_selection import NodeSelection, Toleration

ZONE = "node selector zone=b"


def node(name: str, zone: str = "a", taints: tuple[str, ...] = (), cpu: str = "64") -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "labels": {"zone": zone}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"capacity": gpus, "allocatable": {**gpus, "cpu": cpu}},
    }


def test_nodes_alike_have_nothing_to_tell() -> None:
    known = Suitability(NodeSelection())
    known.look([node("n1"), node("n2")])
    assert known.told("") == ((), False)


def test_the_shorter_list_is_told() -> None:
    known = Suitability(NodeSelection())
    known.look([node("n1"), node("n2"), node("n3", zone="b"), node("n4", taints=("team",))])
    assert known.learn([ZONE, "volume scratch"]) == [ZONE]
    assert known.told(ZONE) == (("n3",), True)
    assert known.told("") == (("n4",), False)
    assert known.suited([ZONE]) == {"n3"}
    assert known.suited(["tolerates team"]) == {"n1", "n2", "n3", "n4"}


def test_what_the_offer_itself_tolerates_keeps_nobody_off() -> None:
    known = Suitability(NodeSelection(tolerations=(Toleration("team"),)))
    known.look([node("n1", taints=("team",))])
    assert known.told("") == ((), False)


def test_nodes_that_changed_are_judged_again() -> None:
    known = Suitability(NodeSelection())
    known.learn([ZONE])
    nodes = [node(f"n{number}") for number in range(100)]
    known.look(nodes)
    assert known.look(nodes) == []
    assert known.look([*nodes[:99], node("n99", zone="b")]) == ["n99"]
    assert known.told(ZONE) == (("n99",), True)
    assert known.look(nodes[:99]) == ["n99"]
    assert known.told(ZONE) == ((), True)


def test_needs_beyond_a_bound_are_left_to_the_scheduler() -> None:
    known = Suitability(NodeSelection())
    known.look([node("n1")])
    known.learn(f"node selector k{number}=x" for number in range(MOST_NEEDS + 10))
    assert len(known.needs) == MOST_NEEDS
    assert known.suited([f"node selector k{MOST_NEEDS + 5}=x"]) == {"n1"}
