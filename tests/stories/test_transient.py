"""Transient clusters: asked for when a job or a person needs one, shared, paid for by a budget, and gone afterwards."""

from dataclasses import replace
from typing import Any

from penstock.core.engine import replay
from penstock.core.model import events as e
from penstock.core.model.reasons import (
    CapBinds,
    ClusterEnds,
    ClusterNeeded,
    ClusterWanted,
    LeaseEnds,
    NodeTakenSoon,
    RateBinds,
)
from penstock.core.model.types import NodeShape, Offer, TransientCluster
from penstock.core.units import HOUR, MINUTE, NEVER, money
from tests.stories.kit import (
    Extras,
    Penstock,
    Told,
    asked_to_move,
    cancelled,
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
    span,
    start,
    started,
    stop,
    stopped,
    submitted,
)

PLATFORM = ("org", "team:platform")


def burst(fee: str = "6", idle: str = "10m", most: str = "12h", kill: str = "0s", **more: Any) -> Told:
    """A site without a cluster: it comes in fifteen minutes, and GPUs there are sold by the attempt."""
    terms = Offer(
        "burst/cluster",
        "burst",
        "on_demand",
        (NodeShape(0, 1, list_per_hour=money(fee)),),
        start_ms=15 * MINUTE,
        kill_ms=span(kill),
        guarantee=more.pop("guarantee", "watchman"),
        extras=Extras(launch_fee=money(more.pop("launch_fee", "0"))),
    )
    cluster = TransientCluster(terms, PLATFORM, span(idle), span(most), "sites.yaml:9")
    offered = offer("burst", price=more.pop("price", "1"), start="2m", sold_by="attempt", **more)

    def joined(at: int) -> e.Fact:
        fact = offered(at)
        assert isinstance(fact, e.SiteJoined)
        return replace(fact, site=replace(fact.site, cluster=cluster))

    return joined


def asked(until: str) -> Told:
    return lambda at: e.ClusterAsked(at, "burst", clock(until))


def dismissed(at: int) -> e.Fact:
    return e.ClusterDismissed(at, "burst")


def called(*undated: Told, **more: Any) -> Penstock:
    """It is 09:00, and job a has asked for the cluster."""
    penstock = given(burst(**more), *undated)
    assert penstock.hears(submitted("a", team="red"), at="09:00") == [
        launch("burst/c1", at="burst/cluster", attempt="")
    ]
    return penstock


def up(*undated: Told, **more: Any) -> Penstock:
    """The cluster came at 09:15, and job a runs there since 09:17."""
    penstock = called(*undated, **more)
    assert penstock.hears(ready("burst/c1"), at="09:15") == [start("a.1", on="burst")]
    assert penstock.hears(started("a.1"), at="09:17") == []
    return penstock


def spent(penstock: Penstock, scope: str = "team:platform") -> int:
    return penstock.account(scope)[1]


# --- coming ----------------------------------------------------------------------------------------------------------


def test_a_job_that_chooses_a_site_without_a_cluster_asks_for_one_and_starts_when_it_is_up() -> None:
    penstock = called()
    promised = penstock.promise(e.ClusterPromised)
    assert (promised.site, promised.job, promised.ask.gpus) == ("burst", "a", 0)
    assert promised.because == ClusterNeeded("team:platform", money("6"), 15 * MINUTE, "sites.yaml:9")
    assert penstock.kinds() == ["ClusterPromised", "StartPromised"]
    assert penstock.hears(ready("burst/c1"), at="09:15") == [start("a.1", on="burst")]


def test_the_budget_that_its_site_names_pays_the_fee_and_the_job_pays_from_its_own_start() -> None:
    """Nothing is billed for the attempt before the cluster is up: its site is asked then."""
    penstock = up()
    penstock.hears(ended("a.1"), at="10:15")
    assert spent(penstock, "team:red") == money("8")
    assert penstock.hears(nothing, at="10:25") == [release("burst/c1")]
    penstock.hears(gone("burst/c1"), at="10:30")
    assert spent(penstock) == money("9")  # 09:00 to 10:30
    assert penstock.held() == 0
    assert spent(penstock, "org") == money("17")


