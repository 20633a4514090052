"""Standing nodes that are not alike: a job gets those that suit it, waits for these alone, and says which it lacks."""

from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.core.model import reasons as r
from tests.stories.kit import (
    Told,
    clock,
    ended,
    given,
    nothing,
    offer,
    policy,
    refused,
    seen,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
)

ZONE_B = "node selector zone=b"
RDMA = "a node with 1 rdma/ib"
TEAM = "tolerates dedicated=vision:NoSchedule"


def unsuited(need: str, *nodes: str, only: bool = False) -> Told:
    return lambda at: e.NodesUnsuited(at, "lab", need, nodes, only)


def placed(attempt: str, **nodes: int) -> Told:
    return lambda at: e.AttemptPlaced(at, attempt, tuple(nodes.items()))


def changed(*nodes: str) -> Told:
    return lambda at: e.NodesChanged(at, "lab", nodes)


def could_not(attempt: str, *nodes: str, words: str = "2 Insufficient cpu") -> Told:
    return lambda at: e.AttemptRefused(at, attempt, 30_000, "unfit", words, nodes=nodes)


def wants(job: str, *needs: str, gpus: int = 4, **more: Any) -> Told:
    return submitted(job, gpus, home="lab", needs=("a Kubernetes cluster", *needs), **more)


LAB = (site("lab", nodes=3, gpus=8), seen("lab", n1=8, n2=8, n3=8))


@pytest.mark.parametrize("special", ["n1", "n3"])
def test_a_job_starts_on_a_node_that_suits_it_whatever_the_node_is_called(special: str) -> None:
    """It was sent to the first nodes with free GPUs, failed there after a minute, and was sent there for ever."""
    penstock = given(*LAB, unsuited(ZONE_B, special, only=True))
    assert penstock.hears(wants("a", ZONE_B), at="09:00") == [start("a.1", "lab", places=(special,))]
    assert penstock.hears(wants("b"), at="09:01") == [start("b.1", "lab")]  # and any node suits this one


def test_a_job_waits_for_the_node_that_suits_it_while_others_are_free() -> None:
    penstock = given(*LAB, unsuited(RDMA, "n2", only=True))
    penstock.hears(wants("a", RDMA, gpus=8), at="09:00")
    assert penstock.hears(wants("b", RDMA), at="09:01") == []
    assert penstock.hears(wants("c", gpus=8), at="09:02") == [start("c.1", "lab", places=("n1",))]
    penstock.hears(started("a.1"), at="09:03")
    assert penstock.hears(ended("a.1"), at="10:00") == [start("b.1", "lab", places=("n2",))]


def test_a_gang_gets_nodes_that_all_suit_it() -> None:
    penstock = given(*LAB, unsuited(ZONE_B, "n2"))
    assert penstock.hears(wants("a", ZONE_B, gpus=16), at="09:00") == [start("a.1", "lab", places=("n1", "n3"))]


def test_nodes_with_a_taint_are_for_jobs_that_tolerate_it() -> None:
    """Such nodes were left out whole, so that the team they were kept for could not use them."""
    penstock = given(*LAB, unsuited("", "n1"), unsuited(TEAM))
    assert penstock.hears(wants("other"), at="09:00") == [start("other.1", "lab", places=("n2",))]
    assert penstock.hears(submitted("command", 8), at="09:01") == [start("command.1", "lab", places=("n3",))]
    assert penstock.hears(wants("wide", gpus=8), at="09:02") == []
    assert penstock.hears(wants("team", TEAM, gpus=8), at="09:03") == [start("team.1", "lab", places=("n1",))]


def test_a_job_that_no_node_suits_waits_and_says_why_instead_of_failing() -> None:
    penstock = given(*LAB, unsuited(ZONE_B, "n1", "n2"), unsuited(RDMA, only=True))
    assert penstock.hears(wants("a", ZONE_B, RDMA), at="09:00") == []
    assert penstock.phase("a") == "waiting"
    assert penstock.why("a") == r.NothingSuits(
        "lab", "none of the 3 nodes of lab suits it: 2 lack node selector zone=b, 3 have less than 1 rdma/ib"
    )
    assert penstock.hears(unsuited(RDMA, "n1"), at="09:10") == [start("a.1", "lab", places=("n3",))]  # it was repaired


