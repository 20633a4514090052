"""Backfill into reserved nodes: who may start there meanwhile, and when the job they are reserved for starts."""

from typing import Any

from hypothesis import given as of_any
from hypothesis import settings
from hypothesis import strategies as st

from penstock.core.engine import Step
from penstock.core.model.events import (
    AttemptEnded,
    AttemptStarted,
    JobSubmitted,
    ReservePromised,
    ResumeRequested,
    StartPromised,
    StopPromised,
    SuspendRequested,
)
from penstock.core.model.reasons import Backfills, GivesWay, OnlyOwned, OwnedFree
from penstock.core.model.types import JobSpec, Policy, Waiting
from penstock.core.units import HOUR, MICRO, MINUTE, NEVER, Instant
from penstock.policy.presets import policy as preset
from penstock.sim.scenario import Scenario, owned_site, run
from penstock.sim.traces.trace import TraceJob
from tests.stories.kit import (
    Penstock,
    Told,
    clock,
    ended,
    given,
    nothing,
    policy,
    site,
    start,
    started,
    stop,
    stopped,
    submitted,
)

WAITED = "day 2, 08:00"  #: `wide` has waited for 23 hours, the longest that a job may


def reserving(**more: Any) -> Told:
    waiting = Waiting("worth", value_per_hour=MICRO, most_ms=23 * HOUR)
    return policy(waiting=waiting, packing="best_fit", estimator="life_table", reserve=True, **more)


def a_wide_job_waits(nodes: int = 1, wide: int = 8, long: str = "100h", **more: Any) -> Penstock:
    """`long` has one GPU of the first node for 100 hours; the nodes that `wide` needs are reserved for it."""
    penstock = given(site("lab", nodes=nodes), reserving(**more))
    penstock.hears(submitted("long", gpus=1, run=long), at="08:00")
    penstock.hears(started("long.1"), at="08:00")
    for node in range(1, nodes):
        penstock.hears(submitted(f"other{node}", gpus=8, run=long), at="08:00")
        penstock.hears(started(f"other{node}.1"), at="08:00")
    penstock.hears(submitted("wide", gpus=wide, run="1h"), at="09:00")
    penstock.hears(nothing, at=WAITED)
    assert penstock.promise(ReservePromised).nodes == tuple(range(nodes))
    return penstock


def unknown(job: str, gpus: int = 1, **more: Any) -> Told:
    """A job that does not say how long it runs; no job has ended from which one could learn it."""
    spec = JobSpec(gpus, **{"checkpoint_every_ms": 15 * MINUTE, **more})
    return lambda at: JobSubmitted(at, -1, job, spec)


# --- who may start ---------------------------------------------------------------------------------------------------


def test_a_job_that_ends_before_the_reserved_start_backfills() -> None:
    penstock = a_wide_job_waits()
    assert penstock.hears(submitted("small", gpus=2, run="75h"), at="day 2, 09:00") == [start("small.1", on="lab")]
    reserved_start, ends_by = clock("day 5, 12:00"), clock("day 5, 12:00")
    promised = penstock.promise(StartPromised)
    assert promised.because == Backfills(0, 7, "wide", reserved_start, "ends", ends_by, learned=False)
    assert promised.ends_by == ends_by
    assert penstock.story("small")[-1] == (
        "Starts on lab with 2 GPUs. Backfills GPUs that are reserved for wide at day 5, 12:00: it says that it "
        "ends by day 5, 12:00. 7 GPUs were free."
    )


def test_a_job_that_would_end_later_waits() -> None:
    penstock = a_wide_job_waits()
    assert penstock.hears(submitted("small", gpus=2, run="76h"), at="day 2, 09:00") == []
    assert penstock.why("small") == OnlyOwned(0, "there is nothing to rent")


