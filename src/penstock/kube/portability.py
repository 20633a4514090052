"""Decides whether a Job can run at another site, and rewrites it by that site's maps. Pure. The front door tells the
engine a Job's needs, the driver of the chosen site rewrites the Job, and `penstock portability` prints the verdicts.

Each reference of a Job is mapped, copied, left out, or keeps the Job at home; then the verdict has the line to add to
the maps. Secrets are never copied, and host access never leaves home.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from penstock.core.decide.rules import meets
from penstock.core.values import value
from penstock.kube import annotations, node_terms
from penstock.kube.job_needs import affinity_clauses, need_of, need_of_clause
from penstock.kube.maps import AFFINITY, KEYS, LEFT_OUT, NEEDED, OF_THE_OFFER, Kind, Maps, has, mapped_name
from penstock.kube.node_terms import Clause, Demand
from penstock.kube.references import Json, Reference, part, parts, pod_of, references

Outcome: TypeAlias = Literal["as it is", "mapped", "copied", "left out", "stays home", "never travels"]
PORT: Final = ("name", "port", "protocol", "targetPort", "appProtocol")  #: what of a Service's port is copied
STAYS: Final[tuple[Outcome, ...]] = ("stays home", "never travels")
Labels: TypeAlias = Mapping[str, str]
NONE: Final[Labels] = {}
Carried: TypeAlias = tuple[Kind, str]


class Unmapped(Exception):
    """The Job has a reference that the site's maps do not name (any more). The message says what to write."""


@value
class Disposition:
    """The verdict on one reference at one site. `line`: what to add to the maps if it keeps the Job at home."""

    kind: Kind
    name: str
    outcome: Outcome
    says: str
    line: str = ""


@value
class Rewritten:
    """The Job as it runs at the site, and the ConfigMaps and Services to create before it."""

    manifest: Json
    copies: tuple[Json, ...] = ()


def verdicts(job: Json, maps: Maps, labels: Labels = NONE) -> list[Disposition]:
    """One verdict for each distinct reference. `labels`: of the offer's own nodes."""
    judged = {(reference.kind, reference.name): _verdict(reference, maps, labels) for reference in references(job)}
    return [*judged.values(), *(_verdict_on(clause, maps, labels) for clause in affinity_clauses(job))]


def rewrite(manifest: Json, maps: Maps, labels: Labels = NONE) -> Rewritten:
    """The Job by this site's names. `manifest`: a Job, or a List of a Job and the objects that travel with it.
    `labels`: of the offer's own nodes, which the driver selects.

    At home the Job is unchanged. Raises `Unmapped`; the engine's rule prevents that unless the maps have changed since.
    """
    job, carried = unpacked(manifest)
    if part(part(job, "metadata"), "annotations").get(annotations.HOME) == maps.site:
        return Rewritten(job)
    namespace = str(part(job, "metadata").get("namespace") or "default")
    copies: dict[Carried, Json] = {}
    for reference in references(job):
        judged = _verdict(reference, maps, labels)
        if judged.outcome in STAYS:
            raise Unmapped(f"It stays home: {judged.says}")
        to = (
            mapped_name(maps, reference.kind, reference.name)
            if reference.kind in KEYS and reference.kind != "architecture"
            else None
        )
        if judged.outcome == "copied":
            to = _copied(carried, reference, namespace, copies)
        if to is not None or judged.outcome == "left out":
            reference.put(to or LEFT_OUT)
    _rewrite_affinity(pod_of(job), maps, labels)
    remote = part(job, "metadata").get("namespace")
    return Rewritten(job, tuple(_placed(copied, remote) for copied in copies.values()))


def packed(job: Json, beside: list[Json]) -> Json:
    """The manifest for the journal: what travels with the Job is fixed at submission."""
    return job if not beside else {"apiVersion": "v1", "kind": "List", "items": [job, *beside]}


@lru_cache(512)
def parsed(manifest: str) -> Json:
    """The journal's manifest, parsed once for the binding driver and the site's driver. Callers must not change it.
    Raises `ValueError`.
    """
    parsed_manifest: Json = json.loads(manifest)
    return parsed_manifest


def job_in(manifest: Json) -> Json:
    """The Job itself. Callers must not change it."""
    return _items(manifest)[0]


def unpacked(manifest: Json) -> tuple[Json, dict[Carried, Json]]:
    """A copy of the Job, and what travels with it."""
    job, *beside = copy.deepcopy(_items(manifest))
    return job, {(_kind(other), str(part(other, "metadata").get("name"))): other for other in beside}


