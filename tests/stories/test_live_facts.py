"""Facts that only a live system has: people pause it, jobs tell how far they are, sites name reasons, clocks jump."""

from penstock.core.model import events as e
from penstock.core.model.reasons import ComesHome, PlacementsPaused
from penstock.core.units import HOUR, MINUTE
from tests.stories.kit import (
    Told,
    cancelled,
    clock,
    ended,
    given,
    gone,
    lost,
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
    usd,
)


def paused(at: int) -> e.Fact:
    return e.Paused(at, "p1")


def resumed(at: int) -> e.Fact:
    return e.Resumed(at, "p1")


def suspends(job: str) -> Told:
    return lambda at: e.SuspendRequested(at, job)


def resumes(job: str) -> Told:
    return lambda at: e.ResumeRequested(at, job)


def progressed(attempt: str, permille: int) -> Told:
    return lambda at: e.AttemptProgressed(at, attempt, permille)


def test_while_paused_nothing_starts_and_whoever_comes_is_told_so() -> None:
    penstock = given(site("lab", nodes=2), offer("cloud"))
    penstock.hears(paused, at="09:00")
    assert penstock.hears(submitted("a"), at="09:01") == []
    assert penstock.why("a") == PlacementsPaused()
    assert penstock.story("a")[-1] == "Queued: a person paused all new starts."
    assert penstock.wakes() is None
    assert penstock.hears(resumed, at="09:30") == [start("a.1", on="lab")]


def test_while_paused_patience_runs_out_without_a_burst_and_at_the_end_it_bursts() -> None:
    penstock = given(site("lab"), offer("cloud", sold_by="attempt"), policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(paused, at="09:05")
    assert penstock.wakes() is None
    assert penstock.hears(nothing, at="09:20") == []
    assert penstock.hears(resumed, at="09:30") == [start("b.1", on="cloud")]


def test_while_paused_what_runs_goes_on_leases_are_renewed_and_what_is_idle_goes_back() -> None:
    penstock = given(offer("cloud"))
    penstock.hears(submitted("a", run="20h"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:01")
    penstock.hears(started("a.1"), at="09:01")
    penstock.hears(paused, at="09:02")
    assert penstock.hears(nothing, at="18:00") == [set_deadline("a.1/n0")]
    assert penstock.hears(ended("a.1"), at="19:00") == [release("a.1/n0")]
    penstock.hears(gone("a.1/n0"), at="19:01")
    assert penstock.held() == 0


def test_while_paused_a_lost_job_waits_and_a_person_may_still_cancel() -> None:
    penstock = given(site("lab", nodes=2))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(started("a.1"), started("b.1"), at="09:00")
    penstock.hears(paused, at="09:10")
    assert penstock.hears(lost("a.1", "5m"), at="09:20") == []
    assert penstock.hears(cancelled("b"), at="09:21") == [stop("b.1")]
    penstock.hears(stopped("b.1"), at="09:22")
    assert penstock.hears(resumed, at="09:30") == [start("a.2", on="lab", resume_ms=5 * MINUTE, earlier="a.1")]


def test_a_start_names_the_attempt_whose_checkpoint_it_resumes_from() -> None:
    penstock = given(site("lab"))
    assert penstock.hears(submitted("a"), at="09:00") == [start("a.1", on="lab", earlier="")]
    penstock.hears(started("a.1"), at="09:00")
    assert penstock.hears(lost("a.1", "15m"), at="09:20") == [start("a.2", on="lab", earlier="a.1")]
    penstock.hears(started("a.2"), at="09:20")
    # The second was lost before it wrote anything new: the first one's checkpoint is still the newest.
    assert penstock.hears(lost("a.2", "15m"), at="09:25") == [start("a.3", on="lab", earlier="a.1")]


def test_a_job_that_tells_how_far_it_is_is_believed() -> None:
    """Submitted as an hour; at a tenth after half an hour it will take five, and coming home pays."""
    home = policy(home=True, settle_ms=0)
    penstock = given(site("lab"), offer("cloud", price="1", sold_by="attempt"), home)
    penstock.hears(submitted("here", run="45m"), submitted("away", run="1h"), at="09:00")
    penstock.hears(started("here.1"), started("away.1"), at="09:00")
    penstock.hears(progressed("away.1", 100), at="09:30")
    assert penstock.hears(ended("here.1"), at="09:45") == [stop("away.1")]
    left = span("5h") - span("45m")
    assert penstock.why("away") == ComesHome(left, saves=usd("8") * left // HOUR, move_ms=0, move_worth=0)


def test_progress_that_makes_no_sense_changes_nothing() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(progressed("a.1", 100), progressed("nobody.1", 100), at="09:01")  # it has not said that it runs
    penstock.hears(started("a.1"), at="09:02")
    penstock.hears(progressed("a.1", 0), progressed("a.1", 2_000), at="09:10")
    assert penstock.engine.state.jobs["a"].told_ms is None


def test_a_failure_is_told_in_the_words_of_the_site() -> None:
    penstock = given(site("lab"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(lambda at: e.AttemptEnded(at, "a.1", "failed", "exit code 3"), at="09:01")
    assert penstock.story("a")[-1] == "Failed: exit code 3."


def test_what_a_person_must_look_at_is_kept_in_mind_the_newest_few() -> None:
    penstock = given(site("lab"))
    penstock.hears(lambda at: e.ClockJumped(at, -3_600_000), at="09:00")
    assert penstock.engine.state.alarms == [(clock("09:00"), "clock", "The wall clock jumped 3600 s back.")]
    for k in range(30):
        penstock.hears(lambda at, k=k: e.EventQuarantined(at, "JobSubmitted", str(k), "a bug", ""), at="09:01")  # type: ignore[misc]  # a default is how a lambda keeps its number
    assert len(penstock.engine.state.alarms) == 20
    assert penstock.engine.state.alarms[-1][2] == "JobSubmitted 29 was set aside: a bug"


def test_a_suspended_job_stops_with_its_checkpoint_is_not_queued_and_is_queued_again_when_resumed() -> None:
    penstock = given(site("lab", gpus=8), policy("1h"))
    penstock.hears(submitted("a", gpus=8, run="9h"), at="09:00")
    penstock.hears(started("a.1"), at="09:00")
    penstock.hears(submitted("b", gpus=8, run="1h"), at="09:01")
    assert penstock.hears(suspends("a"), at="10:00") == [stop("a.1")]
    assert penstock.hears(stopped("a.1", "1h"), at="10:01") == [start("b.1", "lab")]
    penstock.hears(started("b.1"), at="10:01")
    penstock.hears(suspends("b"), at="10:05")
    assert penstock.hears(stopped("b.1", "4m"), at="10:06") == []  # free GPUs, and nobody to take them
    assert (penstock.phase("a"), penstock.phase("b")) == ("waiting", "waiting")
    assert penstock.hears(resumes("a"), at="11:00") == [start("a.2", "lab", resume_ms=HOUR)]
    penstock.hears(cancelled("b"), at="11:01")
    assert "b" not in penstock.engine.state.jobs
