"""Decides whether a Job can run at another site, and rewrites it by that site's maps. Pure. The front door tells the
engine a Job's needs, the driver of the chosen site rewrites the Job, and `penstock portability` prints the verdicts.

Each reference of a Job is mapped, copied, left out, or keeps the Job at home; then the verdict has the line to add to
the maps. Secrets are never copied, and host access never leaves home.
"""

import copy
import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from penstock.core.decide.rules import meets
from penstock.core.values import value
from penstock.kube import annotations
from penstock.kube.maps import CLUSTER, KEYS, LEFT_OUT, NEEDED, OF_THE_OFFER, Kind, Maps, has, there
from penstock.kube.references import Json, Reference, looks_private, part, references

Outcome: TypeAlias = Literal["as it is", "mapped", "copied", "left out", "stays home", "never travels"]
STAYS: Final[tuple[Outcome, ...]] = ("stays home", "never travels")


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
    """The Job as it runs at the site, and the ConfigMaps to create before it."""

    manifest: Json
    copies: tuple[Json, ...] = ()


def needs(job: Json) -> tuple[str, ...]:
    """What every site but the home must have, for the engine's rule."""
    wanted = [need for reference in references(job) if (need := _need(reference))]
    return (CLUSTER, *dict.fromkeys(wanted))


def _need(reference: Reference) -> str:
    """Empty for a public image, an optional reference and a toleration: these need nothing."""
    if (
        reference.optional
        or reference.kind in OF_THE_OFFER
        or (reference.kind == "image" and not looks_private(reference.name))
    ):
        return ""
    return (
        f"{reference.name}, which never travels"
        if reference.kind == "host access"
        else f"{reference.kind} {reference.name}"
    )


def verdicts(job: Json, maps: Maps) -> list[Disposition]:
    """One verdict for each distinct reference."""
    found = {(reference.kind, reference.name): _verdict(reference, maps) for reference in references(job)}
    return list(found.values())


def may_go(judged: list[Disposition]) -> bool:
    return all(verdict.outcome not in STAYS for verdict in judged)


def rewrite(manifest: Json, maps: Maps) -> Rewritten:
    """The Job by this site's names. `manifest`: a Job, or a List of a Job and the ConfigMaps that travel with it.

    At home the Job is unchanged. Raises `Unmapped`; the engine's rule prevents that unless the maps have changed since.
    """
    job, carried = unpacked(manifest)
    if part(part(job, "metadata"), "annotations").get(annotations.HOME) == maps.site:
        return Rewritten(job)
    namespace = str(part(job, "metadata").get("namespace") or "default")
    copies: dict[str, Json] = {}
    for reference in references(job):
        judged = _verdict(reference, maps)
        if judged.outcome in STAYS:
            raise Unmapped(f"It stays home: {judged.says}")
        to = (
            there(maps, reference.kind, reference.name)
            if reference.kind in KEYS and reference.kind != "architecture"
            else None
        )
        if judged.outcome == "copied":
            to = _copied(carried, reference, namespace, copies)
        if to is not None or judged.outcome == "left out":
            reference.put(to or LEFT_OUT)
    remote = part(job, "metadata").get("namespace")
    return Rewritten(job, tuple(_placed(copied, remote) for copied in copies.values()))


def packed(job: Json, config_maps: list[Json]) -> Json:
    """The manifest for the journal: what travels with the Job is fixed at submission."""
    return job if not config_maps else {"apiVersion": "v1", "kind": "List", "items": [job, *config_maps]}


@lru_cache(512)
def parsed(manifest: str) -> Json:
    """The journal's manifest, parsed once for the binding driver and the site's driver. Callers must not change it.
    Raises `ValueError`.
    """
    found: Json = json.loads(manifest)
    return found


def job_in(manifest: Json) -> Json:
    """The Job itself. Callers must not change it."""
    return _items(manifest)[0]


def unpacked(manifest: Json) -> tuple[Json, dict[str, Json]]:
    """A copy of the Job, and its ConfigMaps by name."""
    job, *beside = copy.deepcopy(_items(manifest))
    return job, {str(part(other, "metadata").get("name")): other for other in beside}


def _items(manifest: Json) -> list[Json]:
    found = manifest.get("items") if manifest.get("kind") == "List" else [manifest]
    return found or [{}]


# --- one thing --------------------------------------------------------------------------------------------------------


def _verdict(reference: Reference, maps: Maps) -> Disposition:
    outcome = _outcome(reference, maps)
    return Disposition(
        reference.kind, reference.name, outcome, _says(reference, outcome, maps), _line(reference, maps, outcome)
    )


def _outcome(reference: Reference, maps: Maps) -> Outcome:
    if reference.kind == "host access":
        return "never travels"
    if reference.kind in OF_THE_OFFER:
        return "left out"
    if reference.kind == "architecture":
        return "as it is" if reference.name in maps.architectures else "stays home"
    to = there(maps, reference.kind, reference.name)
    if to is not None and (to != LEFT_OUT or reference.kind not in NEEDED):
        return "mapped" if to != LEFT_OUT else "left out"
    if reference.kind == "config map" and maps.copy_config_maps:
        return "copied"
    return "as it is" if not _need(reference) or meets(has(maps), _need(reference)) else "stays home"


def _says(reference: Reference, outcome: Outcome, maps: Maps) -> str:
    thing = f"{reference.kind} {reference.name}"
    match outcome:
        case "never travels":
            return f"{reference.name} reaches into the host, and that never travels."
        case "left out":
            return f"{thing} is left out there."
        case "mapped":
            return f"{thing} is {there(maps, reference.kind, reference.name)} there."
        case "copied":
            return f"{thing} is copied there."
        case "as it is":
            return f"{thing} goes as it is{', or without it: it is optional' if reference.optional else ''}."
        case "stays home":
            return f"{thing} is not known at {maps.site}; write {_line(reference, maps, outcome)}."


def _line(reference: Reference, maps: Maps, outcome: Outcome) -> str:
    """The line of YAML to add under the site."""
    if outcome != "stays home":
        return ""
    key = KEYS[reference.kind]
    if reference.kind == "architecture":
        return f"maps: {{{key}: [{', '.join((*maps.architectures, reference.name))}]}}"
    if reference.kind == "config map":
        return f"maps: {{{key}: copy}}"
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
}


def _quoted(name: str) -> str:
    return name if name.replace("-", "").replace(".", "").isalnum() else json.dumps(name)


# --- ConfigMaps -------------------------------------------------------------------------------------------------------


def config_maps(job: Json) -> Iterator[str]:
    """Names of the ConfigMaps that the Job refers to; the intake reads these at submission."""
    yield from dict.fromkeys(reference.name for reference in references(job) if reference.kind == "config map")


def _copied(carried: dict[str, Json], reference: Reference, namespace: str, copies: dict[str, Json]) -> str:
    """The copy's name has a digest of its content: equal copies are made once, and a changed one never replaces
    another.
    """
    original = carried.get(reference.name)
    if original is None:
        if reference.optional:
            return reference.name
        raise Unmapped(
            f"It stays home: config map {reference.name} was not there to be copied when the Job was submitted."
        )
    content: Json = {key: original[key] for key in ("data", "binaryData") if key in original}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{reference.name[:50].rstrip('-.')}-{digest}"
    written = {annotations.COPY_OF: f"{namespace}/{reference.name}"}
    metadata = {"name": name, "annotations": written, "labels": {annotations.COPY: "config-map"}}
    copies[name] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, **content}
    return name


def _placed(config_map: Json, namespace: object) -> Json:
    config_map["metadata"]["namespace"] = namespace
    return config_map
