"""What else the policy weighs: deadlines, teams, those who cannot leave, losses, and a month's money."""

from dataclasses import replace
from typing import Any

from penstock.core.fold import learned
from penstock.core.model.events import ReservePromised, StartPromised, ValueSet, WaitPromised
from penstock.core.model.reasons import AimsAtDelay, AimsAtSpend, OnlyOwned, Paced, WaitedLongest, WaitWorth
from penstock.core.model.types import Waiting
from penstock.core.units import DAY, HOUR, MINUTE
from penstock.core.units import money as usd
from tests.stories.kit import (
    Penstock,
    Told,
    cap,
    clock,
    data,
    ended,
    given,
    gone,
    launch,
    lost,
    node_lost,
    nothing,
    offer,
    policy,
    ready,
    site,
    start,
    started,
    submitted,
)


def ours(value: str, **more: Any) -> Told:
    waiting = Waiting("worth", value_per_hour=usd(value), **more.pop("waiting", {}))
    return policy(waiting=waiting, packing="best_fit", estimator="life_table", **{"ordering": "fair", **more})


def promises(penstock: Penstock, kind: type) -> list[Any]:
    return [event for step in penstock.steps for event in step.outputs if isinstance(event, kind)]


def waits(penstock: Penstock, job: str) -> Any:
    return [event for event in promises(penstock, WaitPromised) if event.job == job][-1]


def full_lab(*more: Told, value: str = "4", **policy_more: Any) -> Penstock:
    """One node, and `a` has it for two days."""
    penstock = given(site("lab"), offer("cloud", start="10m"), ours(value, **policy_more), *more)
    penstock.hears(submitted("a", run="48h"), at="08:00")
    penstock.hears(started("a.1"), at="08:00")
    return penstock


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_deadline_pulls_a_job_out_early() -> None:
    """$9.33 at $1 an hour would buy nine hours and more; an hour to run, ten minutes to start: 10:50 is the latest."""
    penstock = full_lab(value="1")
    penstock.hears(submitted("b", run="1h", deadline_at=clock("12:00")), at="09:00")
    wait = waits(penstock, "b")
    assert wait.until_at == clock("10:50")
    patience, about = 110 * MINUTE, 47 * HOUR  # by how long `a` is expected to run
    cost = usd("9.333334")
    assert wait.because == WaitWorth(
        cost, usd("1"), patience, HOUR, 0, 0, 0, about_ms=about, worst_ms=5 * about, leave_at=clock("10:50")
    )
    assert penstock.hears(nothing, at="10:50") == [launch("b.1/n0", at="cloud")]
    assert penstock.story("b")[-1] == (
        "Bursts to cloud with 8 GPUs. Owned GPUs were full; it was queued for 1 h 50 min. It costs about $9.33 for "
        "1 h; an hour of its delay costs $1.00, so 9 h 20 min of delay cost as much; it may wait 1 h 50 min. To "
        "meet its deadline it had to burst by day 1, 10:50. $96.27 is held, enough to run until day 1, 22:50 and "
        "to stop."
    )


def test_a_deadline_that_cannot_be_met_any_more_costs_nothing_extra() -> None:
    penstock = full_lab(value="1")
    penstock.hears(submitted("b", run="1h", deadline_at=clock("09:30")), at="09:00")
    assert waits(penstock, "b").until_at == clock("09:00") + usd("9.333334") * HOUR // usd("1")


def test_an_hour_late_adds_its_penalty_to_what_waiting_is_worth() -> None:
    """In time until 09:50; of $9.33, 50 minutes at $1 are used by then, and the rest buys time at $1 + $16 an hour."""
    penstock = full_lab(value="1")
    penstock.hears(submitted("b", run="1h", deadline_at=clock("11:00"), penalty_per_hour=usd("16")), at="09:00")
    late = (usd("9.333334") * HOUR - usd("1") * 50 * MINUTE) // usd("17")
    assert waits(penstock, "b").until_at == clock("09:50") + late


def test_a_deadline_far_away_changes_nothing() -> None:
    penstock = full_lab()
    penstock.hears(submitted("b", run="1h", deadline_at=clock("day 9, 09:00")), at="09:00")
    assert waits(penstock, "b").until_at == clock("09:00") + usd("9.333334") * HOUR // usd("4")


# --- teams -----------------------------------------------------------------------------------------------------------


