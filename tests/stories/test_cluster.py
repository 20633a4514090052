"""A cluster that names its nodes: they come and go, are cordoned, and other people's pods have GPUs on them."""

from penstock.core.model.events import JobRefused
from penstock.core.model.reasons import TooWide
from penstock.core.model.types import Waiting
from penstock.core.units import HOUR
from tests.stories.kit import (
    ended,
    given,
    lost,
    nothing,
    offer,
    policy,
    seen,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
    usd,
)


def test_a_start_names_the_nodes_it_is_meant_for() -> None:
    penstock = given(site("lab", nodes=0))
    assert penstock.hears(seen("lab", ada=8, bob=8, cid=8), at="08:00") == []
    assert penstock.hears(submitted("wide", gpus=20), at="09:00") == [
        start("wide.1", on="lab", slots=((0, 8), (1, 8), (2, 4)), places=("ada", "bob", "cid"))
    ]


def test_a_job_waits_for_the_nodes_of_a_cluster_that_has_shown_none_yet() -> None:
    penstock = given(site("lab", nodes=None))
    assert penstock.hears(submitted("a", gpus=8), at="09:00") == []
    assert penstock.phase("a") == "waiting"
    assert penstock.hears(seen("lab", ada=8), at="09:01") == [start("a.1", on="lab", places=("ada",))]


def test_a_job_wider_than_all_nodes_that_were_seen_is_refused() -> None:
    penstock = given(site("lab", nodes=None), seen("lab", ada=8, bob=8))
    penstock.hears(submitted("wide", gpus=24), at="09:00")
    assert penstock.promise(JobRefused).because == TooWide(24, 16, "lab")


def test_gpus_of_other_peoples_pods_are_not_used() -> None:
    penstock = given(site("lab", nodes=0), seen("lab", ada=3, bob=6))
    assert penstock.hears(submitted("a", gpus=4), submitted("b", gpus=4), at="09:00") == [
        start("a.1", on="lab", slots=((1, 4),), places=("bob",))
    ]
    # Their pods end, and what they had is ours again.
    assert penstock.hears(seen("lab", ada=8, bob=6), at="09:30") == [start("b.1", on="lab", places=("ada",))]


def test_a_cordoned_node_takes_nobody_new_and_what_runs_there_runs_on() -> None:
    penstock = given(site("lab", nodes=0), seen("lab", ada=8))
    penstock.hears(submitted("a", gpus=4), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(seen("lab", ada=0), submitted("b", gpus=4), at="09:10") == []
    assert (penstock.phase("a"), penstock.phase("b")) == ("placed", "waiting")
    assert penstock.hears(ended("a.1"), at="10:00") == []  # its GPUs are the cordon's now
    assert penstock.hears(seen("lab", ada=8), at="10:10") == [start("b.1", on="lab", places=("ada",))]


def test_others_get_what_is_theirs_before_what_comes_free_is_used() -> None:
    penstock = given(site("lab", nodes=0), seen("lab", ada=8))
    penstock.hears(submitted("a", gpus=5), submitted("b", gpus=3), submitted("c", gpus=3), at="09:00")
    assert penstock.hears(seen("lab", ada=4), at="09:10") == []  # four of the eight that a and b hold are others'
    assert penstock.hears(ended("b.1"), at="09:20") == []  # three of them are paid, one is still owed
    assert penstock.hears(ended("a.1"), at="09:30") == [start("c.1", on="lab", slots=((0, 3),))]


def test_a_node_that_is_gone_leaves_its_number_to_the_next() -> None:
    penstock = given(site("lab", nodes=0), seen("lab", ada=8, bob=8))
    penstock.hears(submitted("a", gpus=8), submitted("b", gpus=8), at="09:00")
    penstock.hears(seen("lab", bob=8, cid=8), at="09:10")  # ada's job has not been heard of yet: cid is a third node
    assert penstock.hears(lost("a.1"), at="09:11") == [start("a.2", on="lab", slots=((2, 8),), places=("cid",))]
    penstock.hears(seen("lab", bob=8, cid=8, dan=8), at="09:20")
    assert penstock.hears(submitted("c", gpus=8), at="09:30") == [
        start("c.1", on="lab", slots=((0, 8),), places=("dan",))
    ]
    assert penstock.engine.state.pools["lab"].names == ["dan", "bob", "cid"]


def test_nodes_that_others_need_are_not_kept_for_a_job_that_waited_longest() -> None:
    waits = Waiting("worth", most_ms=HOUR)
    penstock = given(site("lab", nodes=0), policy(waiting=waits, reserve=True), seen("lab", ada=8, bob=8))
    penstock.hears(submitted("a", gpus=8), submitted("b", gpus=4), at="09:00")
    penstock.hears(submitted("wide", gpus=8), at="09:01")
    penstock.hears(nothing, at="10:02")
    assert penstock.engine.state.reserved["wide"].reserved == ("lab", (0,))
    penstock.hears(seen("lab", ada=6, bob=8), at="10:10")
    assert penstock.engine.state.reserved["wide"].reserved == ("lab", (1,))
    assert penstock.hears(ended("b.1"), at="10:20") == [start("wide.1", on="lab", places=("bob",))]


def test_nobody_gives_way_where_others_would_get_the_room() -> None:
    penstock = given(site("lab", nodes=0), policy(preempt=True), seen("lab", ada=8, bob=8))
    penstock.hears(submitted("a", gpus=8), submitted("b", gpus=8), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    penstock.hears(seen("lab", ada=8, bob=5), at="09:10")
    assert penstock.hears(submitted("urgent", gpus=4, priority=5), at="09:30") == [stop("a.1")]
    assert penstock.hears(stopped("a.1"), at="09:31") == [start("urgent.1", on="lab", places=("ada",))]


def test_a_node_that_others_are_on_is_not_emptied_for_a_job_that_needs_it_whole() -> None:
    waiting = Waiting("worth", value_per_hour=usd("1"))
    ours = policy(waiting=waiting, packing="first_fit", estimator="life_table", home=True, defragment=True)
    penstock = given(site("lab", nodes=0), offer("cloud"), ours, seen("lab", ada=7, bob=8))
    for name, gpus in (("c", 1), ("x", 6), ("a", 3)):
        penstock.hears(submitted(name, gpus=gpus, run="50h", restart_ms="5m"), at="08:00")
        penstock.hears(started(f"{name}.1"), at="08:00")
    penstock.hears(submitted("wide", gpus=8, run="20h"), at="08:01")
    # Six are free on ada and five on bob; only on bob can they become eight.
    assert penstock.hears(ended("x.1"), at="10:00") == [stop("a.1")]