def test_the_fee_and_the_start_of_the_cluster_are_in_the_price_of_the_choice() -> None:
    """A dearer offer that is there at once wins against a cheap one whose cluster takes its time and money."""
    assert given(burst(price="1"), offer("cloud", price="1.9")).hears(submitted("a"), at="09:00") == [
        launch("a.1/n0", at="cloud")
    ]
    penstock = given(burst(price="1"), offer("cloud", price="2.1", start="2m"))
    actions = penstock.hears(submitted("a", run="1h"), at="09:00")
    assert actions == [launch("burst/c1", at="burst/cluster")]  # 8.27 + 7.70 against 17.36
    assert penstock.why("a").cost == money("15.966667")  # type: ignore[union-attr]


def test_several_jobs_share_one_cluster_and_its_fee_is_counted_once() -> None:
    penstock = called(offer("cloud", price="2.1"))
    assert penstock.hears(submitted("b", team="blue", run="30m"), at="09:05") == []  # it waits for the same one
    assert penstock.hears(ready("burst/c1"), at="09:15") == [start("a.1", on="burst"), start("b.1", on="burst")]
    assert penstock.hears(submitted("c", run="30m"), at="09:16") == [start("c.1", on="burst")]
    assert list(penstock.engine.state.clusters.live.values()) == ["burst/c1"]


def test_a_cluster_whose_budget_is_too_small_is_not_asked_for_and_the_job_waits_for_that_budget() -> None:
    penstock = given(burst(), cap("team:platform", "0.5"))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == []
    because = penstock.why("a")
    assert isinstance(because, CapBinds)
    assert because.scope == "team:platform"
    actions = penstock.hears(cap("team:platform", "100"), at="09:30")
    assert actions == [launch("burst/c1", at="burst/cluster")]


def test_a_scope_that_pays_for_both_must_have_room_for_both() -> None:
    penstock = given(burst(), cap("org", "3.3"), policy(least_lease_ms=15 * MINUTE))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == []  # about 2 for each
    because = penstock.why("a")
    assert isinstance(because, CapBinds)
    assert because.needed > money("3.3") > because.needed // 2
    assert penstock.held() == 0


def test_an_hours_cap_of_a_scope_that_pays_for_both_holds_for_both() -> None:
    penstock = given(burst(), cap("org", None, "13"))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == []
    assert penstock.why("a") == RateBinds("org", money("13"), 0, money("14"))
    assert penstock.hears(cap("org", None, "14"), at="09:30") == [launch("burst/c1", at="burst/cluster")]


def test_another_offer_is_taken_where_the_clusters_budget_is_too_small() -> None:
    penstock = given(burst(), offer("cloud", price="9"), cap("team:platform", "0.5"))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == [launch("a.1/n0", at="cloud")]


def test_a_soft_cap_is_no_cap_where_the_policy_demands_hard_ones() -> None:
    penstock = given(burst(guarantee="none"), policy(require_hard_caps=True))
    assert penstock.hears(submitted("a"), at="09:00") == []
    proved = given(burst(), policy(require_hard_caps=True))
    assert proved.hears(submitted("a"), at="09:00") == []  # nobody has seen its watchman
    actions = proved.hears(lambda at: e.GuaranteeChanged(at, "burst/cluster", "watchman", ""), at="09:01")
    assert actions == [launch("burst/c1", at="burst/cluster")]


# --- failed starts ---------------------------------------------------------------------------------------------------


def test_a_cluster_that_never_came_is_a_failed_start_with_its_cost_and_closes_its_offer_for_longer_each_time() -> None:
    penstock = called(offer("cloud", price="30"))
    actions = penstock.hears(node_refused("burst/c1", "15m", "not available after 15 min", billed=True), at="09:15")
    assert actions == [launch("a.2/n0", at="cloud")]
    assert spent(penstock) == money("1.5")
    assert spent(penstock, "team:red") == 0
    assert penstock.engine.state.closed == {"burst/cluster": clock("09:30")}
    assert penstock.hears(submitted("b"), at="09:20") == [launch("b.1/n0", at="cloud")]
    assert penstock.hears(submitted("c"), at="09:30") == [launch("burst/c2", at="burst/cluster")]
    penstock.hears(node_refused("burst/c2", "15m"), at="09:45")
    assert penstock.engine.state.closed == {"burst/cluster": clock("10:15")}


def test_a_job_that_has_only_this_site_tries_again_when_the_offer_opens() -> None:
    penstock = called()
    assert penstock.hears(node_refused("burst/c1", "15m"), at="09:01") == []
    assert penstock.wakes() == clock("09:16")
    assert penstock.hears(nothing, at="09:16") == [launch("burst/c2", at="burst/cluster")]


