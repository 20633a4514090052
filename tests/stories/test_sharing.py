"""Rented nodes with GPUs to spare: who joins them, what that costs, and who goes when."""

from typing import Any

from penstock.core.model.actions import Action
from penstock.core.model.events import (
    AttemptStopped,
    DeadlineSet,
    LeaseRenewed,
    ReleasePromised,
    RenewalDenied,
    StartPromised,
    StopPromised,
    WaitPromised,
    Woke,
)
from penstock.core.model.reasons import CapBinds, CheaperElsewhere, ComesHome, JoinsNode, LostNode, NoMoreWork
from penstock.core.model.types import Waiting
from penstock.core.units import HOUR, MICRO, MINUTE, NEVER
from tests.stories.kit import (
    Penstock,
    Told,
    cancelled,
    cap,
    checkpointed,
    clock,
    ended,
    given,
    gone,
    launch,
    lost,
    node_lost,
    node_refused,
    nothing,
    offer,
    policy,
    ready,
    release,
    set_deadline,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
    usd,
)


def sharing(**more: Any) -> Told:
    return policy(share_nodes=True, **more)


def one_running(*undated: Told, **first: Any) -> Penstock:
    """One job of one GPU, on a node of eight that was five minutes in starting."""
    penstock = given(offer("cloud", price="1", start="5m"), *(undated or (sharing(),)))
    penstock.hears(submitted("a", **{"gpus": 1, "run": "3h", **first}), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    penstock.hears(started("a.1"), at="09:05")
    return penstock


def test_a_small_job_joins_the_node_of_another_and_starts_at_once() -> None:
    penstock = one_running()
    held = penstock.held()
    assert penstock.hears(submitted("b", gpus=2, run="1h"), at="09:05") == [
        start("b.1", on="cloud", width=2, nodes=("a.1/n0",), deadline_at=clock("21:00"))
    ]
    assert penstock.held() == held
    assert penstock.promise(StartPromised).joins == "a.1/n0"
    # It outlives who is there by x * x / (x + y): a quarter of an hour of three. Alone it would be $8 and the start.
    assert penstock.why("b") == JoinsNode(0, 7, 3 * HOUR, HOUR, usd("2"), "cloud", usd("8") * 65 // 60 + 1)
    assert penstock.story("b")[1] == (
        "Joins node a.1/n0 of cloud with 2 GPUs. The node has 7 free GPUs, and its other jobs are expected to run "
        "another 3 h. It costs about $2.00 for 1 h; a node of its own at cloud costs $8.67."
    )


def test_the_node_is_given_back_only_when_the_last_has_left() -> None:
    penstock = one_running()
    penstock.hears(submitted("b", gpus=7), at="09:30")
    penstock.hears(started("b.1"), at="09:30")
    assert penstock.hears(ended("a.1"), at="10:00") == []
    assert penstock.hears(ended("b.1"), at="10:30") == [release("a.1/n0")]
    assert penstock.promises == [ReleasePromised(clock("10:30"), "a.1/n0", NoMoreWork(0))]
    penstock.hears(gone("a.1/n0"), at="10:30")
    assert penstock.account("org") == (0, usd("12"))  # the node, for an hour and a half, whoever was on it


def test_what_does_not_fit_beside_the_others_gets_a_node_of_its_own() -> None:
    penstock = one_running()
    penstock.hears(submitted("b", gpus=4), at="09:05")
    assert penstock.hears(submitted("c", gpus=4), at="09:06") == [launch("c.1/n0", at="cloud")]
    assert penstock.hears(submitted("d", gpus=3), at="09:06") == [start("d.1", on="cloud", nodes=("a.1/n0",))]


def test_a_job_that_joins_a_node_that_still_starts_begins_when_it_is_ready() -> None:
    penstock = given(offer("cloud", start="5m"), sharing())
    penstock.hears(submitted("a", gpus=1), at="09:00")
    assert penstock.hears(submitted("b", gpus=1), at="09:01") == []
    assert penstock.hears(ready("a.1/n0"), at="09:05") == [start("a.1", on="cloud"), start("b.1", on="cloud")]


def test_a_node_that_is_refused_refuses_all_who_wait_for_it() -> None:
    penstock = given(offer("cloud", start="5m"), offer("dear", price="2"), sharing())
    penstock.hears(submitted("a", gpus=1), submitted("b", gpus=1), at="09:00")
    assert penstock.promises[-1].joins == "a.1/n0"  # type: ignore[union-attr]  # it is a start
    assert penstock.hears(node_refused("a.1/n0"), at="09:00") == [launch("a.2/n0", at="dear")]
    assert penstock.promises[-1].joins == "a.2/n0"  # type: ignore[union-attr]  # it is a start
    assert penstock.held() > 0


def test_who_cancels_before_the_node_is_ready_leaves_it_to_the_others() -> None:
    penstock = given(offer("cloud", start="5m"), sharing())
    penstock.hears(submitted("a", gpus=1), submitted("b", gpus=1), at="09:00")
    assert penstock.hears(cancelled("a"), at="09:01") == []
    assert penstock.hears(ready("a.1/n0"), at="09:05") == [start("b.1", on="cloud")]


def test_another_team_does_not_join_nor_a_job_with_a_cap_of_its_own() -> None:
    penstock = one_running()
    assert penstock.hears(submitted("b", gpus=1, team="blue"), at="09:06") == [launch("b.1/n0", at="cloud")]
    assert penstock.hears(submitted("c", gpus=1, cap="900"), at="09:07") == [launch("c.1/n0", at="cloud")]
    assert penstock.hears(submitted("d", gpus=1, team="blue"), at="09:08") == []  # b's
    assert penstock.promise(StartPromised).joins == "b.1/n0"


def test_a_job_that_takes_longer_to_stop_or_whose_output_costs_something_does_not_join() -> None:
    """The node's hold pays for its first job's last checkpoint and for what leaves of it, and for no more."""
    penstock = given(offer("cloud", egress="0.1"), sharing())
    penstock.hears(submitted("a", gpus=1, output_bytes=0), at="09:00")
    assert penstock.hears(submitted("b", gpus=1, grace_ms="5m"), at="09:01") == [launch("b.1/n0", at="cloud")]
    assert penstock.hears(submitted("c", gpus=1, output_bytes=10**10), at="09:02") == [launch("c.1/n0", at="cloud")]
    assert penstock.hears(submitted("d", gpus=1, lease_max_ms="1h"), at="09:03") == [launch("d.1/n0", at="cloud")]
    penstock.hears(submitted("e", gpus=1), at="09:04")
    assert penstock.promise(StartPromised).joins != ""


def test_what_left_of_the_first_is_paid_though_the_node_is_lost_under_the_second() -> None:
    penstock = given(offer("cloud", egress="0.1"), sharing())
    penstock.hears(submitted("a", gpus=1, output_bytes=10**10), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(submitted("b", gpus=1), at="09:00")
    penstock.hears(ended("a.1"), at="10:00")
    penstock.hears(lost("b.1"), node_lost("a.1/n0"), at="11:00")
    assert penstock.account("org")[1] == usd("17")


def test_a_lost_node_takes_all_that_runs_on_it_and_both_resume_together() -> None:
    penstock = one_running()
    penstock.hears(submitted("b", gpus=2), at="09:05")
    penstock.hears(started("b.1"), at="09:05")
    penstock.hears(checkpointed("a.1", "30m"), at="09:35")
    actions = penstock.hears(lost("a.1", "30m"), lost("b.1", "15m"), node_lost("a.1/n0"), at="09:40")
    assert actions == [launch("a.2/n0", at="cloud")]
    # Of a's three hours 2.5 are left, at $8, and five minutes of starting; b's seat costs what it outlives that by.
    assert penstock.why("a") == LostNode("a.1", 30 * MINUTE, 5 * MINUTE, usd("8") * 155 // 60 + 1)
    assert penstock.why("b") == LostNode("b.1", 15 * MINUTE, 20 * MINUTE, usd("1.666667"))
    assert penstock.hears(ready("a.2/n0"), at="09:45") == [
        start("a.2", on="cloud", resume_ms=30 * MINUTE),
        start("b.2", on="cloud", resume_ms=15 * MINUTE, nodes=("a.2/n0",)),
    ]


def test_nobody_joins_a_node_on_which_something_was_lost() -> None:
    """A GPU that fails one job fails the next: each would be lost as soon as it had started."""
    penstock = one_running()
    penstock.hears(submitted("b", gpus=2), at="09:05")
    assert penstock.hears(lost("b.1"), at="09:20") == [launch("b.2/n0", at="cloud")]
    assert penstock.hears(ended("a.1"), at="09:30") == [release("a.1/n0")]


def test_where_a_lease_is_not_renewed_all_on_the_node_stop_in_time() -> None:
    penstock = one_running(sharing(), cap("org", "40"), run="9h")
    penstock.hears(submitted("b", gpus=2, run="9h"), at="09:05")
    penstock.hears(started("b.1"), at="09:05")
    answers: list[Action] = []
    while "StopPromised" not in penstock.kinds():
        answers = sleeps(penstock)
        for promise in [promise for promise in penstock.promises if isinstance(promise, LeaseRenewed)]:
            assert answers == [set_deadline("a.1/n0")]
            penstock.takes(DeadlineSet(promise.at, promise.hold, promise.deadline_at))
    assert answers == [stop("a.1"), stop("b.1")]
    at = penstock.engine.state.at
    least = usd("8") * 12 // 60 + 1
    because = CapBinds("org", "month 1", usd("40"), spent=usd("38.25"), held=least, needed=usd("1.166667"))
    assert penstock.promises == [
        RenewalDenied(at, "a.1/n0", NEVER, because),
        StopPromised(at, "a.1", "pause", yields=False, because=because),
        StopPromised(at, "b.1", "pause", yields=False, because=because),
    ]
    assert penstock.until("a.1/n0") > at
    penstock.takes(AttemptStopped(at, "a.1", HOUR), AttemptStopped(at, "b.1", HOUR))
    assert penstock.phase("a") == penstock.phase("b") == "paused"
    because = CapBinds("org", "month 1", usd("40"), spent=usd("38.25"), held=least, needed=least)
    assert penstock.promises == [
        WaitPromised(at, "a", NEVER, because, scope="org"),
        WaitPromised(at, "b", NEVER, because, scope="org"),
        ReleasePromised(at, "a.1/n0", NoMoreWork(0)),
    ]


def sleeps(penstock: Penstock) -> list[Action]:
    """Until it wakes by itself."""
    return penstock.takes(Woke(penstock.wakes() or 0))


def test_nobody_joins_a_node_whose_lease_was_denied() -> None:
    penstock = one_running(sharing(), cap("org", "20"), run="9h")
    while "RenewalDenied" not in penstock.kinds():
        sleeps(penstock)
    penstock.hears(submitted("b", gpus=1), at=f"{penstock.engine.state.at / HOUR}:0")
    assert penstock.promise(StartPromised).joins == ""


def test_a_node_that_comes_free_as_another_bursts_is_joined_instead_of_given_back() -> None:
    penstock = one_running()
    assert penstock.hears(ended("a.1"), submitted("b", gpus=8), at="10:05") == [
        start("b.1", on="cloud", nodes=("a.1/n0",), width=8)
    ]


def test_a_large_node_is_not_joined_where_a_small_one_is_cheaper() -> None:
    """Who is there may leave at any moment, and then eight GPUs are paid for one."""
    penstock = given(offer("cloud", price="1", sizes=(1, 8)), sharing())
    penstock.hears(submitted("a", gpus=7, run="1h"), at="09:00")
    assert penstock.hears(submitted("b", gpus=1, run="1h"), at="09:00") == [launch("b.1/n0", at="cloud", gpus=1)]
    penstock.hears(submitted("c", gpus=7, run="9h"), at="09:00")
    penstock.hears(submitted("d", gpus=1, run="1h"), at="09:00")
    assert penstock.promise(StartPromised).joins == "c.1/n0"


def left_alone(**more: Any) -> Penstock:
    """A job of one GPU joined one of seven that was to stay long, and has left."""
    worth = Waiting("worth", value_per_hour=2 * MICRO)
    penstock = given(
        offer("cloud", price="1", sizes=(1, 8), start="5m"), sharing(home=True, waiting=worth, estimator="life_table")
    )
    penstock.hears(submitted("big", gpus=7, run="90h"), at="09:00")
    penstock.hears(ready("big.1/n0"), at="09:05")
    penstock.hears(started("big.1"), at="09:05")
    penstock.hears(submitted("small", **{"gpus": 1, "run": "8h", **more}), at="09:05")
    penstock.hears(started("small.1"), at="09:05")
    assert penstock.hears(ended("big.1"), at="09:35") in ([], [launch("small.2/n0", at="cloud"), stop("small.1")])
    return penstock


def test_a_small_job_left_alone_on_a_large_node_moves_to_a_small_one() -> None:
    penstock = left_alone()
    # Half an hour done, all of it in checkpoints: 7.5 hours are left, at $8 or at $1.
    assert penstock.why("small") == CheaperElsewhere(
        450 * MINUTE, usd("60"), usd("7.583334"), 5 * MINUTE, usd("0.166667")
    )
    assert penstock.hears(ready("small.2/n0"), at="09:40") == []
    assert penstock.hears(stopped("small.1", "30m"), at="09:41") == [
        start("small.2", on="cloud", nodes=("small.2/n0",)), release("big.1/n0"),
    ]  # fmt: skip
    assert penstock.story("small")[-3] == (
        "Bursts to cloud again. Moves to cheaper GPUs: about 7 h 30 min left, $7.58 there instead of $60.00; the move "
        "delays it by 5 min, which costs $0.17. $12.03 is held, enough to run until day 1, 21:35 and to stop."
    )


def test_a_job_without_checkpoints_stays_on_the_large_node() -> None:
    penstock = left_alone(checkpoint=None)
    assert [kind for kind in penstock.kinds() if kind == StopPromised.__name__] == []


def test_a_job_that_is_nearly_done_stays_on_the_large_node() -> None:
    penstock = left_alone(run="50m")
    assert penstock.kinds() == []


def test_owned_gpus_that_come_free_bring_home_who_shares_by_its_part_of_the_rent() -> None:
    penstock = given(
        site("lab", nodes=1, gpus=8), offer("cloud", price="1"), sharing(home=True, estimator="life_table")
    )
    penstock.hears(submitted("old", gpus=8), at="09:00")
    penstock.hears(started("old.1"), at="09:00")
    for job in ("a", "b"):
        penstock.hears(submitted(job, gpus=4, run="9h"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    assert penstock.hears(ended("old.1"), at="10:00") == [stop("a.1"), stop("b.1")]
    home = ComesHome(8 * HOUR, saves=usd("32"), move_ms=0, move_worth=0)  # half of the node's, for eight hours
    assert penstock.why("a") == penstock.why("b") == home


def on_demand_for_want_of_spot(**more: Any) -> Penstock:
    penstock = given(offer("spot", price="0.3", most="1", term="spot"), offer("sure", price="1"), sharing(home=True))
    penstock.hears(submitted("a", **{"gpus": 8, "run": "40h", **more}), at="09:00")
    assert penstock.hears(node_refused("a.1/n0"), at="09:00") == [launch("a.2/n0", at="sure")]
    penstock.hears(ready("a.2/n0"), at="09:00")
    penstock.hears(started("a.2"), at="09:00")
    return penstock


def test_a_long_job_tries_spot_again_when_its_back_off_is_over() -> None:
    """Before, it asked only when its lease was renewed, at 18:00."""
    penstock = on_demand_for_want_of_spot()
    assert penstock.wakes() == clock("09:05")
    assert penstock.hears(nothing, at="09:05") == [launch("a.3/n0", at="spot"), stop("a.2")]
    left = 39 * HOUR + 55 * MINUTE  # and the five minutes since its start, which it does again
    assert penstock.why("a") == CheaperElsewhere(left, usd("319.333334"), usd("96"), 5 * MINUTE, move_worth=0)
    assert penstock.hears(ready("a.3/n0"), at="09:06") == []
    assert penstock.hears(stopped("a.2", "0m"), at="09:07") == [start("a.3", on="spot"), release("a.2/n0")]


def test_if_spot_refuses_again_the_job_continues_on_demand_and_stays_for_half_an_hour() -> None:
    penstock = on_demand_for_want_of_spot()
    penstock.hears(nothing, at="09:05")
    penstock.hears(node_refused("a.3/n0"), at="09:06")
    assert penstock.hears(stopped("a.2"), at="09:07") == [start("a.4", on="sure", nodes=("a.2/n0",))]
    penstock.hears(started("a.4"), at="09:07")
    assert penstock.engine.state.closed["spot"] == clock("09:16"), "twice as long as before"
    assert penstock.hears(nothing, at="09:16") == []
    assert penstock.wakes() == clock("09:35")
    assert penstock.hears(nothing, at="09:35") == [launch("a.5/n0", at="spot"), stop("a.4")]


def test_spot_that_another_job_got_brings_back_who_is_on_demand() -> None:
    penstock = on_demand_for_want_of_spot()
    assert penstock.hears(submitted("b", gpus=8, run="5h"), nothing, at="09:05") == [launch("b.1/n0", at="spot")]
    assert penstock.hears(ready("b.1/n0"), at="09:07") == [
        start("b.1", on="spot"), launch("a.3/n0", at="spot"), stop("a.2")
    ]  # fmt: skip


def test_a_job_that_has_moved_as_often_as_it_may_stays_on_demand() -> None:
    penstock = on_demand_for_want_of_spot()
    penstock.engine.state.jobs["a"].moves = 5
    penstock.engine.state.closed["spot"] = clock("09:05")
    assert penstock.wakes() == clock("18:00"), "its renewal"
