"""The kinds that can be at home here: Job, and those that make Jobs. Pure. `defaulting` makes home kinds of plain ones,
and `portability` reads the Jobs that they make.
"""

import copy
from collections.abc import Callable
from typing import Final

from penstock.kube.references import Json, part, parts

JOB: Final = ("batch/v1", "Job")
CRON_JOB: Final = ("batch/v1", "CronJob")
JOB_SET: Final = ("jobset.x-k8s.io/v1alpha2", "JobSet")
HOME_KINDS: Final = (JOB, CRON_JOB, JOB_SET)


def kind_of(manifest: Json) -> tuple[str, str]:
    return str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))


def is_home_kind(manifest: Json) -> bool:
    return kind_of(manifest) in HOME_KINDS


def jobs_in(manifest: Json) -> list[Json]:
    """The Job itself, or one Job for each template, named after what makes it, and in its namespace."""
    if kind_of(manifest) == JOB:
        return [manifest]
    return [_made(manifest, template, suffix) for suffix, template in _templates(manifest)]


def with_templates(manifest: Json, change: Callable[[Json], Json]) -> Json:
    """A copy in which each Job template is changed; of a Job, the Job itself."""
    if kind_of(manifest) == JOB:
        return change(manifest)
    manifest = copy.deepcopy(manifest)
    for _, template in _templates(manifest):
        changed = change({"apiVersion": JOB[0], "kind": JOB[1], **template})
        template.update({key: changed[key] for key in ("metadata", "spec")})
    return manifest


def _templates(manifest: Json) -> list[tuple[str, Json]]:
    """With what is added to the name."""
    spec, kind = part(manifest, "spec"), kind_of(manifest)
    if kind == CRON_JOB:
        return [("", template)] if (template := part(spec, "jobTemplate")) else []
    rows = parts(spec, "replicatedJobs") if kind == JOB_SET else []
    return [(f"-{row.get('name', '')}", template) for row in rows if (template := part(row, "template"))]


def _made(manifest: Json, template: Json, suffix: str) -> Json:
    own, inner = part(manifest, "metadata"), part(template, "metadata")
    name = f"{own.get('name') or own.get('generateName') or '?'}{suffix}"
    placed = {"namespace": own["namespace"]} if "namespace" in own else {}
    labels = {**part(own, "labels"), **part(inner, "labels")}
    return {
        "apiVersion": JOB[0],
        "kind": JOB[1],
        "metadata": {**inner, **placed, "name": name, "labels": labels},
        "spec": part(template, "spec"),
    }
