"""Warm nodes: rented before a job asks for them, on a budget of their own, and taken over by the job that uses one."""

from dataclasses import replace
from typing import Any

from penstock.core.engine import Engine, replay
from penstock.core.model import events as e
from penstock.core.model.governance import DenyRule, Governance
from penstock.core.model.reasons import CapBinds, KeptWarm, NothingAllowed, TakesWarmNode, WantedSoon, WarmEnds
from penstock.core.model.types import WarmPool
from penstock.core.units import HOUR, MINUTE, NEVER, money
from penstock.demo.observer import Observer
from penstock.policy import hours
from penstock.policy.rules import PolicyRules, with_shapes
from tests.stories.kit import (
    Extras,
    Penstock,
    Told,
    cap,
    clock,
    confirmed,
    ended,
    given,
    gone,
    launch,
    node_lost,
    node_notice,
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
    submitted,
)

DAYTIME = hours.window(8 * 60, 18 * 60)
PLATFORM = ("org", "team:platform")


def pool(price: str = "1", nodes: int = 1, always: bool = False, forecast: bool = False, **more: Any) -> Told:
    """A cloud of nodes of 8 GPUs that start in five minutes, with a pool of warm ones."""
    warm = WarmPool(nodes, 8, PLATFORM, None if always else DAYTIME, forecast, "sites.yaml:9")
    return offer("cloud", price=price, start="5m", warm=warm, **more)


def opened(at: str = "00:00", first: str = "08:00", last: str = "18:00") -> Told:
    """When the pool's hours are open, as `policy.hours` tells it."""
    return lambda _: e.HoursOpened(clock(at), DAYTIME.id, clock(first), clock(last))


def warmed(*undated: Told, **more: Any) -> Penstock:
    """It is 09:00, and the pool's node has been ready since 08:05."""
    penstock = given(pool(**more), opened(), *undated)
    assert penstock.wakes() == clock("08:00")
    assert penstock.hears(nothing, at="08:00") == [launch("cloud/w1", at="cloud", gpus=8, attempt="")]
    assert penstock.hears(ready("cloud/w1"), at="08:05") == []
    return penstock


# --- a pool's day ----------------------------------------------------------------------------------------------------


def test_a_pool_is_filled_when_its_hours_begin_with_money_of_its_budget() -> None:
    penstock = warmed()
    (promised,) = penstock.steps[1].outputs
    assert isinstance(promised, e.WarmPromised)
    assert promised.because == KeptWarm(1, 0, "team:platform", clock("18:00"), "sites.yaml:9")
    assert penstock.account("team:platform") == penstock.account("org") == (penstock.held(), 0)
    assert penstock.held() > money("8")
    assert penstock.until("cloud/w1") == clock("09:00")


def test_a_warm_nodes_lease_is_renewed_and_its_idle_time_charged_to_the_budget() -> None:
    penstock = warmed()
    assert penstock.wakes() == clock("08:45")
    assert penstock.hears(nothing, at="08:45") == [set_deadline("cloud/w1", until="09:45")]
    assert penstock.account("team:platform")[1] == money("6")


def test_a_job_takes_a_warm_node_starts_at_once_and_pays_from_then_on() -> None:
    penstock = warmed()
    actions = penstock.hears(submitted("a", team="red"), at="08:35")
    assert actions == [
        set_deadline("cloud/w1"),
        start("a.1", on="cloud", nodes=("cloud/w1",)),
        launch("cloud/w2", at="cloud", attempt=""),  # the pool is filled again
    ]
    assert isinstance(penstock.why("a"), TakesWarmNode)
    idle = 8 * money("35") // 60 + 1  # rounded up
    assert penstock.account("team:platform")[1] == idle
    assert penstock.account("team:red")[1] == 0
    penstock.hears(started("a.1"), confirmed("cloud/w1", penstock.until("cloud/w1")), at="08:35")
    penstock.hears(ready("cloud/w2"), at="08:40")
    assert penstock.hears(ended("a.1"), at="09:05") == [release("cloud/w1")]  # the pool has its node
    penstock.hears(gone("cloud/w1"), at="09:05")
    assert penstock.account("team:red") == (0, money("4"))  # half an hour
    told_later = penstock.story("a")
    assert told_later[1].startswith("Takes warm node cloud/w1 of cloud with 8 GPUs. A warm node was ready for 30 min.")
    assert told_later[-1].startswith("Settled: $4.00 charged in total")


