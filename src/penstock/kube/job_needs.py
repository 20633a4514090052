"""What a Job needs: GPUs, GPU models, and all that a site must have for it. Pure. This is the one answer: the front
door, `plan`, `portability`, `kubectl penstock apply` and shadow mode all ask `job_needs`, and the engine's rules
compare what it says with sites and offers.
"""

from collections.abc import Iterable, Iterator

from penstock.core.decide.rules import ANY_AFFINITY, GPU, GPU_LABEL, GPU_RESOURCE
from penstock.core.model.types import Offer
from penstock.core.values import value
from penstock.kube import gpu_models, gpu_requests, node_needs, node_terms
from penstock.kube.maps import CLUSTER, OF_THE_OFFER
from penstock.kube.node_terms import Clause, Demand
from penstock.kube.references import Json, Reference, looks_private, part, pod_of, references


@value
class JobNeeds:
    gpus: tuple[tuple[str, int], ...]  # by MIG profile; an empty profile: whole GPUs
    models: tuple[str, ...]  # of these GPUs; empty: any
    needs: tuple[str, ...]  # what a site must have, as the engine's rules read it


def job_needs(job: Json, known: Iterable[str] = (), named: tuple[str, ...] = ()) -> JobNeeds:
    """Raises `NotWhole`. `known`: as `known_gpus` lists them. `named`: models that the Job's author named; then labels
    say nothing about them.
    """
    offered = list(known)
    requested = [name for name, count in gpu_requests.of_pod(pod_of(job)).items() if count]
    chosen = [] if named else gpu_clauses(job)
    wanted = [
        *(need for reference in references(job) if (need := need_of(reference))),
        *(need_of_clause(clause) for clause in affinity_clauses(job)),
        *(_need_of_label(clause, offered) for clause in chosen),
        *(GPU_RESOURCE + name for name in sorted(requested) if gpu_requests.is_other(name)),
        *node_needs.amounts(pod_of(job)),
        *filter(None, [node_needs.tolerations(pod_of(job))]),
    ]
    return JobNeeds(
        gpus=tuple((profile, count) for profile, count in gpu_requests.of_job(part(job, "spec")).items() if count),
        models=named or _models(chosen, [name for name in offered if not name.startswith(GPU_LABEL)]),
        needs=(CLUSTER, *dict.fromkeys(wanted)),
    )


def known_gpus(offers: Iterable[Offer]) -> list[str]:
    """GPU models that the offers have or stand in for, and the labels that say so on their nodes."""
    names: dict[str, None] = {}
    for offer in offers:
        names |= dict.fromkeys([offer.gpu_model] if offer.gpu_model else [])
        names |= dict.fromkeys(name for name in offer.has if name.startswith(GPU_LABEL))
        names |= dict.fromkeys(name[len(GPU) :] for name in offer.has if name.startswith(GPU) and not _is_other(name))
    return list(names)


def offer_has(
    model: str, resource: str, selector: Iterable[tuple[str, str]], gpus: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """`Offer.has`: what an offer's nodes have. `gpus`: the site's map of models."""
    labels = [f"{key}={text}" for key, text in selector]
    named = [label for label in labels if gpu_models.model_of(*label.split("=", 1))]
    instead = [wanted for wanted, to in gpus if to == model]
    return (
        *(f"node selector {label}" for label in labels),
        *(GPU_LABEL + label for label in named),
        *(GPU + wanted for wanted in instead),
        *([GPU_RESOURCE + resource] if gpu_requests.is_other(resource) else []),
    )


def _is_other(name: str) -> bool:
    return name.startswith((GPU_LABEL, GPU_RESOURCE))


# --- what it refers to ------------------------------------------------------------------------------------------------


def need_of(reference: Reference) -> str:
    """Empty for a public image, an optional reference and a toleration: these need nothing."""
    public = reference.kind == "image" and not looks_private(reference.name)
    if reference.optional or reference.kind in OF_THE_OFFER or public:
        return ""
    if reference.kind == "host access":
        return f"{reference.name}, which never travels"
    return f"{reference.kind} {reference.name}"


def affinity_clauses(job: Json) -> Iterator[Clause]:
    """Those of required node affinity that a site must meet."""
    yield from (clause for clause in node_terms.of_affinity(pod_of(job)) if not is_of_gpus(clause))


def need_of_clause(clause: Clause) -> str:
    names = [f"{demand.kind} {demand.name}" for demand in clause]
    return " or ".join(dict.fromkeys([*names, ANY_AFFINITY]))


def is_of_gpus(clause: Clause) -> bool:
    return all(demand.kind == "GPU label" for demand in clause)


# --- which GPUs -------------------------------------------------------------------------------------------------------


def gpu_clauses(job: Json) -> list[Clause]:
    """What the Job's labels say about GPU models. Any GPU meets a label that only says that there are some."""
    pod = pod_of(job)
    clauses = [*node_terms.of_selector(part(pod, "nodeSelector")), *node_terms.of_affinity(pod)]
    return [clause for clause in clauses if is_of_gpus(clause) and all(demand.model for demand in clause)]


def _models(clauses: list[Clause], known: list[str]) -> tuple[str, ...]:
    """The known models that meet all clauses; if none does, those that the labels name, so that no offer fits."""
    if not clauses:
        return ()
    fitting = [model for model in known if all(_meets(clause, model) for clause in clauses)]
    named = [demand.model for demand in clauses[0] if not node_terms.is_negative(demand)]
    return tuple(dict.fromkeys(fitting or named or [f"any but {clauses[0][0].model}"]))


def _meets(clause: Clause, model: str) -> bool:
    return any(_is(demand, model) for demand in clause)


def _is(demand: Demand, model: str) -> bool:
    return gpu_models.same_model(demand.model, model) != node_terms.is_negative(demand)


def _need_of_label(clause: Clause, known: list[str]) -> str:
    """The labels that would do: the Job's own, and those of offers that mean the same model."""
    own = [GPU_LABEL + demand.name for demand in clause if not node_terms.is_negative(demand)]
    labels = [name for name in known if name.startswith(GPU_LABEL)]
    same = [name for name in labels if _meets(clause, gpu_models.model_of(*name[len(GPU_LABEL) :].split("=", 1)))]
    return " or ".join(dict.fromkeys(own + same)) or f"{GPU_LABEL}{clause[0].name}"