def test_wrong_settings_are_an_alarm_in_the_providers_words() -> None:
    penstock = called()
    penstock.hears(node_refused("burst/c1", "1h", "there is no ClusterClass gpu-smal", "settings"), at="09:01")
    assert penstock.engine.state.alarms[-1][1:] == ("settings", "burst/cluster: there is no ClusterClass gpu-smal")


# --- going -----------------------------------------------------------------------------------------------------------


def test_it_goes_when_its_last_attempt_has_been_over_for_as_long_as_idle_says() -> None:
    penstock = up()
    assert penstock.hears(submitted("b"), at="09:20") == [start("b.1", on="burst")]
    assert penstock.hears(ended("a.1"), at="09:25") == []
    assert penstock.hears(ended("b.1"), at="09:30") == []
    assert penstock.wakes() == clock("09:40")
    assert penstock.hears(nothing, at="09:40") == [release("burst/c1")]
    assert penstock.promises[-1].because == ClusterEnds(10 * MINUTE, "idle")  # type: ignore[union-attr]


def test_a_job_that_comes_within_idle_uses_the_same_cluster_at_once() -> None:
    penstock = up()
    penstock.hears(ended("a.1"), at="10:00")
    assert penstock.hears(submitted("b"), at="10:05") == [start("b.1", on="burst")]
    penstock.hears(started("b.1"), at="10:07")
    assert penstock.hears(nothing, at="10:10") == []


def test_while_it_goes_nothing_starts_there_and_no_second_one_comes_before_it_is_gone() -> None:
    penstock = up()
    penstock.hears(ended("a.1"), at="10:00")
    assert penstock.hears(nothing, at="10:10") == [release("burst/c1")]
    assert penstock.hears(submitted("b"), at="10:11") == []
    assert penstock.hears(gone("burst/c1"), at="10:12") == [launch("burst/c2", at="burst/cluster")]


def test_a_cluster_that_nobody_needs_any_more_while_it_comes_goes_after_idle() -> None:
    penstock = called()
    assert penstock.hears(cancelled("a"), at="09:01") == []
    assert penstock.hears(nothing, at="09:11") == [release("burst/c1")]
    assert spent(penstock, "team:red") == 0


def test_what_is_paid_for_anyway_is_used_up_first() -> None:
    """A control plane that is billed by the hour goes just before the next hour begins."""
    penstock = given(burst(), offer("cloud", price="90"))
    terms = penstock.engine.state.clusters.terms["burst"]
    hourly = replace(terms, offer=replace(terms.offer, billing_step_ms=HOUR))
    site_now = replace(penstock.engine.state.sites["burst"], cluster=hourly)
    penstock.hears(lambda at: e.SiteJoined(at, site_now), at="08:00")
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ready("burst/c1"), at="09:15")
    penstock.hears(ended("a.1"), at="09:20")
    penstock.hears(nothing, at="09:30")
    assert penstock.wakes() == clock("09:45")  # its lease
    penstock.hears(nothing, at="09:45")
    assert penstock.hears(nothing, at="10:00") == [release("burst/c1")]


def test_at_the_end_of_its_longest_life_those_on_it_stop_in_time_and_go_on_elsewhere() -> None:
    penstock = up(offer("cloud", price="30"), most="1h")
    assert penstock.wakes() == clock("09:45")
    assert penstock.hears(nothing, at="09:45") == [set_deadline("burst/c1", until="10:00"), stop("a.1")]
    assert penstock.why("a") == LeaseEnds("burst", clock("10:00"))
    assert penstock.hears(stopped("a.1", kept="15m"), at="09:46") == [
        launch("a.2/n0", at="cloud"),
        release("burst/c1"),
    ]


def test_its_lease_is_renewed_while_it_is_used_and_the_fee_charged_to_its_budget() -> None:
    penstock = up()
    assert penstock.hears(nothing, at="09:45") == [set_deadline("burst/c1", until="10:45")]
    assert spent(penstock) == money("4.5")
    assert penstock.hears(confirmed("burst/c1", "10:45"), at="09:45:01") == []