def _kind(other: Json) -> Kind:
    """Of what travels; the API server leaves out the kind of what it reads, and only ConfigMaps travelled at first."""
    return "service" if other.get("kind") == "Service" else "config map"


def _items(manifest: Json) -> list[Json]:
    items = manifest.get("items") if manifest.get("kind") == "List" else [manifest]
    return items or [{}]


# --- one thing --------------------------------------------------------------------------------------------------------


def _verdict(reference: Reference, maps: Maps, labels: Labels) -> Disposition:
    outcome = _outcome(reference, maps, labels)
    return Disposition(
        reference.kind, reference.name, outcome, _says(reference, outcome, maps), _line(reference, maps, outcome)
    )


def _outcome(reference: Reference, maps: Maps, labels: Labels) -> Outcome:
    if reference.kind == "host access":
        return "never travels"
    if reference.kind in OF_THE_OFFER:
        return "left out"
    if reference.kind == "architecture":
        return "as it is" if reference.name in maps.architectures else "stays home"
    if reference.kind == "host names in namespace":
        return "as it is" if mapped_name(maps, reference.kind, reference.name) == reference.name else "stays home"
    to = mapped_name(maps, reference.kind, reference.name)
    if to is not None and (to != LEFT_OUT or reference.kind not in NEEDED):
        return "mapped" if to != LEFT_OUT else "left out"
    if reference.kind == "config map" and maps.copy_config_maps:
        return "copied"
    if reference.kind == "service" and maps.copy_services:
        return "copied"
    need = need_of(reference)
    return "as it is" if not need or meets(has(maps) + _spelled(labels), need) else "stays home"


def _spelled(labels: Labels) -> tuple[str, ...]:
    return tuple(f"node selector {key}={text}" for key, text in labels.items())


def _says(reference: Reference, outcome: Outcome, maps: Maps) -> str:
    subject = f"{reference.kind} {reference.name}"
    match outcome:
        case "never travels":
            return f"{reference.name} reaches into the host, and that never travels."
        case "left out":
            return f"{subject} is left out there."
        case "mapped":
            return f"{subject} is {mapped_name(maps, reference.kind, reference.name)} there."
        case "copied":
            return f"{subject} is copied there."
        case "as it is":
            return f"{subject} goes as it is{', or without it: it is optional' if reference.optional else ''}."
        case "stays home" if reference.kind == "host names in namespace":
            instead = f"leave the namespace out of them, or write {_line(reference, maps, outcome)}"
            return f"Its host names have the namespace {reference.name} in them, which {maps.site} has not; {instead}."
        case "stays home":
            return f"{subject} is not known at {maps.site}; write {_line(reference, maps, outcome)}."


def _line(reference: Reference, maps: Maps, outcome: Outcome) -> str:
    """The line of YAML to add under the site."""
    if outcome != "stays home":
        return ""
    key = KEYS[reference.kind]
    if reference.kind == "architecture":
        return f"maps: {{{key}: [{', '.join((*maps.architectures, reference.name))}]}}"
    if reference.kind in ("config map", "service"):
        return f"maps: {{{key}: copy}}"
    if reference.kind == "host names in namespace":
        return f"maps: {{{key}: {{{reference.name}: {reference.name}}}}}"
    name = reference.name.partition("/")[0] + "/" if reference.kind == "image" else reference.name
    return f"maps: {{{key}: {{{_quoted(name)}: {EXAMPLE.get(reference.kind, 'NAME-THERE')}}}}}"


#: Example values where a plain name would mislead.
EXAMPLE: Final[dict[Kind, str]] = {
    "image": "REGISTRY-THERE/",
    "volume": "CLAIM-THERE or emptyDir",
    "pull secret": '"" or SECRET-THERE',
    "service account": '"" or ACCOUNT-THERE',
    "node selector": '"" or KEY=VALUE',
    "priority class": '"" or CLASS-THERE',
    "runtime class": '"" or CLASS-THERE',
    "resource": '"" or RESOURCE-THERE',
    "scheduler": '"" or SCHEDULER-THERE',
    "scheduling gate": '""',
    "token audience": "AUDIENCE-THERE",
}


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace(".", "").isalnum() else json.dumps(name)


# --- required node affinity -------------------------------------------------------------------------------------------


def _verdict_on(clause: Clause, maps: Maps, labels: Labels) -> Disposition:
    names = [demand.name for demand in clause]
    text = " or ".join(names)
    if meets(has(maps) + _spelled(labels), need_of_clause(clause)):
        return Disposition("node selector", text, "mapped", f"node selector {text} is mapped there.")
    first = clause[0]
    line = _line(Reference(first.kind, first.name, lambda _: None), maps, "stays home")
    says = f"{first.kind} {text} is not known at {maps.site}; write {line}."
    return Disposition(first.kind, text, "stays home", says, line)


