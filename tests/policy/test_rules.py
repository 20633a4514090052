"""The rules of a policy file, one by one: what each objects to, with its words and its line."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.decide.rules import ALLOWED, Candidate, Verdict
from penstock.core.model.governance import NONE, Allow, ClassRule, DenyRule, Governance, PriceLimit, TeamRule
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import money as usd
from penstock.policy.rules import PolicyRules, with_shapes

OWNED = Offer("lab/owned", "lab", "owned", (NodeShape(8, 4),), gpu_model="A100")
SPOT = Offer(
    "west/spot",
    "west",
    "spot",
    (
        NodeShape(1, list_per_hour=usd("5"), most_per_hour=usd("9")),
        NodeShape(8, list_per_hour=usd("33.60"), most_per_hour=usd("80")),
    ),
    gpu_model="H100",
    family="p5",
)
ON_DEMAND = replace(SPOT, id="west/on-demand", term="on_demand")
SITES = {
    "lab": Site("lab", (OWNED,), front_door=True),
    "west": Site("west", (SPOT, ON_DEMAND), cloud="aws", region="eu-west-1"),
}


def asked(offer: Offer, governance: Governance, **spec: Any) -> Candidate:
    policy = Policy("test", governance=governance)
    return Candidate(JobSpec(spec.pop("gpus", 1), **spec), SITES[offer.site], offer, (), policy)


def verdicts(governance: Governance, **spec: Any) -> dict[str, tuple[str, str]]:
    """Of each offer that is denied: rule and place."""
    rules = PolicyRules()
    judged = {offer.id: rules.verdict(asked(offer, governance, **spec)) for offer in (OWNED, SPOT, ON_DEMAND)}
    return {name: (verdict.rule, verdict.where) for name, verdict in judged.items() if not verdict.allowed}


def classes(*rules: ClassRule) -> Governance:
    return Governance(classes=rules)


def test_without_a_policy_file_nothing_is_denied() -> None:
    assert verdicts(NONE) == verdicts(Governance()) == {}
    assert PolicyRules().verdict(asked(SPOT, NONE)) is ALLOWED


def test_a_class_that_stays_on_owned_gpus_is_not_rented_for() -> None:
    inference = ClassRule("inference", where="owned", because="flat cost, low latency", source="policy.yaml:4")
    verdict = ("class inference stays on owned GPUs: flat cost, low latency", "policy.yaml:4")
    assert verdicts(classes(inference), job_class="inference") == {"west/spot": verdict, "west/on-demand": verdict}


def test_a_class_that_rents_never_gets_owned_gpus() -> None:
    rule = ClassRule("experiment", where="rented", source="policy.yaml:6")
    verdict = ("class experiment runs on rented GPUs only", "policy.yaml:6")
    assert verdicts(classes(rule), job_class="experiment") == {"lab/owned": verdict}


def test_spot_is_required_or_forbidden_of_what_is_rented() -> None:
    required = ClassRule("experiment", spot="required", source="policy.yaml:6")
    verdict = ("class experiment rents spot only", "policy.yaml:6")
    assert verdicts(classes(required), job_class="experiment") == {"west/on-demand": verdict}
    forbidden = ClassRule("critical", spot="forbidden", source="policy.yaml:8")
    verdict = ("class critical never rents spot", "policy.yaml:8")
    assert verdicts(classes(forbidden), job_class="critical") == {"west/spot": verdict}


def test_a_class_that_is_not_in_the_policy_runs_nowhere() -> None:
    known = classes(ClassRule("training", source="policy.yaml:5"), ClassRule("critical", source="policy.yaml:6"))
    verdict = ("class nightly is not in the policy, which has training, critical", "policy.yaml:5")
    assert verdicts(known, job_class="nightly") == dict.fromkeys(("lab/owned", "west/spot", "west/on-demand"), verdict)
    assert verdicts(known, job_class="critical") == {}


@pytest.mark.parametrize(
    ("allow", "because"),
    [
        (Allow(clouds=("aws", "ovhcloud")), ""),
        (Allow(clouds=("gcp",)), "cloud aws is not allowed"),
        (Allow(regions=("eu-*",)), ""),
        (Allow(regions=("us-*", "eu-central-1")), "region eu-west-1 is not allowed"),
        (Allow(families=("p4d", "p5")), ""),
        (Allow(families=("p",)), "family p5 is not allowed"),
        (Allow(gpus=("H*",)), ""),
        (Allow(gpus=("A100",)), "GPU H100 is not allowed"),
    ],
)
def test_what_is_rented_is_on_the_list_and_owned_gpus_are_not_asked(allow: Allow, because: str) -> None:
    allow = replace(allow, source="policy.yaml:20")
    denied = dict.fromkeys(("west/spot", "west/on-demand"), (because, "policy.yaml:20")) if because else {}
    assert verdicts(Governance(allow=allow)) == denied


@pytest.mark.parametrize(
    "allow", [Allow(clouds=("*",)), Allow(regions=("*",)), Allow(families=("*",)), Allow(gpus=("*",))]
)
def test_what_nobody_told_is_on_no_list(allow: Allow) -> None:
    unknown = replace(SPOT, gpu_model="", family="")
    site = Site("west", (unknown,))
    policy = Policy("test", governance=Governance(allow=allow))
    verdict = PolicyRules().verdict(Candidate(JobSpec(1), site, unknown, (), policy))
    assert not verdict.allowed
    assert "unknown is not allowed" in verdict.rule


def test_a_team_may_be_allowed_less_than_all() -> None:
    team = TeamRule("vision", allow=Allow(regions=("eu-central-1",), source="policy.yaml:3"))
    verdict = ("region eu-west-1 is not allowed for team vision", "policy.yaml:3")
    assert verdicts(Governance(teams=(team,)), team="vision") == {"west/spot": verdict, "west/on-demand": verdict}
    assert verdicts(Governance(teams=(team,)), team="speech") == {}


def test_both_lists_must_allow_and_the_policy_is_named_first() -> None:
    team = TeamRule("vision", allow=Allow(clouds=("aws",), source="policy.yaml:3"))
    policy = Governance(allow=Allow(clouds=("gcp",), source="policy.yaml:9"), teams=(team,))
    assert verdicts(policy, team="vision")["west/spot"] == ("cloud aws is not allowed", "policy.yaml:9")


def test_a_gpu_hour_above_the_limit_is_not_rented() -> None:
    limit = PriceLimit(per_gpu_hour=usd("4.15"), source="policy.yaml:17")
    verdict = ("a GPU costs 4.20 USD an hour there, above 4.15", "policy.yaml:17")
    assert verdicts(Governance(never_above=limit)) == {"west/spot": verdict, "west/on-demand": verdict}
    assert verdicts(Governance(never_above=replace(limit, per_gpu_hour=usd("4.20")))) == {}


def test_a_rule_in_cel_denies_with_its_name_its_because_and_its_line() -> None:
    text = 'job.class == "experiment" && offer.gpu == "H100"'
    rule = DenyRule("old-cards", text, because="Small tests use older cards", source="policy.yaml:30")
    verdict = ("rule old-cards: Small tests use older cards", "policy.yaml:30")
    assert verdicts(Governance(rules=(rule,)), job_class="experiment") == {
        "west/spot": verdict,
        "west/on-demand": verdict,
    }
    assert verdicts(Governance(rules=(rule,)), job_class="training") == {}


def test_a_rule_that_fails_denies_and_says_so() -> None:
    rule = DenyRule("half", "job.gpus / 0 > 1", source="policy.yaml:30")
    assert verdicts(Governance(rules=(rule,)))["lab/owned"] == ("rule half failed (divide by zero)", "policy.yaml:30")


def test_a_rule_that_does_not_compile_denies_and_says_so() -> None:
    rule = DenyRule("typo", "job.clas == 1", source="policy.yaml:30")
    because, where = verdicts(Governance(rules=(rule,)))["lab/owned"]
    assert because.startswith("rule typo failed (column 1: There is no job.clas; did you mean job.class?")
    assert where == "policy.yaml:30"


def test_a_rule_may_not_read_what_does_not_make_the_shape() -> None:
    """Else one job's verdict would be given to all jobs of its shape."""
    rule = DenyRule("ann", 'job.user == "ann"', source="policy.yaml:30")
    unsaid, shaped = Governance(rules=(rule,)), with_shapes(Governance(rules=(rule,)))
    assert shaped.shaped_by == ("user",)
    assert verdicts(shaped, user="bob") == {}
    assert verdicts(shaped, user="ann")["lab/owned"] == ("rule ann", "policy.yaml:30")
    words = "rule ann failed (it reads job.user, and the policy does not say so)"
    assert verdicts(unsaid, user="bob")["lab/owned"] == (words, "policy.yaml:30")


