"""Home clusters, and small readers of home Jobs (uid, key, end). The controllers and the manager use them."""

import re
from typing import Final

from penstock.core.values import value
from penstock.journal.journal import Reader
from penstock.journal.rows import Filter, JobRow
from penstock.kube import annotations
from penstock.kube.client import Cluster
from penstock.kube.references import Json, part, parts

OLDEST: Final = (1, 32)  #: the first version with `managedBy` on by default


@value
class HomeCluster:
    """A home cluster, and the namespaces whose labelled Jobs we accept; empty: all namespaces."""

    site: str
    cluster: Cluster
    namespaces: tuple[str, ...] = ()


@value
class ExecutionCluster:
    """A cluster that is no home, and the namespaces in which attempts of home Jobs run there."""

    site: str
    cluster: Cluster
    namespaces: tuple[str, ...] = ()


def too_old(version: str) -> bool:
    """True for `v1.31.4-eks-1`; false for text that is no version."""
    version_numbers = re.match(r"v?(\d+)\.(\d+)", version)
    return version_numbers is not None and (int(version_numbers[1]), int(version_numbers[2])) < OLDEST


def live_jobs(reader: Reader) -> list[JobRow]:
    """All jobs of the journal that have not ended."""
    jobs: list[JobRow] = []
    phases = Filter(phases=("waiting", "placed", "leaving", "paused"))
    after: int | None = None
    while page := reader.jobs(phases, after, 500):
        jobs += page
        after = page[-1].number
    return jobs


# --- a Job ------------------------------------------------------------------------------------------------------------


def uid_of(job: Json) -> str:
    return str(part(job, "metadata").get("uid", ""))


def namespace_of(job: Json) -> str:
    return str(part(job, "metadata").get("namespace") or "default")


def key_of(job: Json) -> str:
    """`NAMESPACE/NAME`, the informer's key."""
    metadata = part(job, "metadata")
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def has_ended(job: Json) -> bool:
    ends = [
        condition
        for condition in parts(part(job, "status"), "conditions")
        if condition.get("type") in ("Complete", "Failed")
    ]
    return any(end.get("status") == "True" for end in ends)


def worth_keeping(job: Json) -> Json:
    """Without the fields' writers, which are most of a Job, unless `status.is_suspended_by_user` asks for them."""
    asked = part(job, "spec").get("suspend") is True and annotations.UNSUSPENDED in part(job["metadata"], "annotations")
    metadata = {key: content for key, content in job["metadata"].items() if key != "managedFields" or asked}
    return {**job, "metadata": metadata}