def test_a_gang_that_is_wider_than_the_nodes_that_suit_it_says_so() -> None:
    penstock = given(*LAB, unsuited(ZONE_B, "n2", "n3"))
    assert penstock.hears(wants("a", ZONE_B, gpus=16), at="09:00") == []
    assert penstock.why("a") == r.NothingSuits(
        "lab", "only 1 of the 3 nodes of lab suits it, and it needs 16 GPUs: 2 lack node selector zone=b"
    )


def test_what_no_node_at_home_suits_bursts_where_it_may() -> None:
    penstock = given(*LAB, offer("cloud", sold_by="attempt", has=("*",)), unsuited(RDMA, only=True))
    assert penstock.hears(wants("a", RDMA), at="09:00") == [start("a.1", "cloud")]
    assert "3 have less than 1 rdma/ib" in penstock.promise(e.StartPromised).because.barred_by


def test_who_makes_room_for_a_job_leaves_a_node_that_suits_it() -> None:
    penstock = given(*LAB, policy(preempt=True), unsuited(ZONE_B, "n3", only=True))
    for job in ("x", "y", "z"):
        penstock.hears(wants(job, gpus=8), started(f"{job}.1"), at="09:00")
    assert penstock.hears(wants("a", ZONE_B, gpus=8, priority=5), at="09:30") == [stop("z.1")]
    assert penstock.hears(stopped("z.1"), at="09:31") == [start("a.1", "lab", places=("n3",))]


# --- where the scheduler puts it --------------------------------------------------------------------------------------


def test_gpus_are_counted_where_the_cluster_put_the_job() -> None:
    """The scheduler knows more of a node than its GPUs: CPU, ports, other pods."""
    penstock = given(*LAB)
    assert penstock.hears(wants("a", gpus=8), at="09:00") == [start("a.1", "lab", places=("n1",))]
    penstock.hears(placed("a.1", n2=8), started("a.1"), at="09:01")
    assert penstock.hears(wants("b", gpus=16), at="09:02") == [start("b.1", "lab", places=("n1", "n3"))]
    penstock.hears(started("b.1"), at="09:03")
    penstock.hears(ended("a.1"), at="09:10")
    assert penstock.hears(wants("c", gpus=8), at="09:11") == [start("c.1", "lab", places=("n2",))]


def test_two_that_were_put_on_each_others_nodes_take_what_they_have() -> None:
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), wants("b", gpus=8), at="09:00")
    penstock.hears(placed("a.1", n2=8), at="09:01")  # b was promised n2, and its pod is on n1 by now
    assert penstock.hears(wants("c", gpus=16), at="09:02") == []
    penstock.hears(placed("b.1", n1=8), at="09:03")
    assert penstock.engine.state.pools["lab"].free == [0, 0, 8]
    penstock.hears(started("a.1"), started("b.1"), at="09:04")
    penstock.hears(ended("a.1"), ended("b.1"), at="09:05")
    assert penstock.phase("c") == "placed"


def test_who_was_seen_on_its_node_is_not_counted_elsewhere_for_another() -> None:
    """It was starting, and counted as if a third one had taken its GPUs: that one was on its way to other nodes."""
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=4), at="09:00")
    penstock.hears(placed("a.1", n2=4), at="09:01")
    penstock.hears(wants("b", gpus=4), wants("c", gpus=4), wants("d", gpus=4), at="09:02")
    assert [penstock.engine.state.attempts[name].slots for name in ("b.1", "c.1", "d.1")] == [
        ((0, 4),),
        ((0, 4),),
        ((1, 4),),
    ]
    penstock.hears(placed("b.1", n2=4), at="09:03")  # d is on n1 or n3 by now, and a is where it was
    assert penstock.engine.state.attempts["a.1"].slots == ((1, 4),)
    assert penstock.engine.state.attempts["d.1"].slots == ((0, 4),)


def test_who_starts_without_a_word_of_other_nodes_is_where_it_was_promised() -> None:
    """A guess put it elsewhere when another was seen on its node. Nothing more is said of who is where it was asked
    for, so it was counted there until its end, and the GPUs it used were promised to the next.
    """
    penstock = given(*LAB)
    penstock.hears(wants("a"), wants("b"), wants("c"), at="09:00")
    penstock.hears(placed("c.1", n1=4), at="09:01")  # a's or b's GPUs: a is counted on n2 meanwhile
    assert penstock.engine.state.attempts["a.1"].slots == ((1, 4),)
    penstock.hears(started("a.1"), started("c.1"), at="09:02")
    assert penstock.engine.state.attempts["a.1"].slots == ((0, 4),)
    penstock.hears(placed("b.1", n3=4), started("b.1"), at="09:03")
    assert penstock.engine.state.pools["lab"].free == [0, 8, 4]


