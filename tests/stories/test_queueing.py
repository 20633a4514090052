"""Who starts when, on GPUs one owns; and what waiting looks like."""

from penstock.core.decide.rules import BuiltInRules, Candidate, Verdict
from penstock.core.model.actions import LaunchNode
from penstock.core.model.events import GuaranteeChanged, JobRefused, JobSubmitted, StartPromised, WaitPromised
from penstock.core.model.reasons import (
    Displaced,
    NothingAllowed,
    OnlyOwned,
    OwnedFree,
    PatienceOver,
    Preempted,
    QueueFull,
    RoomMade,
    RuledOut,
    TooWide,
    WaitsForOwned,
)
from penstock.core.model.types import JobSpec, Waiting
from penstock.core.units import HOUR, MINUTE, NEVER
from penstock.live.view import picture
from tests.stories.kit import (
    Told,
    asked_to_move,
    cancelled,
    clock,
    ended,
    given,
    gone,
    launch,
    like,
    nothing,
    offer,
    policy,
    ready,
    release,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
    usd,
)


def test_a_job_starts_on_owned_gpus_when_they_are_free() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud"))
    assert penstock.hears(submitted("a", gpus=8), at="09:00") == [
        start("a.1", on="lab", job="a", width=8, slots=((0, 8),), nodes=(), resume_ms=0, deadline_at=NEVER)
    ]
    assert penstock.promises == [
        StartPromised(
            clock("09:00"), "a", "a.1", "lab", 8, 1000, 0, ((0, 8),), (), None, (), (), OwnedFree(0, free_gpus=16)
        )
    ]
    assert penstock.hears(started("a.1"), at="09:00") == []
    assert penstock.hears(ended("a.1"), at="10:00") == []
    assert penstock.phase("a") == "ended"
    assert penstock.engine.state.ended == {"done": 1}


def test_a_failed_job_ends_too_and_its_gpus_come_free() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.hears(ended("a.1", failed=True), at="09:10") == [start("b.1", on="lab")]
    assert penstock.engine.state.ended == {"failed": 1}


def test_a_job_waits_with_its_reason_and_the_numbers_it_rests_on() -> None:
    penstock = given(site("lab"), offer("cloud", price="1"), policy(patience="10m"))
    penstock.hears(submitted("a", gpus=6), at="09:00")
    assert penstock.hears(submitted("b", gpus=4, run="2h"), at="09:05") == []
    # A whole node of 8 GPUs for two hours, at a dollar a GPU and hour.
    because = WaitsForOwned(10 * MINUTE, 2 * HOUR, free_gpus=2, burst_cost=usd("16"))
    assert penstock.promises == [WaitPromised(clock("09:05"), "b", clock("09:15"), because, patience_ms=10 * MINUTE)]
    assert penstock.wakes() == clock("09:15")


def test_a_job_bursts_only_after_its_patience_to_the_cheapest_offer_and_the_runner_up_is_on_record() -> None:
    penstock = given(
        site("lab"), offer("dear", price="3"), offer("cheap", price="1"), offer("middle", price="2"), policy("10m")
    )
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(submitted("b", run="1h"), at="09:00") == []
    assert penstock.hears(nothing, at="09:09:59") == []
    assert penstock.hears(nothing, at="09:10") == [launch("b.1/n0", at="cheap", gpus=8, attempt="b.1")]
    assert penstock.why("b") == PatienceOver(
        10 * MINUTE, 10 * MINUTE, 1 * HOUR, cost=usd("8"), next_offer="middle", next_cost=usd("16")
    )


def test_equal_prices_go_by_name() -> None:
    penstock = given(offer("zeta"), offer("alpha"))
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="alpha")]


def test_patience_grows_with_the_job_where_the_policy_says_so() -> None:
    waiting = Waiting("compute", 1, 8)  # an eighth of GPUs x run time
    penstock = given(site("lab"), offer("cloud"), policy(waiting=waiting))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("b", gpus=4, run="1h"), at="09:00")
    assert penstock.wakes() == clock("09:30")
    assert penstock.hears(submitted("c", gpus=4, run="10m"), at="09:00") == []
    assert penstock.wakes() == clock("09:05")


