"""Events: how the facts of one instant are ordered, and that each kind is known everywhere it must be."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine import Engine
from penstock.core.fold.apply import APPLY
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import HOUR
from tests.core.samples import facts


def test_every_kind_of_event_is_applied() -> None:
    assert set(APPLY) == set(e.FACTS) | set(e.PROMISES)


def test_every_kind_of_fact_has_its_place() -> None:
    assert list(e.RANK) == list(e.FACTS)
    assert not set(e.FACTS) & set(e.PROMISES)


def test_what_ends_comes_before_what_begins_and_what_people_ask_comes_last() -> None:
    ends = (e.AttemptEnded, e.AttemptStopped, e.AttemptLost, e.AttemptRefused, e.NodeLost, e.NodeRefused, e.NodeGone)
    begins = (e.NodeReady, e.AttemptStarted)
    asked = (e.CancelRequested, e.MoveRequested, e.JobSubmitted)
    assert max(e.RANK[kind] for kind in ends) < min(e.RANK[kind] for kind in begins)
    assert max(e.RANK[kind] for kind in begins) < min(e.RANK[kind] for kind in asked)


def test_submissions_go_by_number_and_other_facts_by_name() -> None:
    spec = JobSpec(1)
    came = [e.JobSubmitted(0, 10, "a", spec), e.JobSubmitted(0, 9, "z", spec)]
    assert [fact.job for fact in sorted(came, key=e.order)] == ["z", "a"]
    nodes = [e.NodeReady(0, "b"), e.NodeReady(0, "a")]
    assert [fact.node for fact in sorted(nodes, key=e.order)] == ["a", "b"]


@given(st.lists(facts(), max_size=8), st.randoms(use_true_random=False))
def test_facts_of_one_instant_sort_the_same_however_they_came(some: list[e.Fact], random: object) -> None:
    shuffled = some.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # a Random, as hypothesis makes it
    assert [e.order(fact) for fact in sorted(some, key=e.order)] == [
        e.order(fact) for fact in sorted(shuffled, key=e.order)
    ]


def test_how_facts_were_batched_cannot_change_what_is_decided() -> None:
    lab = Site("lab", (Offer("lab", "lab", "owned", (NodeShape(8, 2),)),))
    pods = Offer("pods", "pods", "on_demand", (NodeShape(1, list_per_hour=1),), sold_by="attempt")
    together: list[e.Fact] = [
        e.PolicySet(0, 1, Policy("p")),
        e.PeriodOpened(0, "month 1", 0, 1000 * HOUR),
        e.SiteJoined(0, lab),
        e.SiteJoined(0, Site("pods", (pods,))),
        *(e.JobSubmitted(0, k, f"j{k}", JobSpec(8)) for k in range(4)),
    ]
    forwards, backwards = Engine().handle(*together), Engine().handle(*reversed(together))
    assert forwards == backwards
    assert len(forwards.actions) == 4
