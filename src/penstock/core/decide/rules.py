"""May this job run there? The protocol that a policy file's compiled rules fulfil, and the rules we always have.

A verdict is made once per shape and offer and recorded (`ShapeJudged`), so a replay needs no rules.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from penstock.core.model.governance import ApprovalRule
from penstock.core.model.reasons import RuledOut
from penstock.core.model.types import (
    NODE_WITH,
    STANDING,
    TOLERATES,
    DataSet,
    GpuChoice,
    JobSpec,
    Offer,
    Policy,
    Site,
)
from penstock.core.units import MOST_NODES, PERMILLE, Millis, Money
from penstock.core.values import value


@value
class Verdict:
    allowed: bool
    rule: str = ""
    where: str = ""  # file:line of the rule, BUILT_IN for ours


@value
class Candidate:
    """May jobs like `spec`, which read `data`, use `offer` of `site` under `policy`?"""

    spec: JobSpec
    site: Site
    offer: Offer
    data: tuple[DataSet, ...]
    policy: Policy


@value
class QuoteNumbers:
    """What a rule about approvals may read of a quote."""

    cost: Money
    per_hour: Money  # all of its nodes
    gpus: int
    run_ms: Millis
    start_ms: Millis


@value
class ApprovalNeed:
    """A rule that lets the job burst at this quote only with a person's approval."""

    rule: ApprovalRule
    error: str = ""  # it could not be evaluated, so it asks


ALLOWED = Verdict(True)
BUILT_IN: Final = "built in"  #: `Verdict.where` of a rule that no file has
#: The same of what keeps a job from its home as things are there, or as the sites file describes them: it waits.
UNTIL_CHANGED: Final = "until it changes"

# How needs and `has` are spelt, beside plain names like "volume scratch".
NODE_SELECTOR: Final = "node selector "  #: `key=value`; alternatives are joined by " or "
GPU_LABEL: Final = "GPU label "  #: the same, of a label that names a GPU model
OF_NODES: Final = (NODE_SELECTOR, GPU_LABEL, "architecture ")
ANY_AFFINITY: Final = "node selector affinity"  #: a site that has this leaves required node affinity out
GPU: Final = "GPU "  #: in an offer's `has`: a model that it stands in for
GPU_RESOURCE: Final = "GPU resource "  #: of GPUs that are not `nvidia.com/gpu` or slices of them


class Rules(Protocol):
    def verdict(self, asked: Candidate) -> Verdict:
        """Must depend on nothing but what is asked."""
        ...

    def for_pool(self, asked: Candidate) -> Verdict:
        """Whether a rule that people wrote forbids to rent there before a job asks. `asked.spec` is a plain job with
        the GPUs of a node, of whoever pays for the pool. Likewise pure.
        """
        ...

    def approvals(self, asked: Candidate, quote: QuoteNumbers) -> tuple[ApprovalNeed, ...]:
        """The rules by which a person must approve a burst at this quote. Likewise pure; asked when a job would burst,
        and only under a policy that has such rules.
        """
        ...


class BuiltInRules:
    """What holds without any policy file: it must fit, find what it needs, and its data and its price allow it."""

    def verdict(self, asked: Candidate) -> Verdict:
        for objection in built_in_objections(asked):
            return objection
        return ALLOWED

    def for_pool(self, asked: Candidate) -> Verdict:  # noqa: ARG002 - there are none
        return ALLOWED

    def approvals(self, asked: Candidate, quote: QuoteNumbers) -> tuple[ApprovalNeed, ...]:  # noqa: ARG002 - never asks
        return ()


def built_in_objections(asked: Candidate) -> Iterator[Verdict]:
    """All that stands against it, in the order of `ALWAYS`."""
    for rule in ALWAYS:
        if words := rule(asked):
            yield Verdict(False, words, _source(rule, asked) or BUILT_IN)


def _source(rule: Callable[[Candidate], str], asked: Candidate) -> str:
    """File and line, where people wrote what the rule asks for."""
    if rule is data_may_go:
        return _data_source(asked)
    if rule is is_open:
        return asked.offer.closed
    return asked.policy.hard_caps_source if rule is cap_is_hard else ""


def in_file(where: str) -> str:
    """File and line of a policy's rule; empty for ours."""
    return "" if where in (BUILT_IN, UNTIL_CHANGED) else where


def gap_at_home(asked: Candidate) -> str:
    """What keeps it from an offer of its home: GPUs or labels that its nodes have not, or that the sites file does not
    tell of. As in plain Kubernetes such a job waits.
    """
    spec, offer = asked.spec, asked.offer
    if asked.site.id != spec.home:
        return ""
    if not gpu_wanted(asked):
        return finds_what_it_needs(asked)
    if spec.mig_profile != offer.mig_profile or (spec.needs and _resources(spec.needs) != _resources(offer.has)):
        wanted = _listed(_resources(spec.needs)) or spec.mig_profile or "whole GPUs"
        return f"no offer of {asked.site.id} has {wanted}; if its nodes have some, write an offer for them"
    models = " or ".join(choice.model for choice in spec.gpu_models)
    return f"no offer of {asked.site.id} has GPU {models}; if its nodes have it, write it as `gpu` of their offer"


