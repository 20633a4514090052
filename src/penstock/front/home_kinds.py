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
HOME_KINDS: Final = (JOB, CRON_JOB)


def kind_of(manifest: Json) -> tuple[str, str]:
    return str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))


def is_home_kind(manifest: Json) -> bool:
    return kind_of(manifest) in HOME_KINDS


def jobs_in(manifest: Json) -> list[Json]:
    """The Job itself, or one Job for each template, with the name and namespace of what makes it."""
    if kind_of(manifest) == JOB:
        return [manifest]
    return [_made(manifest, template) for template in _templates(manifest)]


def with_templates(manifest: Json, change: Callable[[Json], Json]) -> Json:
    """A copy in which each Job template is changed; of a Job, the Job itself."""
    if kind_of(manifest) == JOB:
        return change(manifest)
    manifest = copy.deepcopy(manifest)
    for template in _templates(manifest):
        changed = change({"apiVersion": JOB[0], "kind": JOB[1], **template})
        template.update({key: changed[key] for key in ("metadata", "spec")})
    return manifest


def _templates(manifest: Json) -> list[Json]:
    spec, kind = part(manifest, "spec"), kind_of(manifest)
    if kind == CRON_JOB:
        return [template] if (template := part(spec, "jobTemplate")) else []
    return [part(row, "template") for row in parts(spec, "replicatedJobs")] if kind == JOB_SET else []


def _made(manifest: Json, template: Json) -> Json:
    own = part(manifest, "metadata")
    named: Json = {key: own[key] for key in ("name", "namespace") if key in own}
    metadata = {**part(template, "metadata"), **named}
    labels = {**part(own, "labels"), **part(part(template, "metadata"), "labels")}
    return {
        "apiVersion": JOB[0],
        "kind": JOB[1],
        "metadata": {**metadata, "labels": labels},
        "spec": part(template, "spec"),
    }
