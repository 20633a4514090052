"""Caps: what binds, what is renewed, what drains, and when money comes free."""

from typing import Any

import pytest

from penstock.core.model.events import (
    LeaseCalledBack,
    LeaseRenewed,
    LeaseShortened,
    OverrunFound,
    RenewalDenied,
    Settled,
    StartPromised,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.reasons import CapBinds, LeaseNotRenewed, OwnedFree, PeriodUnknown, RateBinds, ScopeFrozen
from penstock.core.model.types import Part
from penstock.core.units import HOUR, MINUTE, NEVER
from tests.stories.kit import (
    Extras,
    Told,
    asked_to_move,
    cancelled,
    cap,
    checkpointed,
    clock,
    confirmed,
    copy,
    data,
    ended,
    given,
    gone,
    landed,
    launch,
    metered,
    month,
    nothing,
    offer,
    policy,
    ready,
    release,
    rule,
    set_deadline,
    site,
    start,
    started,
    stop,
    stopped,
    usd,
)
from tests.stories.kit import submitted as submitted_to


def submitted(job: str, **more: Any) -> Told:
    """With checkpoints that even the shortest lease reaches."""
    return submitted_to(job, **{"checkpoint": "5m", **more})


PODS = offer("pods", price="1", sizes=(1,), sold_by="attempt")
#: Ten minutes of lease and two of grace for 8 GPUs, the least that anything is started for.
LEAST = usd("8") * 12 // 60 + 1


def test_a_team_at_its_cap_is_denied_naming_the_scope_and_the_numbers() -> None:
    penstock = given(PODS, cap("team:vision", "1"))
    assert penstock.hears(submitted("a", team="vision"), at="09:00") == []
    because = CapBinds("team:vision", "month 1", usd("1"), spent=0, held=0, needed=LEAST)
    assert penstock.promises == [WaitPromised(clock("09:00"), "a", NEVER, because, scope="team:vision")]
    assert penstock.hears(submitted("b", team="speech"), at="09:01") == [start("b.1", on="pods")]


def test_every_scope_is_asked_the_organisation_first() -> None:
    penstock = given(PODS, cap("org", "100"), cap("team:vision", "100"), cap("project:x", "1"))
    penstock.hears(submitted("a", team="vision", project="x"), at="09:00")
    assert penstock.why("a") == CapBinds("project:x", "month 1", usd("1"), 0, 0, LEAST)
    penstock.hears(cap("org", "0.50"), at="09:01")
    penstock.hears(submitted("b", team="vision", project="x"), at="09:02")
    assert penstock.why("b") == CapBinds("org", "month 1", usd("0.50"), 0, 0, LEAST)


def test_who_waits_for_money_tries_again_when_room_appears_first_come_first_served() -> None:
    penstock = given(PODS, cap("team:vision", "3.70"))
    penstock.hears(submitted("a", team="vision", lease_max_ms="10m"), at="09:00")
    assert penstock.hears(submitted("b", team="vision"), at="09:01") == [start("b.1", on="pods")]
    assert penstock.hears(submitted("c", team="vision"), submitted("d", team="vision"), at="09:02") == []
    assert penstock.why("c") == CapBinds("team:vision", "month 1", usd("3.70"), 0, 2 * LEAST, LEAST)
    # The rest of the hold comes back with the end.
    assert penstock.hears(ended("a.1"), at="09:03") == [start("c.1", on="pods")]
    assert penstock.phase("d") == "waiting"
    assert penstock.hears(cap("team:vision", "20"), at="09:04") == [start("d.1", on="pods")]


def test_who_waits_for_money_takes_owned_gpus_that_come_free() -> None:
    penstock = given(site("lab"), PODS, cap("org", "0"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.hears(ended("a.1"), at="10:00") == [start("b.1", on="lab")]
    assert penstock.why("b") == OwnedFree(HOUR, 8)
    assert penstock.hears(cap("org", "100"), at="10:01") == []


def test_room_for_one_scope_is_not_lost_on_a_job_that_another_scope_binds() -> None:
    """The first in line was denied by its team, and nobody behind it was asked, though there was room for them."""
    penstock = given(PODS, cap("org", "0"), cap("team:poor", "0"))
    penstock.hears(submitted("a", team="poor"), submitted("b", team="rich"), at="09:00")
    assert penstock.hears(cap("org", "100"), at="09:01") == [start("b.1", on="pods")]
    assert penstock.why("a") == CapBinds("team:poor", "month 1", 0, 0, 0, LEAST)


def test_who_waits_for_money_tries_again_when_the_month_turns() -> None:
    penstock = given(PODS, month(1), month(2), month(3), cap("team:default", "2"))
    penstock.hears(submitted("a"), at="day 30, 20:00")
    penstock.hears(ended("a.1"), at="day 30, 20:10")
    penstock.hears(submitted("b"), at="day 30, 20:11")
    spent = usd("8") * 10 // 60 + 1
    assert penstock.why("b") == CapBinds("team:default", "month 1", usd("2"), spent, 0, LEAST)
    assert penstock.wakes() == clock("day 31, 00:00")
    assert penstock.hears(nothing, at="day 31, 00:00") == [start("b.1", on="pods")]


def test_a_cap_that_falls_starts_nothing() -> None:
    """Near the end of the month a part of what it needs is the next one's; a cap that falls is no reason to begin."""
    penstock = given(PODS, cap("org", "1.5"))
    assert penstock.hears(submitted("a"), at="day 30, 12:00") == []
    assert penstock.why("a") == CapBinds("org", "month 1", usd("1.5"), 0, 0, LEAST)
    for amount in ("1.4", "1.4"):
        assert penstock.hears(cap("org", amount), at="day 30, 23:55") == []
    assert penstock.hears(cap("org", "1.45"), at="day 30, 23:55") == [start("a.1", on="pods")]


def test_a_lease_over_the_months_end_is_split_between_both_months() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", lease_max_ms="1h"), at="day 30, 23:30")
    grace = usd("8") * 2 // 60 + 1
    assert penstock.account("org", "month 1") == (usd("4") + 1, 0)
    assert penstock.account("org", "month 2") == (usd("4") + grace + 1, 0)
    penstock.hears(ended("a.1"), at="day 31, 00:15")
    assert penstock.promise(Settled).charged == (Part("month 1", usd("4")), Part("month 2", usd("2")))
    assert penstock.account("org", "month 1") == (0, usd("4"))
    assert penstock.account("org", "month 2") == (0, usd("2"))


def test_a_month_opened_twice_is_one_month() -> None:
    """A repeated opening counted every lease in that month once more."""
    penstock = given(PODS)
    penstock.hears(month(1), month(2), at="08:00")
    penstock.hears(submitted("a", lease_max_ms="1h"), at="09:00")
    assert penstock.account("org") == (usd("8") * 62 // 60 + 2, 0)


def test_nothing_is_held_in_a_month_that_is_not_open() -> None:
    penstock = given(PODS, month(1))
    penstock.hears(submitted("a"), at="day 30, 23:55")
    assert penstock.why("a") == PeriodUnknown(clock("day 31, 00:05"))
    assert penstock.wakes() == clock("day 30, 23:56")
    assert penstock.hears(month(2), at="day 30, 23:55:30") == []
    assert penstock.hears(nothing, at="day 30, 23:56") == [start("a.1", on="pods")]


def test_a_rate_cap_binds_and_frees_with_the_end() -> None:
    penstock = given(PODS, cap("org", None, per_hour="10"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("b"), at="09:01")
    assert penstock.why("b") == RateBinds("org", usd("10"), running_per_hour=usd("8"), needed_per_hour=usd("8"))
    assert penstock.hears(ended("a.1"), at="09:30") == [start("b.1", on="pods")]


def test_a_rate_cap_counts_what_the_provider_could_charge() -> None:
    penstock = given(offer("spot", price="1", most="3", term="spot"), cap("org", None, per_hour="20"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.why("a") == RateBinds("org", usd("20"), 0, usd("24"))


def test_a_jobs_own_cap_is_for_its_whole_life() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", gpus=1, cap="0.25", lease_max_ms="10m"), at="09:00")
    penstock.hears(submitted("b", gpus=1, cap="0.10"), at="09:00")
    assert penstock.why("b") == CapBinds("job:b", "", usd("0.10"), 0, 0, usd("0.20") + 1)
    # 10 minutes are renewed at 09:07:30 and end at 09:15 at the latest, as the cap allows.
    assert penstock.wakes() == clock("09:07:30")
    penstock.hears(nothing, at="09:07:30")
    because = CapBinds("job:a", "", usd("0.25"), spent=0, held=usd("0.20") + 1, needed=usd("0.125"))
    assert penstock.promises == [RenewalDenied(clock("09:07:30"), "a.1", clock("09:08:45"), because)]
    penstock.hears(ended("a.1"), at="09:08")
    assert "job:a" not in penstock.engine.state.ledger.caps


def test_a_lease_is_renewed_while_there_is_room_and_what_was_metered_is_charged() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", run="9h", lease_max_ms="1h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.until("a.1") == clock("10:00")
    assert penstock.wakes() == clock("09:45")
    assert penstock.hears(nothing, at="09:45") == [set_deadline("a.1", "10:45")]
    renewed = penstock.promise(LeaseRenewed)
    assert renewed.charged == (Part("month 1", usd("6")),)
    assert renewed.parts == (Part("month 1", usd("8") * 62 // 60 + 2),)
    assert penstock.hears(confirmed("a.1", "10:45"), at="09:45") == []
    assert penstock.wakes() == clock("10:30")
    penstock.hears(ended("a.1"), at="10:00")
    assert penstock.account("org") == (0, usd("8"))


def test_what_was_told_to_stop_is_renewed_once_more_at_most() -> None:
    """It may need that for its checkpoint. If telling it never works, its own deadline ends it."""
    penstock = given(PODS)
    penstock.hears(submitted("a", run="9h", lease_max_ms="1h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(cancelled("a"), at="09:44") == [stop("a.1")]
    assert penstock.hears(nothing, at="09:45") == [set_deadline("a.1", "10:45")]
    assert penstock.hears(confirmed("a.1", "10:45"), at="09:45") == []
    assert penstock.hears(nothing, at="10:44") == []
    assert penstock.until("a.1") == clock("10:45")
    penstock.hears(stopped("a.1"), at="10:45")
    assert penstock.account("org") == (0, usd("14"))


def test_leases_shrink_as_a_scope_fills() -> None:
    penstock = given(PODS, cap("org", "100"))
    lengths = []
    for k in range(5):
        penstock.hears(submitted(f"j{k}"), at=f"09:0{k}")
        lengths.append((penstock.until(f"j{k}.1") - clock(f"09:0{k}")) // MINUTE)
    # Twelve hours would cost 96: halved until a fifth of the cap stays free, or a quarter of the room is taken.
    assert lengths == [360, 180, 45, 22, 22]


def test_a_denied_renewal_drains_before_the_deadline_and_pauses_the_job() -> None:
    penstock = given(PODS, cap("team:default", "1.70"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.until("a.1") == clock("09:10")
    assert penstock.hears(nothing, at="09:07:30") == []
    because = CapBinds("team:default", "month 1", usd("1.70"), spent=0, held=LEAST, needed=usd("1"))
    assert penstock.promises == [RenewalDenied(clock("09:07:30"), "a.1", clock("09:08:45"), because)]
    assert penstock.wakes() == clock("09:08:45")  # half of what is left
    assert penstock.hears(nothing, at="09:08:45") == [stop("a.1")]
    because = CapBinds("team:default", "month 1", usd("1.70"), spent=0, held=LEAST, needed=usd("1.166667"))
    assert penstock.promises == [
        RenewalDenied(clock("09:08:45"), "a.1", NEVER, because),
        StopPromised(clock("09:08:45"), "a.1", "pause", yields=False, because=because),
    ]
    assert penstock.hears(stopped("a.1", kept="0s"), at="09:10") == []
    assert penstock.phase("a") == "paused"
    held, spent = penstock.account("team:default")
    assert (held, spent) == (0, usd("8") * 10 // 60 + 1)
    assert penstock.hears(cap("team:default", "50"), at="09:20") == [start("a.2", on="pods")]
    assert penstock.phase("a") == "placed"


@pytest.mark.parametrize(
    ("amount", "kept_free"),
    [
        ("140", "28"),  # a fifth of the cap
        ("125", "21.549999"),  # three quarters of the room: less than a fifth of the cap
    ],
)
def test_a_lease_not_renewed_to_keep_room_free_names_the_cap_and_what_it_needs(amount: str, kept_free: str) -> None:
    """The reason was a month that is not open, or, with less room, a need that counted the lease's own hold twice."""
    penstock = given(PODS, cap("org", "200"))
    penstock.hears(submitted("a", run="40h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.until("a.1") == clock("21:00")
    penstock.hears(cap("org", amount), at="09:30")
    assert penstock.hears(nothing, at="18:00") == []
    # 12 hours are held, 9 of them are used, and 6 more from now end 3 hours later: $24. The cap alone allows that.
    held = usd("96") + LEAST - usd("8") * 10 // 60
    because = CapBinds("org", "month 1", usd(amount), 0, held, needed=usd("24"), kept_free=usd(kept_free))
    assert penstock.promises == [RenewalDenied(clock("18:00"), "a.1", clock("19:30"), because)]


def test_a_lease_longer_than_any_made_today_is_renewed() -> None:
    """It was made when the policy's least was longer. What could be asked for ended sooner than what it had, and the
    reason was a month that is not open."""
    penstock = given(PODS, policy(least_lease_ms=8 * HOUR))
    penstock.hears(submitted("a", run="40h", lease_max_ms="1h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.until("a.1") == clock("17:00")
    penstock.hears(policy(least_lease_ms=10 * MINUTE), at="10:00")
    assert penstock.hears(nothing, at="15:00") == [set_deadline("a.1", "17:10")]


def test_a_paused_job_takes_owned_gpus_that_come_free_and_can_be_cancelled() -> None:
    penstock = given(site("lab"), PODS, cap("team:default", "1.70"))
    penstock.hears(submitted("owned", run="9h"), submitted("a", run="9h"), submitted("b", run="9h"), at="09:00")
    penstock.hears(stopped("a.1"), at="09:10")  # by itself: its deadline passed
    assert penstock.phase("a") == "paused"
    assert penstock.hears(ended("owned.1"), at="09:30") == [start("a.2", on="lab")]
    penstock.hears(cancelled("b"), at="09:31")
    penstock.hears(cancelled("a"), at="09:32")
    penstock.hears(stopped("a.2"), at="09:33")
    assert penstock.engine.state.ended == {"done": 1, "cancelled": 2}


def test_a_paused_job_can_be_cancelled() -> None:
    penstock = given(PODS, cap("org", "1.70"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(stopped("a.1"), at="09:10")
    assert penstock.phase("a") == "paused"
    assert penstock.hears(cancelled("a"), at="09:11") == []
    assert penstock.engine.state.ended == {"cancelled": 1}


def test_out_of_money_a_job_moves_home_where_the_policy_says_so() -> None:
    penstock = given(site("lab"), PODS, cap("org", "1.70"), policy(exhausted="move_home"))
    penstock.hears(submitted("owned"), submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(ended("owned.1"), at="09:05")
    penstock.hears(nothing, at="09:07:30")
    penstock.hears(checkpointed("a.1", "5m"), at="09:08")
    assert penstock.hears(nothing, at="09:08:45") == [stop("a.1")]
    # Another ten minutes need as much as is held, and the 8 min 45 s so far come on top.
    denied = CapBinds("org", "month 1", usd("1.70"), spent=0, held=LEAST, needed=usd("1.166667"))
    because = LeaseNotRenewed("pods", 5 * MINUTE, denied)
    at = clock("09:08:45")
    assert penstock.promises == [
        RenewalDenied(at, "a.1", NEVER, denied),
        StartPromised(at, "a", "a.2", "lab", 8, 1000, 0, ((0, 8),), (), None, ("a.1",), (), because),
        StopPromised(at, "a.1", "move", yields=False, because=because),
    ]
    assert penstock.story("a")[-2:] == [
        (
            "Starts on lab with 8 GPUs. Moves from pods to owned GPUs, 5 min of work kept: its lease there was not "
            "renewed. org may spend $1.70 in month 1; $0.00 is spent, $1.60 is held, and this needs $1.17."
        ),
        "Stops on pods first.",
    ]
    assert penstock.hears(stopped("a.1", kept="5m"), at="09:09") == [start("a.2", on="lab", resume_ms=5 * MINUTE)]
    assert penstock.phase("a") == "placed"


def test_out_of_money_and_nothing_free_at_home_a_job_pauses() -> None:
    penstock = given(site("lab"), PODS, cap("org", "1.70"), policy(exhausted="move_home"))
    penstock.hears(submitted("owned"), submitted("a", run="9h"), at="09:00")
    penstock.hears(nothing, at="09:07:30")
    assert penstock.hears(nothing, at="09:08:45") == [stop("a.1")]
    because = CapBinds("org", "month 1", usd("1.70"), spent=0, held=LEAST, needed=usd("1.166667"))
    assert penstock.promise(StopPromised) == StopPromised(
        clock("09:08:45"), "a.1", "pause", yields=False, because=because
    )


def test_a_lowered_cap_calls_leases_back_and_the_money_comes_free_only_when_confirmed() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    before = penstock.held()
    assert penstock.hears(cap("org", "10"), at="09:30") == [set_deadline("a.1", "09:40")]
    assert penstock.promises == [LeaseCalledBack(clock("09:30"), "a.1", clock("09:40"))]
    assert penstock.held() == before  # asked, not confirmed
    assert penstock.until("a.1") == clock("21:00")
    assert penstock.hears(confirmed("a.1", "09:40"), at="09:30:05") == []
    # What was metered since nine is not charged yet, so it stays held: 40 minutes and the grace.
    left = usd("8") * 42 // 60 + 1
    again = clock("09:37:31.25")  # with a quarter of what is left
    assert penstock.promises == [
        LeaseShortened(clock("09:30:05"), "a.1", (Part("month 1", left),), clock("09:40"), again)
    ]
    assert penstock.held() == left
    assert penstock.until("a.1") == clock("09:40")


def test_a_cap_lowered_beside_one_that_is_raised_still_calls_leases_back() -> None:
    """Two caps set in one instant: the second, raised, made the first forgotten."""
    penstock = given(PODS, cap("team:other", "5"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    actions = penstock.hears(cap("org", "10"), cap("team:other", "50"), at="09:30")
    assert actions == [set_deadline("a.1", "09:40")]


def test_a_wrong_or_late_confirmation_frees_nothing() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(cap("org", "10"), at="09:30")
    before = penstock.held()
    assert penstock.hears(confirmed("a.1", "21:00"), at="09:30:01") == []
    assert penstock.held() == before
    penstock.hears(confirmed("a.1", "09:40"), at="09:30:02")
    after = penstock.held()
    assert penstock.hears(confirmed("a.1", "09:40"), at="09:30:03") == []
    assert penstock.held() == after


def test_a_thing_may_end_in_the_instant_that_it_confirms_a_shorter_deadline() -> None:
    """Its hold was settled and then shortened, and the engine died of it."""
    penstock = given(PODS)
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(cap("org", "10"), at="09:30")
    held = penstock.held()
    assert penstock.hears(confirmed("a.1", "09:40"), ended("a.1"), at="09:31") == []
    charged = usd("8") * 31 // 60 + 1
    assert penstock.promises == [Settled(clock("09:31"), "a.1", (Part("month 1", charged),), returned=held - charged)]
    assert penstock.held() == 0


def test_fees_and_what_leaves_at_the_end_are_part_of_the_hold() -> None:
    fees = Extras(launch_fee=usd("0.30"))
    penstock = given(offer("pods", price="1", sizes=(1,), sold_by="attempt", egress="0.09", extras=fees))
    penstock.hears(submitted("a", gpus=1, output_bytes=10**10, lease_max_ms="1h"), at="09:00")
    assert penstock.held() == usd("1") * 62 // 60 + 2 + usd("0.30") + usd("0.90")
    penstock.hears(ended("a.1"), at="09:30")
    assert penstock.account("org") == (0, usd("0.50") + usd("0.30") + usd("0.90"))


def test_jobs_that_differ_in_what_they_bring_home_hold_different_money() -> None:
    """Quotes were shared by all jobs of a shape, and a shape did not look at the output's size."""
    penstock = given(offer("pods", price="1", sizes=(1,), sold_by="attempt", egress="0.09"))
    penstock.hears(submitted("small", gpus=1), at="09:00")
    small = penstock.held()
    penstock.hears(submitted("large", gpus=1, output_bytes=10**12), at="09:00")
    assert penstock.held() == 2 * small + usd("90")


def test_cancelled_while_its_data_is_copied_the_money_comes_back() -> None:
    """The hold of an attempt that never began was never settled: its money was lost to the team for ever."""
    penstock = given(site("lab"), PODS, data("set", "lab", "open"), policy(data_rules=(rule("open", "*"),)))
    penstock.hears(submitted("owned"), at="09:00")
    assert penstock.hears(submitted("a", data=("set",)), at="09:01") == [copy("set", "pods")]
    assert penstock.held() > 0
    assert penstock.hears(cancelled("a"), at="09:02") == []
    assert penstock.held() == 0
    assert penstock.phase("a") == "ended"
    assert penstock.hears(landed("set", "pods"), at="09:30") == []


def test_billing_steps_count_from_when_the_attempt_was_asked_for() -> None:
    penstock = given(
        offer("pods", price="1", sizes=(1,), sold_by="attempt", billing_step_ms=HOUR),
        site("far"),
        data("set", "far", "open"),
        policy(data_rules=(rule("open", "*"),)),
    )
    penstock.hears(submitted("blocker", gpus=8), at="08:00")
    penstock.hears(submitted("a", gpus=1, data=("set",)), at="09:00")
    assert penstock.hears(landed("set", "pods"), at="09:50") == [start("a.1", on="pods")]
    penstock.hears(ended("a.1"), at="09:55")
    assert penstock.account("org") == (0, usd("1"))  # from 09:50 to 10:50; booked to 10:00, it happens to be the same
    penstock.hears(submitted("b", gpus=1, data=("set",)), at="day 9, 09:00")
    penstock.hears(landed("set", "pods"), at="day 9, 09:50")
    penstock.hears(ended("b.1"), at="day 9, 10:05")
    assert penstock.account("org") == (0, usd("2"))  # an hour from 09:50, not two from 09:00


def test_money_that_a_cancelled_copy_gives_back_goes_to_who_waits_for_it() -> None:
    penstock = given(
        PODS, site("far"), data("set", "far", "open"), policy(data_rules=(rule("open", "*"),)), cap("org", "1.70")
    )
    penstock.hears(submitted("blocker", gpus=8), at="09:00")
    penstock.hears(submitted("a", data=("set",)), at="09:01")
    penstock.hears(submitted("b"), at="09:01")
    assert penstock.phase("b") == "waiting"
    assert penstock.hears(cancelled("a"), at="09:02") == [start("b.1", on="pods")]


def test_a_job_drained_while_its_data_is_copied_has_its_money_back_and_tries_again() -> None:
    """What had not begun when its lease ran out was left without an answer, and its hold was never settled."""
    penstock = given(PODS, site("far"), data("set", "far", "open"), policy(data_rules=(rule("open", "*"),)))
    penstock.hears(submitted("blocker", gpus=8), at="08:00")
    penstock.hears(cap("org", "1.70"), at="08:30")
    assert penstock.hears(submitted("a", data=("set",)), at="09:00") == [copy("set", "pods")]
    penstock.hears(cap("org", "1.00"), at="09:05")
    penstock.hears(nothing, at="09:07:30")
    assert penstock.hears(nothing, at="09:08:45") == []
    at = clock("09:08:45")
    because = CapBinds("org", "month 1", usd("1"), spent=0, held=LEAST, needed=0)  # it has more than the cap is now
    assert penstock.promises == [
        RenewalDenied(at, "a.1", NEVER, because),
        StopPromised(at, "a.1", "pause", yields=False, because=because),
        WaitPromised(at, "a", NEVER, because, scope="org"),
        Settled(at, "a.1", (), returned=LEAST),
    ]
    assert penstock.account("org") == (0, 0)  # nothing ran there, so nothing was billed
    penstock.hears(cap("org", "1.70"), at="09:09")
    assert penstock.account("org") == (LEAST, 0)
    assert penstock.hears(landed("set", "pods"), at="09:10") == [start("a.2", on="pods")]


def test_a_moved_jobs_old_money_is_settled_when_it_is_gone() -> None:
    penstock = given(PODS, site("lab"), policy("1h"))
    penstock.hears(submitted("owned"), at="08:00")
    penstock.hears(submitted("a", run="9h"), at="08:00")
    penstock.hears(nothing, at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(ended("owned.1"), at="09:30")
    assert penstock.hears(asked_to_move("a", "lab"), at="10:00") == [stop("a.1")]
    assert penstock.held() > 0
    assert penstock.hears(stopped("a.1", kept="60m"), at="10:01") == [start("a.2", on="lab", resume_ms=HOUR)]
    assert penstock.account("org") == (0, usd("8") * 61 // 60 + 1)


def test_a_meter_within_what_is_held_changes_nothing() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a", lease_max_ms="1h"), at="09:00")
    assert penstock.hears(metered("a.1", "4"), metered("unknown", "900"), at="09:30") == []
    assert penstock.promises == []


def test_a_meter_above_what_is_held_goes_on_record_and_freezes_its_scopes() -> None:
    penstock = given(PODS, cap("team:red", "1000"))
    penstock.hears(submitted("a", team="red", lease_max_ms="1h"), at="09:00")
    held = penstock.held()
    penstock.hears(metered("a.1", "100"), at="09:30")
    assert penstock.promise(OverrunFound) == OverrunFound(clock("09:30"), "a.1", usd("100") - held)
    assert penstock.hears(submitted("b", team="red"), at="09:31") == []
    frozen = ScopeFrozen("org", usd("100") - held)  # of all its scopes the first; the organisation has no cap at all
    assert penstock.promises == [WaitPromised(clock("09:31"), "b", NEVER, frozen, scope="org")]
    assert penstock.hears(submitted("c", team="blue"), at="09:32") == []
    assert penstock.why("c") == frozen
    assert penstock.story("c")[-1] == (
        "Budget frozen. Providers billed $91.73 more than was held for org. A person must look at it first."
    )


def test_a_meter_read_in_the_instant_of_the_end_still_counts() -> None:
    """The hold was settled first, and the engine died of the reading."""
    penstock = given(PODS)
    penstock.hears(submitted("a", lease_max_ms="1h"), at="09:00")
    held = penstock.held()
    penstock.hears(metered("a.1", "100"), ended("a.1"), at="09:30")
    assert penstock.promises == [
        OverrunFound(clock("09:30"), "a.1", usd("100") - held),
        Settled(clock("09:30"), "a.1", (Part("month 1", usd("4")),), returned=held - usd("4")),
    ]
    assert penstock.held() == 0


def test_a_node_keeps_its_hold_while_it_is_given_back() -> None:
    penstock = given(offer("cloud", price="1", kill_ms=5 * MINUTE), cap("org", "2.40"))
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="cloud")]
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(ended("a.1"), at="09:05") == [release("a.1/n0")]
    assert penstock.hears(submitted("b"), at="09:06") == []
    least = usd("8") * 17 // 60 + 2  # ten minutes of lease, two of grace, five until it is gone
    assert penstock.why("b") == CapBinds("org", "month 1", usd("2.40"), spent=0, held=least, needed=least)
    assert penstock.hears(gone("a.1/n0"), at="09:07") == []  # 0.93 was spent, and 2.27 would be needed
    assert penstock.hears(cap("org", "10"), at="09:08") == [launch("b.1/n0", at="cloud")]


def test_a_gang_whose_lease_ends_is_drained_as_one() -> None:
    penstock = given(offer("cloud", price="1"), cap("org", "3.30"))
    penstock.hears(submitted("a", gpus=16, run="9h"), at="09:00")
    penstock.hears(ready("a.1/n0"), ready("a.1/n1"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(nothing, at="09:07:30") == []
    assert penstock.hears(nothing, at="09:08:45") == [stop("a.1")]
    assert penstock.hears(stopped("a.1"), at="09:09") == [release("a.1/n0"), release("a.1/n1")]
    penstock.hears(gone("a.1/n0"), gone("a.1/n1"), at="09:09")
    assert penstock.phase("a") == "paused"
    assert penstock.held() == 0
