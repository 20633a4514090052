"""Checks that the cluster and a Job belong to this installation. `KubernetesDriver` calls it when it opens, with each
look, and before it touches a Job.
"""

from typing import Final

from penstock.drivers.driver import Refused
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import annotation_of
from penstock.kube import annotations, errors
from penstock.kube.client import LEASES, Obj

LEASE_LABELS: Final = {"app.kubernetes.io/name": "penstock"}


async def claim(here: Connection) -> None:
    """Claim the cluster with a Lease in our namespace, unless another installation's Lease exists in any namespace."""
    await _claim_lease(here)
    if here.settings.shared:
        return
    try:
        leases, _ = await here.cluster.list(LEASES, labels="app.kubernetes.io/name=penstock")
    except errors.Forbidden:
        return  # our rights end at our own namespace
    for lease in leases:
        check_owner(here, lease)


async def check_still_ours(here: Connection) -> None:
    check_owner(here, await here.cluster.get(LEASES, annotations.LEASE, here.settings.namespace))


def check_own(here: Connection, job: Obj, attempt: str, origin: str) -> None:
    """Refuse a Job that was made for another attempt or from another home Job."""
    meta, theirs = job["metadata"], annotation_of(job, annotations.ORIGIN) or origin
    if not here.is_own(job, attempt) or theirs != origin:
        raise Refused(
            f"Job {meta['namespace']}/{meta['name']} was not made for this: it belongs to"
            f" {annotation_of(job, annotations.ATTEMPT) or 'nobody'} ({theirs});"
            " look whose it is, and delete it if it is nobody's"
        )


async def _claim_lease(here: Connection) -> None:
    namespace = here.settings.namespace
    try:
        await check_still_ours(here)
    except errors.NotFound:
        try:
            await here.cluster.create(LEASES, lease_of(here), namespace)
        except errors.AlreadyExists:
            await check_still_ours(here)
        except errors.NotFound:
            raise Refused(f"cluster {here.cluster.context} has no namespace {namespace}; create it") from None


def lease_of(here: Connection, claim: str = "") -> Obj:
    """The Lease that names our installation, with our claim."""
    marks = {"annotations": {annotations.CLAIM: claim}} if claim else {}
    return {
        "metadata": {"name": annotations.LEASE, "labels": LEASE_LABELS, **marks},
        "spec": {"holderIdentity": here.installation},
    }


def check_owner(here: Connection, lease: Obj) -> None:
    """Refuse a cluster whose Lease names another installation."""
    owner, where = lease["spec"].get("holderIdentity"), lease["metadata"].get("namespace")
    if lease["metadata"]["name"] == annotations.LEASE and owner != here.installation:
        raise Refused(
            f"cluster {here.cluster.context} belongs to installation {owner} (Lease {where}/{annotations.LEASE}), and"
            f" this is {here.installation}: let that one leave first, or delete its Lease if it is no more."
        )
