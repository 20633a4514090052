"""What a policy file says of the moment: triggers, limits of teams, classes and jobs, hours, headroom, idle nodes."""

from typing import Any

from penstock.core.model import events as e
from penstock.core.model.events import JobFailed, ReleasePromised, RenewalDenied, StopPromised, WaitPromised
from penstock.core.model.governance import (
    BurstTrigger,
    ClassRule,
    Governance,
    Headroom,
    PriceLimit,
    QuietHours,
    TeamRule,
)
from penstock.core.model.reasons import (
    BurstAllowed,
    CapBinds,
    EgressSpent,
    HeadroomKept,
    InQuietHours,
    JoinsNode,
    NoMoreWork,
    NoTriggerHolds,
    NotWorthWaiting,
    OwnedFree,
    PatienceOver,
    RanTooLong,
    TeamAtLimit,
    TooDear,
    TriggerSeen,
    WaitsForOwned,
)
from penstock.core.model.types import Waiting
from penstock.core.units import GB, HOUR, MINUTE, Money
from tests.stories.kit import (
    Penstock,
    Told,
    asked_to_move,
    clock,
    confirmed,
    ended,
    given,
    gone,
    lost,
    month,
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

AT = "policy.yaml:7"


def says(patience: str = "10m", **more: Any) -> Told:
    """A policy file with these parts."""
    governance = {
        key: more.pop(key) for key in list(more) if key in Governance.__dataclass_fields__ and key != "waiting"
    }
    return policy(patience, governance=Governance(**governance), **more)


def hours(window: str, starts: str, ends: str) -> Told:
    return lambda at: e.HoursOpened(at, window, clock(starts), clock(ends))


def trigger(kind: str, threshold: int, for_ms: int = 0) -> BurstTrigger:
    return BurstTrigger(kind, threshold, for_ms, AT)  # type: ignore[arg-type]  # one of its literals


def saw(kind: str, threshold: int, seen: int, for_ms: int = 0, held_ms: int = 0) -> TriggerSeen:
    return TriggerSeen(kind, threshold, seen, AT, for_ms, held_ms)  # type: ignore[arg-type]  # one of its literals


def busy(*undated: Told, **more: Any) -> Penstock:
    """A lab that is full until noon, and a cloud that sells by the attempt."""
    penstock = given(site("lab"), offer("pods", sold_by="attempt", sizes=(1,)), says(**more), *undated)
    penstock.hears(submitted("first", run="3h"), at="09:00")
    penstock.hears(started("first.1"), at="09:00")
    return penstock


# --- burst_when ------------------------------------------------------------------------------------------------------


def test_a_job_bursts_once_so_many_are_queued() -> None:
    penstock = busy(burst_when=(trigger("queued_jobs", 2),))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(nothing, at="09:10") == []
    because = NoTriggerHolds(10 * MINUTE, "pods", usd("8"), (saw("queued_jobs", 2, 1),))
    assert penstock.promises == [WaitPromised(clock("09:10"), "a", 1 << 62, because, scope="burst_when")]
    assert penstock.wakes() == clock("day 31, 00:00")  # only an event can change that
    # Its patience is over already: it bursts as soon as a second one is queued.
    assert penstock.hears(submitted("b"), at="09:20") == [start("a.1", on="pods")]
    burst = PatienceOver(
        waited_ms=20 * MINUTE, patience_ms=10 * MINUTE, expected_run_ms=HOUR, cost=usd("8"), next_offer="", next_cost=0
    )
    assert penstock.why("a") == BurstAllowed(burst, saw("queued_jobs", 2, 2))
    assert penstock.story("a")[1:3] == [
        "Queued for up to 10 min, until day 1, 09:10: 0 GPUs free. Bursting now costs about $8.00 for 1 h.",
        (
            "Queued: it would burst to pods for about $8.00, but no trigger of the policy holds: "
            "1 job is queued, it holds from 2 (policy.yaml:7)."
        ),
    ]
    assert "Trigger of the policy: 2 jobs are queued, it holds from 2 (policy.yaml:7)." in penstock.story("a")[3]


def test_a_job_that_waits_for_a_trigger_takes_owned_gpus_that_come_free() -> None:
    penstock = busy(burst_when=(trigger("queued_jobs", 5),))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(nothing, at="09:10")
    assert penstock.hears(ended("first.1"), at="09:30") == [start("a.1", on="lab")]


def test_a_job_bursts_when_it_is_expected_to_wait_so_long() -> None:
    penstock = busy(burst_when=(trigger("expected_wait", 4 * HOUR),))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(nothing, at="09:10") == []
    # The first job is expected to run until noon, so in all it would wait for three hours.
    because = penstock.promise(WaitPromised).because
    (reading,) = because.seen
    assert (reading.trigger, reading.threshold) == ("expected_wait", 4 * HOUR)
    assert 0 < reading.seen < 4 * HOUR
    again = penstock.promise(WaitPromised).until_at
    assert again == clock("09:10") + 4 * HOUR - reading.seen == penstock.wakes()
    # Asked again then, and not before; in the end its wait alone is long enough.
    for _ in range(20):
        wakes = penstock.wakes()
        assert wakes is not None
        if penstock.takes(e.Woke(wakes)):
            break
    assert clock("09:10") < penstock.steps[-1].at <= clock("13:00")
    allowed = penstock.why("a")
    assert isinstance(allowed, BurstAllowed)
    assert allowed.trigger is not None
    assert allowed.trigger.seen >= 4 * HOUR
    assert len(penstock.steps) < 20


def test_a_job_bursts_when_owned_gpus_were_in_use_for_so_long() -> None:
    penstock = busy(burst_when=(trigger("utilisation", 950, 15 * MINUTE),))
    penstock.hears(submitted("a"), at="09:02")
    assert penstock.hears(nothing, at="09:12") == []
    reading = saw("utilisation", 950, 1000, 15 * MINUTE, held_ms=12 * MINUTE)
    because = NoTriggerHolds(10 * MINUTE, "pods", usd("8"), (reading,))
    assert penstock.promises == [WaitPromised(clock("09:12"), "a", 1 << 62, because, scope="burst_when")]
    assert penstock.wakes() == clock("09:15")
    assert penstock.hears(nothing, at="09:15") == [start("a.1", on="pods")]
    assert penstock.why("a").trigger == saw("utilisation", 950, 1000, 15 * MINUTE, held_ms=15 * MINUTE)  # type: ignore[union-attr]


def test_utilisation_counts_from_when_it_rose_last() -> None:
    penstock = given(
        site("lab", nodes=2), offer("pods", sold_by="attempt", sizes=(1,)),
        says("1m", burst_when=(trigger("utilisation", 1000, 10 * MINUTE),)),
    )  # fmt: skip
    penstock.hears(submitted("one", run="3h"), submitted("two", run="3h"), at="09:00")
    penstock.hears(ended("two.1"), at="09:05")
    penstock.hears(submitted("wide", gpus=16, run="3h"), at="09:06")  # it does not fit
    assert penstock.hears(nothing, at="09:20") == []
    (reading,) = penstock.why("wide").seen  # type: ignore[union-attr]
    assert reading == saw("utilisation", 1000, 500, 10 * MINUTE)
    penstock.hears(submitted("three", run="3h"), at="09:30")
    assert penstock.wakes() == clock("09:40")
    assert penstock.hears(nothing, at="09:40") == [start("wide.1", on="pods")]


def test_a_job_bursts_when_waiting_longer_would_miss_its_deadline() -> None:
    penstock = busy(burst_when=(trigger("deadline_at_risk", 1), trigger("queued_jobs", 9)))
    penstock.hears(submitted("a", deadline_at=clock("11:30")), submitted("b"), at="09:00")
    assert penstock.hears(nothing, at="09:10") == []
    assert penstock.why("b").seen == (saw("deadline_at_risk", 1, 0), saw("queued_jobs", 9, 2))  # type: ignore[union-attr]
    assert penstock.why("a").seen[0] == saw("deadline_at_risk", 1, clock("10:30"))  # type: ignore[union-attr]
    assert penstock.wakes() == clock("10:30")
    assert penstock.hears(nothing, at="10:30") == [start("a.1", on="pods")]
    assert penstock.why("a").trigger == saw("deadline_at_risk", 1, clock("10:30"))  # type: ignore[union-attr]
    assert penstock.phase("b") == "waiting"


def test_a_class_that_is_rented_and_a_job_without_owned_offers_need_no_trigger() -> None:
    rented = ClassRule("experiment", where="rented", source=AT)
    penstock = busy(burst_when=(trigger("queued_jobs", 9),), classes=(rented,))
    penstock.hears(submitted("a", job_class="experiment"), at="09:00")
    assert penstock.hears(nothing, at="09:10") == [start("a.1", on="pods")]
    assert isinstance(penstock.why("a"), PatienceOver)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says(burst_when=(trigger("queued_jobs", 9),)))
    penstock.hears(submitted("b"), at="09:00")
    assert penstock.hears(nothing, at="09:10") == [start("b.1", on="pods")]