@pytest.mark.parametrize("nodes", [{"n9": 8}, {"n2": 4}, {}])
def test_a_report_that_cannot_be_true_changes_nothing(nodes: dict[str, int]) -> None:
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), at="09:00")
    penstock.hears(placed("a.1", **nodes), placed("nobody.1", n1=8), at="09:01")
    assert penstock.engine.state.pools["lab"].free == [0, 8, 8]


# --- what could not take it -------------------------------------------------------------------------------------------


def test_nodes_that_could_not_take_a_job_are_not_tried_again_before_they_change() -> None:
    """Their GPUs were free and their CPU was not, which nobody but the scheduler knew: it was tried there for ever, and
    held the GPUs meanwhile.
    """
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), at="09:00")
    assert penstock.hears(could_not("a.1", "n1", "n2", "n3"), at="09:01") == []
    why = penstock.why("a")
    assert isinstance(why, r.NothingSuits)
    assert why.why == "none of the 3 nodes of lab suits it: 3 could not take it (2 Insufficient cpu)"
    assert penstock.hears(wants("b", gpus=8), at="09:02") == [start("b.1", "lab", places=("n1",))]  # others may
    assert penstock.wakes() is None or penstock.hears(nothing, at="12:00") == []
    assert penstock.hears(changed("n2"), at="12:01") == [start("a.2", "lab", places=("n2",))]
    assert penstock.hears(could_not("a.2", "n2", "n3"), at="12:02") == []
    assert penstock.hears(changed("n3"), at="12:02:30") == []  # too soon after the second failure
    assert penstock.hears(nothing, at="12:03:05") == [start("a.3", "lab", places=("n2",))]


def test_a_node_that_changed_is_not_barred_again_with_others() -> None:
    """The next failed start named another node, and the one that had changed was barred with it: it stood idle, and the
    job that it suited waited for it to change once more.
    """
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), at="09:00")
    penstock.hears(could_not("a.1", "n1", "n2", "n3"), at="09:01")
    assert penstock.hears(changed("n2"), at="09:10") == [start("a.2", "lab", places=("n1",))]
    assert penstock.hears(could_not("a.2", "n1"), at="09:11") == [start("a.3", "lab", places=("n2",))]


def test_the_other_nodes_are_tried_at_once() -> None:
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), at="09:00")
    assert penstock.hears(could_not("a.1", "n1", "n2"), at="09:01") == [start("a.2", "lab", places=("n3",))]
    assert penstock.why("a").kind == "OwnedFree"
    said = next(event for event in penstock.promises if isinstance(event, e.RetryPromised))
    assert (said.nodes, said.because.nodes, said.because.retry_at) == (("n1", "n2"), 2, 0)


def test_a_pool_that_is_full_is_closed_as_before() -> None:
    penstock = given(*LAB)
    penstock.hears(wants("a", gpus=8), at="09:00")
    penstock.hears(refused("a.1"), at="09:01")
    assert penstock.engine.state.closed["lab"] > clock("09:01")


# --- gaps in the sites file -------------------------------------------------------------------------------------------


def test_a_model_that_no_offer_at_home_names_makes_a_job_wait_until_one_does() -> None:
    """It failed for good, in the cluster that had these nodes idle, and the reason named another offer."""
    penstock = given(site("lab", gpu_model="GPU"), offer("cloud", gpu_model="A100", has=("*",)))
    assert penstock.hears(wants("a", models=(("L4",),)), at="09:00") == []
    assert penstock.why("a") == r.NothingSuits(
        "lab",
        "no offer of lab has GPU L4; if its nodes have it, write it as `gpu` of their offer",
        elsewhere="GPU A100 is not one it can use",
    )
    assert penstock.hears(site("lab", gpu_model="L4"), at="09:10") == [start("a.1", "lab")]


def test_a_resource_that_no_offer_at_home_has_is_named() -> None:
    penstock = given(site("lab", gpu_model="A100"))
    penstock.hears(wants("a", "GPU resource google.com/tpu"), at="09:00")
    assert penstock.why("a") == r.NothingSuits(
        "lab", "no offer of lab has google.com/tpu; if its nodes have some, write an offer for them"
    )


def test_a_job_that_is_at_home_nowhere_is_refused_as_before() -> None:
    penstock = given(site("lab", gpu_model="A100"))
    penstock.hears(submitted("a", models=(("L4",),)), at="09:00")
    assert penstock.phase("a") == "ended"
