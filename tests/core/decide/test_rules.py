"""Promise 3 as a property of the rules: a declared data class goes where a data rule lets it, and home."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.decide.rules import BuiltInRules, Candidate, could_hold
from penstock.core.model.types import DataRule, JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import MOST_NODES

SITES = ("lab", "annex")
CLASSES = ("", "secret", "open")


@given(
    st.sampled_from(SITES),
    st.booleans(),
    st.sampled_from(("", *SITES)),
    st.sampled_from(CLASSES),
    st.sampled_from(("", *CLASSES)),
    st.sets(st.sampled_from(SITES)),
)
def test_a_declared_class_goes_where_a_rule_lets_it_and_home(
    name: str, front_door: bool, home: str, declared: str, ruled: str, allowed: set[str]
) -> None:
    offer = Offer(name, name, "owned", (NodeShape(8, 1),))
    policy = Policy("any", data_rules=(DataRule(ruled, tuple(sorted(allowed))),))
    spec = JobSpec(1, home=home, data_class=declared)
    asked = Candidate(spec, Site(name, (offer,), front_door=front_door), offer, (), policy)
    lawful = not declared or name == home or (declared == ruled and name in allowed)
    assert BuiltInRules().verdict(asked).allowed == lawful


def test_a_job_that_would_rent_more_than_a_thousand_nodes_is_too_wide() -> None:
    """One job of a million GPUs on nodes of one GPU kept the engine busy for half a minute, also if a cap denied it."""
    rent = Offer(id="cloud/rent", site="cloud", term="on_demand", shapes=(NodeShape(gpus=1), NodeShape(gpus=8)))
    assert could_hold(rent, 8 * MOST_NODES)
    assert not could_hold(rent, 8 * MOST_NODES + 1)
    assert could_hold(replace(rent, term="owned"), 8 * MOST_NODES + 1)  # nothing is rented there
