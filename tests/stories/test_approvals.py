"""A job that needs a person's approval to burst: asked, answered, unanswered; and owned GPUs meanwhile."""

from typing import Any

from penstock.core.decide.rules import BuiltInRules
from penstock.core.model import events as e
from penstock.core.model.governance import ApprovalRule, Governance
from penstock.core.model.reasons import ApprovalDenied, AwaitsApproval, OnlyOwned, PatienceOver
from penstock.core.plan import plan
from penstock.core.units import HOUR
from penstock.core.units import money as usd
from penstock.journal.redecide import redecide
from penstock.live import snapshot
from tests.core.asking import AskingRules
from tests.stories.kit import (
    Penstock,
    Told,
    asked_to_move,
    cancelled,
    cap,
    clock,
    ended,
    given,
    launch,
    lost,
    node_lost,
    nothing,
    offer,
    policy,
    ready,
    site,
    start,
    started,
    submitted,
)

BIG = ApprovalRule("big", "cost > 20", "role:approver", within_ms=4 * HOUR, source="policy.yaml:31")


def asking(*rules: ApprovalRule, **more: Any) -> Told:
    return policy(governance=Governance(approvals=rules or (BIG,), version=1), **more)


def with_rules(*undated: Told, rules: tuple[ApprovalRule, ...] = (BIG,), **more: Any) -> Penstock:
    penstock = given(*undated, asking(*rules, **more))
    penstock.engine.rules = AskingRules()
    return penstock


def cloud_only(*rules: ApprovalRule, **more: Any) -> Penstock:
    """Eight GPUs for an hour are $32."""
    return with_rules(offer("cloud", price="4", **more), rules=rules or (BIG,))


def full_lab(*rules: ApprovalRule) -> Penstock:
    """The lab's one node is busy until noon at least."""
    penstock = with_rules(site("lab"), offer("cloud", price="4"), rules=rules or (BIG,))
    penstock.hears(submitted("first", run="3h"), at="08:00")
    penstock.hears(started("first.1"), at="08:00")
    return penstock


def approved(job: str, **more: Any) -> Told:
    return lambda at: e.ApprovalAnswered(at, job, approved=True, by="ada", **more)


def denied(job: str, reason: str = "") -> Told:
    return lambda at: e.ApprovalAnswered(at, job, approved=False, by="ada", reason=reason)


AWAITS = AwaitsApproval("big", "role:approver", "cloud", usd("32"), clock("13:00"), "policy.yaml:31")


QUEUED = (
    "Queued: bursting to cloud for about $32.00 needs approval by an approver before day 1, 13:00 (rule big, "
    "policy.yaml:31). Owned GPUs that become free are used meanwhile."
)


def request(**more: Any) -> e.ApprovalAsked:
    asked: dict[str, Any] = {
        "at": clock("09:00"), "job": "a", "rule": "big", "role": "role:approver", "until_at": clock("13:00"),
        "offer": "cloud", "cost": usd("32"), "amount": usd("32"), "gpus": 8, "run_ms": HOUR, "start_ms": 0,
        "per_hour": usd("32"), "source": "policy.yaml:31",
    }  # fmt: skip
    return e.ApprovalAsked(**(asked | more))


# --- asked -----------------------------------------------------------------------------------------------------------


def test_a_dear_job_asks_and_is_queued_and_holds_no_money() -> None:
    penstock = cloud_only()
    assert penstock.hears(submitted("a"), at="09:00") == []
    assert penstock.promises == [request(), e.WaitPromised(clock("09:00"), "a", clock("13:00"), AWAITS)]
    assert penstock.held() == 0
    assert penstock.wakes() == clock("13:00")
    assert penstock.story("a") == [
        "Submitted by default: 8 GPUs, expected to run 1 h.",
        "Asks for approval of up to $32.00.",
        QUEUED,
    ]


def test_a_cheap_job_asks_nobody() -> None:
    penstock = cloud_only()
    assert penstock.hears(submitted("a", gpus=4, run="10m"), at="09:00") == [launch("a.1/n0", at="cloud")]


def test_the_request_shows_the_cheaper_ways() -> None:
    """The near cloud is chosen for its fast start; the far one is cheaper, and so is waiting for the lab."""
    rented = (offer("near", price="4"), offer("far", price="3.9", start="2h", billing_step_ms=1))
    penstock = with_rules(site("lab"), *rented, rules=(BIG,), ordering="fair")
    penstock.hears(submitted("first", run="3h"), at="08:00")
    penstock.hears(submitted("a"), at="09:00")
    asked = penstock.promise(e.ApprovalAsked)
    assert asked.offer == "near"
    assert asked.cheaper[0][:2] == ("lab", 0)