def by_rule(excluded: Iterable[tuple[str, str, str]]) -> tuple[RuledOut, ...]:
    """The rule that keeps a job from each offer; nothing where one rule keeps it from all of them."""
    offers: dict[tuple[str, str], list[str]] = {}
    for offer, rule, where in excluded:
        offers.setdefault((rule, in_file(where)), []).append(offer)
    each = tuple(RuledOut(tuple(names), *key) for key, names in offers.items())
    return each if len(each) > 1 else ()


def is_open(asked: Candidate) -> str:
    """What runs there stays until it ends."""
    return "the offer is closed" if asked.offer.closed else ""


def is_for_such_jobs(asked: Candidate) -> str:
    """A site may be for jobs of one door alone: what waits in Kueue is started there, and nothing else."""
    only = asked.site.only
    return f"{asked.site.id} takes only jobs that need {only}" if only and only not in asked.spec.needs else ""


def fits_at_all(asked: Candidate) -> str:
    if could_hold(asked.offer, asked.spec.gpus):
        return ""
    return f"too wide: at most {widest_of(asked.offer)} GPUs there"


def gpu_wanted(asked: Candidate) -> str:
    if asked.spec.mig_profile != asked.offer.mig_profile:
        return f"needs {asked.spec.mig_profile or 'whole GPUs'}, has {asked.offer.mig_profile or 'whole GPUs'}"
    if asked.spec.needs and _resources(asked.spec.needs) != _resources(asked.offer.has):
        return f"its GPUs are {_listed(_resources(asked.offer.has)) or 'of another resource'}"
    at_home = asked.site.id == asked.spec.home  # where its own labels choose the node, and no map counts
    if asked.spec.gpu_models and (
        choice_of(asked.spec, asked.offer) is None or (at_home and stands_in(asked.spec, asked.offer))
    ):
        return f"GPU {asked.offer.gpu_model or 'unknown'} is not one it can use"
    return ""


def finds_what_it_needs(asked: Candidate) -> str:
    """Away from home a job must find everything it refers to: a volume, a secret, a namespace of its team."""
    has = asked.site.has + asked.offer.has
    if asked.site.id == asked.spec.home:
        needs = [need for need in asked.spec.needs if contradicts(asked.offer.has, need)]
        return f"it needs {_listed(needs)}, and {asked.offer.id} has other nodes" if needs else ""
    missing = [need for need in asked.spec.needs if not _found(asked, has, need)]
    return f"it needs {_listed(missing)}, and {asked.site.id} has no map for it" if missing else ""


def _found(asked: Candidate, has: tuple[str, ...], need: str) -> bool:
    """A label that names a GPU model is left out elsewhere, unless the offer's own label names another one. An offer
    that stands in for the model by a map has another one, of course.
    """
    if need.startswith(GPU_LABEL):
        return stands_in(asked.spec, asked.offer) or not contradicts(asked.offer.has, need)
    return need.startswith((GPU_RESOURCE, NODE_WITH, TOLERATES)) or meets(has, need)


def meets(has: tuple[str, ...], need: str) -> bool:
    """By its own name, or by one that ends in `*`: "config map *", "image lab.example/*". Of alternatives, one."""
    return any(
        wanted == available or (available.endswith("*") and wanted.startswith(available[:-1]))
        for wanted in alternatives(need)
        for available in has
    )


def alternatives(need: str) -> list[str]:
    """The parts of "node selector zone=a or node selector zone=b". Names of other kinds may have any words in them."""
    return need.split(" or ") if need.startswith(OF_NODES) else [need]


def contradicts(has: tuple[str, ...], need: str) -> bool:
    """True if the offer's nodes have other values of every label that would do. Labels that name GPU models mean the
    same under different keys: those that would do are all listed.
    """
    wanted = [name for name in alternatives(need) if name != ANY_AFFINITY]
    if need.startswith(GPU_LABEL):
        labels = [name for name in has if name.startswith(GPU_LABEL)]
        return bool(labels) and not any(name in wanted for name in labels)
    return need.startswith(NODE_SELECTOR) and bool(wanted) and all(_is_other(has, name) for name in wanted)


def _is_other(has: tuple[str, ...], wanted: str) -> bool:
    key, equals, _ = wanted.partition("=")
    return bool(equals) and wanted not in has and any(available.startswith(key + "=") for available in has)


def _resources(names: tuple[str, ...]) -> list[str]:
    return [name[len(GPU_RESOURCE) :] for name in names if name.startswith(GPU_RESOURCE)]


