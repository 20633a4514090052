"""What a policy file says of classes, teams, clouds, prices and rules, key by key, in events and whole answers."""

from dataclasses import replace
from typing import Any

from penstock.core.engine import replay
from penstock.core.model import events as e
from penstock.core.model.governance import Allow, ClassRule, DenyRule, Governance, PriceLimit, TeamRule
from penstock.core.model.reasons import (
    AboveShare,
    ClassPreempted,
    NothingAllowed,
    OnlyOwned,
    RoomMade,
    RuledOut,
    ShareReturned,
    WaitWorth,
)
from penstock.core.model.types import DataRule, Policy
from penstock.core.units import HOUR
from penstock.journal.redecide import redecide
from penstock.policy.presets import ours
from penstock.policy.rules import PolicyRules, with_shapes
from tests.stories.kit import (
    Penstock,
    Told,
    data,
    ended,
    given,
    launch,
    lost,
    offer,
    policy,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
    usd,
)

INFERENCE = ClassRule("inference", where="owned", because="flat cost, low latency", source="policy.yaml:4")
EXPERIMENT = ClassRule("experiment", where="rented", spot="required", source="policy.yaml:5")
TRAINING = ClassRule("training", source="policy.yaml:6")
CRITICAL = ClassRule("critical", preempts=("experiment",), spot="forbidden", source="policy.yaml:7")
H100 = DenyRule(
    "old-cards", 'job.class == "experiment" && offer.gpu == "H100"', "Small tests use older cards", "policy.yaml:30"
)


def governed(patience: str = "", revision: int = 1, more: dict[str, Any] | None = None, **keys: Any) -> Told:
    return policy(patience, revision, governance=with_shapes(Governance(version=1, **keys)), **(more or {}))


# --- classes ---------------------------------------------------------------------------------------------------------


def test_a_class_that_stays_on_owned_gpus_waits_for_them_and_says_by_which_line() -> None:
    penstock = given(site("lab"), offer("cloud"), governed(classes=(INFERENCE,)))
    assert penstock.hears(submitted("a", job_class="inference"), at="09:00") == [start("a.1", on="lab")]
    assert penstock.hears(submitted("b", job_class="inference"), at="09:01") == []
    rule = "class inference stays on owned GPUs: flat cost, low latency"
    assert penstock.why("b") == OnlyOwned(free_gpus=0, rule=rule, where="policy.yaml:4")
    assert penstock.story("b")[-1].endswith(f"It cannot burst: {rule} (policy.yaml:4).")


def test_a_class_that_rents_leaves_owned_gpus_alone_though_they_are_free() -> None:
    penstock = given(site("lab"), offer("cloud", term="spot", most="2"), governed(classes=(EXPERIMENT,)))
    assert penstock.hears(submitted("a", job_class="experiment"), at="09:00") == [launch("a.1/n0", at="cloud")]
    assert penstock.story("a")[-1].startswith(
        "Bursts to cloud with 8 GPUs. It may not use owned GPUs: class experiment runs on rented GPUs only "
        "(policy.yaml:5); "
    )


def test_a_class_that_must_rent_spot_passes_cheaper_offers_over() -> None:
    cheap, spot = offer("cheap", price="1"), offer("spot", price="2", term="spot", most="9")
    penstock = given(cheap, spot, governed(classes=(EXPERIMENT, CRITICAL)))
    assert penstock.hears(submitted("a", job_class="experiment"), at="09:00") == [launch("a.1/n0", at="spot")]
    assert penstock.hears(submitted("b", job_class="critical"), at="09:01") == [launch("b.1/n0", at="cheap")]


def test_a_class_that_the_policy_does_not_declare_is_refused_with_those_that_it_does() -> None:
    penstock = given(site("lab"), offer("cloud"), governed(classes=(TRAINING, CRITICAL)))
    assert penstock.hears(submitted("a", job_class="nightly"), at="09:00") == []
    rule = "class nightly is not in the policy, which has training, critical"
    assert penstock.promises == [e.JobRefused(9 * HOUR, "a", NothingAllowed("cloud", rule, "policy.yaml:6"))]
    assert penstock.story("a")[-1] == f"Refused: no offer may run it. cloud: {rule} (policy.yaml:6)."