def test_deny_wins_whatever_else_allows() -> None:
    rule = DenyRule("no-h100", 'offer.gpu == "H100"', source="policy.yaml:30")
    policy = Governance(classes=(ClassRule("training"),), allow=Allow(gpus=("H100",)), rules=(rule,))
    assert verdicts(policy)["west/spot"] == ("rule no-h100", "policy.yaml:30")


def test_all_objections_are_told_and_the_first_is_the_verdict() -> None:
    policy = Governance(
        classes=(ClassRule("training", where="owned", spot="forbidden", source="p:1"),),
        allow=Allow(clouds=("gcp",), source="p:2"),
        never_above=PriceLimit(per_gpu_hour=usd("1"), source="p:3"),
        rules=(DenyRule("a", "offer.rented", source="p:4"), DenyRule("b", "job.gpus > 1", source="p:5")),
    )
    candidate = asked(SPOT, policy, interruptible=False)
    objections = PolicyRules().all_verdicts(candidate)
    assert [objection.where for objection in objections] == ["built in", "p:1", "p:1", "p:2", "p:3", "p:4"]
    assert PolicyRules().verdict(candidate) == objections[0] == Verdict(False, "it may not be interrupted", "built in")


def test_one_set_of_rules_judges_under_one_policy_after_another() -> None:
    rules = PolicyRules()
    for gpus in (4, 8, 4):
        policy = Governance(rules=(DenyRule("wide", f"job.gpus > {gpus}"),))
        assert rules.verdict(asked(OWNED, policy, gpus=6)).allowed is (gpus == 8)