def test_owned_gpus_that_come_free_go_to_whoever_waits_before_patience_is_over() -> None:
    penstock = given(site("lab"), offer("cloud"), policy("1h"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.hears(ended("a.1"), at="09:30") == [start("b.1", on="lab")]
    assert penstock.why("b") == OwnedFree(30 * MINUTE, free_gpus=8)
    assert penstock.wakes() is None


def test_backfill_lets_a_later_job_start_that_fits() -> None:
    penstock = given(site("lab"), policy(backfill=True))
    penstock.hears(submitted("a", gpus=4), at="09:00")
    assert penstock.hears(submitted("wide", gpus=8), at="09:01") == []
    assert penstock.hears(submitted("narrow", gpus=4), at="09:02") == [start("narrow.1", on="lab", slots=((0, 4),))]


def test_without_backfill_the_head_of_the_line_holds_up_the_rest() -> None:
    penstock = given(site("lab"), policy(backfill=False))
    penstock.hears(submitted("a", gpus=4), at="09:00")
    penstock.hears(submitted("wide", gpus=8), at="09:01")
    assert penstock.hears(submitted("narrow", gpus=4), at="09:02") == []
    assert penstock.hears(ended("a.1"), at="10:00") == [start("wide.1", on="lab")]
    assert penstock.hears(ended("wide.1"), at="11:00") == [start("narrow.1", on="lab")]


def test_when_the_head_of_the_line_bursts_the_rest_moves_up_at_once() -> None:
    penstock = given(site("lab"), offer("cloud"), policy("10m", backfill=False))
    penstock.hears(submitted("a", gpus=4), at="09:00")
    penstock.hears(submitted("wide", gpus=8), at="09:01")
    penstock.hears(submitted("narrow", gpus=4), at="09:02")
    assert penstock.hears(nothing, at="09:11") == [launch("wide.1/n0", at="cloud"), start("narrow.1", on="lab")]


def test_a_full_queue_bursts_the_newest() -> None:
    penstock = given(site("lab"), offer("cloud"), policy("10h", queue_cap=2))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("b"), at="09:01")
    penstock.hears(submitted("c"), at="09:02")
    assert penstock.hears(submitted("d", run="1h"), at="09:03") == [launch("d.1/n0", at="cloud")]
    assert penstock.why("d") == QueueFull(waiting=3, queue_cap=2, cost=usd("8"))
    assert penstock.hears(ended("a.1"), at="10:00") == [start("b.1", on="lab")]


def test_a_full_queue_leaves_those_who_cannot_leave() -> None:
    penstock = given(site("lab"), offer("cloud", sizes=(1,), count=1), policy("10h", queue_cap=0))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(submitted("b", gpus=8), at="09:01") == []
    assert penstock.why("b") == OnlyOwned(0, "too wide: at most 1 GPUs there")


def test_a_job_that_comes_before_any_site_waits_for_one() -> None:
    """It was refused as too wide for the widest of no offers, and the engine died of it."""
    penstock = given()
    assert penstock.hears(submitted("a"), at="09:00") == []
    assert penstock.promises == [WaitPromised(clock("09:00"), "a", NEVER, OnlyOwned(0, "no site has joined yet"))]
    assert penstock.hears(site("lab"), at="09:10") == [start("a.1", on="lab")]


def test_order_by_priority_is_kept_among_those_who_wait() -> None:
    penstock = given(site("lab"), policy(ordering="priority"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("low", priority=1), at="09:01")
    penstock.hears(submitted("high", priority=5), at="09:02")
    assert penstock.hears(ended("a.1"), at="10:00") == [start("high.1", on="lab")]


def test_a_gang_takes_whole_empty_nodes_and_the_rest_on_the_lowest_other() -> None:
    penstock = given(site("lab", nodes=3))
    penstock.hears(submitted("a", gpus=2), at="09:00")
    assert penstock.hears(submitted("gang", gpus=12), at="09:01") == [start("gang.1", on="lab", slots=((1, 8), (0, 4)))]


def test_best_fit_takes_the_tightest_hole() -> None:
    penstock = given(site("lab", nodes=2), policy(packing="best_fit"))
    penstock.hears(submitted("a", gpus=8), submitted("b", gpus=5), at="09:00")
    penstock.hears(ended("a.1"), at="09:30")
    assert penstock.hears(submitted("c", gpus=3), at="09:31") == [start("c.1", on="lab", slots=((1, 3),))]


def test_too_wide_for_anything_that_exists_is_refused_at_once() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud", count=3))
    assert penstock.hears(submitted("a", gpus=25), at="09:00") == []
    assert penstock.promises == [JobRefused(clock("09:00"), "a", TooWide(25, widest=24, offer="cloud"))]
    assert penstock.phase("a") == "ended"


def test_only_what_nothing_could_hold_is_refused_for_its_width_whatever_a_rule_calls_itself() -> None:
    """A verdict's words were searched for "too wide": a policy's own rule that began so was taken for the width."""

    class Rules(BuiltInRules):
        def verdict(self, asked: Candidate) -> Verdict:
            return Verdict(False, f"too wide a question for {asked.site.id}", "rules.yaml:7")

    penstock = given(site("lab", nodes=2))
    penstock.engine.rules = Rules()
    penstock.hears(submitted("a", gpus=4), at="09:00")
    because = NothingAllowed("lab", "too wide a question for lab", "rules.yaml:7")
    assert penstock.promises == [JobRefused(clock("09:00"), "a", because)]
    penstock.hears(submitted("b", gpus=17), at="09:01")
    assert penstock.promises == [JobRefused(clock("09:01"), "b", TooWide(17, widest=16, offer="lab"))]


def test_the_second_of_a_shape_that_was_refused_is_refused_too() -> None:
    """Its shape had its verdict already, so nobody looked at it again, and the job waited for ever."""
    penstock = given(site("lab", nodes=2), policy("10m"))
    penstock.hears(submitted("a", gpus=25), at="09:00")
    penstock.hears(submitted("b", gpus=25), at="09:01")
    assert penstock.promises == [JobRefused(clock("09:01"), "b", TooWide(25, widest=16, offer="lab"))]


def test_what_is_forbidden_everywhere_is_refused_with_the_rule() -> None:
    penstock = given(offer("spot", term="spot", price="1", most="3"))
    penstock.hears(submitted("a", interruptible=False), at="09:00")
    assert penstock.promises == [
        JobRefused(clock("09:00"), "a", NothingAllowed("spot", "it may not be interrupted", "built in"))
    ]


def test_a_spot_price_without_an_upper_bound_is_not_eligible() -> None:
    penstock = given(offer("spot", term="spot", price="1"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.why("a") == NothingAllowed("spot", "no upper bound of its price is known", "built in")


def test_a_policy_may_demand_hard_caps() -> None:
    penstock = given(offer("cloud", guarantee="none"), policy(require_hard_caps=True))
    penstock.hears(submitted("a"), at="09:00")
    because = NothingAllowed("cloud", "policy demands hard caps, and nothing there ends without us", "built in")
    assert penstock.why("a") == because


def test_a_watchman_guards_an_offer_only_while_its_site_proves_it() -> None:
    """Until then, and whenever it is silent, jobs wait where the policy demands hard caps; what runs goes on."""
    penstock = given(offer("cloud", guarantee="watchman"), policy(require_hard_caps=True))
    assert penstock.hears(submitted("a"), at="09:00") == []
    launched = [like(LaunchNode, offer="cloud")]
    assert penstock.hears(lambda at: GuaranteeChanged(at, "cloud", "watchman"), at="09:01") == launched
    silent = "The watchman has not renewed its Lease for 40 s."
    assert penstock.hears(lambda at: GuaranteeChanged(at, "cloud", "none", silent), at="09:02") == []
    assert penstock.engine.state.alarms[-1][1:] == ("guarantee", f"cloud: caps are soft there now. {silent}")
    assert penstock.hears(submitted("b"), at="09:03") == []
    assert penstock.hears(lambda at: GuaranteeChanged(at, "cloud", "watchman"), at="09:04") == launched


def test_without_a_demand_for_hard_caps_an_offer_without_its_watchman_is_soft_and_open() -> None:
    penstock = given(offer("cloud", guarantee="watchman"))
    assert penstock.hears(submitted("a"), at="09:00") == [like(LaunchNode, offer="cloud")]
    (site,) = picture(penstock.engine.state, ()).sites
    assert [offer.offer.guarantee for offer in site.offers] == ["none"]


def test_a_demand_for_hard_caps_names_the_line_that_makes_it() -> None:
    """It said "built in", and nobody found the line that denied the offer."""
    file = policy(require_hard_caps=True, hard_caps_source="policy.yaml:7")
    penstock = given(offer("cloud", guarantee="none"), file)
    penstock.hears(submitted("a"), at="09:00")
    because = NothingAllowed("cloud", "policy demands hard caps, and nothing there ends without us", "policy.yaml:7")
    assert penstock.why("a") == because


def test_a_mig_profile_is_a_resource_of_its_own() -> None:
    penstock = given(site("lab", nodes=1, gpus=7, mig_profile="1g.10gb"), site("whole", nodes=1, gpus=8))
    assert penstock.hears(submitted("slice", gpus=1, mig_profile="1g.10gb"), at="09:00") == [
        start("slice.1", on="lab", slots=((0, 1),))
    ]
    assert penstock.hears(submitted("gpu", gpus=1), at="09:00") == [start("gpu.1", on="whole")]
    penstock.hears(submitted("other", gpus=1, mig_profile="2g.20gb"), at="09:01")
    each = RuledOut(("lab",), "needs 2g.20gb, has 1g.10gb"), RuledOut(("whole",), "needs 2g.20gb, has whole GPUs")
    assert penstock.why("other") == NothingAllowed("lab", each[0].rule, "built in", each)


def test_an_ordered_gpu_preference_comes_before_price() -> None:
    fast = offer("fast", price="5", gpu_model="H100")
    slow = offer("slow", price="1", gpu_model="A100")
    penstock = given(slow, fast)
    wanted = (("H100", 1000), ("A100", 500))
    ordered = submitted("a", models=wanted, models_ordered=True)
    assert penstock.hears(ordered, at="09:00") == [launch("a.1/n0", at="fast")]


def test_any_of_several_gpus_is_judged_by_what_the_run_costs_at_its_speed() -> None:
    fast = offer("fast", price="3", gpu_model="H100")
    slow = offer("slow", price="1", gpu_model="V100")
    penstock = given(slow, fast)
    # Four times as slow at a third of the price is dearer.
    wanted = (("H100", 1000), ("V100", 250))
    assert penstock.hears(submitted("a", models=wanted), at="09:00") == [launch("a.1/n0", at="fast")]
    assert penstock.why("a") == PatienceOver(0, 0, HOUR, usd("24"), "slow", usd("32"))
    penstock.hears(submitted("b", models=(("P4", 1000),)), at="09:00")
    each = tuple(
        RuledOut((name,), f"GPU {gpu} is not one it can use") for name, gpu in (("fast", "H100"), ("slow", "V100"))
    )
    assert penstock.why("b") == NothingAllowed("fast", each[0].rule, "built in", each)


def test_a_start_says_how_fast_the_job_runs_on_that_gpu() -> None:
    penstock = given(site("lab", gpu_model="V100"))
    assert penstock.hears(submitted("a", models=(("V100", 250),)), at="09:00") == [
        start("a.1", on="lab", speed_permille=250)
    ]


def test_a_range_of_widths_runs_wider_when_there_is_room() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("other", gpus=3), at="09:00")
    scaling = ((4, 1800), (8, 3000))
    assert penstock.hears(submitted("a", gpus=2, scaling=scaling), at="09:01") == [
        start("a.1", on="lab", width=4, speed_permille=1800, slots=((0, 4),))
    ]


def test_an_array_is_many_jobs() -> None:
    penstock = given(site("lab"), policy("1h"))
    assert penstock.hears(submitted("sweep", gpus=4, count=3), at="09:00") == [
        start("sweep/0.1", on="lab", job="sweep/0"),
        start("sweep/1.1", on="lab", job="sweep/1"),
    ]
    assert penstock.hears(ended("sweep/0.1"), at="09:30") == [start("sweep/2.1", on="lab")]
    assert penstock.hears(cancelled("sweep/2"), at="09:31") == [stop("sweep/2.1")]
    assert penstock.hears(stopped("sweep/2.1"), at="09:32") == []
    assert penstock.phase("sweep/1") == "placed"


def test_a_waiting_job_is_cancelled_at_once() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.hears(cancelled("b"), at="09:01") == []
    assert penstock.phase("b") == "ended"
    assert penstock.hears(ended("a.1"), at="10:00") == []
    assert penstock.engine.state.ended == {"cancelled": 1, "done": 1}


def test_a_job_cancelled_in_the_instant_it_was_submitted_does_not_run() -> None:
    """Cancels were heard before submissions, so this one was about a job that nobody knew yet."""
    penstock = given(site("lab"))
    assert penstock.hears(cancelled("a"), submitted("a"), at="09:00") == []
    assert penstock.engine.state.ended == {"cancelled": 1}


def test_a_running_job_is_cancelled_once_it_isgone() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(cancelled("a"), at="09:01") == [stop("a.1")]
    assert penstock.phase("a") == "leaving"
    assert penstock.hears(cancelled("a"), at="09:02") == []
    assert penstock.hears(submitted("b"), at="09:02") == []  # still there
    assert penstock.hears(stopped("a.1"), at="09:03") == [start("b.1", on="lab")]
    assert penstock.engine.state.ended == {"cancelled": 1}


def test_a_job_that_ends_before_the_stop_reaches_it_is_done() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(cancelled("a"), at="09:01")
    penstock.hears(ended("a.1"), at="09:01:10")
    assert penstock.engine.state.ended == {"done": 1}


def test_a_job_that_fails_before_the_stop_reaches_it_has_failed() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(cancelled("a"), at="09:01")
    penstock.hears(ended("a.1", failed=True), at="09:01:10")
    assert penstock.engine.state.ended == {"failed": 1}


def test_a_job_of_higher_priority_preempts_the_fewest_of_lower_and_starts_once_they_aregone() -> None:
    penstock = given(site("lab", nodes=2), policy(preempt=True))
    penstock.hears(submitted("a", gpus=8, priority=1), at="09:00")
    penstock.hears(submitted("b", gpus=4), submitted("c", gpus=4), at="09:01")
    penstock.hears(started("a.1"), started("b.1"), started("c.1"), at="09:01")
    assert penstock.hears(submitted("urgent", gpus=4, priority=9), at="09:30") == [stop("c.1")]
    assert penstock.promise(StartPromised).after == ("c.1",)
    assert penstock.why("c") == Preempted("urgent", 9, 0)
    assert penstock.why("urgent") == RoomMade(0, free_gpus=0, left_by=("c",))
    assert penstock.story("urgent")[-1] == ("Starts on lab with 4 GPUs. 1 job makes room for it (c); 0 GPUs were free.")
    assert penstock.hears(stopped("c.1", kept="15m"), at="09:31") == [start("urgent.1", on="lab", slots=((1, 4),))]
    assert penstock.phase("c") == "waiting"
    assert penstock.hears(ended("urgent.1"), at="10:00") == [start("c.2", on="lab", resume_ms=15 * MINUTE)]


def test_a_job_that_is_preempted_in_the_instant_it_got_its_gpus_bursts_once() -> None:
    """`c` takes the GPUs of `a`, and `d` those of `b` and `c`, before anybody has stopped. So `c` had arrived twice in
    one step, and was sent to two nodes.
    """
    penstock = given(site("lab", gpus=2), offer("cloud"), policy(preempt=True, waiting=Waiting("nowait")))
    jobs = [
        submitted(name, gpus=gpus, priority=k) for k, (name, gpus) in enumerate(zip("abcd", (1, 1, 1, 2), strict=True))
    ]
    penstock.hears(*jobs, at="09:00")
    rented = [event.attempt for event in penstock.promises if isinstance(event, StartPromised) and event.rented]
    assert rented == ["c.2"]


def test_what_a_preempted_job_has_left_over_is_free_only_when_it_is_gone() -> None:
    """The rest of its GPUs went to the next in line at once, while it was still on them."""
    penstock = given(site("lab"), policy(preempt=True))
    penstock.hears(submitted("low"), at="09:00")
    penstock.hears(started("low.1"), at="09:00")
    urgent = submitted("urgent", gpus=2, priority=9)
    assert penstock.hears(urgent, submitted("next", gpus=2), at="09:30") == [stop("low.1")]
    assert penstock.hears(submitted("later", gpus=2), at="09:31") == []
    assert penstock.hears(stopped("low.1"), at="09:32") == [
        start("urgent.1", on="lab"),
        start("next.1", on="lab"),
        start("later.1", on="lab"),
    ]


def test_nobody_preempts_an_equal_or_a_job_that_may_not_be_interrupted() -> None:
    penstock = given(site("lab", nodes=2), policy(preempt=True))
    penstock.hears(submitted("a", priority=5), submitted("b", interruptible=False), at="09:00")
    assert penstock.hears(submitted("urgent", priority=5), at="09:30") == []
    assert penstock.why("urgent") == OnlyOwned(0, "there is nothing to rent")


def test_a_job_that_may_not_leave_displaces_one_that_may_on_the_gainers_account() -> None:
    penstock = given(site("lab"), offer("cloud", price="1", start="5m"), policy("1h", displace=True))
    penstock.hears(submitted("roams", team="science", run="3h"), at="09:00")
    penstock.hears(started("roams.1"), at="09:00")
    # Its class of data may go nowhere, so it can only run at home.
    bound = submitted("bound", team="clinic", home="lab", data_class="patients")
    assert penstock.hears(bound, at="10:00") == [launch("roams.2/n0", at="cloud"), stop("roams.1")]
    assert penstock.why("roams") == Displaced("bound", 8, cost=usd("8") * 185 // 60 + 1)
    assert penstock.why("bound") == RoomMade(0, free_gpus=0, left_by=("roams",))
    held, _ = penstock.account("team:clinic")
    assert held > usd("16")
    assert penstock.account("team:science") == (0, 0)
    assert penstock.hears(stopped("roams.1", kept="45m"), at="10:01") == [start("bound.1", on="lab")]
    assert penstock.hears(started("bound.1"), at="10:01") == []
    assert penstock.hears(ready("roams.2/n0"), at="10:05") == [
        start("roams.2", on="cloud", resume_ms=45 * MINUTE, nodes=("roams.2/n0",))
    ]
    penstock.hears(started("roams.2"), at="10:05")
    assert penstock.hears(ended("roams.2"), at="12:20") == [release("roams.2/n0")]
    penstock.hears(gone("roams.2/n0"), at="12:20")
    held, spent = penstock.account("team:clinic")
    # Billed from the asking at 10:00 until it was gone.
    assert (held, spent) == (0, usd("8") * 140 // 60 + 1)


def test_nobody_is_displaced_who_may_not_move() -> None:
    penstock = given(site("lab"), offer("cloud"), policy("1h", displace=True))
    penstock.hears(submitted("stays", checkpoint=None), at="09:00")
    assert penstock.hears(submitted("bound", home="lab", data_class="patients"), at="10:00") == []
    assert penstock.why("bound") == OnlyOwned(0, "data class patients may not go to cloud")


def test_displacing_needs_room_for_everybody_who_must_go() -> None:
    """Two were sent to an offer that has one node: each was judged as if it went alone."""
    penstock = given(site("lab"), offer("cloud", sizes=(4,), count=1), policy("1h", displace=True))
    penstock.hears(submitted("a", gpus=4), submitted("b", gpus=4), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    assert penstock.hears(submitted("bound", gpus=8, home="lab", data_class="patients"), at="10:00") == []


def test_moves_of_a_waiting_or_unknown_job_or_to_nowhere_change_nothing() -> None:
    penstock = given(site("lab"), offer("cloud"), policy("1h"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.hears(asked_to_move("b", "cloud"), at="09:01") == []
    assert penstock.hears(asked_to_move("c", "cloud"), at="09:02") == []
    assert penstock.hears(asked_to_move("a", "moon"), at="09:03") == []
    assert penstock.phase("b") == "waiting"


def test_history_teaches_how_long_such_jobs_run() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud"), policy(waiting=Waiting("compute", 1, 8)))
    for k in range(5):
        penstock.hears(_unknown(f"old{k}"), at=f"0{k}:00")
        penstock.hears(started(f"old{k}.1"), at=f"0{k}:00")
        penstock.hears(ended(f"old{k}.1"), at=f"0{k}:30")
    penstock.hears(_unknown("a"), _unknown("b"), at="08:00")
    penstock.hears(_unknown("c"), at="09:00")
    assert penstock.wakes() == clock("09:30")


def _unknown(job: str) -> Told:
    """Nobody knows how long it runs."""
    return lambda at: JobSubmitted(at, -1, job, JobSpec(8))
