"""Moves: on request, with their checkpoint, through the leaving edge; and what never moves."""

from typing import Any

from penstock.core.fold.invariants import check
from penstock.core.model.events import StartPromised, StopPromised
from penstock.core.model.reasons import MoveAsked, NoRoomThere, NothingAllowed, OnlyOwned, OwnedFree, RuledOut
from penstock.core.units import HOUR, MINUTE
from tests.stories.kit import (
    Penstock,
    asked_to_move,
    cancelled,
    checkpointed,
    clock,
    copy,
    data,
    ended,
    given,
    gone,
    landed,
    launch,
    lost,
    node_lost,
    node_refused,
    nothing,
    offer,
    policy,
    ready,
    refused,
    release,
    rule,
    site,
    site_back,
    site_lost,
    start,
    started,
    stop,
    stopped,
    submitted,
    usd,
)

PODS = offer("pods", price="1", sizes=(1,), sold_by="attempt")
OPEN = policy("1h", data_rules=(rule("open", "*"),))


def running_at_home() -> Penstock:
    penstock = given(site("lab"), offer("cloud", start="5m"), policy("1h"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    return penstock


def test_a_move_on_request_keeps_the_checkpoint_and_goes_through_leaving() -> None:
    penstock = running_at_home()
    penstock.hears(checkpointed("a.1", "45m"), at="09:45")
    assert penstock.hears(asked_to_move("a", "cloud"), at="10:00") == [launch("a.2/n0", at="cloud"), stop("a.1")]
    because = MoveAsked("lab", 45 * MINUTE)
    moves = penstock.promise(StartPromised)
    assert penstock.promises == [moves, StopPromised(clock("10:00"), "a.1", "move", yields=False, because=because)]
    assert (moves.attempt, moves.offer, moves.after, moves.because) == ("a.2", "cloud", ("a.1",), because)
    assert penstock.phase("a") == "leaving"
    assert penstock.hears(ready("a.2/n0"), at="10:00:30") == []  # not before it is gone from there
    assert penstock.hears(stopped("a.1", kept="45m"), at="10:01") == [
        start("a.2", on="cloud", resume_ms=45 * MINUTE, nodes=("a.2/n0",))
    ]
    assert penstock.phase("a") == "placed"


def test_a_job_without_checkpoints_never_moves() -> None:
    penstock = given(site("lab"), offer("cloud"))
    penstock.hears(submitted("a", checkpoint=None), submitted("b", interruptible=False, gpus=1), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(asked_to_move("a", "cloud"), at="10:00") == []
    assert penstock.hears(asked_to_move("b", "lab"), at="10:00") == []
    assert penstock.promises == []


def test_after_a_move_a_job_stays_for_a_while() -> None:
    penstock = running_at_home()
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    penstock.hears(stopped("a.1", kept="45m"), ready("a.2/n0"), at="10:01")
    penstock.hears(started("a.2"), at="10:01")
    assert penstock.hears(asked_to_move("a", "lab"), at="10:29") == []
    assert penstock.hears(asked_to_move("a", "lab"), at="10:30") == [stop("a.2")]
    assert penstock.hears(stopped("a.2", kept="60m"), at="10:31") == [
        start("a.3", on="lab", resume_ms=HOUR),
        release("a.2/n0"),
    ]


def test_a_job_moves_at_most_as_often_as_the_policy_allows() -> None:
    penstock = given(site("lab"), PODS, policy("1h", max_moves=1, settle_ms=0))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(asked_to_move("a", "pods"), at="10:00")
    penstock.hears(stopped("a.1"), at="10:00")
    assert penstock.hears(asked_to_move("a", "lab"), at="12:00") == []


def test_cancelled_while_moving_neither_place_is_kept() -> None:
    penstock = running_at_home()
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    assert penstock.hears(cancelled("a"), at="10:01") == []  # it is being stopped already
    assert penstock.hears(stopped("a.1", kept="45m"), at="10:02") == [release("a.2/n0")]
    penstock.hears(gone("a.2/n0"), at="10:03")
    assert penstock.phase("a") == "ended"
    assert penstock.held() == 0
    assert penstock.account("org") == (0, usd("8") * 3 // 60)


def test_a_job_that_ends_while_moving_is_done_and_its_next_place_is_given_back() -> None:
    penstock = running_at_home()
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    assert penstock.hears(ended("a.1"), at="10:01") == [release("a.2/n0")]
    assert penstock.engine.state.ended == {"done": 1}


def test_a_move_whose_next_place_is_refused_waits_with_its_checkpoint() -> None:
    penstock = running_at_home()
    penstock.hears(asked_to_move("a", "cloud"), at="10:00")
    assert penstock.hears(node_refused("a.2/n0"), at="10:00") == []
    assert penstock.phase("a") == "leaving"
    assert penstock.hears(stopped("a.1", kept="45m"), at="10:01") == [start("a.3", on="lab", resume_ms=45 * MINUTE)]


def test_what_is_lost_while_moving_goes_on_at_its_next_place() -> None:
    penstock = given(site("lab"), PODS, policy("1h"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(asked_to_move("a", "pods"), at="10:00")
    assert penstock.hears(lost("a.1", kept="45m"), at="10:01") == [start("a.2", on="pods", resume_ms=45 * MINUTE)]


def test_nobody_moves_to_a_site_that_is_lost() -> None:
    """A move home asked only whether GPUs were free there, not whether anybody could reach them."""
    penstock = given(site("lab"), site("other"), policy("1h"))
    penstock.hears(submitted("a", run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(site_lost("other"), at="09:30")
    assert penstock.hears(asked_to_move("a", "other"), at="10:00") == []
    assert penstock.phase("a") == "placed"


# --- data ------------------------------------------------------------------------------------------------------------


def test_an_unknown_class_of_data_goes_nowhere_but_where_it_lives() -> None:
    penstock = given(site("lab"), offer("cloud"), data("scans", "lab", ""), policy(data_rules=(rule("", "*"),)))
    assert penstock.hears(submitted("a", data=("scans",)), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", data=("scans",)), at="09:01") == []
    assert penstock.why("b") == OnlyOwned(0, "data class unknown may not go to cloud")


def test_a_declared_class_without_a_rule_stays_at_home() -> None:
    penstock = given(site("lab"), offer("cloud"))
    brings: dict[str, Any] = {"home": "lab", "data_class": "secret"}
    penstock.hears(submitted("a", **brings), submitted("b", **brings), at="09:00")
    assert penstock.why("a") == OwnedFree(0, 8)
    assert penstock.why("b") == OnlyOwned(0, "data class secret may not go to cloud")


def test_a_declared_class_holds_at_other_peoples_front_doors_too() -> None:
    """Every site with a front door was excepted from a declared class: a flag decided where data goes."""
    penstock = given(site("lab"), site("annex"))
    brings: dict[str, Any] = {"home": "lab", "data_class": "secret"}
    assert penstock.hears(submitted("a", **brings), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", **brings), at="09:01") == []
    assert penstock.why("b") == OnlyOwned(0, "data class secret may not go to annex")
    allowed = policy(revision=2, data_rules=(rule("secret", "annex"),))
    assert penstock.hears(allowed, at="09:02") == [start("b.1", on="annex")]


def test_a_declared_class_of_a_job_without_a_home_goes_only_where_a_rule_lets_it() -> None:
    penstock = given(site("lab"), site("annex"), policy(data_rules=(rule("open", "annex"),)))
    assert penstock.hears(submitted("a", data_class="secret"), at="09:00") == []
    each = tuple(RuledOut((name,), f"data class secret may not go to {name}") for name in ("annex", "lab"))
    assert penstock.why("a") == NothingAllowed("annex", each[0].rule, "built in", each)
    assert penstock.hears(submitted("b", data_class="open"), at="09:01") == [start("b.1", on="annex")]


def test_a_job_that_refers_to_things_at_home_leaves_only_for_a_site_that_has_them() -> None:
    volume = submitted("a", home="lab", needs=("volume scratch", "image lab.example/train:1"))
    bare = given(offer("cloud"))
    assert bare.hears(volume, at="09:00") == []
    both = "it needs volume scratch and image lab.example/train:1, and cloud has no map for it"
    assert bare.why("a") == NothingAllowed("cloud", both, "built in")
    mapped = given(offer("cloud", has=("volume scratch", "image lab.example/*")))
    assert mapped.hears(volume, at="09:00") == [launch("a.1/n0", at="cloud")]
    full = given(site("lab"), offer("cloud", has=("image *",)))
    assert full.hears(volume, at="09:00") == [start("a.1", on="lab")]
    assert full.hears(submitted("b", home="lab", needs=("volume scratch",)), at="09:01") == []
    assert full.why("b") == OnlyOwned(0, "it needs volume scratch, and cloud has no map for it")


def test_a_map_that_is_written_later_lets_those_go_who_wait_for_it() -> None:
    penstock = given(site("lab"), offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(submitted("b", home="lab", needs=("secret hub-token",)), at="09:01") == []
    assert penstock.hears(offer("cloud", has=("secret hub-token",)), at="10:00") == [launch("b.1/n0", at="cloud")]


def test_another_front_door_is_not_a_jobs_home() -> None:
    penstock = given(site("lab"), site("annex"))
    bound: dict[str, Any] = {"home": "lab", "needs": ("volume scratch",)}
    assert penstock.hears(submitted("a", **bound), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", **bound), at="09:01") == []
    assert penstock.why("b") == OnlyOwned(0, "it needs volume scratch, and annex has no map for it")


def test_data_goes_where_location_and_law_both_allow() -> None:
    rules = (rule("gdpr", locations=("eu",), laws=("eu",)),)
    penstock = given(
        offer("eu-eu", price="9", location="eu", law="eu"),
        offer("eu-us", price="1", location="eu", law="us"),
        offer("us-eu", price="1", location="us", law="eu"),
        policy(data_rules=rules),
    )
    assert penstock.hears(submitted("a", data_class="gdpr"), at="09:00") == [launch("a.1/n0", at="eu-eu")]


def test_row_15_personal_data_waits_while_there_is_only_capacity_outside_the_eu() -> None:
    rules = (rule("personal", locations=("eu",), laws=("eu",)), rule("open", "*"))
    penstock = given(
        site("lab", location="eu", law="eu"),
        offer("us", price="1", location="us", law="us"),
        offer("eu-of-us", price="1", location="eu", law="us"),
        data("people", "lab", "personal"),
        policy(data_rules=rules),
    )
    penstock.hears(submitted("owned", run="10h"), at="09:00")
    assert penstock.hears(submitted("declared", data_class="personal"), at="09:01") == []
    assert penstock.hears(submitted("by-its-data", data=("people",)), at="09:02") == []
    for job in ("declared", "by-its-data"):
        because = penstock.why(job)
        assert isinstance(because, OnlyOwned)
        assert because.rule == "data class personal may not go to eu-of-us"
    assert penstock.hears(nothing, at="18:00") == []
    assert penstock.hears(ended("owned.1"), at="19:00") == [start("declared.1", on="lab")]


def test_a_data_set_that_nobody_registered_is_refused() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a", data=("missing",)), at="09:00")
    assert penstock.why("a") == NothingAllowed("lab", "data set missing is not in the sites file", "built in")


def test_data_is_copied_before_the_start_once_for_all_and_a_replica_is_used_again() -> None:
    penstock = given(PODS, site("lab"), data("set", "lab", "open"), policy(data_rules=(rule("open", "*"),)))
    penstock.hears(submitted("owned"), at="09:00")
    assert penstock.hears(submitted("a", data=("set",)), at="09:01") == [copy("set", "pods")]
    assert penstock.hears(submitted("b", data=("set",)), at="09:02") == []  # already on its way
    assert penstock.hears(landed("set", "pods", expires="09:40"), at="09:30") == [
        start("a.1", on="pods"),
        start("b.1", on="pods"),
    ]
    assert penstock.hears(submitted("c", data=("set",)), at="09:35") == [start("c.1", on="pods")]
    assert penstock.hears(submitted("d", data=("set",)), at="09:45") == [copy("set", "pods")]  # it has expired


def test_nodes_start_while_data_is_copied() -> None:
    penstock = given(
        offer("cloud", start="5m"), site("lab"), data("set", "lab", "open"), policy(data_rules=(rule("open", "*"),))
    )
    penstock.hears(submitted("owned"), at="09:00")
    actions = penstock.hears(submitted("a", data=("set",)), at="09:01")
    assert actions == [launch("a.1/n0", at="cloud"), copy("set", "cloud")]
    assert penstock.hears(ready("a.1/n0"), at="09:06") == []
    assert penstock.hears(landed("set", "cloud"), at="09:10") == [start("a.1", on="cloud")]


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_lost_site_keeps_its_holds_and_nothing_new_starts_there() -> None:
    penstock = given(PODS)
    penstock.hears(submitted("a"), at="09:00")
    held = penstock.held()
    assert penstock.hears(site_lost("pods"), at="09:10") == []
    assert penstock.held() == held
    assert penstock.hears(submitted("b"), at="09:11") == []
    assert penstock.why("b") == NoRoomThere("pods", clock("09:12"))
    assert penstock.hears(site_back("pods"), at="09:11:30") == []
    assert penstock.hears(nothing, at="09:12") == [start("b.1", on="pods")]


def test_a_lost_standing_site_is_used_again_when_it_is_back() -> None:
    penstock = given(site("lab"))
    penstock.hears(site_lost("lab"), at="09:00")
    assert penstock.hears(submitted("a"), at="09:01") == []
    assert penstock.hears(site_back("lab"), at="09:02") == [start("a.1", on="lab")]


def test_a_lost_site_does_not_hold_up_jobs_that_fit_elsewhere() -> None:
    """The first in line fitted only at a lost site, and everybody behind it waited too."""
    penstock = given(site("big", nodes=2), site("small", gpus=4))
    penstock.hears(submitted("s", gpus=4), submitted("t", gpus=4), at="08:00")
    penstock.hears(site_lost("big"), at="09:00")
    penstock.hears(submitted("wide", gpus=12), at="09:01")
    small = penstock.hears(submitted("narrow", gpus=4), at="09:02")
    assert small == [start("narrow.1", on="small")]


def test_a_standing_node_is_lost_and_comes_back() -> None:
    penstock = given(site("lab", nodes=2))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    assert penstock.hears(lost("a.1", kept="15m"), node_lost("lab/0"), at="09:20") == []
    assert penstock.phase("a") == "waiting"
    assert penstock.hears(ended("b.1"), at="09:30") == [start("a.2", on="lab", slots=((1, 8),), resume_ms=15 * MINUTE)]
    assert penstock.hears(submitted("c"), at="09:40") == []
    assert penstock.hears(ready("lab/0"), at="09:50") == [start("c.1", on="lab", slots=((0, 8),))]


def test_facts_about_nodes_that_do_not_exist_change_nothing() -> None:
    penstock = given(site("lab", nodes=1))
    before = penstock.engine.state.digest()
    penstock.hears(node_lost("lab/7"), ready("elsewhere/0"), node_refused("x"), gone("y"), at="00:00")
    penstock.engine.state.steps -= 1
    assert penstock.engine.state.digest() == before


def test_duplicate_and_late_facts_change_nothing() -> None:
    penstock = given(site("lab"), offer("cloud"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("b"), at="09:00")
    facts = [
        submitted("a"),
        ready("b.1/n0"),
        started("b.1"),
        ended("b.1"),
        gone("b.1/n0"),
        started("b.1"),
        lost("b.1"),
        stopped("b.1"),
        refused("b.1"),
        node_lost("b.1/n0"),
        node_refused("b.1/n0"),
        ended("b.1"),
        cancelled("b"),
        asked_to_move("b", "lab"),
        landed("nothing", "cloud"),
        site_back("cloud"),
    ]
    for k, fact in enumerate(facts):
        penstock.hears(fact, at=f"09:{k:02}")
        state = penstock.engine.state
        before = list(map(repr, state.canonical()))[1:]
        assert penstock.hears(fact, at=f"09:{k:02}") == []
        assert [event for event in penstock.promises if type(event).__name__ != "OfferClosed"] == []
        assert list(map(repr, state.canonical()))[1:] == before, facts[k]
    assert penstock.engine.state.ended == {"done": 1}


def test_an_array_submitted_twice_is_one_array() -> None:
    """A job was known by its own name, and an array's members by others: a repeated submission replaced them."""
    penstock = given(site("lab"))
    penstock.hears(submitted("sweep", gpus=4, count=2), at="09:00")
    assert penstock.hears(submitted("sweep", gpus=4, count=2), at="09:00") == []
    penstock.hears(ended("sweep/0.1"), ended("sweep/1.1"), at="10:00")
    assert penstock.engine.state.ended == {"done": 2}
    assert penstock.engine.state.jobs == {}


# --- what people change while jobs wait ------------------------------------------------------------------------------


def test_a_site_that_joins_later_is_used_by_those_who_wait() -> None:
    """A waiting job kept the answer it had been given when nothing could be rented."""
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    assert penstock.why("b") == OnlyOwned(0, "there is nothing to rent")
    assert penstock.hears(PODS, at="09:10") == [start("b.1", on="pods")]


def test_an_offer_withdrawn_while_a_job_waits_for_its_patience_is_not_used() -> None:
    """Its patience over, the job asked for the cheapest of no offers, and the engine died of it."""
    penstock = given(site("lab"), PODS, policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(policy("10m", revision=2, require_hard_caps=True), at="09:01")
    penstock.hears(offer("pods", sizes=(1,), sold_by="attempt", guarantee="none"), at="09:02")
    assert penstock.hears(nothing, at="09:10") == []
    assert penstock.why("b") == OnlyOwned(0, "policy demands hard caps, and nothing there ends without us")


def test_a_policy_that_no_longer_bursts_holds_for_those_who_wait_already() -> None:
    penstock = given(site("lab"), PODS, policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(policy("10m", revision=2, burst=False), at="09:01")
    assert penstock.hears(nothing, at="09:10") == []
    assert penstock.why("b") == OnlyOwned(0, "policy bursts nothing")


def test_a_new_policys_patience_holds_for_those_who_wait_already() -> None:
    penstock = given(site("lab"), PODS, policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(policy("5h", revision=2), at="09:01")
    assert penstock.hears(nothing, at="09:10") == []
    assert penstock.wakes() == clock("14:00")


def test_a_paused_job_that_nothing_may_run_any_more_is_refused() -> None:
    """The table of a job's life had no such edge, and the engine died of it."""
    penstock = given(PODS)
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(stopped("a.1"), at="09:10")
    penstock.hears(stopped("a.2"), at="09:20")
    check(penstock.engine.state)
    penstock.hears(site_lost("pods"), at="09:21")
    penstock.hears(stopped("a.3"), at="09:30")
    assert penstock.phase("a") == "paused"
    penstock.hears(policy(revision=2, require_hard_caps=True), at="09:31")
    penstock.hears(offer("pods", sizes=(1,), sold_by="attempt", guarantee="none"), at="09:32")
    assert penstock.engine.state.ended == {"refused": 1}


def test_a_job_told_in_its_own_words() -> None:
    penstock = given(site("lab"), PODS, policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(nothing, at="09:10")
    penstock.hears(started("b.1"), at="09:10")
    penstock.hears(ended("b.1"), at="10:10")
    assert penstock.story("b") == [
        "Submitted by default: 8 GPUs, expected to run 1 h.",
        "Queued for up to 10 min, until day 1, 09:10: 0 GPUs free. Bursting now costs about $8.00 for 1 h.",
        (
            "Bursts to pods with 8 GPUs. Owned GPUs were full; it was queued for 10 min, and its policy allows 10 min. "
            "It costs about $8.00 for 1 h. $96.27 is held, enough to run until day 1, 21:10 and to stop."
        ),
        "Succeeded.",
        "Settled: $8.00 charged in total, $88.27 of the hold returned.",
    ]