def two_teams(**more: Any) -> Penstock:
    """Red had the node all morning; then one of red and one of blue wait, red first."""
    penstock = given(site("lab"), offer("cloud"), ours("0.01", **more))
    penstock.hears(submitted("a", run="4h", team="red"), at="08:00")
    penstock.hears(started("a.1"), at="08:00")
    penstock.hears(submitted("b", run="1h", team="red"), at="09:00")
    penstock.hears(submitted("c", run="1h", team="blue"), at="10:00")
    return penstock


def test_who_had_least_is_next() -> None:
    assert two_teams().hears(ended("a.1"), at="12:00") == [start("c.1", on="lab")]


def test_a_heavier_team_may_have_more() -> None:
    """Blue had nothing, so it is next whatever red weighs; then red had 32 GPU-hours for ten, blue 8 for one."""
    penstock = two_teams(shares=(("red", 10_000),))
    penstock.hears(ended("a.1"), at="12:00")
    penstock.hears(started("c.1"), at="12:00")
    penstock.hears(submitted("d", run="1h", team="blue"), at="12:30")
    assert penstock.hears(ended("c.1"), at="13:00") == [start("b.1", on="lab")]


def test_priority_goes_before_fairness() -> None:
    penstock = two_teams()
    penstock.hears(submitted("urgent", run="1h", team="red", priority=1), at="11:00")
    assert penstock.hears(ended("a.1"), at="12:00") == [start("urgent.1", on="lab")]


def test_only_those_whose_turn_is_before_it_are_ahead_of_a_job() -> None:
    """Blue had less than red: `b`, which came first, is behind `c`. All who wait for the same GPUs were counted."""
    penstock = two_teams()
    assert (waits(penstock, "b").because.ahead, waits(penstock, "c").because.ahead) == (0, 0)
    penstock.hears(submitted("d", run="1h", team="red"), at="11:00")
    penstock.hears(submitted("urgent", run="1h", team="red", priority=1), at="11:00")
    penstock.hears(submitted("e", run="1h", team="blue"), at="11:30")
    ahead = [waits(penstock, job).because.ahead for job in ("d", "urgent", "e")]
    assert ahead == [2, 0, 2]  # c and b; nobody; urgent and c


def test_a_switch_to_fair_share_counts_what_runs() -> None:
    """Switched at 08:00, red's use counts from then on as if it had always been fair share. It did not: jobs that ran
    at the switch were not counted, and when they ended their team had fewer than no GPUs.
    """
    penstock = given(site("lab"), offer("cloud"), ours("0.01", ordering="priority"))
    penstock.hears(submitted("a", run="4h", team="red"), at="08:00")
    penstock.hears(started("a.1"), ours("0.01"), at="08:00")
    penstock.hears(submitted("b", run="1h", team="red"), at="09:00")
    penstock.hears(submitted("c", run="1h", team="blue"), at="10:00")
    assert penstock.hears(ended("a.1"), at="12:00") == [start("c.1", on="lab")]


def test_what_a_team_had_long_ago_fades() -> None:
    """Red had 32 GPU-hours ten days ago, of which 1/1024 is left; blue had 8 an hour ago."""
    penstock = given(site("lab"), offer("cloud"), ours("0.01"))
    answer: list[Any] = []
    for job, team, begins, ends in (
        ("a", "red", "08:00", "12:00"),
        ("b", "blue", "day 11, 10:00", "day 11, 11:00"),
        ("c", "green", "day 11, 11:00", "day 11, 12:00"),
    ):
        penstock.hears(submitted(job, run="1h", team=team), at=begins)
        penstock.hears(started(f"{job}.1"), at=begins)
        if job == "c":
            penstock.hears(submitted("d", run="1h", team="blue"), at="day 11, 11:10")
            penstock.hears(submitted("e", run="1h", team="red"), at="day 11, 11:20")
        answer = penstock.hears(ended(f"{job}.1"), at=ends)
    assert answer == [start("e.1", on="lab")]


# --- those who cannot leave ------------------------------------------------------------------------------------------


def one_that_must_stay(reserve: bool) -> Penstock:
    """Two nodes that small jobs always share; `wide` wants both, and its data may not leave."""
    penstock = given(
        site("lab", nodes=2),
        offer("cloud"),
        data("records", "lab"),
        ours("1", reserve=reserve, waiting={"most_ms": 4 * HOUR}),
    )
    for name in ("a", "b"):
        penstock.hears(submitted(name, run="5h"), at="08:00")
        penstock.hears(started(f"{name}.1"), at="08:00")
    penstock.hears(submitted("wide", gpus=16, run="1h", data=("records",)), at="08:30")
    return penstock


