"""Events as they are told: each kind has its row, its words, and an audience that was chosen."""

import string
from typing import Any

import pytest
from hypothesis import given, settings

from penstock.core.ids import job_concerned
from penstock.core.model import events as e
from penstock.core.model.types import Policy
from penstock.explain.event_words import EVENTS, is_for, shown, words_of
from penstock.web import explain
from tests.core.samples import events, made

KINDS = e.FACTS + e.PROMISES


def test_each_event_has_its_row() -> None:
    """Its words, icon and audience stood in three tables that nothing compared, and a new event was for every team."""
    assert set(EVENTS) == set(KINDS)


def test_an_event_that_nobody_wrote_a_row_for_is_for_operators_only() -> None:
    class NobodyKnows:
        job, scope = "a", "team:vision"

    assert words_of(NobodyKnows()).to == "operators"
    assert not is_for(NobodyKnows(), "vision", "vision")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_event_has_words_of_its_own(kind: type) -> None:
    @settings(max_examples=10)
    @given(made(kind))
    def is_told(event: Any) -> None:
        assert explain.says(event, "USD") not in ("", f"{kind.__name__}.")

    is_told()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if EVENTS[kind].to == "everybody"], ids=lambda k: k.__name__)
def test_the_words_for_everybody_are_made_of_fields_for_everybody(kind: type) -> None:
    row = EVENTS[kind]
    named = {name.removeprefix("event.") for _, name, _, _ in string.Formatter().parse(row.says) if name}
    assert named <= set(row.shows)
    assert not {"by", "reason", "details", "before", "because"} & set(row.shows)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if EVENTS[kind].to == "team"], ids=lambda kind: kind.__name__)
def test_what_is_for_a_team_names_a_job_or_a_cap(kind: type) -> None:
    assert {"job", "attempt", "node", "hold", "thing", "scope"} & set(kind.__slots__)  # type: ignore[attr-defined]  # a value


@given(events())
def test_no_team_hears_of_another_teams_job(event: Any) -> None:
    if job_concerned(event):
        assert is_for(event, "vision", "speech") is (words_of(event).to == "everybody")


def test_a_team_hears_of_its_own_cap_and_of_no_other() -> None:
    for scope, heard in (("team:vision", True), ("team:speech", False), ("project:scans", False), ("org", False)):
        for event in (e.CapSet(0, scope, 1), e.CapRaiseAsked(0, scope, 1), e.CapRaiseDenied(0, scope)):
            assert is_for(event, "vision", "") is heard


def test_what_every_team_may_see_of_a_policy_is_its_name_and_number() -> None:
    fields = explain.plain(e.PolicySet(5, 2, Policy("thrift"), by="tok-1", reason="speech spends too much"))
    assert shown(fields, EVENTS[e.PolicySet].shows) == {"at": 5, "revision": 2, "policy": {"name": "thrift"}}
