"""Rent that cannot buy progress: nothing is rented for a job whose lease would end before its first checkpoint, and not
for ever for one whose attempts are lost before they have kept any work.
"""

from penstock.core.model.events import RetryPromised, StopPromised, WaitPromised
from penstock.core.model.reasons import CapBinds
from penstock.core.units import HOUR, MINUTE
from tests.stories.kit import (
    Penstock,
    cap,
    clock,
    given,
    gone,
    launch,
    lost,
    node_lost,
    nothing,
    offer,
    policy,
    ready,
    started,
    stopped,
    submitted,
    usd,
)
from tests.stories.kit import month as opens

NEXT_MONTH = "day 31, 00:00"


def a_team_with(amount: str, **more: str | None) -> Penstock:
    """A GPU-hour costs $1. A node of 8 starts in 10 minutes; the job's first checkpoint takes 2 hours."""
    penstock = given(offer("cloud", start="10m"), policy(), cap("team:default", amount), opens(1), opens(2), opens(3))
    penstock.hears(submitted("a", run="20h", **{"checkpoint": "2h", **more}), at="09:00")  # type: ignore[arg-type]
    return penstock


def test_a_budget_that_cannot_buy_the_first_checkpoint_rents_nothing() -> None:
    """2 h 12 min and the grace of 2 minutes cost $17.87; before, $17 were spent in each month, and nothing was kept."""
    penstock = a_team_with("17")
    denied = CapBinds("team:default", "month 1", usd("17"), 0, 0, usd("17.866668"), useful_ms=132 * MINUTE)
    assert penstock.promises == [
        WaitPromised(clock("09:00"), "a", penstock.promise(WaitPromised).until_at, denied, scope="team:default")
    ]
    assert penstock.story("a")[-1] == (
        "Budget reached: team:default may spend $17.00 in month 1; $0.00 is spent, $0.00 is held, and this needs "
        "$17.87 for the 2 h 12 min until its next checkpoint."
    )
    assert penstock.wakes() == clock(NEXT_MONTH), "nothing can change before"
    assert penstock.hears(nothing, at=NEXT_MONTH) == []
    assert penstock.wakes() == clock("day 61, 00:00")


def test_a_budget_that_can_buy_it_rents_for_that_long() -> None:
    penstock = a_team_with("18")
    assert penstock.until("a.1/n0") == clock("11:12")


def test_it_starts_when_the_budget_is_raised() -> None:
    penstock = a_team_with("17")
    assert penstock.hears(cap("team:default", "18"), at="10:00") == [launch("a.1/n0", at="cloud")]


# --- attempts that keep nothing --------------------------------------------------------------------------------------


def lose_in_turn(penstock: Penstock, numbers: range, hours: int, kept: str = "0s") -> list[str]:
    """Each of these attempts runs for three hours and is lost; how long the next one is away."""
    pauses = []
    for number in numbers:
        at = hours + 4 * (number - 1)
        day, hour = 1 + at // 24, at % 24
        penstock.hears(ready(f"a.{number}/n0"), at=f"day {day}, {hour:02}:01")
        penstock.hears(started(f"a.{number}"), at=f"day {day}, {hour:02}:01")
        penstock.hears(lost(f"a.{number}", kept), node_lost(f"a.{number}/n0"), at=f"day {day}, {(hour + 3):02}:01")
        retries = [event for event in penstock.promises if isinstance(event, RetryPromised)]
        pauses += [f"{(event.retry_at - event.at) // MINUTE} min" for event in retries] or ["none"]
    return pauses


def test_an_offer_where_one_attempt_after_the_other_keeps_nothing_is_left_for_longer_and_longer() -> None:
    """A job of 20 hours without checkpoints on spot nodes that live for three: it was started again each time at once,
    213 times in a row, and paid for each.
    """
    penstock = given(offer("cloud", term="spot", most="9", price="1"), policy("0s"))
    penstock.hears(submitted("a", run="20h", checkpoint=None), at="00:00")
    assert lose_in_turn(penstock, range(1, 6), 0) == ["none"] * 5, "that may be bad luck"
    assert lose_in_turn(penstock, range(6, 7), 0) == ["15 min"]
    assert penstock.phase("a") == "waiting"
    assert penstock.hears(nothing, at="day 1, 23:15") == []
    assert penstock.hears(nothing, at="day 1, 23:16") == [launch("a.7/n0", at="cloud")]
    penstock.hears(ready("a.7/n0"), at="day 1, 23:20")
    penstock.hears(started("a.7"), at="day 1, 23:20")
    penstock.hears(lost("a.7"), node_lost("a.7/n0"), at="day 2, 02:20")
    assert penstock.promise(RetryPromised).retry_at == clock("day 2, 02:50"), "twice as long"
    told = "Ended at cloud after 3 h 4 min before any work was kept, 7 times in a row."
    assert any(line.startswith(told) for line in penstock.story("a")[-3:])


def test_work_that_is_kept_starts_the_count_anew() -> None:
    penstock = given(offer("cloud", term="spot", most="9", price="1"), policy("0s"))
    penstock.hears(submitted("a", run="20h", checkpoint=None), at="00:00")
    lose_in_turn(penstock, range(1, 6), 0)
    assert lose_in_turn(penstock, range(6, 7), 0, kept="1h") == ["none"]
    assert penstock.engine.state.jobs["a"].in_vain is None


def test_a_lease_that_is_never_renewed_and_too_short_is_not_rented_for_ever() -> None:
    """Each lease of two hours ended before a job of six had kept anything, and the next began a minute later."""
    penstock = given(offer("cloud", price="1", renewable=False), policy("0s"))
    penstock.hears(submitted("a", run="6h", checkpoint=None, lease_max_ms=2 * HOUR), at="00:00")
    for number in range(1, 7):
        opened = penstock.engine.state.at
        for fact in (ready(f"a.{number}/n0"), started(f"a.{number}")):
            penstock.takes(fact(opened))
        stops_at = penstock.wakes()
        assert stops_at is not None
        penstock.takes(nothing(stops_at))
        assert penstock.promise(StopPromised).attempt == f"a.{number}"
        penstock.takes(stopped(f"a.{number}")(stops_at), gone(f"a.{number}/n0")(stops_at))
    assert penstock.promise(RetryPromised).because.failures == 6
    assert penstock.promise(RetryPromised).retry_at == penstock.engine.state.at + 15 * MINUTE
