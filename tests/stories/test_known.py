"""Where jobs say how long they run and are right: ends that fall together, and waits that are never in vain."""

from typing import Any

from penstock.core.model.events import Paused, Resumed, StartPromised, WaitPromised
from penstock.core.model.reasons import EndsAlike, NotWorthWaiting, WaitWorth
from penstock.core.model.types import Waiting
from penstock.core.units import DAY, HOUR, MINUTE, Millis
from penstock.core.units import money as usd
from tests.stories.kit import Penstock, Told, ended, given, nothing, offer, policy, site, start, started, submitted


def known(value: str = "4", **more: Any) -> Told:
    waiting = Waiting("worth", value_per_hour=usd(value))
    return policy(waiting=waiting, packing="ends_alike", estimator="declared", ordering="priority", **more)


def node_of(penstock: Penstock, job: str) -> int:
    attempt = penstock.engine.state.jobs[job].attempt
    assert attempt is not None
    return attempt.slots[0][0]


def waits(soonest_ms: Millis, **more: Any) -> WaitWorth:
    """An hour's run at $8 may wait for two. The forecast is its soonest start, and at worst five times what GPUs for
    all take to come free, in `gaps_ms`.
    """
    usual: dict[str, Any] = {
        "cost": usd("8"),
        "value_per_hour": usd("4"),
        "patience_ms": 2 * HOUR,
        "expected_run_ms": HOUR,
        "ahead": 0,
        "free_gpus": 0,
    }
    gaps = more.pop("gaps_ms", soonest_ms)
    about = max(soonest_ms, gaps)
    return WaitWorth(soonest_ms=soonest_ms, about_ms=about, worst_ms=max(about, 5 * gaps), **{**usual, **more})


def busy(*jobs: tuple[str, int, str], nodes: int = 1, value: str = "4", **more: Any) -> Penstock:
    """These run since 09:00."""
    penstock = given(site("lab", nodes=nodes), offer("cloud"), known(value, **more))
    for name, gpus, run in jobs:
        penstock.hears(submitted(name, gpus=gpus, run=run), at="09:00")
        penstock.hears(started(f"{name}.1"), at="09:00")
    return penstock


# --- on which node ---------------------------------------------------------------------------------------------------


def test_a_job_goes_where_the_node_stays_in_use_for_least_longer() -> None:
    """Both have three GPUs to spare; on the second somebody stays longer than the newcomer."""
    penstock = busy(("short", 5, "2h"), ("long", 5, "9h"), nodes=3)
    penstock.hears(submitted("a", gpus=2, run="7h"), at="10:00")
    assert node_of(penstock, "a") == node_of(penstock, "long")
    assert penstock.why("a") == EndsAlike(0, free_gpus=14, expected_run_ms=7 * HOUR, busy_ms=8 * HOUR)
    assert penstock.story("a")[-1] == (
        "Starts on lab with 2 GPUs. 14 GPUs were free. Other jobs use its node for another 8 h; this one is expected "
        "to run 7 h."
    )


def test_where_several_stay_longer_anyway_the_one_that_ends_first_is_taken() -> None:
    """The other is left for somebody who runs longer."""
    penstock = busy(("long", 5, "9h"), ("short", 5, "2h"), nodes=2)
    penstock.hears(submitted("a", gpus=1, run="30m"), at="10:00")
    assert node_of(penstock, "a") == node_of(penstock, "short")


def test_an_empty_node_stays_empty_while_another_has_room() -> None:
    penstock = busy(("short", 5, "1h"), nodes=2)
    penstock.hears(submitted("a", gpus=3, run="20h"), at="09:30")
    assert node_of(penstock, "a") == node_of(penstock, "short")
    penstock.hears(submitted("b", gpus=3, run="20h"), at="09:30")
    assert penstock.why("b") == EndsAlike(0, free_gpus=8, expected_run_ms=20 * HOUR, busy_ms=0)


def test_whole_nodes_are_taken_as_they_come_and_the_rest_where_ends_are_alike() -> None:
    penstock = busy(("long", 5, "9h"), ("short", 5, "2h"), nodes=3)
    penstock.hears(submitted("wide", gpus=11, run="1h"), at="09:00")
    promise = penstock.promise(StartPromised)
    assert promise.slots == ((2, 8), (node_of(penstock, "short"), 3))


# --- when it can start -----------------------------------------------------------------------------------------------


def test_a_job_bursts_at_once_if_it_would_not_start_in_time() -> None:
    """$8 at $4 an hour buy two hours, and the GPUs come free in two and a half."""
    penstock = busy(("a", 8, "3h"))
    assert penstock.hears(submitted("b", run="1h"), at="09:30")
    assert penstock.why("b") == NotWorthWaiting(0, usd("8"), usd("4"), 2 * HOUR, 150 * MINUTE, HOUR, "", 0)


def test_a_job_that_would_start_in_time_waits() -> None:
    penstock = busy(("a", 8, "3h"))
    assert penstock.hears(submitted("b", run="1h"), at="10:30") == []
    assert penstock.why("b") == waits(90 * MINUTE)
    assert penstock.hears(ended("a.1"), at="12:00") == [start("b.1", on="lab")]


def test_who_is_asked_again_is_told_what_is_true_then() -> None:
    penstock = busy(("a", 8, "3h"))
    penstock.hears(submitted("b", run="1h"), at="10:30")
    penstock.hears(lambda at: Paused(at, "p1"), at="10:40")
    penstock.hears(lambda at: Resumed(at, "p1"), at="11:00")
    assert penstock.why("b") == waits(HOUR)