def test_an_offer_that_needs_no_approval_is_taken_instead() -> None:
    old = ApprovalRule("old-cards", "offer cloud", "role:approver", within_ms=HOUR)
    penstock = with_rules(offer("cloud", price="1"), offer("other", price="2"), rules=(old,))
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="other")]


def test_a_rule_that_cannot_be_evaluated_asks_and_says_so() -> None:
    broken = ApprovalRule("odd", "broken", "role:approver", within_ms=HOUR, source="policy.yaml:9")
    penstock = cloud_only(broken)
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.promise(e.ApprovalAsked).error == "no such field: quote.price"
    assert penstock.story("a")[-1].endswith("The rule cannot be evaluated, so it asks: no such field: quote.price.")


def test_a_plan_says_that_it_needs_approval() -> None:
    penstock = cloud_only()
    copy = snapshot.unpack(snapshot.pack(penstock.engine.state))
    fact = submitted("a")(clock("09:00"))
    assert isinstance(fact, e.JobSubmitted)
    planned = plan(copy, AskingRules(), e.JobSubmitted(fact.at, 0, "a", fact.spec))
    penstock.hears(submitted("a"), at="09:00")
    assert planned.answer == "needs approval"
    assert planned.decision == penstock.promises[-1]


# --- answered --------------------------------------------------------------------------------------------------------


def test_approved_it_bursts_at_once() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(approved("a", reason="for the paper"), at="10:00") == [launch("a.1/n0", at="cloud")]
    assert isinstance(penstock.why("a"), PatienceOver)
    assert "ada approved it: for the paper." in penstock.story("a")
    assert penstock.engine.state.approvals["a"].granted == {"big": usd("32")}


def test_denied_it_stays_on_owned_gpus() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(denied("a", "too dear this month"), at="10:00") == []
    because = ApprovalDenied(
        "big", "role:approver", "cloud", usd("32"), "denied", "ada", "too dear this month", "policy.yaml:31"
    )
    assert penstock.why("a") == because
    assert penstock.story("a")[-1] == (
        "May not burst: ada denied bursting to cloud for about $32.00 (rule big, policy.yaml:31). too dear this month."
    )
    assert penstock.hears(ended("first.1"), at="11:00") == [start("a.1", on="lab")]


def test_denied_it_is_refused_where_no_owned_gpus_could_run_it() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(denied("a"), at="10:00")
    assert penstock.kinds() == ["JobRefused"]
    assert isinstance(penstock.promises[0], e.JobRefused)
    assert isinstance(penstock.promises[0].because, ApprovalDenied)
    assert penstock.phase("a") == "ended"
    assert penstock.engine.state.approvals == {}


def test_unanswered_means_no() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(nothing, at="13:00") == []
    assert penstock.story("a")[-1] == (
        "May not burst: bursting to cloud for about $32.00 needs approval by an approver, and nobody answered in time "
        "(rule big, policy.yaml:31)."
    )
    assert penstock.hears(approved("a"), at="13:00") == []  # too late
    assert penstock.hears(approved("a"), at="13:01") == []
    assert penstock.hears(ended("first.1"), at="14:00") == [start("a.1", on="lab")]


def test_it_starts_on_owned_gpus_meanwhile_and_the_request_lapses() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(ended("first.1"), at="09:30") == [start("a.1", on="lab")]
    assert penstock.engine.state.approvals == {}
    assert penstock.hears(approved("a"), at="09:40") == []
    assert penstock.phase("a") == "placed"