def test_a_class_has_a_cost_of_delay_of_its_own_and_the_reason_shows_it() -> None:
    dear = replace(TRAINING, name="dear", cost_of_delay=usd("7"))
    worth = replace(ours("penstock", "20"), governance=Governance(classes=(TRAINING, dear)))
    penstock = given(site("lab"), offer("cloud", price="9"), lambda at: e.PolicySet(at, 1, worth))
    penstock.hears(submitted("a", run="2h"), at="09:00")
    penstock.hears(submitted("b", run="2h"), submitted("c", run="2h", job_class="dear"), at="09:00")
    waits = [penstock.why(job) for job in ("b", "c")]
    assert all(isinstance(why, WaitWorth) for why in waits)
    assert [why.value_per_hour for why in waits if isinstance(why, WaitWorth)] == [usd("20"), usd("7")]


def test_a_class_stops_jobs_of_the_classes_that_it_may_whatever_their_priority() -> None:
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    penstock = given(site("lab", nodes=2), governed(classes=(plain, TRAINING, CRITICAL)))
    penstock.hears(submitted("t"), submitted("x", job_class="experiment", priority=9), at="09:00")
    penstock.hears(started("t.1"), started("x.1"), at="09:00")
    assert penstock.hears(submitted("c", job_class="critical"), at="09:10") == [stop("x.1")]
    assert penstock.why("x") == ClassPreempted("c", "critical", "experiment", "policy.yaml:7")
    assert penstock.why("c") == RoomMade(waited_ms=0, free_gpus=0, left_by=("x",))
    assert penstock.story("x")[-1].endswith(
        "Preempted by c: class critical may stop jobs of class experiment (policy.yaml:7)."
    )
    assert penstock.hears(stopped("x.1", "10m"), at="09:11") == [start("c.1", on="lab")]
    assert penstock.hears(submitted("d", job_class="training"), at="09:12") == []
    assert penstock.hears(submitted("e", job_class="critical"), at="09:13") == [], "nobody is left whom it may stop"


def test_classes_that_may_stop_each_other_stop_neither() -> None:
    training, other = replace(TRAINING, preempts=("third",)), replace(CRITICAL, name="other", preempts=("training",))
    third = replace(TRAINING, name="third", preempts=("other",))
    penstock = given(site("lab"), governed(classes=(training, other, third)))
    penstock.hears(submitted("t"), at="09:00")
    penstock.hears(started("t.1"), at="09:00")
    assert penstock.hears(submitted("o", job_class="other"), at="09:10") == []


def test_two_jobs_of_one_instant_that_may_stop_each_other_make_room_once_each() -> None:
    """The engine went on for ever: one may stop the other by its class, and the other the first by its priority."""
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    penstock = given(site("lab"), governed(classes=(plain, TRAINING, CRITICAL), more={"preempt": True}))
    penstock.hears(submitted("t"), at="09:00")
    penstock.hears(started("t.1"), at="09:00")
    both = submitted("x", job_class="experiment", priority=9), submitted("c", job_class="critical")
    assert penstock.hears(*both, at="09:10") == [stop("t.1")]
    assert penstock.hears(stopped("t.1", "10m"), at="09:11") == [start("c.1", on="lab")]
    assert penstock.engine.state.jobs["x"].queued


def test_a_job_of_higher_priority_does_not_stop_one_of_a_class_above_its_own() -> None:
    """`x` stopped `c` by its priority, and `c` stopped `x` by its class, ten thousand times in one instant."""
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    penstock = given(site("lab"), governed(classes=(plain, TRAINING, CRITICAL), more={"preempt": True}))
    penstock.hears(submitted("c", job_class="critical"), at="09:00")
    penstock.hears(started("c.1"), at="09:00")
    assert penstock.hears(submitted("x", job_class="experiment", priority=9), at="09:10") == []
    assert penstock.hears(submitted("d", job_class="critical", priority=1), at="09:20") == [stop("c.1")]


def test_nor_does_a_third_class_close_the_circle() -> None:
    """`c` may stop `x` by its class, `x` may stop `t` by its priority: so `t` may not stop `c` by its priority."""
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    penstock = given(site("lab"), governed(classes=(plain, TRAINING, CRITICAL), more={"preempt": True}))
    penstock.hears(submitted("c", job_class="critical"), at="09:00")
    penstock.hears(started("c.1"), at="09:00")
    assert penstock.hears(submitted("t", job_class="training", priority=5), at="09:10") == []


