"""Reads a Kubernetes Job, as `kubectl get -o json` prints it, as a job file. `penstock plan` asks about such Jobs."""

import json
from collections.abc import Iterable
from dataclasses import replace

from penstock.config.jobs import JobFile
from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.front import job_spec


def home_job_file(raw: bytes, home: str, now: Instant, known: Iterable[str]) -> JobFile | None:
    """A Kubernetes Job as a job file; None if it is none. `home` is where all that it refers to is."""
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or manifest.get("kind") != "Job":
        return None
    try:
        job_spec.refuse_large(manifest)
        spec = job_spec.spec_of(manifest, home, now, known)
    except job_spec.Unfit as unfit:
        raise BadInput(str(unfit)) from None
    return JobFile(replace(spec, deadline_at=None), (), team=spec.team)