def test_a_job_may_take_a_node_that_is_still_starting() -> None:
    penstock = given(pool(), opened())
    penstock.hears(nothing, at="08:00")
    actions = penstock.hears(submitted("a", team="red"), at="08:03")
    assert actions == [set_deadline("cloud/w1"), launch("cloud/w2", at="cloud", attempt="")]
    assert penstock.why("a").start_ms == 2 * MINUTE  # type: ignore[union-attr]
    assert penstock.hears(ready("cloud/w1"), at="08:05") == [start("a.1", on="cloud", nodes=("cloud/w1",))]


def test_owned_gpus_are_used_before_a_warm_node() -> None:
    penstock = warmed(site("lab", nodes=1))
    assert penstock.hears(submitted("a"), at="08:30") == [start("a.1", on="lab")]


def test_a_pool_keeps_the_node_that_a_job_leaves_instead_of_renting_one() -> None:
    """The second node is refused, so that the pool is short of one when the job ends."""
    penstock = warmed()
    penstock.hears(submitted("a", team="red"), at="08:20")
    penstock.hears(node_refused("cloud/w2", retry="2h"), started("a.1"), at="08:20")
    assert penstock.hears(ended("a.1"), at="09:20") == [set_deadline("cloud/w1")]
    kept = penstock.promise(e.PayerChanged)
    assert (kept.job, kept.hold.scopes, kept.because.has) == ("", PLATFORM, 0)
    assert penstock.account("team:red") == (0, money("8"))
    actions = penstock.hears(submitted("b", team="blue"), at="09:30")
    assert actions[:2] == [set_deadline("cloud/w1"), start("b.1", on="cloud", nodes=("cloud/w1",))]


def test_a_pool_is_empty_after_its_hours() -> None:
    penstock = warmed()
    penstock.hears(nothing, at="17:59")
    assert penstock.wakes() == clock("18:00")
    assert penstock.hears(nothing, at="18:00") == [release("cloud/w1")]
    assert penstock.promises[-1].because == WarmEnds(clock("18:00") - clock("08:05"), "hours")  # type: ignore[union-attr]
    penstock.hears(gone("cloud/w1"), at="18:01")
    assert penstock.held() == 0
    assert penstock.hears(nothing, at="20:00") == []


def test_a_node_is_kept_until_the_hour_ends_that_is_paid_for() -> None:
    """Billed by the hour, from 08:00 on: at 17:30 the hour until 18:00 is paid for."""
    warm = WarmPool(1, 8, PLATFORM, hours.window(8 * 60, 17 * 60 + 30))
    penstock = given(
        offer("cloud", start="5m", warm=warm, billing_step_ms=HOUR, kill_ms=2 * MINUTE),
        lambda _: e.HoursOpened(0, warm.hours.id, clock("08:00"), clock("17:30")),  # type: ignore[union-attr]
    )
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), at="08:05")
    assert release("cloud/w1") not in penstock.hears(nothing, at="17:30")
    assert penstock.wakes() == clock("17:58")
    assert penstock.hears(nothing, at="17:58") == [release("cloud/w1")]


def test_the_next_day_the_pool_is_filled_again() -> None:
    penstock = warmed()
    penstock.hears(nothing, at="18:00")
    penstock.hears(gone("cloud/w1"), at="18:01")
    penstock.hears(opened("18:01", "day 2, 08:00", "day 2, 18:00"), at="18:01")
    assert penstock.wakes() == clock("day 2, 08:00")
    assert penstock.hears(nothing, at="day 2, 08:00") == [launch("cloud/w2", at="cloud")]


# --- rules in CEL -----------------------------------------------------------------------------------------------------


def ruled(deny: str, revision: int = 2) -> Told:
    rules = (DenyRule("no-clouds", deny, "contracts", "policy.yaml:30"),) if deny else ()
    return policy(revision=revision, governance=with_shapes(Governance(version=1, rules=rules)))


def test_a_pool_rents_nothing_where_a_rule_denies_it_and_says_by_which_line() -> None:
    """The rule was asked only of the job that would take the node, hours after the pool had rented it."""
    penstock = given(pool(), opened(), ruled('site.name == "cloud" && offer.rented'))
    assert penstock.hears(nothing, at="08:00") == []
    forbidden = NothingAllowed("cloud", "rule no-clouds: contracts", "policy.yaml:30")
    assert penstock.promises == [e.WarmShort(clock("08:00"), "cloud", NEVER, forbidden)]
    assert penstock.hears(nothing, at="08:30") == []
    assert penstock.promises == []  # said once
    assert penstock.hears(ruled("", revision=3), at="08:31") == [launch("cloud/w1", at="cloud")]