def test_a_weighed_job_needs_a_trigger_too() -> None:
    worth = Waiting("worth", value_per_hour=usd("100"))
    penstock = given(
        site("lab"), offer("pods", sold_by="attempt", sizes=(1,)),
        says("", waiting=worth, burst_when=(trigger("queued_jobs", 2),)),
    )  # fmt: skip
    penstock.hears(submitted("first", run="3h"), at="09:00")
    penstock.hears(submitted("a"), at="09:00")
    wakes = penstock.wakes()
    while penstock.phase("a") == "waiting" and not isinstance(penstock.why("a"), NoTriggerHolds):
        assert wakes is not None
        assert penstock.takes(e.Woke(wakes)) == []
        wakes = penstock.wakes()
    assert penstock.hears(submitted("b"), at="12:00") == [start("a.1", on="pods")]
    allowed = penstock.why("a")
    assert isinstance(allowed, BurstAllowed)
    assert isinstance(allowed.burst, NotWorthWaiting)


# --- what one job may cost -------------------------------------------------------------------------------------------


def test_an_offer_above_the_limit_for_one_job_is_passed_over() -> None:
    above = PriceLimit(per_job=usd("10"), source=AT)
    penstock = given(
        offer("dear", price="3", sold_by="attempt", sizes=(1,)),
        offer("slow", price="1", sold_by="attempt", sizes=(1,), start="1h"),
        says("", never_above=above, waiting=Waiting("worth", value_per_hour=usd("30"))),
    )  # fmt: skip
    # The dear one starts at once and costs 24; the other costs 16 with its start, and 30 for the delay.
    assert penstock.hears(submitted("a"), at="09:00") == []
    assert penstock.why("a") == TooDear("slow", usd("16"), usd("10"), 0, AT)
    assert penstock.story("a")[1] == ("Queued: slow costs about $16.00, and one job may cost $10.00 (policy.yaml:7).")
    assert penstock.hears(submitted("b", gpus=4), at="09:00") == [start("b.1", on="slow")]
    allowed = penstock.why("b")
    assert isinstance(allowed, BurstAllowed)
    assert (allowed.trigger, allowed.passed_over) == (None, (TooDear("dear", usd("12"), usd("10"), 0, AT),))


