"""The policy `penstock`: wait while bursting costs more than the waiting is worth, come home, move together."""

from typing import Any

from penstock.core.decide.placement import may_move
from penstock.core.model.events import StartPromised, StopPromised, WaitPromised
from penstock.core.model.reasons import ComesHome, LostNode, MovesTogether, NotWorthWaiting, OwnedFree, WaitWorth
from penstock.core.model.types import Waiting
from penstock.core.units import DAY, HOUR, MINUTE
from penstock.core.units import money as usd
from tests.stories.kit import (
    Told,
    clock,
    data,
    ended,
    given,
    landed,
    lost,
    nothing,
    offer,
    policy,
    ready,
    rule,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
)


def ours(value: str, **more: Any) -> Told:
    waiting = Waiting("worth", value_per_hour=usd(value))
    return policy(waiting=waiting, packing="best_fit", estimator="life_table", home=True, defragment=True, **more)


def promises(penstock: Any, kind: type) -> list[Any]:
    return [event for step in penstock.steps for event in step.outputs if isinstance(event, kind)]


def test_a_job_waits_as_long_as_its_bill_would_buy() -> None:
    """$8 for the hour at $4 an hour of waiting: two hours, and not a minute more."""
    penstock = given(site("lab"), offer("cloud"), ours("4"))
    assert penstock.hears(submitted("a", run="9h"), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", run="1h"), at="09:30") == []
    (wait,) = promises(penstock, WaitPromised)
    assert wait.until_at == clock("11:30")
    about, worst = 9 * HOUR, 45 * HOUR  # nobody waited before: by how long `a` is expected to run
    assert wait.because == WaitWorth(usd("8"), usd("4"), 2 * HOUR, HOUR, 0, 0, 0, about_ms=about, worst_ms=worst)
    penstock.hears(nothing, at="11:30")
    burst = promises(penstock, StartPromised)[-1]
    assert (burst.job, burst.offer) == ("b", "cloud")
    assert burst.because == NotWorthWaiting(2 * HOUR, usd("8"), usd("4"), 2 * HOUR, 0, HOUR, "", 0)


def test_who_waits_first_is_told_by_what_is_expected_of_those_who_run() -> None:
    """Before anybody had to wait there is no gap between starts to go by."""
    penstock = given(site("lab", nodes=2), offer("cloud"), ours("0.01"))
    for name, gpus, run in (("a", 6, "9h"), ("b", 2, "3h"), ("c", 4, "2h"), ("d", 4, "5h")):
        penstock.hears(submitted(name, gpus=gpus, run=run), at="09:00")
        penstock.hears(started(f"{name}.1"), at="09:00")
    lies = {attempt.job.id: attempt.slots[0][0] for attempt in penstock.engine.state.attempts.values()}
    assert lies == {"a": 0, "b": 0, "c": 1, "d": 1}
    for name, gpus, hours, cost in (
        ("four", 4, 1, "8"),
        ("six", 6, 4, "8"),
        ("whole", 8, 4, "8"),
        ("both", 16, 8, "16"),
    ):
        penstock.hears(submitted(name, gpus=gpus, run="1h"), at="10:00")
        about, worst = hours * HOUR, 5 * hours * HOUR
        assert penstock.why(name) == WaitWorth(
            usd(cost), usd("0.01"), DAY, HOUR, 0, 0, 0, about_ms=about, worst_ms=worst
        )


def test_who_waits_first_for_one_of_two_clusters_is_told_of_the_one_that_comes_free_sooner() -> None:
    penstock = given(site("lab"), site("annex"), offer("cloud"), ours("0.01"))
    for name, run in (("a", "9h"), ("b", "3h")):
        penstock.hears(submitted(name, run=run), at="09:00")
        penstock.hears(started(f"{name}.1"), at="09:00")
    penstock.hears(submitted("c", run="1h"), at="10:00")
    assert penstock.why("c") == WaitWorth(
        usd("8"), usd("0.01"), DAY, HOUR, 0, 0, 0, about_ms=2 * HOUR, worst_ms=10 * HOUR
    )


def test_a_dear_hour_of_waiting_bursts_at_once() -> None:
    penstock = given(site("lab"), offer("cloud"), ours("1000000"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(submitted("b", run="1h"), at="09:00:30")
    penstock.hears(nothing, at="09:00:31")
    assert [(e.job, e.offer) for e in promises(penstock, StartPromised)] == [("a", "lab"), ("b", "cloud")]


def test_nobody_waits_longer_than_a_day_however_cheap_waiting_is() -> None:
    penstock = given(site("lab"), offer("cloud"), ours("0.01"))
    penstock.hears(submitted("a", run="900h"), at="09:00")
    penstock.hears(submitted("b", run="100h"), at="09:00")
    assert promises(penstock, WaitPromised)[-1].until_at == clock("day 2, 09:00")


def test_a_class_whose_waiting_is_worth_more_waits_less() -> None:
    penstock = given(site("lab"), offer("cloud"), ours("4", class_weights=(("critical", 4000),)))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(submitted("b", run="1h", job_class="critical"), at="09:00")
    assert promises(penstock, WaitPromised)[-1].until_at == clock("09:30")


def test_a_small_job_starts_while_a_wide_one_waits_for_whole_nodes() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud"), ours("1"))
    penstock.hears(submitted("a", gpus=8, run="9h"), at="09:00")
    assert penstock.hears(submitted("wide", gpus=16, run="9h"), at="09:01") == []
    assert penstock.hears(submitted("small", gpus=1, run="9h"), at="09:02") == [start("small.1", on="lab")]


def burst_with_room_at_home(checkpoint: str | None = "15m") -> Any:
    """`a` has the lab; `b` bursts, runs for an hour in the cloud, and has nine more to go."""
    penstock = given(site("lab"), offer("cloud"), ours("100"))
    penstock.hears(submitted("a", run="3h"), at="08:00")
    penstock.hears(started("a.1"), at="08:00")
    penstock.hears(submitted("b", run="10h", checkpoint=checkpoint, restart_ms="5m"), at="08:00")
    penstock.hears(nothing, at="08:48")
    penstock.hears(ready("b.1/n0"), at="08:48")
    penstock.hears(started("b.1"), at="08:48")
    return penstock


def test_a_checkpointed_job_comes_home_when_what_is_left_costs_more_than_the_move() -> None:
    penstock = burst_with_room_at_home()
    assert penstock.hears(ended("a.1"), at="10:50") == [stop("b.1")]
    home = promises(penstock, StartPromised)[-1]
    assert (home.job, home.offer, home.after) == ("b", "lab", ("b.1",))
    left = 10 * HOUR - 122 * MINUTE
    move = 5 * MINUTE + 2 * MINUTE  # the restart, and what was done since the checkpoint at 10:48
    assert home.because == ComesHome(left, usd("8") * left // HOUR + 1, move, usd("100") * move // HOUR)
    again = penstock.hears(stopped("b.1", kept="120m"), at="10:50:10")
    assert start("b.2", on="lab", resume_ms=120 * MINUTE) in again


def test_a_job_without_checkpoints_stays_where_it_is() -> None:
    penstock = burst_with_room_at_home(checkpoint=None)
    penstock.hears(ended("a.1"), at="10:50")
    assert promises(penstock, StopPromised) == []


def test_a_job_nearly_done_does_not_come_home() -> None:
    penstock = burst_with_room_at_home()
    penstock.hears(ended("a.1"), at="18:30")
    assert promises(penstock, StopPromised) == []


def test_a_job_that_just_moved_stays() -> None:
    """Hysteresis: half an hour, or ten times what a restart takes."""
    penstock = burst_with_room_at_home()
    penstock.hears(ended("a.1"), at="10:50")
    penstock.hears(stopped("b.1", kept="120m"), at="10:50:10")
    job = penstock.engine.state.jobs["b"]
    assert not may_move(penstock.engine.state, job, clock("11:39"))
    assert may_move(penstock.engine.state, job, clock("11:41"))


def in_pieces() -> Any:
    """Two nodes; when `x` has ended, 5 and 6 GPUs are free: a job of 7 would fit into that, but not as it lies."""
    penstock = given(site("lab", nodes=2), offer("cloud"), ours("1"))
    for name, gpus in (("a", 3), ("x", 5), ("c", 2)):
        penstock.hears(submitted(name, gpus=gpus, run="50h", restart_ms="5m"), at="08:00")
        penstock.hears(started(f"{name}.1"), at="08:00")
    return penstock


def test_small_jobs_move_together_so_that_a_wide_one_fits() -> None:
    penstock = in_pieces()
    lies = {attempt.job.id: attempt.slots for attempt in penstock.engine.state.attempts.values()}
    assert lies == {"a": ((0, 3),), "x": ((0, 5),), "c": ((1, 2),)}
    penstock.hears(submitted("wide", gpus=7, run="20h"), at="08:01")
    actions = penstock.hears(ended("x.1"), at="10:00")
    moved = promises(penstock, StopPromised)
    # $160 for 20 hours of a rented node; the move costs five minutes of restart, at $8 and half of $1 an hour.
    together = MovesTogether("wide", 7, gains=usd("160"), costs=usd("8.5") * 5 // 60)
    assert moved == [StopPromised(clock("10:00"), "c.1", "move", yields=True, because=together)]
    assert actions == [stop("c.1")]
    wide = promises(penstock, StartPromised)[-1]
    assert (wide.job, wide.slots, wide.after) == ("wide", ((1, 7),), ("c.1",))
    assert wide.because == OwnedFree(119 * MINUTE, free_gpus=11)


def test_nobody_starts_before_who_makes_room_is_gone() -> None:
    penstock = in_pieces()
    penstock.hears(submitted("wide", gpus=7, run="20h"), at="08:01")
    penstock.hears(ended("x.1"), at="10:00")
    moved = promises(penstock, StopPromised)[0].attempt
    actions = penstock.hears(stopped(moved, kept="120m"), at="10:00:20")
    assert sorted(action.attempt for action in actions) == sorted([f"{moved[0]}.2", "wide.1"])


def test_a_move_that_costs_more_than_it_gains_is_not_made() -> None:
    penstock = in_pieces()
    penstock.hears(submitted("wide", gpus=7, run="1m"), at="08:01")
    penstock.hears(ended("x.1"), at="08:01:10")
    assert promises(penstock, StopPromised) == []


# --- nobody is later than a day --------------------------------------------------------------------------------------


def spot_and_on_demand(*more: Told) -> Any:
    """`a` has the lab for weeks. Spot is a quarter of the price, and lost every ten hours."""
    spot = offer("spot", price="0.25", most="1", term="spot", loss_ppm_per_hour=100_000)
    penstock = given(site("lab"), spot, offer("cloud"), ours("0.01"), *more)
    penstock.hears(submitted("a", run="900h", checkpoint=None), at="09:00")
    return penstock


def test_who_may_be_lost_afterwards_waits_less_so_that_all_of_it_is_a_day() -> None:
    """Ten losses are expected of 100 hours, hardly more than 16; each costs a restart and a checkpoint's work."""
    penstock = spot_and_on_demand()
    penstock.hears(submitted("short", run="1h"), at="09:00")
    penstock.hears(submitted("long", run="100h", restart_ms="5m"), at="09:00")
    waits = {wait.job: wait.until_at for wait in promises(penstock, WaitPromised)}
    assert waits["short"] == clock("day 2, 09:00")
    assert waits["long"] == clock("day 2, 10:00") - 16_324 * 20 * MINUTE // 1000


def test_who_is_late_already_goes_where_it_cannot_be_lost_again() -> None:
    penstock = spot_and_on_demand()
    penstock.hears(submitted("b", run="40h", restart_ms="5m"), at="09:00")
    leaves = promises(penstock, WaitPromised)[-1].until_at
    assert leaves > clock("day 2, 06:00")
    penstock.takes(nothing(leaves))
    assert promises(penstock, StartPromised)[-1].offer == "spot"
    penstock.hears(ready("b.1/n0"), at="day 2, 09:00")
    penstock.hears(started("b.1"), at="day 2, 09:00")
    penstock.hears(lost("b.1", kept="0s"), at="day 2, 10:00")
    again = promises(penstock, StartPromised)[-1]
    assert (again.offer, again.because) == ("cloud", LostNode("b.1", 0, HOUR, usd("320"), passed_over="spot"))
    assert penstock.story("b")[-1] == (
        "Bursts to cloud with 8 GPUs. Resumes after b.1 was preempted: 0 s of work kept, 1 h repeated. It costs "
        "about $320.00 to the end. spot is cheaper, but preemptions or copies there could delay it beyond the limit. "
        "$96.27 is held, enough to run until day 2, 22:00 and to stop."
    )


def test_a_place_that_has_the_data_is_worth_more_than_one_that_has_not() -> None:
    """A terabyte took five hours; rented nodes stand still for it meanwhile, and are paid for."""
    may_go = ours("1000", data_rules=(rule("open", "*"),))
    terabyte = data("set", at_site="lab", data_class="open", gb=1000)
    penstock = given(site("lab"), offer("near", price="1.1"), offer("far"), may_go, terabyte)
    penstock.hears(submitted("first", run="900h", checkpoint=None), at="08:00")
    penstock.hears(submitted("b", run="1h", data=("set",)), at="09:00")
    penstock.hears(nothing, at="09:01")
    assert promises(penstock, StartPromised)[-1].offer == "far"  # nothing is known of the line yet
    penstock.hears(landed("set", "far"), at="14:01")
    penstock.hears(submitted("c", run="1h", data=("set",)), at="15:00")
    penstock.hears(nothing, at="15:01")
    assert promises(penstock, StartPromised)[-1].offer == "far"
    near = usd("52.8")  # an hour, and five of standing still
    assert penstock.why("c") == NotWorthWaiting(MINUTE, usd("8"), usd("1000"), 28_800, 0, HOUR, "near", near)
