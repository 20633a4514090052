"""Every action is declared whole: what it is about, which facts answer it, and how the simulated world does it."""

import pytest

from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.units import MINUTE
from penstock.sim.engine.world import DO
from tests.core.owed import answers

LAUNCH = a.LaunchNode("a.1/n0", "cloud", 8, "a.1", 0)
START = a.StartAttempt("a.1", "a", "lab", 8, 1000, 0, (), (), 0)
STOP = a.StopAttempt("a.1", 2 * MINUTE)
DEADLINE = a.SetDeadline("a.1", 9 * MINUTE)


def test_every_action_says_which_facts_answer_it() -> None:
    assert tuple(a.ANSWERS) == a.ACTIONS
    assert {fact for facts in a.ANSWERS.values() for fact in facts} <= set(e.FACTS)


def test_a_fact_answers_one_kind_of_action() -> None:
    """The rehearsal finds by it which call to answer."""
    facts = [fact for facts in a.ANSWERS.values() for fact in facts]
    assert len(facts) == len(set(facts))


def test_the_simulated_world_does_every_action() -> None:
    assert tuple(DO) == a.ACTIONS


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        (START, STOP, True),
        (LAUNCH, a.ReleaseNode("a.1/n0"), True),
        (LAUNCH, START, False),
        (START, DEADLINE, False),
        (a.CopyData("scans", "lab"), a.CopyData("scans", "cloud"), False),
    ],
)
def test_a_newer_action_replaces_one_of_the_same_subject(first: a.Action, other: a.Action, same: bool) -> None:
    assert (a.subject_of(first) == a.subject_of(other)) is same


@pytest.mark.parametrize(
    ("action", "fact", "answered"),
    [
        (LAUNCH, e.NodeReady(0, "a.1/n0"), True),
        (LAUNCH, e.NodeReady(0, "b.1/n0"), False),
        (LAUNCH, e.NodeLost(0, "a.1/n0"), True),
        (STOP, e.AttemptStarted(0, "a.1"), False),
        (STOP, e.AttemptStopped(0, "a.1", 0), True),
        (DEADLINE, e.DeadlineSet(0, "a.1", 9 * MINUTE), True),
        (DEADLINE, e.DeadlineSet(0, "a.1", 8 * MINUTE), False),
        (a.CopyData("scans", "lab"), e.ReplicaLanded(0, "scans", "lab", 5), True),
        (a.CopyData("scans", "lab"), e.ReplicaLanded(0, "scans", "cloud", 5), False),
    ],
)
def test_an_action_is_answered_by_a_fact_about_the_same_thing(action: a.Action, fact: e.Fact, answered: bool) -> None:
    assert answers(fact, action) is answered