def test_a_pool_is_asked_as_a_job_of_its_budgets_team_with_the_gpus_of_a_node() -> None:
    denied = given(pool(), opened(), ruled('job.team == "platform" && job.gpus == 8 && job.class == "training"'))
    assert denied.hears(nothing, at="08:00") == []
    allowed = given(pool(), opened(), ruled('job.team == "red" || job.gpus > 8'))
    assert allowed.hears(nothing, at="08:00") == [launch("cloud/w1", at="cloud")]


def test_a_rule_that_fails_denies_a_pool_as_it_denies_a_job() -> None:
    penstock = given(pool(), opened(), ruled("job.gpus / (job.gpus - 8) > 1"))
    assert penstock.hears(nothing, at="08:00") == []
    because = penstock.promise(e.WarmShort).because
    assert isinstance(because, NothingAllowed)
    assert because.rule.startswith("rule no-clouds failed (")


def test_warm_nodes_that_a_new_rule_denies_are_given_back_when_what_is_paid_for_ends() -> None:
    """Billed by the hour, from 08:00 on."""
    penstock = warmed(billing_step_ms=HOUR, kill_ms=2 * MINUTE)
    assert penstock.hears(ruled("offer.rented"), at="08:20") == []
    assert isinstance(penstock.promise(e.WarmShort).because, NothingAllowed)
    penstock.hears(nothing, at="08:45")  # its lease is renewed meanwhile
    assert penstock.wakes() == clock("08:58")
    assert penstock.hears(nothing, at="08:58") == [release("cloud/w1")]


def test_after_a_restart_a_denied_pool_is_known_to_be_denied() -> None:
    penstock = given(pool(), opened(), ruled("offer.rented"))
    penstock.hears(nothing, at="08:00")
    replayed = replay([(step.at, step.inputs, step.outputs) for step in penstock.steps], Engine(PolicyRules()))
    assert replayed.state.digest() == penstock.engine.state.digest()
    assert replayed.handle(e.Woke(clock("08:10"))).outputs == ()


# --- money -----------------------------------------------------------------------------------------------------------


def test_without_room_in_its_budget_a_pool_stays_empty_and_says_why() -> None:
    penstock = given(pool(), opened(), cap("team:platform", "1"))
    assert penstock.hears(nothing, at="08:00") == []
    short = penstock.promise(e.WarmShort)
    assert isinstance(short.because, CapBinds)
    assert (short.offer, short.because.scope, short.until_at) == ("cloud", "team:platform", clock("09:00"))
    assert penstock.hears(nothing, at="08:30") == []
    assert penstock.promises == []  # said once
    assert penstock.hears(cap("team:platform", "100"), at="08:31") == [launch("cloud/w1", at="cloud")]


def test_a_pool_shrinks_when_its_budget_is_spent() -> None:
    penstock = warmed(cap("team:platform", "14"))
    actions = penstock.hears(nothing, at="08:45")
    while actions != [release("cloud/w1")]:
        assert (penstock.wakes() or NEVER) < clock("10:30")
        actions = penstock.takes(e.Woke(penstock.wakes() or 0))
    assert penstock.kinds()[-2:] == ["ReleasePromised", "WarmShort"]
    penstock.takes(e.NodeGone(penstock.engine.state.at, "cloud/w1"))
    held, spent = penstock.account("team:platform")
    assert (held, spent <= money("14")) == (0, True)
    assert penstock.hears(nothing, at="11:00") == []  # what is left buys no lease


def test_a_lowered_cap_ends_warm_nodes_at_once() -> None:
    penstock = warmed()
    assert penstock.hears(cap("team:platform", "2"), at="08:30") == [set_deadline("cloud/w1"), release("cloud/w1")]
    assert penstock.promises[-2].because == WarmEnds(25 * MINUTE, "money")  # type: ignore[union-attr]


def test_a_job_whose_own_team_has_no_money_does_not_take_a_warm_node() -> None:
    penstock = warmed(cap("team:red", "1"))
    assert penstock.hears(submitted("a", team="red"), at="08:30") == []
    assert penstock.why("a").scope == "team:red"  # type: ignore[union-attr]
    assert list(penstock.engine.state.warm.nodes) == ["cloud/w1"]


def test_what_a_job_must_hold_counts_once_where_both_pay_from_one_cap() -> None:
    """$8 are held for the node until 09:00. With $4 for its idle time, as much again is more than $12.50."""
    penstock = warmed(cap("org", "12.50"))
    actions = penstock.hears(submitted("a", team="red"), at="08:30")
    assert actions[:2] == [set_deadline("cloud/w1"), start("a.1", on="cloud")]
    held, spent = penstock.account("org")
    assert held + spent <= money("12.50")


