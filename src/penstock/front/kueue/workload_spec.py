"""Makes the core's `JobSpec` of a Workload and its owner: GPUs of its pod sets, labels, annotations, team. Pure. The
controller calls it. What a pod set asks for is read by `job_needs`, as for every Job.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from penstock.core.decide.rules import GPU_LABEL, GPU_RESOURCE
from penstock.core.model.types import GpuChoice, Origin
from penstock.core.units import SECOND, Instant
from penstock.core.values import value
from penstock.drivers.driver import Work
from penstock.front import job_spec
from penstock.front.job_spec import JobRequest, Unfit
from penstock.front.kueue import admission_steps as steps
from penstock.front.kueue import workload as w
from penstock.kube import annotations
from penstock.kube.job_needs import JobNeeds
from penstock.kube.kueue_api import MAX_SECONDS, owner_kind
from penstock.kube.kueue_manager import need_of
from penstock.kube.references import Json, part, parts

MOST_SETS: Final = 18  #: pod sets of one Workload, as Kueue's own API bounds them
LONGEST_S: Final = 10**8  #: a bound that its author writes; longer ones mean nothing


@value
class KueueOrigin:
    """The Kueue that a Workload waits in."""

    name: str
    home: str = ""  # the site that is its own cluster; empty: none is
    by: str = ""  # MultiKueue's check of the Workload's queue; empty: it runs in the manager's own cluster


def read(
    workload: Json, owner: Json, door: KueueOrigin, team: str, now: Instant, known: Iterable[str] = ()
) -> JobRequest:
    """Raises `Unfit`. `owner`: the object that it was made for. `team`: of its namespace, unless the owner's label
    names one. `known`: as `job_spec.read`.
    """
    job_spec.refuse_large(workload)
    refuse_unbounded(workload)
    own = own_seconds(owner)
    needs = needs_of(workload, known, job_spec.Annotations(_annotations(owner)).texts(annotations.GPU))
    gpus, mig = job_spec.gpus_of(needs)
    spec = job_spec.spec_of(_as_job(owner, gpus, mig), door.name, now, known, team=_team(owner, team))
    spec = replace(
        spec,
        gpus=gpus,
        mig_profile=mig,
        gpu_models=tuple(GpuChoice(model) for model in needs.models),
        name=f"{_namespace(workload)}/{_kind_name(owner)}",
        home="" if door.by else door.home,
        needs=(
            need_of(door.name, door.by),
            *(need for need in needs.needs if need.startswith((GPU_LABEL, GPU_RESOURCE))),
        ),
        origin=Origin(door.name, w.origin_uid(workload)),
        lease_max_ms=min(spec.lease_max_ms, steps.lease_for(own) * SECOND) if own else spec.lease_max_ms,
    )
    return JobRequest(spec, work_of(workload, own))


def refuse_unbounded(workload: Json) -> None:
    """Refuse what we could not end: money would be held for a part of it only."""
    owner = w.owner_of(workload)
    kind = str(owner.get("kind", ""))
    if not owner or owner_kind(str(owner.get("apiVersion", "")), kind) is None:
        whom = f"a {kind}" if kind else "no single object"
        raise Unfit(
            "KindNotGoverned",
            f"Its Workload belongs to {whom}, whose time Penstock cannot bound; send it to a queue without this check.",
        )
    if part(part(workload, "metadata"), "annotations").get("kueue.x-k8s.io/elastic-job") == "true":
        raise Unfit("Elastic", "It changes its size while it runs, and money is held for one size; leave that out.")


def needs_of(workload: Json, known: Iterable[str], named: tuple[str, ...]) -> JobNeeds:
    """Of all pod sets together. Raises `Unfit`."""
    sets = parts(part(workload, "spec"), "podSets")
    if not sets or len(sets) > MOST_SETS:
        raise Unfit("NotUnderstood", f"It has {len(sets)} pod sets, and not 1 to {MOST_SETS}.")
    gpus: Counter[str] = Counter()
    models: list[set[str]] = []
    needs: dict[str, None] = {}
    offered = list(known)
    for row in sets:
        if not (count := _count(workload, row)):
            continue
        needed = job_spec.needs_of({"spec": {"parallelism": count, "template": part(row, "template")}}, offered, named)
        gpus.update(dict(needed.gpus))
        models += [set(needed.models)] if needed.models and needed.gpus else []
        needs |= dict.fromkeys(needed.needs)
    return JobNeeds(tuple(gpus.items()), _common(models), tuple(needs))


def _count(workload: Json, row: Json) -> Any:
    """Its pods: as many as Kueue has quota for, where it admits a part."""
    rows = parts(part(part(workload, "status"), "admission"), "podSetAssignments")
    assigned = next((assignment.get("count") for assignment in rows if assignment.get("name") == row.get("name")), None)
    return row.get("count", 1) if assigned is None else assigned


def _common(models: list[set[str]]) -> tuple[str, ...]:
    """Models that every pod set with GPUs can use."""
    if not models:
        return ()
    common = set.intersection(*models)
    if not common:
        raise Unfit("MixedGPUs", "Its pods ask for GPUs of different models, and one offer has one; use one model.")
    return tuple(sorted(common))


def own_seconds(owner: Json) -> int:
    """The bound that its author wrote as Kueue's label; 0: none. Kueue refuses what is no number."""
    text = str(part(part(owner, "metadata"), "labels").get(MAX_SECONDS, ""))
    return min(int(text), LONGEST_S) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def work_of(workload: Json, own: int) -> Work:
    """What its driver needs: which Workload it is, and of whom."""
    metadata, owner = part(workload, "metadata"), w.owner_of(workload)
    kept = {key: str(owner.get(key, "")) for key in ("apiVersion", "kind", "name", "uid")}
    manifest = {"workload": metadata.get("name"), "namespace": metadata.get("namespace"), "owner": kept, "seconds": own}
    return Work((), manifest=json.dumps(manifest, sort_keys=True))


def reference_in(work: Work) -> Json:
    """What `work_of` wrote, as a Workload's metadata has it."""
    manifest = json.loads(work.manifest)
    owner = {**manifest["owner"], "controller": True}
    return {"metadata": {"name": manifest["workload"], "namespace": manifest["namespace"], "ownerReferences": [owner]}}


def _as_job(owner: Json, gpus: int, mig: str) -> Json:
    """A Job with the owner's annotations and so many GPUs, for what `job_spec` reads of every Job."""
    resource = f"nvidia.com/mig-{mig.replace('+', '.')}" if mig else "nvidia.com/gpu"
    container = {"name": "all", "resources": {"limits": {resource: gpus}}}
    return {"metadata": part(owner, "metadata"), "spec": {"template": {"spec": {"containers": [container]}}}}


def _team(owner: Json, team: str) -> str:
    return str(part(part(owner, "metadata"), "labels").get(annotations.QUEUE) or team)


def _annotations(owner: Json) -> Json:
    return part(part(owner, "metadata"), "annotations")


def _namespace(workload: Json) -> str:
    return str(part(workload, "metadata").get("namespace") or "default")


def _kind_name(owner: Json) -> str:
    """Objects of one template share the start of their names; run times are learned by that."""
    metadata = part(owner, "metadata")
    return str(metadata.get("generateName") or "").rstrip("-") or str(metadata.get("name", ""))
