"""The second, slow reading of a policy agrees with the rules over random policies, jobs and offers."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.decide.rules import BuiltInRules, Candidate
from penstock.core.model.governance import Allow, ClassRule, DenyRule, Governance, PriceLimit, TeamRule
from penstock.core.model.types import DataRule, DataSet, JobSpec, NodeShape, Offer, Policy, Site
from penstock.policy.rules import PolicyRules, with_shapes
from tests.policy.slow_reading import PIECES, Asks, denied_slowly

CLASSES = ("training", "experiment", "nightly")
TEAMS = ("vision", "speech")
CLOUDS = ("", "aws", "gcp")
REGIONS = ("", "eu-west-1", "eu-north-1", "us-east-1")
FAMILIES = ("", "p4d", "p5")
GPUS = ("", "A100", "H100")
USERS = ("ann", "bob")
DATA_CLASSES = ("", "personal", "public")
LISTS = {
    "clouds": ("aws", "gcp", "*"),
    "regions": ("eu-*", "us-east-1", "eu-north-1"),
    "families": ("p5", "p*"),
    "gpus": ("A100", "H*"),
}


def conditions() -> st.SearchStrategy[tuple[str, Asks]]:
    return st.recursive(
        st.sampled_from(PIECES),
        lambda inner: st.one_of(
            inner.map(lambda pair: (f"!({pair[0]})", lambda a: not pair[1](a))),
            st.tuples(inner, inner).map(lambda two: _both(*two)),
            st.tuples(inner, inner).map(lambda two: _either(*two)),
        ),
        max_leaves=3,
    )


def _both(left: tuple[str, Asks], right: tuple[str, Asks]) -> tuple[str, Asks]:
    return f"({left[0]}) && ({right[0]})", lambda a: left[1](a) and right[1](a)


def _either(left: tuple[str, Asks], right: tuple[str, Asks]) -> tuple[str, Asks]:
    return f"({left[0]}) || ({right[0]})", lambda a: left[1](a) or right[1](a)


def allows() -> st.SearchStrategy[Allow]:
    return st.builds(
        Allow, **{key: st.lists(st.sampled_from(names), max_size=2).map(tuple) for key, names in LISTS.items()}
    )


def unique(key: str) -> Any:
    return {"max_size": 2, "unique_by": lambda rule: getattr(rule, key)}


class_rules = st.builds(
    ClassRule,
    st.sampled_from(CLASSES),
    where=st.sampled_from(("owned", "owned_first", "rented")),
    spot=st.sampled_from(("allowed", "required", "forbidden")),
)
team_rules = st.builds(TeamRule, st.sampled_from(TEAMS), allow=st.none() | allows())
limits = st.builds(PriceLimit, per_gpu_hour=st.none() | st.integers(1, 6).map(lambda n: n * 1_000_000))
governances = st.builds(
    Governance,
    classes=st.lists(class_rules, **unique("name")).map(tuple),
    teams=st.lists(team_rules, **unique("team")).map(tuple),
    never_above=st.none() | limits,
    allow=st.none() | allows(),
)


@st.composite
def offers(draw: st.DrawFn) -> tuple[Site, Offer]:
    sizes = draw(st.lists(st.sampled_from((1, 8)), min_size=1, max_size=2, unique=True).map(sorted))
    shapes = tuple(
        NodeShape(size, list_per_hour=draw(st.integers(1, 6)) * size * 1_000_000, most_per_hour=10**9) for size in sizes
    )
    offer = Offer(
        "there/offer",
        "there",
        draw(st.sampled_from(("owned", "reserved", "on_demand", "spot"))),
        shapes,
        gpu_model=draw(st.sampled_from(GPUS)),
        family=draw(st.sampled_from(FAMILIES)),
    )
    return Site("there", (offer,), cloud=draw(st.sampled_from(CLOUDS)), region=draw(st.sampled_from(REGIONS))), offer


specs = st.builds(
    JobSpec,
    st.sampled_from((1, 8)),
    team=st.sampled_from(TEAMS),
    job_class=st.sampled_from(CLASSES),
    user=st.sampled_from(USERS),
    interruptible=st.booleans(),
    deadline_at=st.none() | st.just(5),
    cap=st.none() | st.sampled_from((5_000_000, 50_000_000)),
    data_class=st.sampled_from(DATA_CLASSES),
)
DATA_RULES = (DataRule("public", sites=("*",)),)


@settings(max_examples=400, deadline=None)
@given(governances, st.lists(conditions(), max_size=2), offers(), specs)
def test_both_readings_agree(
    governance: Governance, written: list[tuple[str, Asks]], there: tuple[Site, Offer], spec: JobSpec
) -> None:
    rules = tuple(DenyRule(f"r{k}", text, source=f"p:{k}") for k, (text, _) in enumerate(written))
    policy = Policy("random", governance=with_shapes(replace(governance, rules=rules)), data_rules=DATA_RULES)
    asked = Candidate(spec, *there, (), policy)
    built_in = not BuiltInRules().verdict(asked).allowed
    verdict, objections = PolicyRules().verdict(asked), PolicyRules().all_verdicts(asked)
    assert verdict.allowed is not (built_in or denied_slowly(asked, [rule for _, rule in written]))
    assert verdict.allowed is not bool(objections)
    assert verdict.allowed or verdict == objections[0]


@settings(max_examples=100, deadline=None)
@given(governances, governances, conditions(), offers(), specs)
def test_deny_wins_over_whatever_else_a_policy_says(
    governance: Governance, other: Governance, written: tuple[str, Asks], there: tuple[Site, Offer], spec: JobSpec
) -> None:
    """No list and no class allows what a rule denies, in whichever policy that rule stands."""
    rule = DenyRule("deny", written[0])
    asked = Candidate(spec, *there, (), Policy("", data_rules=DATA_RULES))
    for rest in (governance, other):
        policy = replace(asked.policy, governance=with_shapes(replace(rest, rules=(rule,))))
        candidate = replace(asked, policy=policy)
        if written[1](candidate):
            assert not PolicyRules().verdict(candidate).allowed


@settings(max_examples=100, deadline=None)
@given(governances, offers(), specs, st.sampled_from(("", "secret", "personal")))
def test_data_of_an_unknown_class_goes_nowhere(
    governance: Governance, there: tuple[Site, Offer], spec: JobSpec, data_class: str
) -> None:
    policy = Policy("random", governance=governance, data_rules=DATA_RULES)
    data = DataSet("scans", 1, "elsewhere", data_class)
    asked = Candidate(replace(spec, data=("scans",)), *there, (data,), policy)
    assert not PolicyRules().verdict(asked).allowed