def test_a_share_is_not_taken_back_from_a_job_that_would_take_it_again() -> None:
    """`c`, of a team above its share, was sent to rented GPUs for `a`; once those were gone, it stopped `a`."""
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    critical = replace(CRITICAL, where="owned_first", spot="allowed")
    teams = (TeamRule("ours", share_permille=1000), TeamRule("theirs", share_permille=0))
    penstock = given(
        site("lab"), offer("cloud", price="1"), governed(classes=(plain, critical), teams=teams, patience="4h")
    )
    penstock.hears(submitted("c", team="theirs", job_class="critical", run="9h"), at="09:00")
    penstock.hears(started("c.1"), at="09:00")
    assert penstock.hears(submitted("a", team="ours", job_class="experiment"), at="10:00") == []


def test_a_job_that_may_not_be_interrupted_is_not_stopped_for_a_class() -> None:
    plain = replace(EXPERIMENT, where="owned_first", spot="allowed")
    penstock = given(site("lab"), governed(classes=(plain, CRITICAL)))
    penstock.hears(submitted("x", job_class="experiment", interruptible=False), at="09:00")
    assert penstock.hears(submitted("c", job_class="critical"), at="09:10") == []


# --- what may be rented ----------------------------------------------------------------------------------------------


def test_only_clouds_regions_families_and_gpus_on_the_lists_are_rented() -> None:
    west = offer("west", price="1", cloud="aws", region="us-west-2", gpu_model="H100", family="p5")
    north = offer("north", price="2", cloud="aws", region="eu-north-1", gpu_model="H100", family="p5")
    allow = Allow(clouds=("aws",), regions=("eu-*",), families=("p5",), gpus=("H100",), source="policy.yaml:20")
    penstock = given(west, north, governed(allow=allow))
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="north")]


def test_a_team_that_may_rent_nothing_there_waits_for_owned_gpus() -> None:
    team = TeamRule("vision", allow=Allow(clouds=("ovhcloud",), source="policy.yaml:3"), source="policy.yaml:2")
    penstock = given(site("lab"), offer("west", cloud="aws"), governed(teams=(team,)))
    penstock.hears(submitted("a", team="vision"), at="09:00")
    assert penstock.hears(submitted("b", team="vision"), at="09:00") == []
    assert penstock.why("b") == OnlyOwned(0, "cloud aws is not allowed for team vision", "policy.yaml:3")
    assert penstock.hears(submitted("c", team="speech"), at="09:01") == [launch("c.1/n0", at="west")]


def test_the_rule_for_each_offer_is_told_where_no_rule_is_for_all() -> None:
    """A job of a class that stays home was told only that its data may not go to one of three clouds; at the others its
    data was welcome, and the officer asked why not there.
    """
    inference = ClassRule("inference", where="owned", source="policy.yaml:10")
    clouds = (offer("frankfurt", law="US"), offer("strasbourg", law="EU"), offer("roubaix", law="EU"))
    penstock = given(
        site("lab", law="EU"),
        *clouds,
        data("cards", "lab", "personal"),
        governed(
            classes=(inference,), more={"data_rules": (DataRule("personal", laws=("EU",), source="policy.yaml:22"),)}
        ),
    )
    penstock.hears(submitted("a", job_class="inference", data=("cards",)), at="09:00")
    assert penstock.hears(submitted("b", job_class="inference", data=("cards",)), at="09:00") == []
    stays = "class inference stays on owned GPUs"
    assert penstock.why("b") == OnlyOwned(
        free_gpus=0,
        rule="data class personal may not go to frankfurt",
        where="policy.yaml:22",
        each=(
            RuledOut(("frankfurt",), "data class personal may not go to frankfurt", "policy.yaml:22"),
            RuledOut(("roubaix", "strasbourg"), stays, "policy.yaml:10"),
        ),
    )
    assert penstock.story("b")[-1].endswith(
        f"It cannot burst: roubaix, strasbourg: {stays} (policy.yaml:10); frankfurt: data class personal may not go to "
        "frankfurt (policy.yaml:22)."
    )


