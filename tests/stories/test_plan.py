"""What `plan` says, and that the engine then does it. The first four name another offer, or another price, if a plan is
worked out beside the engine instead of by it."""

from typing import Any

from penstock.core.decide.rules import BuiltInRules
from penstock.core.model import events as e
from penstock.core.model.reasons import CapBinds, Displaced, Late, MovesTogether, OwnedFree, PatienceOver, Preempted
from penstock.core.model.types import JobSpec, Waiting
from penstock.core.plan import Choice, Effect, Plan, plan
from penstock.core.units import HOUR, MINUTE
from penstock.core.units import money as usd
from penstock.live import snapshot
from tests.stories.kit import (
    Penstock,
    Told,
    cap,
    clock,
    data,
    ended,
    given,
    landed,
    launch,
    month,
    node_lost,
    offer,
    policy,
    ready,
    rule,
    site,
    span,
    started,
    stop,
    submitted,
)
from tests.stories.test_placement import in_pieces


def asked(penstock: Penstock, job: Told, at: str, *also: Told) -> Plan:
    """A plan of what would be submitted then; the engine that is asked stays as it is."""
    before = penstock.engine.state.digest()
    (fact,) = [penstock._numbered(job(clock(at)))]
    penstock.submissions -= 1
    assert isinstance(fact, e.JobSubmitted)
    copy = snapshot.unpack(snapshot.pack(penstock.engine.state))
    planned = plan(copy, BuiltInRules(), fact, tuple(undated(clock(at)) for undated in also))
    assert penstock.engine.state.digest() == before
    return planned


def decided(penstock: Penstock, job: Told, at: str, *also: Told) -> list[Any]:
    """What the engine then really answers; it must be what the plan said."""
    planned = asked(penstock, job, at, *also)
    actions = penstock.hears(job, *also, at=at)
    assert planned.decision in penstock.promises
    return actions


def prices(planned: Plan) -> list[tuple[str, int, int]]:
    return [(choice.offer.id, choice.cost, choice.total) for choice in planned.choices]


# --- where it names what the engine takes ----------------------------------------------------------------------------


def test_expected_preemptions_count() -> None:
    """Spot GPUs cost less an hour, and more in the end: every hour one start and half of the run is done again."""
    spot = offer("spot", price="1", most="2", term="spot", start="30m", loss_ppm_per_hour=1_000_000)
    penstock = given(spot, offer("sure", price="1.5"))
    job = submitted("a", run="2h", checkpoint=None)
    planned = asked(penstock, job, "09:00")
    assert (planned.answer, planned.offer) == ("burst", "sure")
    assert prices(planned) == [("sure", usd("24"), usd("24")), ("spot", usd("44"), usd("44"))]
    assert [choice.losses_ppm for choice in planned.choices] == [0, 2_000_000]
    assert decided(penstock, job, "09:00") == [launch("a.1/n0", at="sure")]


