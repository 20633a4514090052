"""Ids say what they belong to, whatever a job is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import (
    array_of,
    attempt_id,
    attempt_number,
    attempt_of,
    job_concerned,
    job_of,
    members,
    node_id,
    site_of,
    standing_node,
)
from penstock.core.model import events as e


@given(st.text(min_size=1), st.integers(1, 5), st.integers(1, 999), st.integers(0, 99))
def test_what_was_made_is_read_back(job: str, count: int, number: int, k: int) -> None:
    for member in members(job, count):
        assert count == 1 or array_of(member) == job
        attempt = attempt_id(member, number)
        for thing in (attempt, node_id(attempt, k)):
            assert (job_of(thing), attempt_of(thing)) == (member, attempt)
        assert attempt_number(attempt) == number


@pytest.mark.parametrize("thing", ["", "lab", "lab/owned/3", ".1", "a.b", "a.1/node", f"a.{'9' * 5_000}"])
def test_what_is_no_attempt_has_no_job(thing: str) -> None:
    assert (job_of(thing), attempt_of(thing), attempt_number(thing)) == ("", "", 0)


def test_an_event_names_its_job_or_something_of_it() -> None:
    """A namespace that begins with `n` was taken for the node of a job."""
    assert job_concerned(e.CancelRequested(0, "a")) == "a"
    assert job_concerned(e.AttemptStarted(0, "web/nightly.2")) == "web/nightly"
    assert job_concerned(e.NodeReady(0, "sweep/3.2/n0")) == "sweep/3"
    assert job_concerned(e.DeadlineSet(0, "a.1/n1", 5)) == "a"
    assert job_concerned(e.NodeReady(0, "lab/owned/3")) == job_concerned(e.Woke(0)) == ""


def test_a_standing_node_is_its_offers() -> None:
    assert site_of("lab/owned") == "lab"
    assert standing_node("lab/owned/12") == ("lab/owned", 12)
    for odd in ("lab/owned/012", "lab/owned/-1", "lab/owned/", "lab/owned/²", "lab/owned/" + "9" * 5_000):
        assert standing_node(odd) == ("lab/owned", None)