def test_of_queued_jobs_those_backfill_that_end_in_time() -> None:
    penstock = a_wide_job_waits()
    penstock.hears(submitted("fills", gpus=7, run="10h"), at="day 2, 09:00")
    penstock.hears(submitted("late", gpus=1, run="90h"), at="day 2, 09:01")
    penstock.hears(submitted("first", gpus=4, run="3h"), at="day 2, 09:02")
    penstock.hears(submitted("second", gpus=4, run="1h"), at="day 2, 09:03")
    penstock.hears(started("fills.1"), at="day 2, 09:04")
    assert penstock.hears(ended("fills.1"), at="day 2, 19:04") == [start("first.1", on="lab")]


def test_the_reserved_start_is_when_enough_of_the_nodes_comes_free() -> None:
    """`wide` needs 4 of 8 GPUs: of 3 jobs that have them, the shortest has to end, not all."""
    penstock = given(site("lab"), reserving())
    for name, gpus, run_time in (("a", 3, "90h"), ("b", 3, "40h"), ("c", 2, "25h")):
        penstock.hears(submitted(name, gpus=gpus, run=run_time), at="08:00")
        penstock.hears(started(f"{name}.1"), at="08:00")
    penstock.hears(submitted("wide", gpus=4, run="1h"), at="09:00")
    penstock.hears(nothing, at=WAITED)
    assert penstock.promise(ReservePromised).because.free_in_ms == 16 * HOUR
    penstock.hears(ended("c.1"), at="day 2, 09:00")
    assert penstock.hears(submitted("short", gpus=1, run="15h"), at="day 2, 09:00") == [start("short.1", on="lab")]
    assert penstock.hears(submitted("long", gpus=1, run="15h"), at="day 2, 09:01") == [start("long.1", on="lab")]
    assert penstock.promise(StartPromised).because.way == "beside", "b leaves 3, c has left 2: one to spare"
    assert penstock.hears(submitted("more", gpus=1, run="16h"), at="day 2, 09:02") == []


def test_gpus_that_the_job_does_not_need_are_for_everybody() -> None:
    penstock = a_wide_job_waits(nodes=2, wide=12)
    assert penstock.hears(submitted("small", gpus=3, run="900h"), at="day 2, 09:00") == [start("small.1", on="lab")]
    promised = penstock.promise(StartPromised)
    reserved_start = clock("day 5, 12:00")
    assert promised.because == Backfills(0, 7, "wide", reserved_start, "beside", clock("day 39, 21:00"), learned=False)
    assert promised.ends_by == NEVER
    assert penstock.hears(submitted("next", gpus=1, run="900h"), at="day 2, 09:01") == [], "4 are taken, and 4 reserved"
    assert penstock.hears(ended("other1.1"), at="day 5, 12:00") == [start("wide.1", on="lab", slots=((1, 8), (0, 4)))]


# --- who left the queue and came back --------------------------------------------------------------------------------


def suspended(job: str) -> Told:
    return lambda at: SuspendRequested(at, job)


def resumed(job: str) -> Told:
    return lambda at: ResumeRequested(at, job)


def test_a_job_that_left_the_queue_and_came_back_starts_once() -> None:
    """Who left stood on in its lane's heap behind the first, and came back to a second place there. `back.1` and
    `back.2` were promised in one decision: two copies of one training, writing the same checkpoints.
    """
    penstock = a_wide_job_waits()
    penstock.hears(submitted("fills", gpus=7, run="10h"), started("long.1"), at="day 2, 09:00")
    penstock.hears(submitted("ahead", gpus=3, run="90h"), at="day 2, 09:01")
    penstock.hears(submitted("back", gpus=3, run="3h"), at="day 2, 09:02")
    penstock.hears(suspended("back"), at="day 2, 09:03")
    penstock.hears(resumed("back"), at="day 2, 09:04")
    assert penstock.hears(ended("fills.1"), at="day 2, 19:00") == [start("back.1", on="lab")]


def test_a_job_that_arrives_twice_in_one_instant_starts_once() -> None:
    """Arrivals were candidates as often as they had arrived."""
    penstock = a_wide_job_waits()
    penstock.hears(submitted("ahead", gpus=3, run="90h"), at="day 2, 09:00")
    at_once = (submitted("back", gpus=3, run="3h"), suspended("back"), resumed("back"))
    assert penstock.hears(*at_once, at="day 2, 09:01") == [start("back.1", on="lab")]