def test_for_a_job_that_waited_longest_and_cannot_leave_nodes_are_kept() -> None:
    penstock = one_that_must_stay(reserve=True)
    assert waits(penstock, "wide").because == OnlyOwned(0, "data class unknown may not go to cloud")
    assert penstock.wakes() == clock("12:30")
    penstock.hears(nothing, at="12:30")
    kept = penstock.promise(ReservePromised)
    assert (kept.job, kept.offer, kept.nodes) == ("wide", "lab", (0, 1))
    assert kept.because == WaitedLongest(4 * HOUR, 4 * HOUR, free_in_ms=30 * MINUTE)
    assert penstock.hears(ended("a.1"), at="13:00") == []
    assert penstock.hears(submitted("small", gpus=1, run="1h"), at="13:01") == [], "that node is kept"
    assert penstock.hears(ended("b.1"), at="13:10") == [start("wide.1", on="lab")]
    assert penstock.story("wide") == [
        "Submitted by default: 16 GPUs, expected to run 1 h.",
        "Queued for owned GPUs: 0 GPUs free. It cannot burst: data class unknown may not go to cloud.",
        (
            "Nodes 0, 1 of lab are reserved for it. It cannot burst and has been queued for 4 h; the limit is 4 h. The "
            "reserved nodes are expected to be free in 30 min."
        ),
        "Starts on lab with 16 GPUs. 16 GPUs were free after 4 h 40 min in the queue.",
    ]


def test_without_that_small_jobs_overtake_it_for_ever() -> None:
    penstock = one_that_must_stay(reserve=False)
    penstock.hears(nothing, at="12:30")
    penstock.hears(ended("a.1"), at="13:00")
    assert penstock.hears(submitted("small", gpus=1, run="1h"), at="13:01") == [start("small.1", on="lab")]


def test_a_kept_node_that_is_lost_is_replaced() -> None:
    penstock = given(site("lab", nodes=2), data("records", "lab"), ours("1", reserve=True, waiting={"most_ms": HOUR}))
    for name in ("a", "b"):
        penstock.hears(submitted(name, run="5h"), at="08:00")
        penstock.hears(started(f"{name}.1"), at="08:00")
    penstock.hears(submitted("c", run="1h", data=("records",)), at="08:30")
    penstock.hears(nothing, at="09:30")
    assert penstock.promise(ReservePromised).nodes == (0,)
    penstock.hears(node_lost("lab/0"), lost("a.1"), at="09:40")
    assert penstock.promise(ReservePromised).nodes == (1,)
    assert penstock.hears(ended("b.1"), at="13:00") == [start("c.1", on="lab")]


def test_a_reservation_ends_with_its_job() -> None:
    penstock = one_that_must_stay(reserve=True)
    penstock.hears(nothing, at="12:30")
    penstock.hears(ended("a.1"), at="13:00")
    penstock.hears(ended("b.1"), at="13:10")
    penstock.hears(started("wide.1"), at="13:10")
    assert penstock.engine.state.pools["lab"].kept == 0
    penstock.hears(ended("wide.1"), at="14:10")
    assert penstock.hears(submitted("small", gpus=1), at="14:11") == [start("small.1", on="lab")]


# --- losses ----------------------------------------------------------------------------------------------------------


def test_a_zone_that_loses_its_nodes_is_left_for_a_dearer_one() -> None:
    """Without checkpoints, ten hours of work at one loss in four hours are dearer on spot than on demand."""
    penstock = given(offer("spot", price="1", most="4", term="spot"), offer("sure", price="1.5"), ours("1"))
    for k in range(1, 5):
        penstock.hears(submitted(f"j{k}", run="10h", checkpoint=None), at=f"day {k}, 08:00")
        penstock.hears(ready(f"j{k}.1/n0"), at=f"day {k}, 08:00")
        penstock.hears(started(f"j{k}.1"), at=f"day {k}, 08:00")
        penstock.hears(node_lost(f"j{k}.1/n0"), lost(f"j{k}.1"), at=f"day {k}, 08:30")
    went = [event.offer for event in promises(penstock, StartPromised) if event.attempt.endswith(".1")]
    assert went == ["spot", "spot", "sure", "sure"]


def test_a_declared_loss_rate_is_believed_until_more_is_seen() -> None:
    losses = learned.Losses()
    assert losses.ppm_per_hour(50_000) == 50_000
    losses.saw(12 * HOUR, lost=False)
    assert losses.ppm_per_hour(50_000) == 25_000
    losses.saw(0, lost=True)
    assert losses.ppm_per_hour(0) == 1_000_000 // 24


# --- a month's money -------------------------------------------------------------------------------------------------


