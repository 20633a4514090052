"""Rules for tests that ask for approvals, without CEL: `always`, `cost > 20`, `offer cloud`, `broken`."""

from penstock.core.decide.rules import ApprovalNeed, BuiltInRules, Candidate, QuoteNumbers
from penstock.core.model.governance import ApprovalRule
from penstock.core.units import money as usd


class AskingRules(BuiltInRules):
    def approvals(self, asked: Candidate, quote: QuoteNumbers) -> tuple[ApprovalNeed, ...]:
        needs = [_need(rule, asked, quote) for rule in asked.policy.governance.approvals]
        return tuple(need for need in needs if need is not None)


def _need(rule: ApprovalRule, asked: Candidate, quote: QuoteNumbers) -> ApprovalNeed | None:
    match rule.when.split():
        case ["always"]:
            return ApprovalNeed(rule)
        case ["broken"]:
            return ApprovalNeed(rule, "no such field: quote.price")
        case ["cost", ">", amount]:
            return ApprovalNeed(rule) if quote.cost > usd(amount) else None
        case ["offer", name]:
            return ApprovalNeed(rule) if asked.offer.id == name else None
        case _:
            raise AssertionError(rule.when)
