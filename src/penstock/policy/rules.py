"""The rules in force: ours, then what a policy file says in plain keys, then its rules in CEL. Every engine gets these.

They depend on nothing but what they are asked: a policy comes in as an event with its rules as text, so whoever has the
journal has the rules. Deny wins: whatever objects first is the reason on record, and nothing later can allow it. A rule
that fails, or cannot be compiled, denies.
"""

from dataclasses import replace
from typing import TypeAlias

from penstock.core.decide.governance import objections, with_because
from penstock.core.decide.rules import (
    ALLOWED,
    ApprovalNeed,
    BuiltInRules,
    Candidate,
    QuoteNumbers,
    Verdict,
    built_in_objections,
)
from penstock.core.model.governance import NONE, ApprovalRule, DenyRule, Governance
from penstock.policy.expressions import BadExpression, Expression, compiled
from penstock.policy.fields import OF_APPROVALS, OF_RULES, SHAPED_BY, Field, QuotedCandidate, read, shaped_by

#: A rule with what it was compiled to, or with why it was not.
Condition: TypeAlias = tuple[DenyRule, Expression | str]


class PolicyRules:
    """Implements `core.decide.rules.Rules`."""

    def __init__(self) -> None:
        self._built_in = BuiltInRules()
        self._rules: tuple[DenyRule, ...] = ()  #: those that were compiled last
        self._conditions: list[Condition] = []
        self._fields: tuple[Field, ...] = ()  #: all that they read

    def verdict(self, asked: Candidate) -> Verdict:
        """The first objection, or `ALLOWED`."""
        built_in = self._built_in.verdict(asked)
        governance = asked.policy.governance
        if not built_in.allowed or governance is NONE:
            return built_in
        for objection in objections(asked):
            return objection
        if governance.rules:
            for objection in self._denials(asked):
                return objection
        return ALLOWED

    def for_pool(self, asked: Candidate) -> Verdict:
        """By the rules in CEL. What the plain keys say of renting is `governance.may_rent`'s."""
        for objection in self._denials(asked):
            return objection
        return ALLOWED

    def approvals(self, asked: Candidate, quote: QuoteNumbers) -> tuple[ApprovalNeed, ...]:
        """The rules that want a person's word for this quote; one that fails, or cannot be compiled, wants it, too."""
        quoted = QuotedCandidate(asked, quote.cost, quote.per_hour, quote.run_ms, quote.start_ms)
        needs = [_need(rule, quoted) for rule in asked.policy.governance.approvals]
        return tuple([need for need in needs if need is not None])

    def all_verdicts(self, asked: Candidate) -> tuple[Verdict, ...]:
        """Every objection, in the order of `verdict`: the first of these is its answer. Empty: allowed."""
        return (*built_in_objections(asked), *objections(asked), *self._denials(asked))

    def _denials(self, asked: Candidate) -> list[Verdict]:
        governance = asked.policy.governance
        if governance.rules is not self._rules:
            self._compile(governance)
        values = read(self._fields, asked)
        denials = []
        for rule, condition in self._conditions:
            answer = condition if isinstance(condition, str) else condition.holds(values)
            if answer is not False:
                denials.append(_denied(rule, answer))
        return denials

    def _compile(self, governance: Governance) -> None:
        self._conditions = [(rule, _condition(rule, governance)) for rule in governance.rules]
        reads = {name for _, made in self._conditions if isinstance(made, Expression) for name in made.reads}
        self._fields = tuple(field for field in OF_RULES if field.name in reads)
        self._rules = governance.rules


def _need(rule: ApprovalRule, quoted: QuotedCandidate) -> ApprovalNeed | None:
    try:
        condition = compiled(rule.when, OF_APPROVALS)  # compiled once for each text
    except BadExpression as error:
        return ApprovalNeed(rule, str(error))
    answer = condition.holds(read([field for field in OF_APPROVALS if field.name in condition.reads], quoted))
    return None if answer is False else ApprovalNeed(rule, "" if answer is True else answer)


def _condition(rule: DenyRule, governance: Governance) -> Expression | str:
    try:
        made = compiled(rule.deny, OF_RULES)
    except BadExpression as error:
        return str(error)
    for name in made.reads:
        if name in SHAPED_BY and SHAPED_BY[name] not in governance.shaped_by:
            return f"it reads {name}, and the policy does not say so"  # jobs of one shape would differ
    return made


def _denied(rule: DenyRule, answer: str | bool) -> Verdict:
    rule_words = f"rule {rule.name}" if answer is True else f"rule {rule.name} failed ({answer})"
    return Verdict(False, with_because(rule_words, rule.because), rule.source)


def compile_all(governance: Governance) -> None:
    """Compile all conditions, which are then remembered: decisions are made where nobody wants to wait for it."""
    for rule in governance.rules:
        compiled(rule.deny, OF_RULES)
    for approval in governance.approvals:
        compiled(approval.when, OF_APPROVALS)


def with_shapes(governance: Governance) -> Governance:
    """The same, saying what of a job its rules read. Whoever makes a `Governance` of a file calls this last.

    Raises `BadExpression` for a rule that cannot be compiled: ask `compiled` before, with the rule's line at hand.
    """
    reads = [name for rule in governance.rules for name in compiled(rule.deny, OF_RULES).reads]
    return replace(governance, shaped_by=shaped_by(reads))