def test_preemptions_are_counted_as_they_were_seen_and_not_only_as_declared() -> None:
    """One in an hour there, beside the twelve hours without any that its declaration counts as: 1/13 an hour."""
    penstock = given(offer("spot", price="1", most="2", term="spot"))
    penstock.hears(submitted("a", run="2h"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(node_lost("a.1/n0"), at="10:00")
    planned = asked(penstock, submitted("b", run="2h"), "10:01")
    assert [choice.losses_ppm for choice in planned.choices] == [2 * 1_000_000 // 13]
    assert planned.choices[0].cost > usd("16")


def test_copies_take_time_that_is_paid_for() -> None:
    """A node waits for its data and is billed; where attempts are sold, the data comes first, and costs only delay."""
    near, far = offer("near", price="1.2"), offer("far", price="1")
    penstock = given(
        site("lab", nodes=1), near, far, data("set", "near", "open", gb=100), policy(data_rules=(rule("open", "*"),))
    )
    penstock.hears(submitted("early", data=("set",), run="1h"), at="08:00")
    penstock.hears(landed("set", "lab"), at="08:30")  # half an hour for its way
    job = submitted("a", run="1h", data=("set",))
    planned = asked(penstock, job, "09:00")
    assert (planned.answer, planned.offer) == ("burst", "near")
    assert [(choice.offer.id, choice.start_ms, choice.cost, choice.copies) for choice in planned.choices[1:]] == [
        ("near", 0, usd("9.6"), ()),
        ("far", 30 * MINUTE, usd("12"), ("set",)),
    ]
    assert decided(penstock, job, "09:00") == [launch("a.1/n0", at="near")]


def test_rented_offers_are_ranked_by_cost_and_delay() -> None:
    """The slow one is cheaper; an hour of delay costs more than it saves."""
    worth = Waiting("worth", value_per_hour=usd("20"))
    slow, quick = offer("slow", price="1", start="1h"), offer("quick", price="2.5")
    penstock = given(slow, quick, policy(waiting=worth))
    job = submitted("a", run="1h")
    planned = asked(penstock, job, "09:00")
    assert (planned.answer, planned.offer) == ("burst", "quick")
    assert prices(planned) == [("quick", usd("20"), usd("20")), ("slow", usd("16"), usd("36"))]
    assert decided(penstock, job, "09:00") == [launch("a.1/n0", at="quick")]


def test_a_seat_on_a_rented_node_is_a_choice_of_its_own() -> None:
    penstock = given(offer("cloud", price="1"), policy(share_nodes=True))
    penstock.hears(submitted("a", gpus=4, run="2h"), at="09:00")
    job = submitted("b", gpus=4, run="1h")
    planned = asked(penstock, job, "09:10")
    assert [(choice.offer.id, choice.node, choice.held > 0) for choice in planned.choices] == [
        ("cloud", "a.1/n0", False),
        ("cloud", "", True),
    ]
    assert isinstance(planned.decision, e.StartPromised)
    assert planned.decision.joins == "a.1/n0"
    assert decided(penstock, job, "09:10") == []


# --- whole answers ---------------------------------------------------------------------------------------------------


def test_a_whole_plan() -> None:
    penstock = given(site("lab"), offer("cloud", price="2", start="5m"), policy("10m"))
    planned = asked(penstock, submitted("a", run="3h"), "09:00")
    lab, cloud = (penstock.engine.state.offers[name] for name in ("lab", "cloud"))
    free = Choice(lab, "", 8, True, 0, 0, 3 * HOUR, 0, 0, 0, 0, ())
    rents = Choice(cloud, "", 8, True, 0, 5 * MINUTE, 3 * HOUR, 49_333_334, 49_333_334, planned.choices[1].held, 0, ())
    assert planned == Plan(
        decision=penstock_decides(penstock, submitted("a", run="3h"), "09:00"),
        answer="start",
        offer="lab",
        until_ms=0,
        tally=(("start", "lab", 1),),
        expected_run_ms=3 * HOUR,
        stated=True,
        jobs_ended=0,
        choices=(free, rents),
        excluded=(),
        effects=(),
    )
    assert planned.decision.because == OwnedFree(0, 8)


def unknown(job: str) -> Told:
    return lambda at: e.JobSubmitted(at, -1, job, JobSpec(8))


def test_a_plan_says_whether_its_run_time_is_a_guess() -> None:
    penstock = given(site("lab"), policy("10m"))
    assert asked(penstock, unknown("a"), "09:00").jobs_ended == 0
    penstock.hears(unknown("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(ended("a.1"), at="09:20")
    planned = asked(penstock, unknown("b"), "09:30")
    assert (planned.stated, planned.jobs_ended, planned.expected_run_ms) == (False, 1, 20 * MINUTE)


def penstock_decides(penstock: Penstock, job: Told, at: str) -> Any:
    penstock.hears(job, at=at)
    return penstock.promises[-1]


def test_it_waits_as_long_as_the_engine_lets_it() -> None:
    penstock = given(site("lab"), offer("cloud", price="2"), policy("10m"))
    penstock.hears(submitted("a"), at="09:00")
    planned = asked(penstock, submitted("b"), "09:01")
    assert (planned.answer, planned.offer, planned.until_ms) == ("wait", "", span("10m"))
    assert decided(penstock, submitted("b"), "09:01") == []


def test_the_cap_that_binds_is_named() -> None:
    penstock = given(offer("cloud", price="2"), cap("team:poor", "1"))
    planned = asked(penstock, submitted("a", team="poor"), "09:00")
    assert (planned.answer, planned.offer) == ("short of money", "")
    needed = usd("16") * 12 // 60 + 1  # ten minutes of lease and two of grace
    assert planned.decision.because == CapBinds("team:poor", "month 1", usd("1"), spent=0, held=0, needed=needed)
    assert planned.choices[0].denied == planned.decision.because


def test_a_month_that_opens_with_the_same_row_counts() -> None:
    penstock = given(offer("cloud", price="2"), month(1))
    job = submitted("a")
    assert asked(penstock, job, "day 31, 00:00").answer == "short of money"
    planned = asked(penstock, job, "day 31, 00:00", month(2))
    assert (planned.answer, planned.offer) == ("burst", "cloud")
    assert decided(penstock, job, "day 31, 00:00", month(2)) == [launch("a.1/n0", at="cloud")]


def test_of_an_array_each_job_is_counted() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud", price="2", count=1))
    planned = asked(penstock, submitted("a", count=4), "09:00")
    assert (planned.answer, planned.offer) == ("start", "lab")
    assert planned.tally == (("start", "lab", 2), ("burst", "cloud", 1), ("no room", "", 1))


def test_an_offer_without_room_comes_last() -> None:
    penstock = given(offer("cheap", price="1", count=1), offer("dear", price="2"))
    penstock.hears(submitted("a"), at="09:00")
    planned = asked(penstock, submitted("b"), "09:01")
    assert [(choice.offer.id, choice.fits_now, choice.cost) for choice in planned.choices] == [
        ("dear", True, usd("16")),
        ("cheap", False, usd("8")),
    ]
    assert planned.decision.because == PatienceOver(0, 0, HOUR, usd("16"), "", 0)


# --- who would have to make room -------------------------------------------------------------------------------------


def test_it_names_whom_it_would_preempt() -> None:
    penstock = given(site("lab"), policy("10m", preempt=True))
    penstock.hears(submitted("low", team="red"), at="09:00")
    penstock.hears(started("low.1"), at="09:00")
    job = submitted("high", priority=5)
    planned = asked(penstock, job, "09:30")
    assert (planned.answer, planned.offer) == ("start", "lab")
    assert planned.effects == (Effect("low", "red", "", Preempted("high", 5, 0)),)
    assert decided(penstock, job, "09:30") == [stop("low.1")]


def test_it_names_whom_it_would_displace_and_where_to() -> None:
    penstock = given(site("lab"), offer("cloud", price="2"), policy("10m", displace=True, settle_ms=0))
    penstock.hears(submitted("free", team="red"), at="09:00")
    penstock.hears(started("free.1"), at="09:00")
    job = submitted("bound", home="lab", data_class="secret")
    planned = asked(penstock, job, "09:30")
    assert (planned.answer, planned.offer) == ("start", "lab")
    assert planned.effects == (Effect("free", "red", "cloud", Displaced("bound", 8, cost=usd("16"))),)
    assert decided(penstock, job, "09:30") == [launch("free.2/n0", at="cloud"), stop("free.1")]


def test_it_names_whom_it_would_move_together() -> None:
    """The engine first lets it wait, and in the same step makes room: what counts is where the step ends."""
    penstock = in_pieces()
    penstock.hears(ended("x.1"), at="10:00")
    job = submitted("wide", gpus=7, run="20h")
    planned = asked(penstock, job, "10:30")
    assert (planned.answer, planned.offer) == ("start", "lab")
    assert [(effect.job, effect.to, type(effect.because)) for effect in planned.effects] == [
        ("c", "lab", MovesTogether)
    ]
    assert decided(penstock, job, "10:30") == [stop("c.1")]
    assert penstock.kinds() == ["WaitPromised", "StartPromised", "StopPromised", "StartPromised"]
    assert penstock.promises[-1] == planned.decision


def test_a_plan_says_that_caps_are_soft_where_nobody_proves_the_watchman() -> None:
    penstock = given(offer("cloud", guarantee="watchman"))
    assert [choice.offer.guarantee for choice in asked(penstock, submitted("a"), "09:00").choices] == ["none"]
    penstock.hears(lambda at: e.GuaranteeChanged(at, "cloud", "watchman"), at="09:00")
    assert [choice.offer.guarantee for choice in asked(penstock, submitted("a"), "09:01").choices] == ["watchman"]


# --- widths and deadlines: what would happen, and not what was asked -------------------------------------------------


def _deadline_of(planned: Plan) -> list[tuple[str, int, int, int, int]]:
    return [(c.offer.id, c.width, c.run_ms, c.late_ms, c.penalty) for c in planned.choices]


def test_a_row_has_the_width_and_the_run_time_that_the_job_would_have_there() -> None:
    """It said "Starts on lab with 16 GPUs", and in the table below it ran as long as with 8."""
    penstock = given(site("lab", nodes=2), offer("cloud", price="2"))
    job = submitted("a", run="20h", scaling=((16, 1_800),), deadline_at=clock("21:00"), penalty_per_hour=usd("100"))
    planned = asked(penstock, job, "09:00")
    assert isinstance(planned.decision, e.StartPromised)
    assert planned.decision.width == 16
    fast = 20 * HOUR * 10 // 18
    late = 20 * HOUR - 12 * HOUR
    assert _deadline_of(planned) == [("lab", 16, fast, 0, 0), ("cloud", 8, 20 * HOUR, late, usd("800"))]
    assert planned.deadline_at == clock("21:00")


def test_a_row_ends_as_late_as_its_preemptions_make_it() -> None:
    """Spot was said to end when on demand does, with two and a half preemptions beside it."""
    spot = offer("spot", price="1", most="2", term="spot", start="30m", loss_ppm_per_hour=1_000_000)
    penstock = given(spot, offer("sure", price="9"))
    planned = asked(penstock, submitted("a", run="2h", checkpoint=None, deadline_at=clock("11:00")), "09:00")
    late = {choice.offer.id: choice.late_ms for choice in planned.choices}
    assert late == {"sure": 0, "spot": 30 * MINUTE + 2 * (30 * MINUTE + HOUR)}  # each: another start, half of the run


def test_a_deadline_that_cannot_be_met_is_told_as_such() -> None:
    """It said "To meet its deadline it had to burst by" an hour before it came: it was given up without a word."""
    penstock = given(offer("cloud", price="1"), policy(waiting=Waiting("worth", value_per_hour=usd("4"))))
    job = submitted("a", run="5h", deadline_at=clock("11:00"), penalty_per_hour=usd("100"))
    decided(penstock, job, "09:00")
    assert penstock.why("a").late == Late(clock("11:00"), 3 * HOUR, usd("300"))  # type: ignore[union-attr]
    says = "Its deadline, day 1, 11:00, cannot be met there: about 3 h late, $300.00 of penalty."
    assert says in penstock.story("a")[-1]
