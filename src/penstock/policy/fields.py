"""What a rule in CEL may read, by name: `job.class`, `offer.gpu`, `site.region`. `expressions` compiles against it, and
the manual lists it.

Of a job a rule reads exactly what makes its shape, so that one verdict holds for all jobs of the shape. User, deadline
and cap are part of the shape only while a rule reads them (`SHAPED_BY`).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from penstock.core.decide.governance import price_per_gpu_hour, team_rule
from penstock.core.decide.rules import Candidate
from penstock.core.model.governance import ShapedBy
from penstock.core.model.types import STANDING
from penstock.core.units import GB, MICRO, Money
from penstock.core.values import value

#: `amount` is money or another number with decimals: it compares with 4 and with 4.50, and counts with 2.0, not with 2.
Kind: TypeAlias = Literal["text", "whole", "amount", "truth", "texts"]
Read: TypeAlias = str | int | float | bool | list[str]


@value
class Field:
    name: str
    kind: Kind
    meaning: str
    read: Callable[[Any], Read]  # from what is asked


def amount(money: Money) -> float:
    return money / MICRO


def _data_classes(asked: Candidate) -> list[str]:
    """Of its data sets, and of what it brings along; an empty one is unknown."""
    own = [asked.spec.data_class] if asked.spec.data_class else []
    return list(dict.fromkeys([*own, *(data_set.data_class for data_set in asked.data)]))


JOB: Final = (
    Field("job.class", "text", "its class", lambda a: a.spec.job_class),
    Field("job.team", "text", "the team that pays", lambda a: a.spec.team),
    Field("job.project", "text", "its project; empty without one", lambda a: a.spec.project),
    Field("job.user", "text", "who submitted it", lambda a: a.spec.user),
    Field("job.gpus", "whole", "how many GPUs it asks for", lambda a: a.spec.gpus),
    Field(
        "job.gpu_models", "texts", "GPU models it can use; empty: any", lambda a: [c.model for c in a.spec.gpu_models]
    ),
    Field("job.mig_profile", "text", "the MIG profile it asks for; empty: whole GPUs", lambda a: a.spec.mig_profile),
    Field("job.priority", "whole", "its priority", lambda a: a.spec.priority),
    Field("job.interruptible", "truth", "whether it may be stopped and resumed", lambda a: a.spec.interruptible),
    Field(
        "job.writes_checkpoints",
        "truth",
        "whether it writes checkpoints",
        lambda a: a.spec.checkpoint_every_ms is not None,
    ),
    Field("job.data", "texts", "names of the data sets it reads", lambda a: list(a.spec.data)),
    Field("job.data_classes", "texts", "classes of the data it reads or brings along", _data_classes),
    Field("job.output_gb", "amount", "GB that it writes, as declared", lambda a: a.spec.output_bytes / GB),
    Field("job.home", "text", "the site it was submitted at; empty: by the API", lambda a: a.spec.home),
    Field("job.has_deadline", "truth", "whether it has a deadline", lambda a: a.spec.deadline_at is not None),
    Field("job.has_cap", "truth", "whether it has a cap of its own", lambda a: a.spec.cap is not None),
    Field("job.cap", "amount", "its own cap; 0 without one", lambda a: amount(a.spec.cap or 0)),
)
OFFER: Final = (
    Field("offer.name", "text", "the offer, as `site/offer`", lambda a: a.offer.id),
    Field("offer.term", "text", "owned, reserved, on_demand or spot", lambda a: a.offer.term),
    Field("offer.rented", "truth", "whether it is on_demand or spot", lambda a: a.offer.term not in STANDING),
    Field("offer.gpu", "text", "its GPU model", lambda a: a.offer.gpu_model),
    Field("offer.mig_profile", "text", "its MIG profile; empty: whole GPUs", lambda a: a.offer.mig_profile),
    Field("offer.family", "text", "the family of its node type, such as p5", lambda a: a.offer.family),
    Field("offer.gpus_per_node", "whole", "GPUs of its largest node", lambda a: a.offer.shapes[-1].gpus),
    Field(
        "offer.price_per_gpu_hour",
        "amount",
        "price of a GPU and an hour there, of its cheapest node",
        lambda a: amount(price_per_gpu_hour(a.offer)),
    ),
)
SITE: Final = (
    Field("site.name", "text", "the site", lambda a: a.site.id),
    Field("site.cloud", "text", "whose cloud it is; empty if unknown", lambda a: a.site.cloud),
    Field("site.region", "text", "its region, as the cloud names it; empty if unknown", lambda a: a.site.region),
    Field("site.location", "text", "where it is", lambda a: a.site.location),
    Field("site.law", "text", "the law its operator obeys", lambda a: a.site.law),
    Field("site.operator", "text", "its operator", lambda a: a.site.operator),
    Field("site.grid_g_per_kwh", "whole", "grams of CO2 for a kWh there", lambda a: a.site.grid_g_per_kwh),
)
TEAM: Final = (
    Field("team.name", "text", "the job's team", lambda a: a.spec.team),
    Field(
        "team.declared",
        "truth",
        "whether the policy names this team",
        lambda a: team_rule(a.policy.governance, a.spec.team) is not None,
    ),
)


@value
class QuotedCandidate:
    """What an approval rule reads beside the rest: the quote that waits for an answer."""

    asked: Candidate
    cost: Money
    per_hour: Money
    run_ms: int
    start_ms: int


QUOTE: Final = (
    Field("quote.cost", "amount", "what the whole run is expected to cost", lambda q: amount(q.cost)),
    Field("quote.per_hour", "amount", "what an hour there costs", lambda q: amount(q.per_hour)),
    Field("quote.hours", "amount", "hours that it is expected to run", lambda q: q.run_ms / 3_600_000),
    Field(
        "quote.gpu_hours",
        "amount",
        "GPUs times hours",
        lambda q: q.asked.spec.gpus * q.run_ms / 3_600_000,
    ),
    Field("quote.start_minutes", "amount", "minutes until it runs there", lambda q: q.start_ms / 60_000),
)

#: What deny rules may read, and what approval rules may.
OF_RULES: Final = (*JOB, *OFFER, *SITE, *TEAM)
OF_APPROVALS: Final = (*OF_RULES, *QUOTE)

#: Fields that make jobs of their own shape while a rule reads them, and by what.
SHAPED_BY: Final[dict[str, ShapedBy]] = {
    "job.user": "user",
    "job.has_deadline": "deadline",
    "job.has_cap": "cap",
    "job.cap": "cap",
}


def shaped_by(reads: Iterable[str]) -> tuple[ShapedBy, ...]:
    """In an order of its own, whatever the order of the rules."""
    return tuple(sorted({SHAPED_BY[name] for name in reads if name in SHAPED_BY}))


def read(fields: Iterable[Field], asked: Candidate | QuotedCandidate) -> dict[str, Read]:
    of_rule = asked.asked if isinstance(asked, QuotedCandidate) else asked
    return {field.name: field.read(asked if field.name.startswith("quote.") else of_rule) for field in fields}
