"""One job's trouble is its own: its failed start is tried again after pauses that grow, and others start meanwhile."""

import pytest

from penstock.core.model.events import OfferClosed, RetryPromised, StartPromised, WaitPromised
from penstock.core.model.reasons import NotStarting, Obstacle, StartFailed
from penstock.core.model.types import Waiting
from penstock.core.units import MINUTE, SECOND
from tests.stories.kit import (
    Penstock,
    cancelled,
    checkpointed,
    clock,
    given,
    launch,
    like,
    lost,
    nothing,
    obstructed,
    offer,
    policy,
    ready,
    refused,
    site,
    start,
    started,
    stopped,
    stuck,
    submitted,
    usd,
)

SELECTOR = "no node for it: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector"


def test_a_job_that_no_node_can_take_leaves_the_offer_open_to_others() -> None:
    """The offer was closed for all, and the next job burst beside idle GPUs."""
    penstock = given(site("lab", nodes=2), offer("cloud"), policy(patience="1h"))
    assert penstock.hears(submitted("a"), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(obstructed("a.1", "unfit", SELECTOR), at="09:01") == []
    failed = penstock.promise(RetryPromised)
    assert failed == RetryPromised(
        clock("09:01"),
        "a",
        "lab",
        clock("09:01:30"),
        StartFailed(
            offer="lab",
            attempt="a.1",
            cause="unfit",
            words=SELECTOR,
            failures=1,
            took_ms=MINUTE,
            gpus=8,
            cost=0,
            retry_at=clock("09:01:30"),
        ),
    )
    # It waits as long as for busy GPUs: its trouble rents nothing sooner.
    assert penstock.promise(WaitPromised).until_at == clock("10:00")
    assert penstock.why("a") == failed.because
    assert penstock.hears(submitted("b"), submitted("c"), at="09:01:10") == [
        start("b.1", on="lab"),
        start("c.1", on="lab"),
    ]


def test_a_job_that_no_node_of_ours_can_take_bursts_when_its_patience_is_over() -> None:
    penstock = given(site("lab"), offer("cloud"), policy(patience="1m"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(obstructed("a.1", "unfit", SELECTOR), at="09:00:50")
    assert penstock.hears(nothing, at="09:01") == [launch("a.2/n0", at="cloud")]
    assert penstock.story("a")[2:] == [
        (
            f"Not started at lab: {SELECTOR}. The start failed after 50 s: 8 GPUs cost $0.00. It is not tried there "
            "again before day 1, 09:01."
        ),
        f"Queued until day 1, 09:01, then it bursts. lab cannot start it: {SELECTOR}.",
        (
            "Bursts to cloud with 8 GPUs. Its start at lab failed; it was queued for 1 min, and its policy "
            "allows 1 min. It costs about $8.00 for 1 h. $96.27 is held, enough to run until day 1, 21:01 and to stop."
        ),
    ]


@pytest.mark.parametrize("obstacle", ["missing", "denied"])
def test_a_job_that_a_person_must_repair_rents_nothing_and_is_tried_again_after_longer_pauses(
    obstacle: Obstacle,
) -> None:
    """A missing ConfigMap would be missing elsewhere, too, on the meter."""
    penstock = given(site("lab"), offer("cloud"))  # no patience: any other job bursts at once
    penstock.hears(submitted("a", home="lab"), at="09:00")
    tries, pauses = ["a.1"], []
    for _ in range(7):
        penstock.hears(obstructed(tries[-1], obstacle, "x is missing", retry="30s"), at=_after(penstock, 2 * MINUTE))
        assert penstock.promise(WaitPromised).because == penstock.promise(RetryPromised).because
        pauses.append((penstock.wakes() or 0) - penstock.engine.state.at)
        (again,) = penstock.hears(nothing, at=_after(penstock, pauses[-1]))
        assert again == start(f"a.{len(tries) + 1}", on="lab")
        tries.append(f"a.{len(tries) + 1}")
    assert [pause // SECOND for pause in pauses] == [30, 60, 120, 240, 480, 480, 480]
    assert penstock.hears(started(tries[-1]), at=_after(penstock, SECOND)) == []
    assert penstock.engine.state.jobs["a"].setbacks is not None
    penstock.hears(checkpointed(tries[-1], "15m"), at=_after(penstock, SECOND))
    assert penstock.engine.state.jobs["a"].setbacks is None  # it works: what failed before counts no more


def _after(penstock: Penstock, ms: int) -> str:
    at = penstock.engine.state.at + ms
    return f"{at // 3_600_000:02}:{at // 60_000 % 60:02}:{at // 1000 % 60:02}"


def test_what_is_missing_at_a_rented_offer_keeps_the_job_from_that_offer_only() -> None:
    penstock = given(site("lab"), offer("cloud", price="1", sold_by="attempt"), offer("dear", price="2"))
    penstock.hears(submitted("first"), at="08:00")
    assert penstock.hears(submitted("a", home="lab"), at="09:00") == [start("a.1", on="cloud")]
    assert penstock.hears(obstructed("a.1", "missing", "no Secret there"), at="09:01") == [
        launch("a.2/n0", at="dear", gpus=8)
    ]
    assert penstock.account("org")[1] == 0  # the hold of the first try was returned
    assert penstock.hears(submitted("b"), at="09:01:10") == [start("b.1", on="cloud")]


def test_a_start_that_failed_is_tried_at_another_standing_offer() -> None:
    penstock = given(site("lab"), site("annex"))
    assert penstock.hears(submitted("a"), at="09:00") == [start("a.1", on="annex")]
    assert penstock.hears(obstructed("a.1", "unfit"), at="09:01") == [start("a.2", on="lab")]
    assert penstock.hears(obstructed("a.2", "unfit"), at="09:02") == [start("a.3", on="annex")]  # its pause is over
    assert penstock.hears(obstructed("a.3", "unfit"), at="09:03") == [start("a.4", on="lab")]
    assert penstock.promise(RetryPromised).because.failures == 2


def test_a_stuck_start_says_why_while_it_goes_on() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(stuck("a.1", SELECTOR), at="09:00:02") == []
    assert penstock.engine.state.jobs["a"].because == NotStarting("lab", SELECTOR)
    assert penstock.story("a")[-1] == f"Not started yet at lab: {SELECTOR}."
    penstock.hears(started("a.1"), at="09:00:09")
    assert penstock.engine.state.jobs["a"].because == penstock.steps[1].outputs[-1].because  # type: ignore[union-attr]
    penstock.hears(stuck("a.1", "too late"), stuck("x.1", "of nobody"), at="09:00:10")
    assert not isinstance(penstock.engine.state.jobs["a"].because, NotStarting)


def test_an_attempt_that_is_lost_at_once_again_and_again_is_started_after_longer_pauses() -> None:
    """It began, was lost and began again as fast as the site could start it, each time on the meter."""
    penstock = given(offer("cloud", sold_by="attempt"))
    penstock.hears(submitted("a", checkpoint=None), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(lost("a.1"), at="09:03") == [start("a.2", on="cloud")]  # it may have been bad luck
    penstock.hears(started("a.2"), at="09:03")
    assert penstock.hears(lost("a.2"), at="09:06") == []
    assert penstock.promise(RetryPromised).because.cost == usd("0.4")  # three minutes of eight GPUs
    assert penstock.hears(nothing, at="09:06:30") == [start("a.3", on="cloud")]
    penstock.hears(started("a.3"), at="09:06:30")
    penstock.hears(lost("a.3"), at="09:07")
    assert penstock.wakes() == clock("09:08")
    penstock.hears(nothing, at="09:08")
    penstock.hears(started("a.4"), at="09:08")
    assert penstock.hears(lost("a.4"), at="09:18") == [start("a.5", on="cloud")]  # ten minutes are not at once
    assert penstock.engine.state.jobs["a"].setbacks is None


def test_an_attempt_whose_own_deadline_ends_it_at_once_is_not_restarted_in_a_loop() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    for number, waits in ((1, False), (2, True)):
        penstock.hears(started(f"a.{number}"), at=f"09:00:0{number}")
        again = penstock.hears(stopped(f"a.{number}"), at=f"09:00:0{number}")
        assert again == ([] if waits else [start("a.2", on="lab")])
    assert penstock.hears(nothing, at="09:00:32") == [start("a.3", on="lab")]


def test_another_kind_of_failure_is_counted_anew() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(obstructed("a.1", "unfit"), at="09:01")
    penstock.hears(nothing, at="09:01:30")
    penstock.hears(obstructed("a.2", "missing"), at="09:02")
    assert penstock.promise(RetryPromised).because.failures == 1


def test_an_offer_that_others_find_room_at_is_still_asked_less_and_less_often_by_a_job_that_does_not() -> None:
    """Each start of another job reset the count, and the job was refused every few minutes for ever."""
    penstock = given(site("lab", nodes=2))
    penstock.hears(submitted("wide", gpus=16), at="09:00")
    penstock.hears(refused("wide.1", retry="5m"), at="09:00")
    assert penstock.promise(OfferClosed).until_at == clock("09:05")
    assert penstock.hears(nothing, at="09:05") == [start("wide.2", on="lab")]
    penstock.hears(refused("wide.2", retry="5m"), submitted("b"), at="09:05")
    assert penstock.hears(nothing, at="09:15") == [start("wide.3", on="lab")]
    penstock.hears(refused("wide.3", retry="5m"), at="09:15")
    assert penstock.promise(RetryPromised).retry_at == clock("09:25")


def test_a_job_that_is_cancelled_or_waits_for_its_retry_leaves_nothing_behind() -> None:
    penstock = given(site("lab"), policy(waiting=Waiting("worth", value_per_hour=usd("1"))))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(obstructed("a.1", "unfit"), at="09:01")
    penstock.hears(cancelled("a"), at="09:01:10")
    assert penstock.wakes() is None
    assert penstock.engine.state.retries == []


def test_a_job_whose_next_place_cannot_start_it_goes_on_where_it_is_and_is_not_moved_there_again() -> None:
    penstock = given(site("lab"), offer("cloud"), policy(home=True))
    penstock.hears(submitted("first", run="1h"), at="08:00")
    penstock.hears(submitted("a", run="9h"), at="08:01")
    penstock.hears(ready("a.1/n0"), at="08:02")
    penstock.hears(started("a.1"), at="08:02")
    penstock.hears(lost("first.1"), at="08:40")
    moved = [event for step in penstock.steps for event in step.outputs if isinstance(event, StartPromised)]
    assert [event.attempt for event in moved][-1] == "first.2"
    assert like(StartPromised, attempt="first.2", offer="lab") == moved[-1]


def test_a_failed_start_on_a_rented_node_costs_what_the_node_costs() -> None:
    """It said $0.00, because the node's bill comes when the node is gone."""
    penstock = given(offer("cloud", price="6"))
    assert penstock.hears(submitted("a", gpus=8), at="09:00") == [launch("a.1/n0", at="cloud")]
    penstock.hears(ready("a.1/n0"), at="09:05")
    penstock.hears(obstructed("a.1", "unfit", SELECTOR), at="09:10")
    because = penstock.promise(RetryPromised).because
    assert (because.cost, because.took_ms) == (usd("8.00"), 10 * MINUTE)  # ten minutes of $48 an hour


def test_who_shares_a_node_pays_a_failed_start_by_its_gpus() -> None:
    penstock = given(offer("cloud", price="6"), policy(share_nodes=True))
    penstock.hears(submitted("a", gpus=4), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(submitted("b", gpus=2), at="09:30") == [start("b.1", on="cloud")]
    penstock.hears(obstructed("b.1", "unfit", SELECTOR), at="09:40")
    # 40 minutes of $48 an hour are $32: four GPUs for 40 minutes beside two for ten.
    assert penstock.promise(RetryPromised).because.cost == usd("32.00") // 9
