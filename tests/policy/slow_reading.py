"""A second, slow reading of a policy, written for tests: key by key, as the manual says it. It knows nothing of
`core/decide/governance.py` and of CEL.
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TypeAlias

from penstock.core.decide.rules import Candidate

Asks: TypeAlias = Callable[[Candidate], bool]
#: Pieces of rules, each in CEL and in Python.
PIECES: tuple[tuple[str, Asks], ...] = (
    ('job.class == "experiment"', lambda a: a.spec.job_class == "experiment"),
    ('job.team in ["vision"]', lambda a: a.spec.team == "vision"),
    ('job.user == "ann"', lambda a: a.spec.user == "ann"),
    ("job.has_deadline", lambda a: a.spec.deadline_at is not None),
    ("job.cap > 10", lambda a: (a.spec.cap or 0) > 10_000_000),
    ("job.gpus > 4", lambda a: a.spec.gpus > 4),
    ('"personal" in job.data_classes', lambda a: a.spec.data_class == "personal"),
    ('offer.gpu.startsWith("H")', lambda a: a.offer.gpu_model[:1] == "H"),
    ("offer.rented", lambda a: a.offer.term in ("on_demand", "spot")),
    ("offer.price_per_gpu_hour >= 3", lambda a: min(s.list_per_hour / s.gpus for s in a.offer.shapes) >= 3_000_000),
    ('site.region.contains("west")', lambda a: "west" in a.site.region),
    ("team.declared", lambda a: any(rule.team == a.spec.team for rule in a.policy.governance.teams)),
)


def denied_slowly(asked: Candidate, rules: Iterable[Asks]) -> bool:
    """The file, key by key, as its manual says it."""
    governance, spec, offer, site = asked.policy.governance, asked.spec, asked.offer, asked.site
    rented = offer.term in ("on_demand", "spot")
    classes = {rule.name: rule for rule in governance.classes}
    if classes:
        if spec.job_class not in classes:
            return True
        rule = classes[spec.job_class]
        if {"owned": rented, "rented": not rented, "owned_first": False}[rule.where]:
            return True
        if (
            rented
            and {"required": offer.term == "on_demand", "forbidden": offer.term == "spot", "allowed": False}[rule.spot]
        ):
            return True
    if rented:
        lists = [governance.allow, *(team.allow for team in governance.teams if team.team == spec.team)]
        for allow in lists:
            for names, value in (
                (allow.clouds if allow else (), site.cloud),
                (allow.regions if allow else (), site.region),
                (allow.families if allow else (), offer.family),
                (allow.gpus if allow else (), offer.gpu_model),
            ):
                if names and (value == "" or not any(fnmatchcase(value, name) for name in names)):
                    return True
        limit = governance.never_above.per_gpu_hour if governance.never_above else None
        if limit is not None and all(shape.list_per_hour > limit * shape.gpus for shape in offer.shapes):
            return True
    return any(rule(asked) for rule in rules)