# --- whose run time is unknown ---------------------------------------------------------------------------------------


def test_a_job_of_unknown_run_time_backfills_if_it_can_be_sent_back() -> None:
    penstock = a_wide_job_waits(defragment=True)
    assert penstock.hears(unknown("small"), at="day 2, 09:00") == [start("small.1", on="lab")]
    assert penstock.why("small") == Backfills(
        0, 7, "wide", clock("day 5, 12:00"), "gives_way", ends_by=0, learned=False
    )
    penstock.hears(started("small.1"), at="day 2, 09:01")
    assert penstock.hears(ended("long.1"), at="day 3, 09:00") == [stop("small.1")], "at once: `wide` could start"
    assert penstock.promise(StopPromised).because == GivesWay("wide", 8, 0)
    assert penstock.promise(StartPromised).after == ("small.1",)
    assert penstock.hears(stopped("small.1", kept="24h"), at="day 3, 09:01") == [start("wide.1", on="lab")]
    penstock.hears(started("wide.1"), at="day 3, 09:02")
    assert penstock.hears(ended("wide.1"), at="day 3, 10:02") == [start("small.2", on="lab")]
    assert [line for line in penstock.story("small") if "fills" in line or "reempted" in line] == [
        (
            "Starts on lab. Backfills GPUs that are reserved for wide, not before day 5, 12:00: it goes back to "
            "the queue when that job can start. 7 GPUs were free."
        ),
        "Stopping. Preempted: its nodes are reserved for wide (8 GPUs), which can start now. Its run time was unknown.",
    ]


def test_under_a_policy_that_moves_nobody_it_waits() -> None:
    penstock = a_wide_job_waits()
    assert penstock.hears(unknown("small"), at="day 2, 09:00") == []


def test_without_checkpoints_it_waits() -> None:
    penstock = a_wide_job_waits(defragment=True)
    assert penstock.hears(unknown("small", checkpoint_every_ms=None), at="day 2, 09:00") == []
    assert penstock.hears(unknown("firm", interruptible=False), at="day 2, 09:00") == []


def test_the_run_time_that_most_such_jobs_do_not_exceed_counts_as_known() -> None:
    penstock = given(site("lab"), reserving())
    for k in range(8):
        penstock.hears(submitted(f"past{k}", gpus=1, run="1h"), at="06:00")
        penstock.hears(started(f"past{k}.1"), at="06:00")
    for k in range(8):
        penstock.hears(ended(f"past{k}.1"), at=f"07:0{k}")
    penstock.hears(submitted("long", gpus=1, run="100h"), at="08:00")
    penstock.hears(started("long.1"), at="08:00")
    penstock.hears(submitted("wide", gpus=8, run="1h"), at="09:00")
    penstock.hears(nothing, at=WAITED)
    assert penstock.hears(unknown("small"), at="day 2, 09:00") == [start("small.1", on="lab")]
    because: Any = penstock.why("small")
    assert (because.way, because.learned) == ("ends", True)
    assert clock("day 2, 10:00") < because.ends_by < clock("day 3, 09:00")


def test_a_backfill_is_not_sent_back_for_a_job_that_it_may_stop() -> None:
    """`small` was stopped for `wide`, and by its priority it would have stopped `wide` next."""
    penstock = a_wide_job_waits(preempt=True)
    assert penstock.hears(submitted("small", gpus=2, run="1h", priority=5), at="day 2, 09:00") == [
        start("small.1", on="lab")
    ]
    penstock.hears(started("small.1"), at="day 2, 09:00")
    assert penstock.hears(ended("long.1"), at="day 2, 11:00") == [], "`small` should have ended at 10:00"
    assert penstock.hears(ended("small.1"), at="day 2, 11:30") == [start("wide.1", on="lab")]