def test_those_before_it_run_first() -> None:
    """At 12:00 it is the turn of `b`, for an hour: a minute too long for `c`, and just in time for `d`."""
    penstock = busy(("a", 8, "3h"))
    penstock.hears(submitted("b", run="1h"), at="10:30")
    penstock.hears(submitted("c", run="1h"), at="10:59")
    assert penstock.why("c") == NotWorthWaiting(0, usd("8"), usd("4"), 2 * HOUR, 121 * MINUTE, HOUR, "", 0)
    penstock.hears(submitted("d", run="1h"), at="11:00")
    assert penstock.why("d") == waits(2 * HOUR, ahead=1, gaps_ms=HOUR)


def test_no_start_is_forecast_before_the_soonest() -> None:
    """GPUs for both come free at 12:00, and `b` has them until 13:00. The forecast was 12:00."""
    penstock = busy(("a", 8, "3h"))
    penstock.hears(submitted("b", run="1h"), at="10:30")
    penstock.hears(submitted("c", run="1h"), at="11:00")
    assert penstock.story("c")[-1] == (
        "Queued for up to 2 h, until day 1, 13:00: 0 GPUs free, 1 job ahead. Its start is expected in about 2 h. "
        "Bursting now costs about $8.00 for 1 h; an hour of its delay costs $4.00, so 2 h of delay cost as much."
    )
    promised = penstock.promise(WaitPromised)
    assert (promised.about_ms, promised.worst_ms) == (2 * HOUR, 5 * HOUR)


def test_those_whose_turn_is_later_run_later() -> None:
    """One of higher priority starts as if nobody waited: none is ahead of it. It was told that `b` is."""
    penstock = busy(("a", 8, "3h"))
    penstock.hears(submitted("b", run="1h"), at="10:30")
    penstock.hears(submitted("first", run="1h", priority=1), at="10:59")
    assert penstock.why("first") == waits(61 * MINUTE, ahead=0)


def test_a_wide_one_is_overtaken_by_those_who_fit_where_it_does_not() -> None:
    """`b` has the later turn, and takes the node that comes free at 11:00, for nine hours."""
    penstock = busy(("a", 8, "2h"), ("long", 8, "5h"), nodes=2, value="0.5")
    penstock.hears(submitted("b", gpus=8, run="9h"), at="09:00")
    penstock.hears(submitted("wide", gpus=16, run="9h", priority=1), at="09:00")
    day = {"cost": usd("144"), "value_per_hour": usd("0.5"), "patience_ms": DAY, "expected_run_ms": 9 * HOUR}
    assert penstock.why("wide") == waits(11 * HOUR, gaps_ms=5 * HOUR, **day)


def test_small_ones_that_wait_behind_a_wide_one_take_what_it_cannot_use() -> None:
    """Two nodes: at 11:00 five GPUs come free, too few for the wide one, which starts at 14:00."""
    penstock = busy(("a", 5, "2h"), ("b", 5, "5h"), nodes=2, value="0.5")
    penstock.hears(submitted("wide", gpus=16, run="9h"), at="09:00")
    day = {"cost": usd("144"), "value_per_hour": usd("0.5"), "patience_ms": DAY, "expected_run_ms": 9 * HOUR}
    assert penstock.why("wide") == waits(5 * HOUR, free_gpus=6, **day)
    penstock.hears(submitted("small", gpus=4, run="1h"), at="09:00")
    assert penstock.why("small") == waits(
        2 * HOUR, cost=usd("8"), value_per_hour=usd("0.5"), patience_ms=16 * HOUR, free_gpus=6
    )


def test_who_will_have_left_by_then_is_not_in_the_way() -> None:
    """`a` runs longer than it said, and one more hour is all that is known; `b` will have burst before that."""
    penstock = busy(("a", 8, "3h"))
    penstock.hears(submitted("b", run="1h"), at="10:30")
    penstock.hears(submitted("c", run="1h"), at="12:10")
    assert penstock.why("c") == waits(HOUR, ahead=1)
    penstock.hears(nothing, at="12:30")
    assert penstock.why("b") == NotWorthWaiting(2 * HOUR, usd("8"), usd("4"), 2 * HOUR, HOUR, HOUR, "", 0)


def test_one_that_has_several_nodes_ends_once() -> None:
    penstock = busy(("a", 16, "3h"), nodes=2)
    penstock.hears(submitted("b", gpus=16, run="2h"), at="11:00")
    penstock.hears(submitted("c", gpus=8, run="2h"), at="11:00")
    assert penstock.why("b") == waits(HOUR, cost=usd("32"), patience_ms=8 * HOUR, expected_run_ms=2 * HOUR)
    assert penstock.why("c") == waits(
        3 * HOUR, cost=usd("16"), patience_ms=4 * HOUR, expected_run_ms=2 * HOUR, gaps_ms=HOUR
    )


def test_with_very_many_waiting_history_is_asked_instead() -> None:
    """Nobody had to wait before, so it knows of no gap; played through, they would be told three hours."""
    penstock = busy(("a", 8, "3h"), value="0.001")
    penstock.hears(submitted("many", gpus=1, run="1h", count=501), at="09:00")
    numbers = {"value_per_hour": usd("0.001"), "patience_ms": DAY, "gaps_ms": 3 * HOUR}
    promised = [event for event in penstock.promises if isinstance(event, WaitPromised)]
    assert [wait.because for wait in promised] == [waits(0, ahead=k, **numbers) for k in range(501)]