def _rewrite_affinity(pod: Json, maps: Maps, labels: Labels) -> None:
    """Each term by this site's labels. A term that no node here can meet goes, and one that every node of the offer
    meets makes the whole requirement unnecessary. Raises `Unmapped`.
    """
    if not node_terms.required(pod):
        return
    for clause in affinity_clauses({"spec": {"template": {"spec": pod}}}):
        if (judged := _verdict_on(clause, maps, labels)).outcome in STAYS:
            raise Unmapped(f"It stays home: {judged.says}")
    if mapped_name(maps, "node selector", AFFINITY) is not None:
        node_terms.with_terms(pod, [])
        return
    written = [
        rewritten
        for term in node_terms.terms_of(pod)
        if node_terms.is_term(term) and (rewritten := _term(term, maps, labels)) is not None
    ]
    if not written:
        raise Unmapped("It stays home: none of the nodes that its affinity allows are known there.")
    node_terms.with_terms(pod, [] if {} in written else written)


def _term(term: Json, maps: Maps, labels: Labels) -> Json | None:
    """The term here; empty if every node of the offer meets it, None if no node does."""
    rules: list[Json] = []
    for clause in node_terms.of_term(term):
        allowed = [_demand(demand, maps, labels) for demand in clause]
        if "" in allowed:
            continue
        wanted: dict[str, list[str]] = {}
        for label in allowed:
            if label is not None:
                key, _, text = label.partition("=")
                wanted.setdefault(key, []).append(text)
        if not wanted:
            return None
        key = next(iter(wanted))  # one term cannot say "this key or that one": the first is what the maps name first
        rules.append({"key": key, "operator": "In", "values": wanted[key]})
    return {"matchExpressions": rules} if rules else {}


def _demand(demand: Demand, maps: Maps, labels: Labels) -> str | None:
    """`key=value` here; empty if all nodes of the offer meet it, None if none does."""
    if demand.kind == "GPU label":
        return ""  # the engine compared models
    if demand.kind == "architecture":
        return f"{node_terms.ARCHITECTURE[0]}={demand.name}" if demand.name in maps.architectures else None
    if f"node selector {demand.name}" in _spelled(labels):
        return ""
    return mapped_name(maps, demand.kind, demand.name)


# --- what travels with it ---------------------------------------------------------------------------------------------


def travelling(job: Json) -> dict[Carried, bool]:
    """The ConfigMaps and the Service that the Job refers to, and whether it needs them; the intake reads these at
    submission.
    """
    needed: dict[Carried, bool] = {}
    for reference in references(job):
        if reference.kind in ("config map", "service"):
            key = reference.kind, reference.name
            needed[key] = needed.get(key, False) or not reference.optional
    return needed


def _copied(carried: dict[Carried, Json], reference: Reference, namespace: str, copies: dict[Carried, Json]) -> str:
    original = carried.get((reference.kind, reference.name))
    if original is None:
        if reference.optional:
            return reference.name
        raise Unmapped(
            f"It stays home: {reference.kind} {reference.name} was not there to be copied when the Job was submitted."
        )
    copied = _service(original, reference.name) if reference.kind == "service" else _config_map(original, reference)
    name = str(copied["metadata"]["name"])
    copied["metadata"]["annotations"] = {annotations.COPY_OF: f"{namespace}/{reference.name}"}
    copies[reference.kind, name] = copied
    return name


def _service(original: Json, name: str) -> Json:
    """Under its own name: programs know it. The addresses and ports that a cluster gave it are not copied."""
    spec = part(original, "spec")
    copied: Json = {key: spec[key] for key in ("selector", "publishNotReadyAddresses") if key in spec}
    if spec.get("clusterIP") == "None":
        copied["clusterIP"] = "None"
    if ports := [{key: port[key] for key in PORT if key in port} for port in parts(spec, "ports")]:
        copied["ports"] = ports
    metadata = {"name": name, "labels": {annotations.COPY: "service"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": copied}


def _config_map(original: Json, reference: Reference) -> Json:
    """The copy's name has a digest of its content: equal copies are made once, and a changed one never replaces
    another.
    """
    content: Json = {key: original[key] for key in ("data", "binaryData") if key in original}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{reference.name[:50].rstrip('-.')}-{digest}"
    metadata = {"name": name, "labels": {annotations.COPY: "config-map"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, **content}


def _placed(copied: Json, namespace: object) -> Json:
    copied["metadata"]["namespace"] = namespace
    return copied
