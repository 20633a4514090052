"""What a pod demands of its node: node selector, required node affinity, node name. Pure. `job_needs` makes needs of
the clauses, and `portability` rewrites the terms for another site.

A pod's demands are clauses that must all hold, each of alternatives of which one must. Terms of node affinity are the
other way round, alternatives of demands that hold together; a few of them are multiplied out, and what would be
too many, or would mix GPU models with other labels, stays one clause that only `affinity` in the maps meets.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final, TypeAlias

from penstock.core.values import value
from penstock.kube import gpu_models
from penstock.kube.maps import AFFINITY, Kind

Json: TypeAlias = dict[str, Any]
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
ARCHITECTURE: Final = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
#: Labels that mean the same in every cluster: Penstock's nodes run Linux.
LINUX: Final = (("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux"))
HOSTNAME: Final = "kubernetes.io/hostname"  #: of every node
NODE_NAME: Final = "nodeName"  #: stands for a node's own name among the labels
#: Bounds: the engine compares each of them with each site.
MOST_CLAUSES: Final = 32
MOST_ALTERNATIVES: Final = 64


@value
class Demand:
    """One alternative. `kind`: GPU label if the offer's GPUs decide whether it holds. `model`: the one it names."""

    kind: Kind
    name: str  # as kubectl spells it: `key=text`, `key!=text`, `key`, `!key`, `key>text`
    model: str = ""


Clause: TypeAlias = tuple[Demand, ...]
OPAQUE: Final = Demand("node selector", AFFINITY)


def of_selector(selector: Json) -> Iterator[Clause]:
    for key, text in selector.items():
        yield from expression(key, "In", [str(text)])


def of_affinity(pod: Json) -> list[Clause]:
    """Clauses of required node affinity."""
    if not required(pod):
        return []
    given = [term for term in terms_of(pod) if is_term(term)]
    terms = [list(of_term(term)) for term in given[: MOST_ALTERNATIVES + 1]]
    count = 1
    for term in terms:
        count *= len(term)
    if not terms or count > MOST_CLAUSES or len(terms) > MOST_ALTERNATIVES:
        return [(OPAQUE,)]
    clauses = [tuple(dict.fromkeys(demand for clause in each for demand in clause)) for each in product(*terms)]
    strong = [clause for clause in clauses if not any(set(other) < set(clause) for other in clauses)]
    return list(dict.fromkeys(_unmixed(clause) for clause in strong))


def _unmixed(clause: Clause) -> Clause:
    """A GPU model *or* another label is nothing that the engine can compare with an offer."""
    mixed = len({demand.kind == "GPU label" for demand in clause}) != 1
    return (OPAQUE,) if mixed or len(clause) > MOST_ALTERNATIVES else clause


def of_term(term: Json) -> Iterator[Clause]:
    """What must hold together; nothing for what holds everywhere."""
    for rule in _list(term, "matchExpressions"):
        yield from expression(str(rule.get("key", "")), str(rule.get("operator", "")), _values(rule))
    for rule in _list(term, "matchFields"):
        yield from expression(NODE_NAME, str(rule.get("operator", "")), _values(rule))


def is_term(term: Json) -> bool:
    """An empty term matches no node."""
    return bool(_list(term, "matchExpressions") or _list(term, "matchFields"))


def expression(key: str, operator: str, texts: list[str]) -> Iterator[Clause]:
    match operator:
        case "In":
            pairs = [(key, text) for text in texts]
            if not any(pair in LINUX for pair in pairs):
                yield tuple(_is(key, text) for text in texts)
        case "NotIn":
            yield from ((_is_not(key, text),) for text in texts)
        case "Exists":
            kind: Kind = "GPU label" if gpu_models.names_models(key) else "node selector"
            yield (Demand(kind, key),)
        case "DoesNotExist":
            yield (Demand("node selector", f"!{key}"),)
        case "Gt" | "Lt":
            yield (Demand("node selector", f"{key}{'>' if operator == 'Gt' else '<'}{texts[0] if texts else ''}"),)
        case _:
            yield (OPAQUE,)


def _is(key: str, text: str) -> Demand:
    if key in ARCHITECTURE:
        return Demand("architecture", text)
    model = gpu_models.model_of(key, text)
    if model or (key, text) in gpu_models.PRESENT:
        return Demand("GPU label", f"{key}={text}", model)
    return Demand("node selector", f"{key}={text}")


def _is_not(key: str, text: str) -> Demand:
    model = gpu_models.model_of(key, text)
    return Demand("GPU label" if model else "node selector", f"{key}!={text}", model)


def is_negative(demand: Demand) -> bool:
    return "!=" in demand.name


def required(pod: Json) -> Json:
    """Required node affinity as the pod has it; empty if it has none."""
    inner: Any = pod
    for key in ("affinity", "nodeAffinity", REQUIRED):
        inner = inner.get(key) if isinstance(inner, dict) else None
    return inner if isinstance(inner, dict) else {}


def terms_of(pod: Json) -> list[Json]:
    return _list(required(pod), "nodeSelectorTerms")


def with_terms(pod: Json, terms: Iterable[Json]) -> None:
    """Change the pod's required node affinity to these terms; none: take it away."""
    terms = list(terms)
    if terms:
        pod["affinity"]["nodeAffinity"][REQUIRED] = {"nodeSelectorTerms": terms}
    elif required(pod):
        del pod["affinity"]["nodeAffinity"][REQUIRED]


def _list(holder: Json, key: str) -> list[Json]:
    items = holder.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _values(rule: Json) -> list[str]:
    values = rule.get("values")
    return [str(text) for text in values] if isinstance(values, list) else []