def test_a_dearer_quote_asks_again() -> None:
    """Approved for $32; lost after 45 minutes without a checkpoint, the job costs $24 more than that in all."""
    penstock = cloud_only()
    penstock.hears(submitted("a", checkpoint=None), at="09:00")
    penstock.hears(approved("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(node_lost("a.1/n0"), lost("a.1"), at="09:45")
    asked = penstock.promise(e.ApprovalAsked)
    assert (asked.cost, asked.amount) == (usd("32"), usd("56"))
    assert penstock.hears(approved("a"), at="10:00") == [launch("a.2/n0", at="cloud")]


def test_within_the_approved_amount_nobody_is_asked_again() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a", run="2h", checkpoint="15m"), at="09:00")
    penstock.hears(approved("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(lambda at: e.AttemptCheckpointed(at, "a.1", HOUR), at="10:00")
    assert penstock.hears(node_lost("a.1/n0"), lost("a.1", kept="1h"), at="10:00") == [launch("a.2/n0", at="cloud")]


def test_an_approver_may_allow_less_than_was_asked_for() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(approved("a", amount=usd("25")), at="10:00") == []
    assert isinstance(penstock.why("a"), ApprovalDenied)


def test_two_rules_ask_one_after_the_other() -> None:
    board = ApprovalRule("board", "cost > 30", "role:board", within_ms=HOUR)
    penstock = cloud_only(BIG, board)
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(approved("a"), at="09:10") == []
    assert penstock.promise(e.ApprovalAsked).rule == "board"
    assert penstock.hears(approved("a"), at="09:20") == [launch("a.1/n0", at="cloud")]


# --- approved once, and asked again -----------------------------------------------------------------------------------


def _lost_at_night(penstock: Penstock) -> None:
    """Approved and running since nine in the evening; its node is gone after 45 minutes, without a checkpoint."""
    penstock.hears(submitted("a", checkpoint=None), at="21:00")
    penstock.hears(approved("a"), at="21:00")
    penstock.hears(ready("a.1/n0"), at="21:00")
    penstock.hears(started("a.1"), at="21:00")
    penstock.hears(node_lost("a.1/n0"), lost("a.1"), at="21:45")
    assert penstock.promise(e.ApprovalAsked).until_at == clock("25:45")


def test_an_approved_job_is_not_ended_because_nobody_answers_at_night() -> None:
    """It lost its node, asked for more, and nobody answered for four hours: it was refused, ended, its place in the
    queue gone. Now it asks until somebody answers, and then bursts.
    """
    penstock = cloud_only()
    _lost_at_night(penstock)
    for hour in ("25:45", "29:45"):
        assert penstock.hears(nothing, at=hour) == []
        assert penstock.kinds() == ["ApprovalAsked", "WaitPromised"]
        assert penstock.phase("a") == "waiting"
    assert penstock.wakes() == clock("33:45")
    assert penstock.hears(approved("a"), at="32:00") == [launch("a.2/n0", at="cloud")]


def test_an_approved_job_asks_again_also_where_owned_gpus_could_run_it() -> None:
    """It was left to wait for owned GPUs that were busy for days."""
    penstock = full_lab()
    penstock.hears(submitted("a", checkpoint=None), at="09:00")
    penstock.hears(approved("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(node_lost("a.1/n0"), lost("a.1"), at="09:45")
    penstock.hears(nothing, at="13:45")
    assert penstock.promise(e.ApprovalAsked).until_at == clock("17:45")


def test_a_job_that_ran_before_a_rule_asked_is_not_ended_by_silence() -> None:
    """A new policy voids the answer that it had; without one, silence ended a job with hours of work behind it."""
    penstock = cloud_only()
    _lost_at_night(penstock)
    board = ApprovalRule("board", "cost > 20", "role:board", within_ms=HOUR)
    penstock.hears(asking(board, revision=2), at="22:00")
    assert penstock.promise(e.ApprovalAsked).role == "role:board"
    penstock.hears(nothing, at="23:00")
    assert (penstock.kinds(), penstock.phase("a")) == (["ApprovalAsked", "WaitPromised"], "waiting")


def test_a_second_answer_may_still_be_no() -> None:
    penstock = cloud_only()
    _lost_at_night(penstock)
    penstock.hears(denied("a", "too dear by now"), at="22:00")
    assert isinstance(penstock.promise(e.JobRefused).because, ApprovalDenied)


def test_what_was_approved_stays_approved_when_a_second_request_lapses() -> None:
    """Owned GPUs came free while it asked for more; with that request its approval was gone, too."""
    penstock = full_lab()
    penstock.hears(submitted("a", checkpoint=None), at="09:00")
    penstock.hears(approved("a"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(node_lost("a.1/n0"), lost("a.1"), at="09:45")
    assert penstock.hears(ended("first.1"), at="10:00") == [start("a.2", on="lab")]
    assert penstock.engine.state.approvals["a"].granted == {"big": usd("32")}
    again = snapshot.unpack(snapshot.pack(penstock.engine.state))
    assert again.approvals["a"].granted == {"big": usd("32")}


def test_an_approval_covers_the_preemptions_that_are_to_be_expected() -> None:
    """Each lost spot node made the job a little dearer than approved, so that its GPUs waited for a person each time.
    The request names what it may cost with as many preemptions as one such job in twenty has.
    """
    penstock = cloud_only(term="spot", most="4", loss_ppm_per_hour=500_000)
    penstock.hears(submitted("a", run="4h", checkpoint="30m"), at="09:00")
    asked = penstock.promise(e.ApprovalAsked)
    assert (asked.cost, asked.amount) == (usd("144"), usd("205.248"))
    assert penstock.story("a")[1] == "Asks for approval of up to $205.25."
    penstock.hears(approved("a"), at="09:00")
    for attempt, began, gone in ((1, "09:00", "09:20"), (2, "09:20", "09:40"), (3, "09:40", "10:00")):
        penstock.hears(ready(f"a.{attempt}/n0"), at=began)
        penstock.hears(started(f"a.{attempt}"), at=began)
        went = penstock.hears(node_lost(f"a.{attempt}/n0"), lost(f"a.{attempt}"), at=gone)
        assert went == [launch(f"a.{attempt + 1}/n0", at="cloud")]


# --- what else may happen ---------------------------------------------------------------------------------------------


def test_nobody_is_asked_while_the_budget_denies_it() -> None:
    penstock = with_rules(offer("cloud", price="4"), cap("org", "1"))
    penstock.hears(submitted("a"), at="09:00")
    assert "ApprovalAsked" not in penstock.kinds()
    penstock.hears(cap("org", "1000"), at="10:00")
    assert "ApprovalAsked" in penstock.kinds()


def test_a_new_policy_with_the_same_rule_keeps_the_request() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(asking(revision=2), at="10:00")
    assert "ApprovalAsked" not in penstock.kinds()
    assert penstock.hears(approved("a"), at="10:30") == [launch("a.1/n0", at="cloud")]


def test_a_new_policy_without_the_rule_lets_it_burst() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    assert penstock.hears(policy(revision=2), at="10:00") == [launch("a.1/n0", at="cloud")]


def test_a_new_policy_with_another_rule_asks_anew() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(denied("a"), at="09:10")
    other = ApprovalRule("big", "cost > 20", "role:board", within_ms=HOUR)
    penstock.hears(asking(other, revision=2), at="10:00")
    assert penstock.promise(e.ApprovalAsked).role == "role:board"


def test_cancelled_the_request_is_gone() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(cancelled("a"), at="09:10")
    assert penstock.engine.state.approvals == {}
    assert penstock.hears(approved("a"), at="09:20") == []


def test_suspended_the_request_lapses_and_resumed_it_asks_again() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(lambda at: e.SuspendRequested(at, "a"), at="09:10")
    assert penstock.engine.state.approvals == {}
    penstock.hears(lambda at: e.ResumeRequested(at, "a"), at="09:20")
    assert penstock.promise(e.ApprovalAsked).until_at == clock("13:20")


def test_nobody_moves_a_job_to_where_it_needs_approval() -> None:
    penstock = with_rules(site("lab"), offer("cloud", price="4"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(asked_to_move("a", "cloud"), at="10:00") == []


def test_nobody_is_displaced_to_where_it_needs_approval() -> None:
    penstock = with_rules(site("lab"), offer("cloud", price="4"), displace=True, settle_ms=0)
    penstock.hears(submitted("free"), at="09:00")
    penstock.hears(started("free.1"), at="09:00")
    assert penstock.hears(submitted("bound", home="lab", data_class="secret"), at="09:30") == []
    assert isinstance(penstock.why("bound"), OnlyOwned)


def test_a_request_of_a_job_that_is_gone_or_answered_changes_nothing() -> None:
    penstock = cloud_only()
    penstock.hears(submitted("a"), at="09:00")
    before = penstock.engine.state.approvals
    assert penstock.hears(approved("b"), at="09:10") == []
    assert penstock.hears(approved("a", rule="other"), at="09:20") == []
    assert penstock.engine.state.approvals == before


def test_decided_again_from_the_record_all_is_equal() -> None:
    penstock = full_lab()
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(submitted("b"), at="09:10")
    penstock.hears(submitted("c"), at="09:20")
    penstock.hears(approved("a"), at="09:30")
    penstock.hears(denied("b"), at="09:40")
    penstock.hears(nothing, at="13:20")
    assert redecide(penstock.steps, most=5, rules=AskingRules()).different == 0


def test_built_in_rules_never_ask() -> None:
    penstock = given(offer("cloud", price="4"), asking())
    penstock.engine.rules = BuiltInRules()
    assert penstock.hears(submitted("a"), at="09:00") == [launch("a.1/n0", at="cloud")]
