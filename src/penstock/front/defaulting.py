"""Default a plain Job into a home Job: add our label, `suspend` and `managedBy`, and keep Kueue from reserving quota
for it where it would. Nothing else changes. Pure.

`applying` calls it. Clusters that serve MutatingAdmissionPolicy default Jobs themselves (`penstock manifests
admission`).
"""

import copy
from typing import Final

from penstock.core.errors import BadInput
from penstock.front import home_kinds
from penstock.front.job_spec import CLAIMED, SHARED, Unfit, needs_of, spec_of
from penstock.kube import annotations, kueue
from penstock.kube.references import Json, part

NO_GPUS: Final = "It asks for no GPUs"


def as_home_job(job: Json, team: str = "", namespace: str = "", *, kueue_takes_it: bool = False) -> Json:
    """A defaulted copy of the Job. Raises `BadInput` if Penstock can never accept it. `kueue_takes_it`: it would get
    quota there, if nothing kept Kueue from it.
    """
    job = copy.deepcopy(job)
    if job.get("apiVersion") != "batch/v1" or job.get("kind") != "Job":
        raise BadInput("Only Jobs of batch/v1 can be submitted as they are.")
    metadata, spec = job.setdefault("metadata", {}), job.setdefault("spec", {})
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not (metadata.get("name") or _generated(job)):
        raise BadInput("The Job has no metadata.name.")
    labels = metadata.setdefault("labels", {}) or {}
    metadata["labels"] = {**labels, annotations.QUEUE: team or labels.get(annotations.QUEUE, "")}
    if not metadata["labels"][annotations.QUEUE]:
        raise BadInput(f"Whose job is it? Say --team, or write the label {annotations.QUEUE}.")
    if namespace:
        metadata["namespace"] = namespace
    job["metadata"] = kueue.parked(metadata) if kueue_takes_it else kueue.unparked(metadata)
    job["spec"] = {**spec, "suspend": True, "managedBy": annotations.MANAGER}
    _refuse_unfit(job)
    return job


def as_home(manifest: Json, team: str = "", *, kueue_takes_it: bool = False) -> Json:
    """A defaulted copy of a Job, or of something that makes Jobs: then its templates are. A JobSet is taken whole: what
    asks for no GPUs in it is the cluster's own, and the others stay beside it, in the cluster where they find each
    other.
    """
    team = team or team_of(manifest)
    if home_kinds.kind_of(manifest) == home_kinds.JOB:
        return as_home_job(manifest, team, kueue_takes_it=kueue_takes_it)
    name = {"name": str(part(manifest, "metadata").get("name"))}
    plain = [_is_beside(job) for job in home_kinds.jobs_in(manifest)]

    def changed(template: Json) -> Json:
        if any(plain) and not all(plain):
            if _is_beside(template):
                return {"metadata": {}, **template}
            template = _noted(template, annotations.BESIDE, "true")
        return _as_home_template(template, team, name, kueue_takes_it)

    return home_kinds.with_templates(manifest, changed)


def _is_beside(job: Json) -> bool:
    """True of a Job of a JobSet that asks for no GPUs, and that nobody labelled as ours."""
    return not part(part(job, "metadata"), "labels").get(annotations.QUEUE) and why_not_ours(job).startswith(NO_GPUS)


def _noted(job: Json, key: str, text: str) -> Json:
    metadata = part(job, "metadata")
    return {**job, "metadata": {**metadata, "annotations": {**part(metadata, "annotations"), key: text}}}


def _as_home_template(template: Json, team: str, name: Json, kueue_takes_it: bool) -> Json:
    """Its Jobs are made by a controller: none of them has the template's own name, and nobody signs them."""
    named = {**template, "metadata": {**part(template, "metadata"), **name}}
    home = as_home_job(named, team, kueue_takes_it=kueue_takes_it)
    metadata = {key: content for key, content in home["metadata"].items() if key not in name}
    return {**home, "metadata": {**metadata, **{k: v for k, v in part(template, "metadata").items() if k in name}}}


def team_of(manifest: Json) -> str:
    """Of our label, on it or on the Jobs that it makes."""
    for job in (manifest, *home_kinds.jobs_in(manifest)):
        if team := part(part(job, "metadata"), "labels").get(annotations.QUEUE):
            return str(team)
    return ""


def has_label(manifest: Json) -> bool:
    return bool(team_of(manifest))


def why_not_ours(manifest: Json) -> str:
    """Why the cluster itself runs what has no label of ours: empty if a Job of it asks for GPUs, and also if these
    cannot be counted: then we say so.
    """
    words = NO_GPUS
    for job in home_kinds.jobs_in(manifest):
        try:
            if needs_of(job).gpus:
                return ""
        except Unfit as unfit:
            if unfit.reason not in (CLAIMED, SHARED):
                return ""
            words = str(unfit).partition(". ")[0]
    return f"{words}, so the cluster itself runs it, and Penstock does not."


def _refuse_unfit(job: Json) -> None:
    try:
        spec_of(job, "", 0)
    except Unfit as unfit:
        raise BadInput(str(unfit)) from None


def _generated(job: Json) -> str:
    return str(part(job, "metadata").get("generateName") or "")
