"""May this job run there, by what a policy file says? `policy.rules` asks this after the built-in rules.

Like every verdict these depend on the shape and the offer alone. Each names the rule, and the file and line it stands
in.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.decide.rules import Candidate, Verdict, cap_is_hard, is_open, price_is_bounded
from penstock.core.model.governance import Allow, ClassRule, Governance, TeamRule
from penstock.core.model.types import STANDING, Offer
from penstock.core.units import MICRO, Money, ceil_div

#: Class names that an error lists.
MOST_LISTED: Final = 8


def objections(asked: Candidate) -> Iterator[Verdict]:
    """All that stands against it, in the order of the file's keys."""
    governance = asked.policy.governance
    yield from _by_class(asked, governance)
    if asked.offer.term in STANDING:  # what follows is about renting
        return
    team = team_rule(governance, asked.spec.team)
    yield from _not_allowed(asked, governance.allow, "")
    yield from _not_allowed(asked, team.allow if team else None, f" for team {asked.spec.team}")
    yield from _too_dear(asked, governance)


def may_rent(asked: Candidate) -> bool:
    """Whether anything may be rented there, whoever it is for."""
    rules = asked.policy.governance
    objections = (rule(asked) for rule in (is_open, price_is_bounded, cap_is_hard))
    return not any(objections) and not any((*_not_allowed(asked, rules.allow, ""), *_too_dear(asked, rules)))


def _by_class(asked: Candidate, governance: Governance) -> Iterator[Verdict]:
    if not governance.classes:
        return
    name, rented = asked.spec.job_class, asked.offer.term not in STANDING
    rule = class_rule(governance, name)
    if rule is None:
        known = [other.name for other in governance.classes]
        listed = ", ".join(known[:MOST_LISTED]) + (", ..." if len(known) > MOST_LISTED else "")
        words = f"class {name or '(none)'} is not in the policy, which has {listed}"
        yield Verdict(False, words, governance.classes[0].source)
        return
    if rule.where == "owned" and rented:
        yield _of_class(rule, "stays on owned GPUs")
    if rule.where == "rented" and not rented:
        yield _of_class(rule, "runs on rented GPUs only")
    if rule.spot == "required" and rented and asked.offer.term != "spot":
        yield _of_class(rule, "rents spot only")
    if rule.spot == "forbidden" and asked.offer.term == "spot":
        yield _of_class(rule, "never rents spot")


def _of_class(rule: ClassRule, words: str) -> Verdict:
    return Verdict(False, with_because(f"class {rule.name} {words}", rule.because), rule.source)


def _not_allowed(asked: Candidate, allow: Allow | None, whom: str) -> Iterator[Verdict]:
    """A value that nobody told is on no list."""
    if allow is None:
        return
    for kind, value, names in (
        ("cloud", asked.site.cloud, allow.clouds),
        ("region", asked.site.region, allow.regions),
        ("family", asked.offer.family, allow.families),
        ("GPU", asked.offer.gpu_model, allow.gpus),
    ):
        if names and not any(_is(value, name) for name in names):
            yield Verdict(False, f"{kind} {value or 'unknown'} is not allowed{whom}", allow.source)


def _is(value: str, name: str) -> bool:
    return bool(value) and (value == name or (name.endswith("*") and value.startswith(name[:-1])))


def _too_dear(asked: Candidate, governance: Governance) -> Iterator[Verdict]:
    limit = governance.never_above
    if limit is None or limit.per_gpu_hour is None:
        return
    price = price_per_gpu_hour(asked.offer)
    if price > limit.per_gpu_hour:
        currency = asked.policy.currency
        words = f"a GPU costs {_amount(price)} {currency} an hour there, above {_amount(limit.per_gpu_hour)}"
        yield Verdict(False, words, limit.source)


def price_per_gpu_hour(offer: Offer) -> Money:
    """By list or contract, of its cheapest node."""
    return min([ceil_div(shape.price_per_hour, shape.gpus) for shape in offer.shapes])


def _amount(money: Money) -> str:
    """With as many decimals as it has, at least two."""
    whole, rest = divmod(money, MICRO)
    return f"{whole}.{f'{rest:06}'.rstrip('0'):0<2}"


def class_rule(governance: Governance, name: str) -> ClassRule | None:
    for rule in governance.classes:
        if rule.name == name:
            return rule
    return None


def team_rule(governance: Governance, team: str) -> TeamRule | None:
    for rule in governance.teams:
        if rule.team == team:
            return rule
    return None


def with_because(words: str, because: str) -> str:
    return f"{words}: {because}" if because else words
