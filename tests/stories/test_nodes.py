"""Rented nodes: asked for, awaited, used, lost, refused and given back."""

from penstock.core.model.events import (
    LeaseCalledBack,
    OfferClosed,
    ReleasePromised,
    RetryPromised,
    Settled,
    SiteRemoved,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.reasons import LeaseEnds, LostNode, NeverStarted, NodeTakenSoon, NoMoreWork, NoRoomThere
from penstock.core.model.types import Part
from penstock.core.units import HOUR, MINUTE
from tests.stories.kit import (
    cancelled,
    cap,
    checkpointed,
    clock,
    ended,
    given,
    gone,
    launch,
    like,
    lost,
    node_lost,
    node_notice,
    node_refused,
    nothing,
    offer,
    policy,
    ready,
    refused,
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


def test_a_gang_starts_when_all_of_its_nodes_are_ready_gives_them_back_and_settles() -> None:
    penstock = given(offer("cloud", price="1", sizes=(4, 8), start="5m"))
    assert penstock.hears(submitted("a", gpus=11), at="09:00") == [
        launch("a.1/n0", at="cloud", gpus=8, attempt="a.1", deadline_at=clock("21:00")),
        launch("a.1/n1", at="cloud", gpus=4, attempt="a.1", deadline_at=clock("21:00")),
    ]
    # Twelve hours of lease and two minutes of grace at the price ceiling, and a micro-unit for rounding.
    hold = sum(gpus * (12 * HOUR + 2 * MINUTE) * usd("1") // HOUR + 2 for gpus in (8, 4))
    assert penstock.account("org") == (hold, 0)
    assert penstock.hears(ready("a.1/n1"), at="09:05") == []
    assert penstock.hears(ready("a.1/n0"), at="09:06") == [
        start("a.1", on="cloud", width=11, nodes=("a.1/n0", "a.1/n1"), slots=(), deadline_at=clock("21:00"))
    ]
    assert penstock.hears(started("a.1"), at="09:06") == []
    assert penstock.hears(ended("a.1"), at="10:06") == [release("a.1/n0"), release("a.1/n1")]
    assert penstock.promises == [
        ReleasePromised(clock("10:06"), "a.1/n0", NoMoreWork(0)),
        ReleasePromised(clock("10:06"), "a.1/n1", NoMoreWork(0)),
    ]
    assert penstock.held() > 0  # not before the provider says that they are gone
    penstock.hears(gone("a.1/n0"), at="10:07")
    charged = usd("8") * 67 // 60 + 1
    settled = penstock.promise(Settled)
    assert [(part.period, part.amount) for part in settled.charged] == [("month 1", charged)]
    penstock.hears(gone("a.1/n1"), at="10:08")
    assert penstock.account("org") == (0, charged + usd("4") * 68 // 60 + 1)
    assert penstock.account("team:default") == penstock.account("org")
    assert penstock.wakes() is None


def test_where_the_site_sells_by_the_attempt_there_are_no_nodes() -> None:
    penstock = given(offer("pods", price="1", sizes=(1,), sold_by="attempt"))
    assert penstock.hears(submitted("a", gpus=3), at="09:00") == [start("a.1", on="pods", width=3, nodes=())]
    penstock.hears(started("a.1"), at="09:01")
    penstock.hears(ended("a.1"), at="10:00")
    assert penstock.account("org") == (0, usd("3"))


def test_a_billing_step_and_minimum_are_paid_to_the_full() -> None:
    penstock = given(
        offer("pods", price="1", sizes=(1,), sold_by="attempt", billing_step_ms=HOUR, billing_minimum_ms=2 * HOUR)
    )
    penstock.hears(submitted("short", gpus=1), submitted("long", gpus=1), at="09:00")
    penstock.hears(ended("short.1"), at="09:10")
    assert penstock.account("org")[1] == usd("2")
    penstock.hears(ended("long.1"), at="11:01")
    assert penstock.account("org") == (0, usd("5"))


def test_a_lost_spot_node_resumes_from_the_checkpoint_elsewhere() -> None:
    penstock = given(
        offer("spot", price="1", most="4", term="spot"), offer("sure", price="4"), policy("10m", packing="best_fit")
    )
    penstock.hears(submitted("a", run="2h", checkpoint="30m"), at="09:00")
    penstock.hears(nothing, at="09:10")
    penstock.hears(ready("a.1/n0"), at="09:10")
    penstock.hears(started("a.1"), at="09:10")
    assert penstock.hears(checkpointed("a.1", "30m"), at="09:40") == []
    # Lost: it does not wait for patience again, and what is left costs less than the whole. One loss in 45 minutes,
    # with twelve hours of none declared, is one in 12.75: in 1.5 hours, a quarter of an hour is lost 0.1176 times.
    assert penstock.hears(lost("a.1", "30m"), node_lost("a.1/n0"), at="09:55") == [launch("a.2/n0", at="spot")]
    assert penstock.why("a") == LostNode("a.1", 30 * MINUTE, redone_ms=15 * MINUTE, cost=usd("12.235292"))
    assert penstock.hears(node_refused("a.2/n0"), at="09:55") == [launch("a.3/n0", at="sure")]
    assert penstock.hears(ready("a.3/n0"), at="09:56") == [start("a.3", on="sure", resume_ms=30 * MINUTE)]


def test_a_busy_node_may_be_told_lost_before_what_ran_on_it() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a", gpus=16), at="09:00")
    penstock.hears(ready("a.1/n0"), ready("a.1/n1"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(node_lost("a.1/n0"), at="09:30") == []
    held = usd("8") * (12 * 60 + 2) // 60 + 2
    charged = (Part("month 1", usd("4")),)
    assert penstock.promises == [Settled(clock("09:30"), "a.1/n0", charged, returned=held - usd("4"))]
    actions = penstock.hears(lost("a.1", "15m"), at="09:31")
    assert actions == [launch("a.2/n0", at="cloud"), launch("a.2/n1", at="cloud"), release("a.1/n1")]
    assert penstock.why("a") == LostNode("a.1", 15 * MINUTE, redone_ms=16 * MINUTE, cost=usd("12"))


def test_a_job_without_checkpoints_begins_again() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a", checkpoint=None), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(lost("a.1"), node_lost("a.1/n0"), at="09:30")
    assert penstock.hears(ready("a.2/n0"), at="09:31") == [start("a.2", on="cloud", resume_ms=0)]


def test_a_node_lost_before_its_gang_is_complete_frees_the_others() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a", gpus=16), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    assert penstock.hears(node_lost("a.1/n0"), at="09:06") == [
        launch("a.2/n0", at="cloud"),
        launch("a.2/n1", at="cloud"),
        release("a.1/n1"),
    ]
    assert penstock.promises[-1] == ReleasePromised(clock("09:06"), "a.1/n1", NeverStarted())
    assert penstock.hears(ready("a.1/n1"), at="09:06:30") == []  # it is on its way back already
    assert penstock.hears(gone("a.1/n1"), at="09:07") == []


def test_a_node_that_is_ready_after_its_attempt_is_over_is_given_back() -> None:
    penstock = given(offer("cloud", start="5m"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(cancelled("a"), at="09:01") == [release("a.1/n0")]
    assert penstock.hears(ready("a.1/n0"), at="09:05") == []
    penstock.hears(gone("a.1/n0"), at="09:06")
    assert penstock.account("org") == (0, usd("8") * 6 // 60)


def test_refused_capacity_closes_the_offer_for_all_and_one_job_probes() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(node_refused("a.1/n0", retry="5m"), at="09:00")
    assert penstock.promises[1:] == [
        OfferClosed(clock("09:00"), "cloud", clock("09:05"), refusals=1),
        like(RetryPromised, job="a", offer="cloud", retry_at=clock("09:00")),
        WaitPromised(clock("09:00"), "a", clock("09:05"), NoRoomThere("cloud", clock("09:05"))),
    ]
    assert penstock.account("org") == (0, 0)  # nothing was billed
    assert penstock.hears(submitted("b"), at="09:02") == []
    assert penstock.hears(nothing, at="09:05") == [launch("a.2/n0", at="cloud")]
    assert penstock.why("b") == NoRoomThere("cloud", clock("09:06"))  # while one probes, the others wait
    assert penstock.hears(nothing, at="09:06") == []
    assert penstock.hears(ready("a.2/n0"), at="09:06:30") == [start("a.2", on="cloud")]
    assert penstock.hears(nothing, at="09:07") == [launch("b.1/n0", at="cloud")]


def test_a_probe_that_is_refused_closes_the_offer_for_longer() -> None:
    penstock = given(offer("cloud", sold_by="attempt"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(refused("a.1", retry="5m"), at="09:00")
    penstock.hears(nothing, at="09:05")
    penstock.hears(refused("a.2", retry="5m"), at="09:05")
    assert penstock.promise(OfferClosed) == OfferClosed(clock("09:05"), "cloud", clock("09:15"), refusals=2)
    assert penstock.account("org") == (0, 0)


def test_a_cloud_without_stock_is_asked_again_in_minutes_and_one_without_quota_alarms() -> None:
    """Both were "no capacity": the offer was asked every half minute, and nobody learned that a quota was used up."""
    penstock = given(offer("cloud", sold_by="attempt", price="1"), offer("other", sold_by="attempt", price="2"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(refused("a.1", "5m", "stock_out", "no a100-8x in zone-a"), at="09:01") == [
        start("a.2", on="other")
    ]
    assert penstock.promise(OfferClosed) == OfferClosed(clock("09:01"), "cloud", clock("09:06"), refusals=1)
    assert penstock.engine.state.alarms == []
    assert penstock.hears(refused("a.2", "4h", "quota", "vCPU limit of 96"), at="09:02") == []
    assert penstock.promise(OfferClosed) == OfferClosed(clock("09:02"), "other", clock("13:02"), refusals=1)
    assert penstock.engine.state.alarms == [(clock("09:02"), "quota", "other: vCPU limit of 96")]
    assert penstock.hears(nothing, at="09:06") == [start("a.3", on="cloud")]
    assert [line for line in penstock.story("a") if "had no capacity" in line] == [
        "cloud had no capacity: no a100-8x in zone-a.",
        "other had no capacity: vCPU limit of 96.",
    ]


def test_a_gang_refused_twice_at_one_instant_counts_as_one_refusal() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a", gpus=16), at="09:00")
    penstock.hears(node_refused("a.1/n0"), node_refused("a.1/n1"), at="09:00")
    assert penstock.promise(OfferClosed).refusals == 1
    assert penstock.held() == 0


def test_a_limit_of_gpus_or_nodes_is_kept() -> None:
    penstock = given(
        offer("few", price="1", count=1), offer("quota", price="2", limit_gpus=8), offer("rest", price="3")
    )
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="few")]
    assert penstock.hears(submitted("b"), at="09:01") == [launch("b.1/n0", at="quota")]
    assert penstock.hears(submitted("c"), at="09:02") == [launch("c.1/n0", at="rest")]
    penstock.hears(ready("a.1/n0"), at="09:03")
    penstock.hears(ended("a.1"), at="09:04")
    assert penstock.hears(submitted("d"), at="09:05") == [launch("d.1/n0", at="rest")]  # not gone yet
    penstock.hears(gone("a.1/n0"), at="09:06")
    assert penstock.hears(submitted("e"), at="09:07") == [launch("e.1/n0", at="few")]


def test_a_standing_site_that_refuses_is_not_asked_again_before_its_time() -> None:
    """It was asked again in the same instant, and again with each refusal: as fast as the site could say no."""
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(refused("a.1", retry="5m"), at="09:00") == []
    assert penstock.hears(submitted("b"), at="09:01") == []
    assert penstock.wakes() == clock("09:05")
    assert penstock.hears(nothing, at="09:05") == [start("a.2", on="lab")]


def test_a_queued_job_waits_while_there_is_no_site_at_all() -> None:
    """It still looked for an offer of the site that had been removed last, and the control plane ended."""
    penstock = given(offer("cloud"), policy("1h"))
    assert penstock.hears(submitted("a"), at="09:00") == []
    assert penstock.hears(lambda at: SiteRemoved(at, "cloud"), at="09:10") == []
    assert penstock.hears(nothing, at="10:00") == []
    assert penstock.hears(offer("cloud"), at="12:00") == [launch("a.1/n0", at="cloud")]


# --- what a provider says of its nodes -------------------------------------------------------------------------------


def test_a_node_that_never_became_usable_is_booked_with_its_cost_and_its_offer_is_closed() -> None:
    penstock = given(offer("cloud", price="1", sizes=(8,), start="5m"))
    penstock.hears(submitted("a", gpus=8), at="09:00")
    words = "its GPUs did not register within 15 min"
    refusal = node_refused("a.1/n0", retry="15m", words=words, billed=True)
    assert penstock.hears(refusal, at="09:15") == []
    assert penstock.account("org") == (0, usd("2") + 0)
    assert penstock.promise(OfferClosed).until_at == clock("09:30")
    failed = penstock.promise(RetryPromised).because
    assert (failed.cause, failed.words, failed.cost) == ("full", words, usd("2"))
    assert penstock.engine.state.jobs["a"].losses == 0  # nothing was lost: it never ran


def test_a_quota_is_an_alarm_and_a_stock_out_is_not() -> None:
    penstock = given(offer("cloud", start="5m"), offer("other", price="3", start="5m"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(node_refused("a.1/n0", shortage="stock_out", words="none left"), at="09:01") == [
        launch("a.2/n0", at="other")
    ]
    assert penstock.engine.state.alarms == []
    penstock.hears(node_refused("a.2/n0", retry="4h", shortage="quota", words="VcpuLimitExceeded"), at="09:02")
    assert [(kind, text) for _, kind, text in penstock.engine.state.alarms] == [("quota", "other: VcpuLimitExceeded")]
    assert penstock.promise(OfferClosed).until_at == clock("13:02")


def test_why_has_the_words_of_a_provider_that_gave_no_node() -> None:
    """It said only that the start took a minute and cost nothing."""
    penstock = given(offer("cloud", start="5m"), offer("other", price="3", start="5m"), offer("last", price="4"))
    penstock.hears(submitted("a", gpus=16), at="09:00")
    words = "cloud does not take it; repair the offer's 'rent': there is no KWOKNodeClass gpu-smal"
    penstock.hears(
        node_refused("a.1/n0", "1h", words, "settings"), node_refused("a.1/n1", "1h", words, "settings"), at="09:01"
    )
    penstock.hears(node_refused("a.2/n0", retry="15m", words="its GPUs did not register", billed=True), at="09:09")
    lines = [line for line in penstock.story("a") if "node: " in line]
    assert lines == [f"cloud gave no node: {words}.", "other gave no usable node: its GPUs did not register."]


def test_a_notice_stops_what_runs_on_the_node_with_a_checkpoint_and_it_goes_on_elsewhere() -> None:
    penstock = given(offer("cloud", start="5m"))
    penstock.hears(submitted("a", checkpoint="10m"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    penstock.hears(started("a.1"), at="09:05")
    assert penstock.hears(node_notice("a.1/n0", "spot"), at="09:30") == [stop("a.1")]
    assert penstock.promise(StopPromised).because == NodeTakenSoon("cloud", "spot")
    assert penstock.story("a")[-1] == "Stops with a checkpoint: its node at cloud will be taken away (spot)."
    assert penstock.hears(node_notice("a.1/n0", "spot"), at="09:30") == []  # said twice
    answers = penstock.hears(stopped("a.1", "20m"), at="09:31")
    assert answers == [launch("a.2/n0", at="cloud"), release("a.1/n0")]
    penstock.hears(gone("a.1/n0"), at="09:32")
    penstock.hears(ready("a.2/n0"), at="09:36")
    assert penstock.engine.state.attempts["a.2"].resume_ms == 20 * MINUTE


def test_a_notice_about_what_is_sold_by_the_attempt_stops_that_attempt_and_it_starts_again() -> None:
    penstock = given(offer("pods", sold_by="attempt", start="5m"))
    penstock.hears(submitted("a", checkpoint="10m"), at="09:00")
    penstock.hears(started("a.1"), at="09:05")
    assert penstock.hears(node_notice("a.1", "spot"), at="09:30") == [stop("a.1")]
    assert penstock.promise(StopPromised).because == NodeTakenSoon("pods", "spot")
    assert penstock.hears(node_notice("a.1", "spot"), at="09:30") == []  # said twice
    penstock.hears(stopped("a.1", "20m"), at="09:31")
    assert penstock.engine.state.attempts["a.2"].resume_ms == 20 * MINUTE
    assert penstock.hears(node_notice("a.1", "spot"), at="09:32") == []  # it is over


def test_a_node_whose_job_still_pulls_its_image_is_not_idle() -> None:
    penstock = given(offer("cloud", start="5m"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    assert penstock.hears(nothing, at="09:50") == []
    assert penstock.engine.state.nodes["a.1/n0"].phase == "busy"


def test_a_lease_for_a_node_s_whole_life_is_never_renewed_and_ends_with_a_checkpoint() -> None:
    penstock = given(offer("cloud", start="5m", renewable=False), cap("org", "1000"))
    penstock.hears(submitted("a", lease_max_ms="1h", checkpoint="10m"), at="09:00")
    assert penstock.hears(ready("a.1/n0"), at="09:05") == [start("a.1", on="cloud", deadline_at=clock("10:00"))]
    penstock.hears(started("a.1"), at="09:05")
    assert penstock.wakes() == clock("09:57")  # two minutes of grace and one to spare
    actions = penstock.hears(nothing, at="09:57")
    assert actions == [set_deadline("a.1/n0", "10:00"), stop("a.1")]
    assert penstock.promise(StopPromised).because == LeaseEnds("cloud", clock("10:00"))
    assert penstock.hears(stopped("a.1", "50m"), at="09:58") == [launch("a.2/n0", at="cloud"), release("a.1/n0")]


def test_a_job_whose_node_has_not_come_by_the_end_of_its_lease_is_placed_anew() -> None:
    """It was queued after the step's placements, and nobody ever asked for it again."""
    penstock = given(offer("cloud", start="5m", renewable=False), cap("org", "1000"))
    penstock.hears(submitted("a", lease_max_ms="1h", checkpoint="10m"), at="09:00")
    assert penstock.wakes() == clock("09:57")
    assert penstock.hears(nothing, at="09:57") == [set_deadline("a.1/n0", "10:00"), release("a.1/n0")]
    assert penstock.wakes() == clock("09:57:01")
    assert penstock.hears(nothing, at="09:57:01") == [launch("a.2/n0", at="cloud")]


def test_a_lease_for_life_that_a_lowered_cap_calls_back_is_given_back_instead() -> None:
    penstock = given(offer("cloud", start="5m", renewable=False), cap("org", "1000"))
    penstock.hears(submitted("a", checkpoint="10m"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    penstock.hears(started("a.1"), at="09:05")
    actions = penstock.hears(cap("org", "1"), at="09:30")
    assert actions == [set_deadline("a.1/n0", "21:00"), stop("a.1")]
    assert not [promise for promise in penstock.promises if isinstance(promise, LeaseCalledBack)]
    assert penstock.hears(stopped("a.1", "20m"), at="09:31") == [release("a.1/n0")]
    penstock.hears(gone("a.1/n0"), at="09:32")
    assert penstock.held() == 0
