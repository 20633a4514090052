"""Budgets that cannot buy progress: nothing is rented for a job whose lease would end before its first checkpoint."""

from penstock.core.model.events import WaitPromised
from penstock.core.model.reasons import CapBinds
from penstock.core.units import MINUTE
from tests.stories.kit import Penstock, cap, clock, given, launch, nothing, offer, policy, submitted, usd
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