def test_the_launch_fee_of_a_warm_node_is_its_budgets() -> None:
    penstock = given(pool(extras=Extras(launch_fee=money("3"))), opened())
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), at="08:05")
    penstock.hears(submitted("a", team="red"), at="08:30")
    assert penstock.account("team:platform")[1] == money("7")
    penstock.hears(started("a.1"), at="08:30")
    penstock.hears(ended("a.1"), at="09:30")
    penstock.hears(gone("cloud/w1"), at="09:30")
    assert penstock.account("team:red") == (0, money("8"))


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_a_warm_node_that_is_lost_is_replaced() -> None:
    penstock = warmed()
    assert penstock.hears(node_lost("cloud/w1"), at="08:30") == [launch("cloud/w2", at="cloud")]
    assert penstock.account("team:platform")[1] == money("4")


def test_a_warm_node_that_will_be_taken_away_is_no_jobs() -> None:
    penstock = warmed()
    assert penstock.hears(node_notice("cloud/w1"), at="08:30") == [release("cloud/w1"), launch("cloud/w2", at="cloud")]


def test_a_pool_asks_again_when_a_provider_without_capacity_opens() -> None:
    penstock = given(pool(), opened())
    penstock.hears(nothing, at="08:00")
    assert penstock.hears(node_refused("cloud/w1", retry="5m"), at="08:01") == []
    assert penstock.wakes() == clock("08:06")
    assert penstock.hears(nothing, at="08:06") == [launch("cloud/w2", at="cloud")]
    assert penstock.account("team:platform")[1] == 0


def test_after_a_restart_what_is_warm_and_what_is_asked_for_is_known() -> None:
    penstock = given(pool(nodes=2), opened())
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), at="08:05")
    again: Engine = replay((step.at, step.inputs, step.outputs) for step in penstock.steps)
    assert list(again.outstanding()) == [launch("cloud/w2", at="cloud", attempt="")]
    assert list(again.state.warm.nodes) == ["cloud/w1", "cloud/w2"]
    assert again.next_deadline() == penstock.wakes() == clock("08:45")


def test_if_penstock_died_a_warm_node_would_cost_no_more_than_its_hold() -> None:
    """Its deadline is an hour away, and nobody renews it."""
    penstock = warmed()
    held, last_at = penstock.engine.state.ledger.exposure()
    assert (held, last_at) == (money("8") + 1, clock("09:00"))


def test_nothing_is_rented_ahead_while_placements_are_paused_or_nothing_bursts() -> None:
    penstock = given(pool(), opened(), e.Paused)
    assert penstock.hears(nothing, at="08:00") == []
    assert penstock.hears(e.Resumed, at="08:01") == [launch("cloud/w1", at="cloud")]
    assert given(pool(), opened(), policy(burst=False)).hears(nothing, at="08:00") == []


def test_a_pool_that_the_sites_file_no_longer_has_is_emptied() -> None:
    penstock = warmed()
    (joined,) = [fact for fact in penstock.steps[0].inputs if isinstance(fact, e.SiteJoined)]
    plain = replace(joined.site, offers=tuple(replace(site_offer, warm=None) for site_offer in joined.site.offers))
    assert penstock.hears(lambda at: e.SiteJoined(at, plain), at="09:00")[-1] == release("cloud/w1")


def test_a_node_with_a_fixed_end_is_replaced_before_it_comes() -> None:
    """As a NodeClaim's: its one lease of twelve hours is for life, and a job must stop two minutes before it ends."""
    penstock = given(pool(nodes=1, renewable=False), opened(last="23:59"))
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), at="08:05")
    assert (penstock.until("cloud/w1"), penstock.wakes()) == (clock("20:00"), clock("19:59"))
    actions = penstock.hears(nothing, at="19:59")
    assert actions == [set_deadline("cloud/w1"), release("cloud/w1"), launch("cloud/w2", at="cloud")]


def test_a_job_takes_a_node_with_a_fixed_end_only_while_half_of_its_life_is_left() -> None:
    penstock = given(pool(nodes=1, renewable=False), opened(last="23:59"))
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), at="08:05")
    actions = penstock.hears(submitted("a", team="red"), at="12:00")
    assert actions == [start("a.1", on="cloud", nodes=("cloud/w1",)), launch("cloud/w2", at="cloud")]
    assert penstock.until("cloud/w1") == clock("20:00")  # as it was
    penstock.hears(ready("cloud/w2"), at="12:05")
    assert penstock.hears(submitted("b", team="red"), at="18:30") == [launch("b.1/n0", at="cloud")]


