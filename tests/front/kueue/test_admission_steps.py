"""The order at the gate: nothing is let in before its time is bounded by its hold, whatever the Workload looks like."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.front.kueue import admission_steps as steps
from penstock.front.kueue import workload as w
from penstock.front.kueue.admission_steps import (
    AdmissionTerms,
    BoundTime,
    Evict,
    Open,
    Over,
    Reactivate,
    Runs,
    Step,
    Wait,
    next_step,
)
from tests.front.kueue.workloads import OWNER, Json, workload

ENTRY = AdmissionTerms(
    attempt="j1.1", offer="east/a100", check="penstock", uid="u1", seconds=600, cluster="worker-east"
)
MARKED = {"attempt": "j1.1"}
QUOTA = {"QuotaReserved": "QuotaReserved"}
NO_QUOTA = Wait("its queue there holds it back until there is quota for it")


def test_a_workload_is_bounded_marked_let_in_and_runs_in_this_order() -> None:
    assert next_step(None, ENTRY) == Wait("Kueue has not made its Workload yet")
    assert next_step(workload(conditions={}), ENTRY) == NO_QUOTA
    assert next_step(workload(), ENTRY) == BoundTime(570)
    assert next_step(workload(most=570), ENTRY) == BoundTime(None)  # Kueue made it anew, and it lost our mark
    assert next_step(workload(most=570, marks=MARKED), ENTRY) == Open()
    opened = {"penstock": "Ready", "multikueue": "Pending"}
    assert next_step(workload(most=570, marks=MARKED, checks=opened), ENTRY) == Wait(
        "its worker has not admitted it yet"
    )
    admitted = QUOTA | {"Admitted": "Admitted"}
    running = workload(most=570, marks=MARKED, checks={"penstock": "Ready"}, conditions=admitted)
    assert next_step(running, ENTRY) == Runs()


@pytest.mark.parametrize(
    ("there", "step"),
    [
        (workload(most=570, marks=MARKED | {"ending": "stopped"}), Over()),
        (workload(most=570, marks={"attempt": "j1.2"}), Over()),
        (workload(most=570, marks={"attempt": "j2.9"}), BoundTime(None)),
        (workload(conditions={"Finished": "Succeeded"}), Over()),
        (workload(owner=OWNER | {"uid": "another"}), Over("another object has its name now")),
        (workload(most=570, marks={"attempt": "j1.0"}, checks={"penstock": "Ready"}), Evict()),
        (workload(checks={"penstock": "Retry"}), Wait()),
        (workload(checks={"other": "Pending"}), Wait()),
        (workload(active=False), NO_QUOTA),
        (workload(conditions=QUOTA | {"Evicted": "Preempted"}), NO_QUOTA),
        (workload(most=570, active=False, conditions={"Evicted": w.TIME_IS_UP}), Reactivate()),
        (
            workload(
                most=570, active=False, conditions={"Evicted": "AdmissionCheck", "DeactivationTarget": w.TIME_OUT}
            ),
            Reactivate(),
        ),
        (
            workload(most=570, active=False, conditions=QUOTA | {"Evicted": w.TIME_IS_UP}),
            Wait("Kueue is still ending what ran before"),
        ),
        (
            workload(most=90, active=False, conditions={"Evicted": w.TIME_IS_UP}, marks={"own-deadline-seconds": "90"}),
            NO_QUOTA,
        ),
    ],
    ids=[
        *("a stop came first", "a later attempt is bound", "another job's mark", "finished", "another owner"),
        *("it runs for an earlier attempt", "Kueue is about to evict it", "its queue lost the check", "deactivated"),
        *(
            "evicted",
            "its lease was over",
            "its worker was first",
            "its lease was over just now",
            "its author's bound was over",
        ),
    ],
)
def test_whatever_else_it_looks_like_it_is_not_let_in(there: Json, step: Step) -> None:
    assert next_step(there, ENTRY) == step


def test_time_that_earlier_runs_took_is_added_and_an_authors_own_bound_is_never_raised() -> None:
    assert next_step(workload(used=300, most=570), ENTRY) == BoundTime(870)
    own = replace(ENTRY, own_seconds=90)
    assert next_step(workload(most=90, marks=MARKED), own) == Open()
    assert next_step(workload(), own) == BoundTime(90)
    assert next_step(workload(most=90, used=90), own) == Wait()


def test_on_owned_gpus_no_money_is_held_and_nothing_is_bounded() -> None:
    assert next_step(workload(), replace(ENTRY, seconds=None)) == BoundTime(None)
    assert next_step(workload(marks=MARKED), replace(ENTRY, seconds=None)) == Open()


@given(
    seconds=st.integers(0, 10**6),
    own=st.integers(0, 10**6),
    most=st.none() | st.integers(1, 10**6),
    used=st.integers(0, 10**6),
)
def test_nothing_is_let_in_that_could_run_for_longer_than_is_paid_and_the_bound_that_is_written_fits(
    seconds: int, own: int, most: int | None, used: int
) -> None:
    entry = replace(ENTRY, seconds=seconds, own_seconds=own)
    there = workload(most=most, used=used, marks=MARKED)
    match next_step(there, entry):
        case Open():
            assert most is not None
            assert most - used <= seconds
        case BoundTime(wanted):
            assert wanted is not None
            assert wanted > 0
            assert wanted - used <= seconds
            assert wanted <= own or not own
            rewritten = workload(most=wanted, used=used, marks=MARKED)
            later = replace(entry, seconds=seconds - min(steps.slack(seconds), 5))  # a moment later it still does
            assert next_step(rewritten, later) in (Open(), Wait())
