"""Rules of a policy file, in CEL, that want a person's word."""

from penstock.core.decide.rules import ApprovalNeed, Candidate, QuoteNumbers
from penstock.core.model.governance import ApprovalRule, Governance
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import HOUR
from penstock.core.units import money as usd
from penstock.policy.rules import PolicyRules

OFFER = Offer("aws/p5", "aws", "on_demand", (NodeShape(8, list_per_hour=usd("80")),), "H100")
SITE = Site("aws", (OFFER,), cloud="aws", region="eu-central-1")
QUOTE = QuoteNumbers(cost=usd("2400"), per_hour=usd("80"), gpus=8, run_ms=30 * HOUR, start_ms=0)


def needs(*conditions: str, quote: QuoteNumbers = QUOTE) -> tuple[ApprovalNeed, ...]:
    rules = tuple(ApprovalRule(f"r{k}", when, "role:approver", HOUR) for k, when in enumerate(conditions))
    policy = Policy("p", governance=Governance(approvals=rules, version=1))
    return PolicyRules().approvals(Candidate(JobSpec(8, team="vision"), SITE, OFFER, (), policy), quote)


def names(*conditions: str) -> list[str]:
    return [need.rule.name for need in needs(*conditions)]


def test_rules_read_the_quote_the_job_the_offer_and_the_site() -> None:
    assert names("quote.cost > 2000", "quote.cost > 2400", "quote.gpu_hours >= 240") == ["r0", "r2"]
    assert names('job.team == "vision" && offer.gpu == "H100"', 'site.region.startsWith("us-")') == ["r0"]


def test_a_cheap_quote_needs_nobody() -> None:
    assert needs("quote.cost > 2000", quote=QuoteNumbers(usd("10"), usd("80"), 8, HOUR, 0)) == ()


def test_a_rule_that_cannot_be_compiled_or_fails_asks_and_says_why() -> None:
    (unknown,) = needs("quote.price > 2")
    assert "There is no quote.price" in unknown.error
    (failing,) = needs("1 / (job.gpus - 8) > 0")
    assert failing.error == "divide by zero"