def test_where_the_reserved_start_is_unknown_only_those_backfill_that_can_be_sent_back() -> None:
    """`long` has run for longer than it said, and nobody has ended from whom one could learn."""
    penstock = a_wide_job_waits(long="20h", defragment=True)
    assert penstock.hears(submitted("firm", gpus=1, run="1h", checkpoint=None), at="day 2, 09:00") == []
    assert penstock.hears(submitted("small", gpus=1, run="1h"), at="day 2, 09:00") == [start("small.1", on="lab")]
    penstock.hears(started("small.1"), at="day 2, 09:00")
    assert penstock.hears(ended("long.1"), at="day 2, 09:30") == [stop("small.1")]


# --- the job that it is reserved for ---------------------------------------------------------------------------------


def two_backfills(**more: Any) -> Penstock:
    """`long` ends early, at day 2, 12:00; `small` is to end at 13:00, and `tiny` at 14:00."""
    penstock = a_wide_job_waits(**more)
    for name, run_time in (("small", "4h"), ("tiny", "5h")):
        assert penstock.hears(submitted(name, gpus=3, run=run_time), at="day 2, 09:00") == [start(f"{name}.1", "lab")]
        penstock.hears(started(f"{name}.1"), at="day 2, 09:00")
    penstock.hears(ended("long.1"), at="day 2, 12:00")
    return penstock


def test_once_only_backfills_keep_the_job_from_its_nodes_nobody_else_is_let_in() -> None:
    """`late` would end before `tiny` does; but if each let another in, the job would never start."""
    penstock = two_backfills(defragment=True)
    assert penstock.hears(submitted("late", gpus=1, run="1h"), at="day 2, 12:01") == []
    assert penstock.hears(unknown("later"), at="day 2, 12:02") == []


def test_the_same_where_the_job_needs_a_part_of_one_node_and_just_that_is_left() -> None:
    """Of two nodes `wide` needs 15 GPUs: one whole, and the 7 beside `long`."""
    penstock = a_wide_job_waits(nodes=2, wide=15, defragment=True)
    assert penstock.hears(submitted("small", gpus=3, run="4h"), at="day 2, 09:00") == [start("small.1", on="lab")]
    penstock.hears(started("small.1"), at="day 2, 09:00")
    assert penstock.hears(unknown("early"), at="day 2, 09:01") == [start("early.1", on="lab")]
    penstock.hears(started("early.1"), at="day 2, 09:01")
    penstock.hears(ended("early.1"), at="day 2, 10:00")
    assert penstock.hears(ended("other1.1"), at="day 2, 12:00") == []
    assert penstock.hears(unknown("late"), at="day 2, 12:01") == []
    assert penstock.hears(ended("small.1"), at="day 2, 12:30") == [start("wide.1", on="lab")]


def test_a_backfill_may_run_as_long_as_it_said_and_no_longer() -> None:
    penstock = two_backfills(defragment=True)
    assert penstock.wakes() == clock("day 2, 13:00")
    assert penstock.hears(nothing, at="day 2, 13:00") == [], "`tiny` has an hour left: stopping `small` would not help"
    assert penstock.wakes() == clock("day 2, 14:00")
    assert penstock.hears(nothing, at="day 2, 14:00") == [stop("tiny.1"), stop("small.1")]
    assert penstock.why("small") == GivesWay("wide", 8, clock("day 2, 13:00"))
    assert penstock.hears(stopped("tiny.1", "4h"), stopped("small.1", "4h"), at="day 2, 14:01") == [
        start("wide.1", on="lab")
    ]


def test_under_a_policy_that_moves_nobody_the_job_waits_for_their_ends() -> None:
    penstock = two_backfills()
    assert penstock.hears(nothing, at="day 2, 14:00") == []
    penstock.hears(ended("small.1"), at="day 2, 14:01")
    assert penstock.hears(ended("tiny.1"), at="day 2, 14:02") == [start("wide.1", on="lab")]
    assert penstock.why("wide") == OwnedFree(clock("day 2, 14:02") - clock("09:00"), 8)