# --- by forecast -----------------------------------------------------------------------------------------------------


def told_demand(p10: int, starts: str = "09:00") -> Told:
    """P10, P50 and P90 of the hour and the next, in GPUs."""
    spread = (1000 * p10, 1000 * p10 + 4000, 1000 * p10 + 9000)
    return lambda at: e.DemandForecast(at, clock(starts), (spread, spread))


def test_nodes_that_are_very_likely_wanted_soon_are_asked_for_ahead() -> None:
    penstock = given(site("lab", nodes=1), pool(nodes=3, always=True, forecast=True))
    assert penstock.hears(told_demand(8), at="09:00") == []  # the owned node is free
    assert penstock.hears(told_demand(24), at="09:00") == [
        launch("cloud/w1", at="cloud"),
        launch("cloud/w2", at="cloud"),
    ]
    because = penstock.promises[-1].because  # type: ignore[union-attr]
    assert because == WantedSoon(
        wanted=2, has=1, budget="team:platform", start_ms=5 * MINUTE, p10=24_000, p50=28_000, p90=33_000,
        now=0, impatient=0, free=8_000, source="sites.yaml:9",
    )  # fmt: skip


def test_a_job_whose_patience_ends_within_a_nodes_start_has_one_started() -> None:
    """It is wanted and counts; until five minutes before its patience ends it may still find owned GPUs."""
    penstock = given(site("lab", nodes=1), pool(nodes=3, always=True, forecast=True), policy(patience="30m"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    assert penstock.hears(submitted("b"), told_demand(16), at="09:00") == []
    assert penstock.wakes() == clock("09:25")
    assert penstock.hears(nothing, at="09:25") == [launch("cloud/w1", at="cloud")]
    penstock.hears(ready("cloud/w1"), at="09:30")
    assert penstock.steps[-1].actions[1] == start("b.1", on="cloud", nodes=("cloud/w1",))


def test_what_is_no_longer_forecast_is_returned() -> None:
    penstock = given(pool(nodes=3, always=True, forecast=True))
    penstock.hears(told_demand(8), at="09:00")
    penstock.hears(ready("cloud/w1"), at="09:05")
    assert penstock.wakes() == clock("09:45")
    assert penstock.hears(told_demand(3, "10:00"), at="10:00")[-1] == release("cloud/w1")
    assert penstock.promises[-1].because == WarmEnds(55 * MINUTE, "forecast")  # type: ignore[union-attr]


def test_without_a_forecast_of_this_hour_nothing_is_asked_for() -> None:
    penstock = given(pool(nodes=3, always=True, forecast=True))
    assert penstock.hears(told_demand(80, "06:00"), at="09:00") == []
    assert penstock.wakes() == clock("10:00")  # when there is another


# --- as the demo reads a journal -------------------------------------------------------------------------------------


def observed(penstock: Penstock) -> Observer:
    seen = Observer()
    for step in penstock.steps:
        for event in (*step.inputs, *step.outputs):
            seen.hear(event)
    return seen


def test_an_observer_books_a_warm_node_on_its_pool_until_a_job_takes_it() -> None:
    """It looked for the attempt that a warm node was rented for, and there is none: KeyError."""
    penstock = warmed()
    penstock.hears(submitted("a", team="red"), at="08:35")
    penstock.hears(started("a.1"), confirmed("cloud/w1", penstock.until("cloud/w1")), at="08:35")
    penstock.hears(node_lost("cloud/w2"), at="08:50")
    penstock.hears(ended("a.1"), at="09:05")
    penstock.hears(gone("cloud/w1"), at="09:05")
    seen = observed(penstock)
    assert seen.jobs["a"].charged == penstock.account("team:red")[1] == money("4")
    assert seen.pool_charged == penstock.account("team:platform")[1] > 0
    assert seen.charged() == penstock.account("org")[1]
    assert list(seen.holds) == ["cloud/w3"]  # the pool's next


def test_an_observer_sees_whose_warm_node_is_lost() -> None:
    penstock = warmed()
    penstock.hears(submitted("a", team="red"), at="08:35")
    penstock.hears(started("a.1"), at="08:35")
    penstock.hears(node_lost("cloud/w1"), at="08:50")
    assert observed(penstock).tries["a.1"].node_lost_at == clock("08:50")