def test_when_its_budget_ends_those_on_it_write_a_checkpoint_and_it_goes() -> None:
    penstock = up(cap("team:platform", "8"), most="12h")
    while penstock.engine.state.attempts["a.1"].phase == "running":
        wakes = penstock.wakes()
        assert wakes is not None
        assert wakes < clock("11:00")
        penstock.takes(e.Woke(wakes))
    assert isinstance(penstock.why("a"), CapBinds)
    at = penstock.engine.state.at
    penstock.takes(e.AttemptStopped(at + 1, "a.1", 30 * MINUTE))
    assert [type(event) for event in penstock.promises if isinstance(event, e.ReleasePromised)] == [e.ReleasePromised]


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_lost_takes_with_it_what_ran_there() -> None:
    penstock = up(offer("cloud", price="30"))
    actions = penstock.hears(node_lost("burst/c1"), at="09:40")
    assert actions == [launch("burst/c2", at="burst/cluster")]
    assert penstock.engine.state.jobs["a"].losses == 1
    assert spent(penstock) == money("4")


def test_a_notice_stops_what_runs_there_with_a_checkpoint() -> None:
    penstock = up()
    assert penstock.hears(node_notice("burst/c1", "somebody deleted it"), at="09:40") == [stop("a.1")]
    assert penstock.why("a") == NodeTakenSoon("burst", "somebody deleted it")


def test_a_job_moves_to_a_site_whose_cluster_is_not_up_yet_when_a_person_asks() -> None:
    penstock = given(site("lab"), burst())
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    actions = penstock.hears(asked_to_move("a", "burst"), at="10:00")
    assert actions == [launch("burst/c1", at="burst/cluster"), stop("a.1")]


# --- people ----------------------------------------------------------------------------------------------------------


def test_a_person_has_it_up_until_they_said_with_the_same_hold() -> None:
    penstock = given(burst())
    assert penstock.hears(asked("11:00"), at="09:00") == [launch("burst/c1", at="burst/cluster")]
    assert penstock.promises[-1].because == ClusterWanted("team:platform", money("6"), clock("11:00"))  # type: ignore[union-attr]
    assert penstock.account("team:platform") == (penstock.held(), 0)
    penstock.hears(ready("burst/c1"), at="09:15")
    assert penstock.hears(submitted("a"), at="09:20") == [start("a.1", on="burst")]
    penstock.hears(ended("a.1"), at="09:30")
    for at in ("09:45", "10:30"):
        penstock.hears(nothing, at=at)
    assert penstock.hears(nothing, at="11:00") == [release("burst/c1")]


def test_a_person_sends_it_away_and_it_goes_after_its_last_attempt() -> None:
    penstock = up()
    assert penstock.hears(dismissed, at="09:20") == []
    assert penstock.hears(submitted("b"), at="09:21") == []  # nothing starts there any more
    assert penstock.hears(ended("a.1"), at="09:40") == [release("burst/c1")]
    assert penstock.promises[-1].because == ClusterEnds(0, "asked")  # type: ignore[union-attr]
    idle = given(burst())
    idle.hears(asked("11:00"), at="09:00")
    assert idle.hears(dismissed, at="09:05") == [release("burst/c1")]


def test_a_person_is_told_that_there_is_no_money_and_it_comes_when_there_is() -> None:
    penstock = given(burst(), cap("team:platform", "0.5"))
    assert penstock.hears(asked("12:00"), at="09:00") == []
    short = penstock.promise(e.ClusterShort)
    assert (short.site, short.until_at, type(short.because)) == ("burst", clock("10:00"), CapBinds)
    assert penstock.wakes() == clock("10:00")
    assert penstock.hears(cap("team:platform", "0.4"), at="09:10") == []
    assert penstock.promises == []  # a lower cap is no new money
    assert penstock.hears(cap("team:platform", "50"), at="09:30") == [launch("burst/c1", at="burst/cluster")]


def test_who_asks_for_a_site_without_such_a_cluster_gets_nothing() -> None:
    penstock = given(offer("cloud"))
    assert penstock.hears(lambda at: e.ClusterAsked(at, "cloud", clock("11:00")), at="09:00") == []
    assert penstock.kinds() == []
    assert penstock.wakes() in (None, NEVER)


# --- replay ----------------------------------------------------------------------------------------------------------


def test_what_was_asked_for_is_asked_again_after_a_crash_and_an_old_name_is_never_used_again() -> None:
    penstock = called()
    again = replay((s.at, s.inputs, s.outputs) for s in penstock.steps)
    assert list(again.outstanding()) == [launch("burst/c1", at="burst/cluster")]
    penstock.hears(node_refused("burst/c1"), at="09:01")
    assert penstock.hears(nothing, at="09:06") == [launch("burst/c2", at="burst/cluster")]