# --- in a simulated month --------------------------------------------------------------------------------------------


class Played:
    """A simulation of these jobs where nothing can be rented."""

    def __init__(self, jobs: list[TraceJob], nodes: int, decider: Policy) -> None:
        self.starts: dict[str, Instant] = {}  #: by job, the first
        self.ends: dict[str, Instant] = {}
        self.reserved: dict[str, Instant] = {}  #: by job: when nodes were reserved for it
        self.backfills: list[StartPromised] = []
        report, _ = run(Scenario(tuple(jobs), (owned_site(nodes),), {}), decider, self.see)
        self.mean_delay_h = report.mean_delay_h

    def see(self, step: Step, _: object) -> None:
        for event in (*step.inputs, *step.outputs):
            if isinstance(event, AttemptStarted):
                self.starts.setdefault(event.attempt.partition(".")[0], event.at)
            elif isinstance(event, AttemptEnded):
                self.ends[event.attempt.partition(".")[0]] = event.at
            elif isinstance(event, ReservePromised):
                self.reserved[event.job] = event.at
            elif isinstance(event, StartPromised) and event.ends_by:
                self.backfills.append(event)


def job(name: str, hour: float, gpus: int, hours: float, declared: float | None = None) -> TraceJob:
    expected_ms = None if declared == 0 else round((hours if declared is None else declared) * HOUR)
    spec = JobSpec(gpus, expected_run_ms=expected_ms, checkpoint_every_ms=15 * MINUTE)
    return TraceJob(name, round(hour * HOUR), round(hours * HOUR), spec)


def test_short_jobs_do_not_wait_for_a_reservation_that_cannot_be_honoured_for_days() -> None:
    """Where reserved nodes took nobody else, the 60 short jobs waited for the long one: 49.8 h in the mean."""
    short = [job(f"s{k:02}", 25 + k, 1, 1) for k in range(60)]
    jobs = [job("long", 0, 1, 100), job("wide", 1, 8, 1), *short]
    month = Played(jobs, 1, preset("penstock", "20", jobs))
    assert len(month.backfills) == 60
    assert month.starts["wide"] == 100 * HOUR
    assert round(month.mean_delay_h, 1) == 1.6


@st.composite
def crowds(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs on two nodes that run as long as they say or shorter, or do not say, and a wide one among them."""
    jobs = [job("wide", 1, draw(st.sampled_from([8, 12, 16])), 2)]
    for k in range(draw(st.integers(5, 25))):
        hours = draw(st.integers(1, 60))
        declared = draw(st.sampled_from([hours, hours + 10, 2 * hours, 0]))
        jobs.append(job(f"j{k:02}", draw(st.integers(0, 80)), draw(st.sampled_from([1, 2, 4, 8])), hours, declared))
    return sorted(jobs, key=lambda made: made.submit_at)


@of_any(crowds(), st.booleans())
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
def test_the_job_starts_when_those_before_it_have_ended_or_the_last_backfill_by_what_it_said(
    jobs: list[TraceJob], moves: bool
) -> None:
    """So backfills cannot take turns and keep it from its nodes. Two minutes are for those that are stopped for it."""
    month = Played(jobs, 2, preset("penstock" if moves else "penstock-no-moves", "20", jobs))
    if "wide" not in month.reserved:
        return
    bounds = [month.reserved["wide"]]
    bounds += [month.ends[name] for name, at in month.starts.items() if name != "wide" and at <= bounds[0]]
    last_before = max(bounds)
    for promise in month.backfills:
        because: Any = promise.because
        if because.reserved_for == "wide" and because.way == "ends":
            assert promise.at < because.ends_by <= because.start_at
            assert promise.at <= last_before, "nobody is let in once only backfills are in the way"
            bounds.append(month.ends[promise.job] if because.learned else because.ends_by)
    assert month.starts["wide"] <= max(bounds) + 2 * MINUTE