def test_a_cap_is_paced_over_the_month() -> None:
    """$1,000 for 30 days: $150 is released on the first, the rest evenly. A second burst of $80 waits for its share."""
    penstock = given(offer("cloud"), cap("team:default", "1000"), ours("1", pace=True))
    held = usd("80.266668")  # ten hours and the two minutes of grace, at $8
    first = submitted("a", run="10h", lease_max_ms="10h")
    assert penstock.hears(first, at="00:00") == [launch("a.1/n0", at="cloud")]
    assert penstock.held() == held
    assert penstock.hears(submitted("b", run="10h", lease_max_ms="10h"), at="00:00") == []
    wait = waits(penstock, "b")
    assert wait.because == Paced("team:default", "month 1", usd("1000"), usd("150"), held, usd("80"))
    assert wait.until_at == 11 * 30 * DAY // 1000, "when 161 of 1,000 are released"
    assert launch("b.1/n0", at="cloud") in penstock.hears(nothing, at="07:55:12")


def test_money_is_dearer_the_more_of_what_is_released_is_used() -> None:
    penstock = given(site("lab"), offer("cloud"), cap("team:default", "1000"), ours("4", pace=True))
    penstock.hears(submitted("a", run="48h"), at="00:00")
    penstock.hears(submitted("b", run="1h"), at="00:00")
    about = 48 * HOUR  # by how long `a` is expected to run
    usual = WaitWorth(usd("8"), usd("4"), 2 * HOUR, HOUR, 0, 0, 0, about_ms=about, worst_ms=5 * about)
    assert penstock.why("b") == usual
    penstock.hears(nothing, at="02:00")  # it bursts: twelve hours at $8 and two minutes are held
    penstock.hears(submitted("c", run="1h"), at="03:00")
    held = penstock.held()
    released = usd("1000") * (150 + 3 * HOUR * 1000 // (30 * DAY)) // 1000
    dearer = 1000 + 3 * (held * 1000 // released)
    assert dearer > 2000
    patience = usd("8") * dearer * HOUR // (1000 * usd("4"))
    assert penstock.why("c") == replace(usual, patience_ms=patience, dearer_permille=dearer)


def test_more_delay_than_wanted_makes_waiting_dearer() -> None:
    penstock = given(site("lab", nodes=20), offer("cloud"), ours("4", waiting={"target_delay_ms": 6 * MINUTE}))
    penstock.hears(*(submitted(f"j{k}", run="1h") for k in range(20)), at="08:00")
    penstock.hears(*(started(f"j{k}.1") for k in range(20)), at="08:30")
    penstock.hears(*(ended(f"j{k}.1") for k in range(20)), at="09:30")
    penstock.hears(submitted("next"), at="15:00")
    assert promises(penstock, ValueSet)[-1].because == AimsAtDelay(30 * MINUTE, 6 * MINUTE, 20, usd("4"))
    assert penstock.engine.state.value_per_hour == usd("5"), "by a quarter, and no more at once"


def test_the_review_of_a_target_comes_at_its_own_instant_and_not_when_somebody_wakes_the_engine() -> None:
    """It was due and no deadline named it: whoever happened to wake the engine next changed the cost of delay."""
    penstock = given(site("lab"), ours("4", waiting={"target_delay_ms": 6 * MINUTE}))
    penstock.hears(nothing, at="07:00")
    assert promises(penstock, ValueSet) == [], "there is nobody whose delay it could change"
    assert penstock.wakes() is None
    penstock.hears(submitted("a", run="20h"), at="08:00")
    assert penstock.wakes() == clock("14:00")
    penstock.hears(nothing, at="13:59")
    assert [event.at for event in promises(penstock, ValueSet)] == [clock("08:00")]
    penstock.hears(nothing, at="14:00")
    assert [event.at for event in promises(penstock, ValueSet)] == [clock("08:00"), clock("14:00")]


def test_more_spending_than_wanted_makes_waiting_cheaper() -> None:
    penstock = given(offer("cloud"), ours("4", waiting={"target_spend": usd("1")}))
    penstock.hears(submitted("a", run="1h"), at="01:00")
    penstock.hears(ready("a.1/n0"), at="01:00")
    penstock.hears(started("a.1"), at="01:00")
    penstock.hears(ended("a.1"), at="02:00")
    penstock.hears(gone("a.1/n0"), at="02:00")
    penstock.hears(submitted("next"), at="07:00")
    last = promises(penstock, ValueSet)[-1]
    share = usd("1") * 7 // (30 * 24)  # seven hours of the month
    assert last.because == AimsAtSpend(spent=usd("8"), share=share, target=usd("1"), before_per_hour=usd("4"))
    assert last.value_per_hour == usd("3.2")