def test_a_teams_limit_for_one_job_is_a_hard_cap_over_all_its_attempts() -> None:
    red = TeamRule("red", per_job=usd("10"), source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", teams=(red,)))
    penstock.hears(submitted("a", gpus=1, run="8h", team="red", lease_max_ms="4h"), at="09:00")
    assert penstock.account("job:a", "")[0] == penstock.held() <= usd("10")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(lost("a.1"), at="13:00")  # four are spent, and eight more are expected
    assert penstock.account("job:a", "") == (0, usd("4"))
    assert penstock.why("a") == TooDear("pods", usd("8"), usd("10"), usd("4"), AT)
    other = penstock.hears(submitted("b", gpus=1, run="20h", team="blue"), at="13:00")
    assert other == [start("b.1", on="pods")]


def test_a_job_never_costs_more_than_its_teams_limit_however_long_it_runs() -> None:
    red = TeamRule("red", per_job=usd("3"), source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", teams=(red,)))
    penstock.hears(submitted("a", gpus=1, run="1h", team="red", lease_max_ms="1h", cap="7"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    for _ in range(40):
        wakes = penstock.wakes()
        if wakes is None or penstock.phase("a") != "placed":
            break
        penstock.takes(e.Woke(wakes))
        assert sum(penstock.account("job:a", "")) <= usd("3")
    assert isinstance(penstock.promise(StopPromised), StopPromised)


def test_a_lease_from_before_its_teams_limit_is_renewed_only_within_it() -> None:
    """It was bound with the job's next attempt only, and a job that was never interrupted cost what it liked."""
    red = TeamRule("red", per_job=usd("6"), source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says(""))
    penstock.hears(submitted("a", gpus=1, run="9h", team="red", lease_max_ms="4h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(says("", teams=(red,), revision=2), at="10:00") == []
    assert penstock.account("job:a", "") == (penstock.held(), 0)
    renew_until_it_stops(penstock, "a", usd("6"))
    assert penstock.account("job:a", "")[1] > usd("5")  # it could use what the limit leaves
    assert isinstance(penstock.promise(RenewalDenied).because, CapBinds)


def test_a_limit_below_what_is_held_calls_the_lease_back() -> None:
    red = TeamRule("red", per_job=usd("2"), source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says(""))
    penstock.hears(submitted("a", gpus=1, run="9h", team="red", lease_max_ms="4h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(says("", teams=(red,), revision=2), at="10:00") == [set_deadline("a.1", "10:10")]
    penstock.hears(confirmed("a.1", "10:10"), at="10:00")
    assert penstock.held() < usd("2")
    renew_until_it_stops(penstock, "a", usd("2"))


def test_jobs_that_share_a_node_since_before_their_teams_limit_leave_when_their_part_is_spent() -> None:
    red = TeamRule("red", per_job=usd("12"), source=AT)
    penstock = given(offer("cloud", price="1"), says("", share_nodes=True))
    penstock.hears(submitted("a", gpus=6, run="9h", team="red", lease_max_ms="1h"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(submitted("b", gpus=2, run="9h", team="red", lease_max_ms="1h"), at="09:00") == [
        start("b.1", on="cloud", nodes=("a.1/n0",))
    ]
    penstock.hears(started("b.1"), at="09:00")
    penstock.hears(says("", teams=(red,), revision=2, share_nodes=True), at="09:10")
    for _ in range(9):
        penstock.takes(e.Woke(penstock.wakes() or 0))
        if penstock.phase("a") != "placed":
            break
    assert penstock.promise(StopPromised).attempt == "a.1"  # three quarters of the node are its part
    assert (penstock.account("job:a", ""), penstock.account("job:b", "")) == ((0, usd("9")), (0, usd("3")))
    assert penstock.phase("b") == "placed"


def renew_until_it_stops(penstock: Penstock, job: str, limit: Money) -> None:
    for _ in range(60):
        wakes = penstock.wakes()
        if wakes is None or penstock.phase(job) != "placed":
            break
        penstock.takes(e.Woke(wakes))
        assert sum(penstock.account("job:" + job, "")) <= limit
    assert penstock.promise(StopPromised).attempt == job + ".1"
    assert penstock.account("job:" + job, "")[1] <= limit


# --- GPUs of a team at once ------------------------------------------------------------------------------------------


def test_a_team_has_only_so_many_gpus_at_once_and_others_go_before_it() -> None:
    red = TeamRule("red", gpus_at_once=8, source=AT)
    penstock = given(site("lab", nodes=2), says("", teams=(red,)))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", team="red"), at="09:01") == []
    assert penstock.promises == [
        WaitPromised(clock("09:01"), "b", 1 << 62, TeamAtLimit("red", 8, 8, 8, AT), scope="gpus:red")
    ]
    assert penstock.story("b")[1] == "Queued: red may have 8 GPUs at once; it has 8, and this needs 8 (policy.yaml:7)."
    assert penstock.hears(submitted("c", team="blue"), at="09:02") == [start("c.1", on="lab")]
    assert penstock.hears(ended("a.1"), at="10:00") == [start("b.1", on="lab")]
    assert penstock.why("b") == OwnedFree(59 * MINUTE, 8)


def test_without_backfill_a_team_at_its_limit_lets_others_pass_too() -> None:
    red = TeamRule("red", gpus_at_once=8, source=AT)
    penstock = given(site("lab", nodes=2), says("", teams=(red,), backfill=False))
    penstock.hears(submitted("a", team="red"), at="09:00")
    penstock.hears(submitted("b", team="red"), at="09:01")
    assert penstock.hears(submitted("c", team="blue"), at="09:02") == [start("c.1", on="lab")]


def test_rented_gpus_count_and_make_room_when_they_end() -> None:
    red = TeamRule("red", gpus_at_once=12, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", teams=(red,)))
    assert penstock.hears(submitted("a", team="red"), at="09:00") == [start("a.1", on="pods")]
    assert penstock.hears(submitted("b", team="red"), submitted("c", gpus=4, team="red"), at="09:01") == [
        start("c.1", on="pods")
    ]
    assert penstock.why("b") == TeamAtLimit("red", 8, 8, 12, AT)
    penstock.hears(ended("c.1"), at="09:30")
    assert penstock.phase("b") == "waiting"  # four are free, and it needs eight
    assert penstock.hears(ended("a.1"), at="10:00") == [start("b.1", on="pods")]


def test_a_job_that_could_be_wider_stays_within_its_teams_limit() -> None:
    red = TeamRule("red", gpus_at_once=8, source=AT)
    penstock = given(site("lab", nodes=2), says("", teams=(red,)))
    actions = penstock.hears(submitted("a", gpus=4, team="red", scaling=((8, 1800), (16, 3000))), at="09:00")
    assert actions == [start("a.1", on="lab", width=8)]


# --- what leaves rented sites ----------------------------------------------------------------------------------------


def test_a_team_brings_only_so_much_out_of_rented_sites_in_a_month() -> None:
    red = TeamRule("red", egress_bytes_per_month=10 * GB, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", teams=(red,)), month(1), month(2))
    output: dict[str, Any] = {"team": "red", "output_bytes": 6 * GB}
    assert penstock.hears(submitted("a", **output), at="09:00") == [start("a.1", on="pods")]
    assert penstock.hears(submitted("b", **output), at="09:01") == []
    spent = EgressSpent("red", "month 1", 6 * GB, 6 * GB, 10 * GB, AT)
    assert penstock.promises == [WaitPromised(clock("09:01"), "b", 1 << 62, spent, scope="egress:red")]
    assert penstock.story("b")[1] == (
        "Queued: red may bring 10.0 GB out of rented sites in month 1; 6.0 GB is counted, and its "
        "output is 6.0 GB (policy.yaml:7)."
    )
    penstock.hears(started("a.1"), at="09:02")
    assert penstock.hears(ended("a.1"), at="10:00") == []  # it ran, so it counts
    assert penstock.wakes() == clock("day 31, 00:00")
    assert penstock.hears(nothing, at="day 31, 00:00") == [start("b.1", on="pods")]


def test_what_never_ran_brings_nothing_out() -> None:
    red = TeamRule("red", egress_bytes_per_month=10 * GB, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", teams=(red,)))
    output: dict[str, Any] = {"team": "red", "output_bytes": 6 * GB}
    penstock.hears(submitted("a", **output), at="09:00")
    penstock.hears(submitted("b", **output), at="09:01")
    penstock.hears(refused("a.1"), at="09:02")
    assert penstock.engine.state.egress == {("red", "month 1"): 0}
    penstock.hears(nothing, at="09:07")
    assert penstock.engine.state.egress == {("red", "month 1"): 6 * GB}


# --- hours -----------------------------------------------------------------------------------------------------------


def test_nothing_new_is_rented_in_quiet_hours_and_what_runs_stays() -> None:
    quiet = (QuietHours("night", AT),)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", quiet_hours=quiet))
    penstock.hears(hours("night", "22:00", "day 2, 06:00"), at="20:00")
    assert penstock.hears(submitted("a"), at="21:00") == [start("a.1", on="pods")]
    penstock.hears(started("a.1"), at="21:00")
    assert penstock.hears(submitted("b"), at="22:00") == []
    because = InQuietHours("night", clock("day 2, 06:00"), AT)
    assert penstock.promises == [WaitPromised(clock("22:00"), "b", clock("day 2, 06:00"), because)]
    assert penstock.story("b")[1] == (
        "Queued: nothing new is rented until day 2, 06:00, in quiet hours (policy.yaml:7)."
    )
    # A preempted one would be rented anew.
    assert penstock.hears(lost("a.1", "15m"), at="23:00") == []
    assert penstock.why("a") == because
    assert penstock.hears(nothing, at="day 2, 06:00") == [start("a.2", on="pods"), start("b.1", on="pods")]


def test_a_person_cannot_move_a_job_to_rented_gpus_in_quiet_hours() -> None:
    penstock = given(
        site("lab"), offer("pods", sold_by="attempt", sizes=(1,)), says(quiet_hours=(QuietHours("night", AT),))
    )
    penstock.hears(hours("night", "09:00", "10:00"), at="08:00")
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(asked_to_move("a", to="pods"), at="09:30") == []
    assert penstock.hears(asked_to_move("a", to="pods"), at="10:00") == [stop("a.1")]


def test_headroom_is_kept_free_for_its_class_while_it_is_open() -> None:
    kept = (Headroom("day", "lab", 8, "inference", AT),)
    penstock = given(site("lab", nodes=2), offer("pods", sold_by="attempt", sizes=(1,)), says("2h", headroom=kept))
    penstock.hears(hours("day", "08:00", "20:00"), at="08:00")
    assert penstock.hears(submitted("a", run="30m"), at="19:00") == [start("a.1", on="lab", slots=((0, 8),))]
    assert penstock.hears(submitted("b"), at="19:01") == []
    wait = WaitsForOwned(patience_ms=2 * HOUR, expected_run_ms=HOUR, free_gpus=8, burst_cost=usd("8"))
    because = HeadroomKept("lab", 8, "inference", clock("20:00"), AT, wait)
    assert penstock.promises == [WaitPromised(clock("19:01"), "b", clock("21:01"), because, patience_ms=2 * HOUR)]
    assert penstock.story("b")[1].endswith(
        "Until day 1, 20:00 8 GPUs of lab are kept free for class inference (policy.yaml:7)."
    )
    assert penstock.hears(submitted("i", job_class="inference"), at="19:02") == [
        start("i.1", on="lab", slots=((1, 8),))
    ]
    penstock.hears(ended("i.1"), at="19:30")
    assert penstock.phase("b") == "waiting"
    assert penstock.wakes() == clock("20:00")
    assert penstock.hears(nothing, at="20:00") == [start("b.1", on="lab")]


def test_running_jobs_are_not_stopped_for_headroom_and_preemption_leaves_it() -> None:
    kept = (Headroom("day", "lab", 8, "inference", AT),)
    penstock = given(site("lab", nodes=2), says("", headroom=kept, preempt=True))
    penstock.hears(submitted("a"), submitted("b"), at="07:00")
    assert penstock.hears(hours("day", "08:00", "20:00"), at="08:00") == []
    penstock.hears(started("a.1"), started("b.1"), at="08:00")
    penstock.hears(ended("b.1"), at="09:00")
    # Eight are free, and kept: the urgent job takes those of a job that gives way.
    assert penstock.hears(submitted("urgent", priority=5), at="09:01") == [stop("a.1")]
    assert penstock.hears(stopped("a.1", "1h"), at="09:02") == [start("urgent.1", on="lab", slots=((0, 8),))]
    assert penstock.phase("a") == "waiting"


def test_headroom_for_other_peoples_pods_is_nobodys() -> None:
    penstock = given(site("lab", nodes=1), says("", headroom=(Headroom("day", "lab", 4, "", AT),)))
    penstock.hears(hours("day", "08:00", "20:00"), at="08:00")
    assert penstock.hears(submitted("a", job_class="inference"), at="09:00") == []
    assert penstock.hears(submitted("b", gpus=4, job_class="inference"), at="09:01") == [start("b.1", on="lab")]


# --- idle nodes ------------------------------------------------------------------------------------------------------


def test_an_idle_node_is_kept_for_as_long_as_the_policy_says() -> None:
    penstock = given(offer("cloud"), says("", idle_nodes_end_after_ms=10 * MINUTE))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(ended("a.1"), at="10:00") == []
    assert penstock.held() > 0
    assert penstock.wakes() == clock("10:10")
    # A job that comes meanwhile uses it.
    assert penstock.hears(submitted("b"), at="10:05") == [start("b.1", on="cloud", nodes=("a.1/n0",))]
    assert isinstance(penstock.why("b"), JoinsNode)
    penstock.hears(started("b.1"), at="10:05")
    assert penstock.hears(ended("b.1"), at="11:00") == []
    assert penstock.hears(nothing, at="11:10") == [release("a.1/n0")]
    assert penstock.promises == [ReleasePromised(clock("11:10"), "a.1/n0", NoMoreWork(10 * MINUTE))]
    penstock.hears(gone("a.1/n0"), at="11:11")
    assert penstock.held() == 0
    assert penstock.wakes() is None


def test_a_policy_that_keeps_no_idle_nodes_releases_them_at_once() -> None:
    penstock = given(offer("cloud"), says("", idle_nodes_end_after_ms=HOUR))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(ended("a.1"), at="10:00")
    assert penstock.hears(policy(revision=2), at="10:01") == [release("a.1/n0")]


# --- how long jobs of a class may run --------------------------------------------------------------------------------


def test_a_job_is_stopped_with_its_checkpoint_before_its_class_has_run_too_long() -> None:
    short = ClassRule("experiment", longest_ms=2 * HOUR, source=AT)
    penstock = given(site("lab"), says("", classes=(short,)))
    penstock.hears(submitted("a", run="5h", job_class="experiment"), at="09:00")
    penstock.hears(started("a.1"), at="09:05")
    assert penstock.wakes() == clock("11:03")  # its grace is two minutes
    assert penstock.hears(nothing, at="11:03") == [stop("a.1")]
    because = RanTooLong("experiment", 2 * HOUR - 2 * MINUTE, 2 * HOUR, AT)
    assert penstock.promises == [StopPromised(clock("11:03"), "a.1", "fail", yields=False, because=because)]
    assert penstock.hears(stopped("a.1", "118m"), at="11:05") == []
    assert penstock.engine.state.ended == {"failed": 1}
    assert penstock.story("a")[-2:] == [
        "Stopping. Failed: it has run 1 h 58 min, and jobs of class experiment may run 2 h (policy.yaml:7).",
        "Stopped; 1 h 58 min of work kept.",
    ]


def test_its_run_time_counts_over_all_attempts_and_nothing_is_held_for_longer() -> None:
    short = ClassRule("experiment", longest_ms=2 * HOUR, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", classes=(short,)))
    actions = penstock.hears(submitted("a", run="5h", job_class="experiment"), at="09:00")
    assert actions == [start("a.1", on="pods", deadline_at=clock("11:00"))]
    penstock.hears(started("a.1"), at="09:00")
    actions = penstock.hears(lost("a.1", "30m"), at="10:00")
    assert actions == [start("a.2", on="pods", deadline_at=clock("11:00"))]
    penstock.hears(started("a.2"), at="10:10")
    assert penstock.wakes() == clock("11:08")
    penstock.hears(lost("a.2", "30m"), at="11:07")
    penstock.hears(started("a.3"), at="11:07")
    # Three minutes are left, two of them for the checkpoint.
    assert penstock.hears(nothing, at="11:08") == [stop("a.3")]
    penstock.hears(lost("a.3"), at="11:09")
    assert penstock.engine.state.ended == {"failed": 1}
    assert penstock.held() == 0


def test_a_lease_is_renewed_no_further_than_its_class_may_run() -> None:
    short = ClassRule("experiment", longest_ms=5 * HOUR, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", classes=(short,)))
    penstock.hears(submitted("a", run="9h", job_class="experiment", lease_max_ms="4h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.until("a.1") == clock("13:00")
    assert penstock.hears(nothing, at="12:00") == [set_deadline("a.1", "14:00")]
    assert penstock.wakes() == clock("13:58")


def test_a_job_that_used_up_its_time_while_nobody_looked_has_failed() -> None:
    """With the control plane alive it is stopped in time, and has failed; it ended as refused, which is what a job is
    that never ran.
    """
    short = ClassRule("experiment", longest_ms=2 * HOUR, source=AT)
    penstock = given(site("lab"), says("", classes=(short,)))
    penstock.hears(submitted("a", run="5h", job_class="experiment"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(lost("a.1", "2h"), at="12:00")
    assert penstock.promises == [JobFailed(clock("12:00"), "a", RanTooLong("experiment", 3 * HOUR, 2 * HOUR, AT))]
    assert penstock.engine.state.ended == {"failed": 1}
    assert penstock.story("a")[-1] == (
        "Failed: it has run 3 h, and jobs of class experiment may run 2 h (policy.yaml:7)."
    )


def test_a_rented_job_that_stopped_at_its_deadline_while_nobody_looked_has_failed_too() -> None:
    short = ClassRule("experiment", longest_ms=2 * HOUR, source=AT)
    penstock = given(offer("pods", sold_by="attempt", sizes=(1,)), says("", classes=(short,)))
    actions = penstock.hears(submitted("a", run="5h", job_class="experiment"), at="09:00")
    assert actions == [start("a.1", on="pods", deadline_at=clock("11:00"))]
    penstock.hears(started("a.1"), at="09:00")
    # It ended by itself at 11:00; the control plane is back at 12:00 and hears of it.
    assert penstock.hears(stopped("a.1", "2h"), at="12:00") == []
    assert penstock.promise(JobFailed) == JobFailed(
        clock("12:00"), "a", RanTooLong("experiment", 3 * HOUR, 2 * HOUR, AT)
    )
    assert penstock.engine.state.ended == {"failed": 1}
    assert (penstock.held(), penstock.engine.state.attempts) == (0, {})


def test_a_new_policy_asks_all_again() -> None:
    penstock = busy(burst_when=(trigger("queued_jobs", 9),))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(nothing, at="09:10")
    penstock.hears(says(burst_when=(trigger("queued_jobs", 5),), revision=2), at="09:20")
    assert penstock.why("a").seen == (saw("queued_jobs", 5, 1),)  # type: ignore[union-attr]
    assert penstock.hears(policy("10m", revision=3), at="09:30") == [start("a.1", on="pods")]