def test_nothing_above_the_price_of_a_gpu_hour_is_rented() -> None:
    limit = PriceLimit(per_gpu_hour=usd("4.50"), source="policy.yaml:17")
    penstock = given(site("lab"), offer("dear", price="4.51"), governed(never_above=limit))
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(submitted("b"), at="09:00") == []
    rule = "a GPU costs 4.51 USD an hour there, above 4.50"
    assert penstock.why("b") == OnlyOwned(free_gpus=0, rule=rule, where="policy.yaml:17")


# --- rules in CEL ----------------------------------------------------------------------------------------------------


def test_a_rule_in_cel_keeps_a_job_from_an_offer() -> None:
    new, old = offer("new", price="1", gpu_model="H100"), offer("old", price="2", gpu_model="A100")
    penstock = given(new, old, governed(rules=(H100,)))
    assert penstock.hears(submitted("a", job_class="experiment"), at="09:00") == [launch("a.1/n0", at="old")]
    assert penstock.hears(submitted("b", job_class="training"), at="09:01") == [launch("b.1/n0", at="new")]


def test_a_refusal_carries_the_rules_name_its_because_and_its_line() -> None:
    penstock = given(offer("new", gpu_model="H100"), governed(rules=(H100,)))
    assert penstock.hears(submitted("a", job_class="experiment"), at="09:00") == []
    because = "rule old-cards: Small tests use older cards"
    assert penstock.promises == [e.JobRefused(9 * HOUR, "a", NothingAllowed("new", because, "policy.yaml:30"))]


def test_a_rule_that_fails_denies_and_says_so() -> None:
    broken = DenyRule("broken", "job.gpus / (job.gpus - 8) > 1", source="policy.yaml:31")
    penstock = given(offer("cloud"), governed(rules=(broken,)))
    assert penstock.hears(submitted("a"), at="09:00") == []
    because = NothingAllowed("cloud", "rule broken failed (divide by zero)", "policy.yaml:31")
    assert penstock.promises == [e.JobRefused(9 * HOUR, "a", because)]
    assert penstock.hears(submitted("b", gpus=4), at="09:01") == [launch("b.1/n0", at="cloud")]


# --- shapes ----------------------------------------------------------------------------------------------------------

#: Of two users, who of both may not rent, and who of both has a deadline or a cap.
ANN = DenyRule("ann", 'offer.rented && job.user == "ann"', source="policy.yaml:32")
HURRY = DenyRule("hurry", "offer.rented && !job.has_deadline && job.cap < 100", source="policy.yaml:33")


def shapes(penstock: Penstock) -> list[list[str]]:
    """Jobs that share a shape."""
    by_shape: dict[int, list[str]] = {}
    for job in penstock.engine.state.jobs.values():
        by_shape.setdefault(job.shape.number, []).append(job.id)
    return list(by_shape.values())


def test_users_deadlines_and_caps_make_shapes_only_while_a_rule_reads_them() -> None:
    penstock = given(site("lab"), offer("cloud"), governed("1h"))
    penstock.hears(submitted("a", user="ann"), submitted("b", user="bob"), at="09:00")
    penstock.hears(submitted("c", user="bob", cap="500"), submitted("d", user="ann", deadline_at=99 * HOUR), at="09:00")
    assert shapes(penstock) == [["a", "b", "c", "d"]]
    penstock.hears(governed("1h", 2, rules=(ANN,)), at="09:10")
    assert shapes(penstock) == [["a", "d"], ["b", "c"]]
    assert penstock.why("d") == OnlyOwned(free_gpus=0, rule="rule ann", where="policy.yaml:32")
    penstock.hears(governed("1h", 3, rules=(HURRY,)), at="09:20")
    assert shapes(penstock) == [["a", "b"], ["c"], ["d"]]
    assert penstock.why("b") == OnlyOwned(free_gpus=0, rule="rule hurry", where="policy.yaml:33")
    penstock.hears(governed("1h", 4), at="09:30")
    assert shapes(penstock) == [["a", "b", "c", "d"]]
    assert penstock.hears(started("a.1"), at="10:00") == [launch(f"{job}.1/n0", at="cloud") for job in "bcd"]