def _listed(names: list[str], most: int = 3) -> str:
    names = [name.removesuffix(f" or {ANY_AFFINITY}") for name in names]
    more = len(names) - most
    named = names if more <= 0 else [*names[:most], f"{more} more"]
    return " and ".join(part for part in (", ".join(named[:-1]), named[-1] if named else "") if part)


def data_may_go(asked: Candidate) -> str:
    """Promise 3: each data set may go where its class allows; an unknown class goes nowhere but where it lives.

    What a job brings along is at its home already, and goes to any other site only where its declared class allows.
    Being a front door excepts no site: another job's home is not this one's, and a job may have none.
    """
    if len(asked.data) < len(asked.spec.data):
        return f"data set {_missing(asked)} is not in the sites file"
    name = _kept_class(asked)
    return "" if name is None else f"data class {name or 'unknown'} may not go to {asked.site.id}"


def _missing(asked: Candidate) -> str:
    known = [data_set.id for data_set in asked.data]
    return next(name for name in asked.spec.data if name not in known)


def _kept_class(asked: Candidate) -> str | None:
    """The first class of its data that may not go there."""
    spec, site = asked.spec, asked.site
    classes = [data_set.data_class for data_set in asked.data if data_set.site != site.id]
    if spec.data_class and site.id != spec.home:
        classes.append(spec.data_class)
    return next((name for name in classes if not _class_allows(name, site, asked.policy)), None)


def _data_source(asked: Candidate) -> str:
    """Where the rule stands that keeps its data; empty if there is none for the class."""
    name = _kept_class(asked)
    return next((rule.source for rule in asked.policy.data_rules if rule.data_class == name), "")


def price_is_bounded(asked: Candidate) -> str:
    unbounded = asked.offer.term == "spot" and any(shape.most_per_hour is None for shape in asked.offer.shapes)
    return "no upper bound of its price is known" if unbounded else ""


def cap_is_hard(asked: Candidate) -> str:
    soft = asked.offer.guarantee == "none" and asked.offer.term not in STANDING
    hard = asked.policy.require_hard_caps
    return "policy demands hard caps, and nothing there ends without us" if soft and hard else ""


def may_be_lost(asked: Candidate) -> str:
    return "it may not be interrupted" if asked.offer.term == "spot" and not asked.spec.interruptible else ""


#: In the order they are asked; the first that objects is the reason on record.
ALWAYS: Final = (
    is_open,
    is_for_such_jobs,
    fits_at_all,
    gpu_wanted,
    finds_what_it_needs,
    data_may_go,
    price_is_bounded,
    cap_is_hard,
    may_be_lost,
)


def _class_allows(data_class: str, site: Site, policy: Policy) -> bool:
    for rule in policy.data_rules:
        if rule.data_class == data_class != "":
            sites, locations, laws = rule.sites, rule.locations, rule.laws
            placed = not locations or site.location in locations
            lawful = not laws or site.law in laws
            return "*" in sites or site.id in sites or (bool(locations or laws) and placed and lawful)
    return False


def could_hold(offer: Offer, gpus: int) -> bool:
    """Is the offer wide enough for a gang of so many GPUs, if all of it were free?"""
    widest = widest_of(offer)
    return widest is None or gpus <= widest


def widest_of(offer: Offer) -> int | None:
    """The widest gang the offer could ever hold; None: a cluster will say."""
    counts = [shape.count for shape in offer.shapes]
    known = None if None in counts else sum(shape.gpus * (shape.count or 0) for shape in offer.shapes)
    rented = None if offer.term in STANDING else MOST_NODES * offer.shapes[-1].gpus
    bounds = [bound for bound in (known, offer.limit_gpus, rented) if bound is not None]
    return min(bounds) if bounds else None


def choice_of(spec: JobSpec, offer: Offer) -> GpuChoice | None:
    """The first model it can use that the offer has, or stands in for by a map of its site."""
    return next((choice for choice in spec.gpu_models if _serves(offer, choice.model)), None)


def _serves(offer: Offer, model: str) -> bool:
    return model == offer.gpu_model or GPU + model in offer.has


def stands_in(spec: JobSpec, offer: Offer) -> bool:
    """True if only a map makes the offer one that the job can use."""
    has_it = any(choice.model == offer.gpu_model for choice in spec.gpu_models)
    return not has_it and choice_of(spec, offer) is not None


def preference_of(spec: JobSpec, offer: Offer) -> int:
    """The place of the offer's model in the job's order of models."""
    choice = choice_of(spec, offer)
    return len(spec.gpu_models) if choice is None else spec.gpu_models.index(choice)


def speed_on(spec: JobSpec, offer: Offer) -> int:
    """Thousandths of the speed the job's run time was given for, at its least width."""
    choice = choice_of(spec, offer) if spec.gpu_models else None
    return choice.speed_permille if choice else PERMILLE