def test_a_job_that_is_kept_from_an_offer_stays_so_when_shapes_change() -> None:
    penstock = given(site("lab"), offer("cloud", sold_by="attempt"), governed("1h"))
    penstock.hears(submitted("a", user="ann"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(submitted("b", user="bob"), at="09:01")
    for number, at in ((1, "10:02"), (2, "10:03")):
        penstock.hears(started(f"b.{number}"), at=at)
        penstock.hears(lost(f"b.{number}"), at=at)
    assert penstock.engine.state.jobs["b"].shape.without == ("cloud",)
    penstock.hears(governed("1h", 2, rules=(ANN,)), at="10:03")
    assert penstock.engine.state.jobs["b"].shape.without == ("cloud",)


def test_three_policies_one_after_the_other_are_decided_again_alike() -> None:
    """The journal alone is enough: rules are in it as text."""
    penstock = given(site("lab"), offer("cloud", gpu_model="H100"), governed("1h", classes=(TRAINING, INFERENCE)))
    penstock.hears(
        submitted("a", user="ann"), submitted("b", user="bob"), submitted("c", job_class="inference"), at="09:00"
    )
    penstock.hears(governed("1h", 2, rules=(ANN, H100)), at="09:10")
    penstock.hears(submitted("d", job_class="experiment"), at="09:20")
    penstock.hears(governed("1h", 3, rules=(HURRY,), allow=Allow(gpus=("A*",))), at="09:30")
    penstock.hears(ended("a.1"), at="09:40")
    penstock.hears(governed("1h", 4, classes=(TRAINING, INFERENCE)), at="09:50")
    penstock.hears(submitted("e", user="ann"), at="10:30")
    report = redecide(penstock.steps, 5, PolicyRules())
    assert (report.steps, report.different, report.first) == (len(penstock.steps), 0, ())
    again = replay((step.at, step.inputs, step.outputs) for step in penstock.steps)
    assert again.state.digest() == penstock.engine.state.digest()


# --- shares ----------------------------------------------------------------------------------------------------------

HALVES = (
    TeamRule("vision", share_permille=500, source="policy.yaml:2"),
    TeamRule("speech", share_permille=500, source="policy.yaml:3"),
)


def shared(**more: Any) -> Policy:
    return replace(ours("penstock", "20"), governance=Governance(teams=HALVES), **more)


def both_halves_used_by_vision() -> Penstock:
    penstock = given(site("lab", nodes=2), offer("cloud", price="1"), lambda at: e.PolicySet(at, 1, shared()))
    penstock.hears(submitted("a", run="9h", team="vision"), submitted("b", run="9h", team="vision"), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    return penstock


def test_a_team_may_use_more_than_its_share_while_nobody_else_wants_it() -> None:
    penstock = both_halves_used_by_vision()
    assert [attempt.offer.id for attempt in penstock.engine.state.attempts.values()] == ["lab", "lab"]


def test_a_team_above_its_share_is_displaced_by_one_within_it_at_its_own_cost() -> None:
    penstock = both_halves_used_by_vision()
    assert penstock.hears(submitted("s", run="9h", team="speech"), at="10:00") == [
        launch("b.2/n0", at="cloud"),
        stop("b.1"),
    ]
    because = ShareReturned("s", "speech", "vision", 16, 8, penstock.why("b").cost, "policy.yaml:2")  # type: ignore[union-attr]
    assert penstock.why("b") == because
    assert penstock.account("team:vision")[0] == penstock.account("org")[0] > 0
    assert penstock.account("team:speech") == (0, 0)
    assert penstock.why("s") == RoomMade(waited_ms=0, free_gpus=0, left_by=("b",))
    assert penstock.hears(submitted("t", run="9h", team="speech"), at="10:30") == [], "vision keeps its share"


def test_a_team_above_its_share_bursts_while_one_within_it_waits() -> None:
    penstock = given(
        site("lab", nodes=2), offer("cloud", price="9"), lambda at: e.PolicySet(at, 1, shared(max_moves=0))
    )
    penstock.hears(submitted("a", run="9h", team="vision"), submitted("b", run="9h", team="vision"), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    assert penstock.hears(submitted("s", run="2h", team="speech"), at="09:10") == []
    assert penstock.hears(submitted("c", run="2h", team="vision"), at="09:20") == [launch("c.1/n0", at="cloud")]
    assert penstock.why("c") == AboveShare("vision", 16, 8, "speech", penstock.why("c").cost, "policy.yaml:2")  # type: ignore[union-attr]
    assert penstock.account("team:speech") == (0, 0)
