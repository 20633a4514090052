"""Host names of an execution's pods: JOB-0.SERVICE and so on, as if the home Job itself had made them. `start` asks
whether that can work before anything runs; `reconcile` calls it with each change.

The Job controller calls pods after the execution Job, so the cluster's own EndpointSlices have other host names. Ours
belong to the same Service, and a DNS server reads both. What the Service selects finds the pods by their labels, which
are those of the home Job's pods.
"""

from typing import Final

from penstock.drivers.driver import Unreachable, Unstartable
from penstock.drivers.kubernetes.cache import Execution, PodAddress
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import annotation_of, is_active, is_ready
from penstock.kube import annotations, errors
from penstock.kube.client import ENDPOINT_SLICES, SERVICES, Obj

OF_SERVICE: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MOST_ENDPOINTS: Final = 1_000  #: of one slice, by the API server's rule


async def check(here: Connection, names: str, namespace: str, *, copied: bool) -> None:
    """Raise `Unreachable`, which names the right that is missing, if these names could never resolve. `copied`: their
    Service must be copied there.
    """
    for kind in (ENDPOINT_SLICES, SERVICES) if copied else (ENDPOINT_SLICES,):
        if (namespace, kind.resource) in here.names_hosts:
            continue
        if not await here.cluster.may("create", kind, namespace):
            raise Unreachable(
                f"its pods find each other as {names.replace('.', '-0.', 1)}, and our account there may not create"
                f" {kind.resource}; grant it that (docs/kubernetes.md)"
            )
        here.names_hosts.add((namespace, kind.resource))


async def copy_service(here: Connection, service: Obj, namespace: str) -> bool:
    """Create the Service here, or bring our copy up to date. A Service that is not ours stays as it is; pods are found
    by it if it selects them. True if it is a copy.
    """
    metadata = service["metadata"]
    try:
        await here.cluster.create(SERVICES, service, namespace)
        return True
    except errors.AlreadyExists:
        existing = await here.cluster.get(SERVICES, metadata["name"], namespace)
    copied_from = existing["metadata"].get("annotations", {}).get(annotations.COPY_OF)
    if copied_from not in (None, metadata["annotations"][annotations.COPY_OF]):
        words = (
            f"Service {namespace}/{metadata['name']} is a copy of {copied_from} there, and pods can have only one of"
            " them"
        )
        raise Unstartable(words, here.settings.retry_ms, "unfit")
    if copied_from is not None and any(existing["spec"].get(key) != part for key, part in _comparable(service).items()):
        await here.cluster.patch(SERVICES, metadata["name"], {"spec": service["spec"]}, namespace)
    return copied_from is not None


def _comparable(service: Obj) -> Obj:
    """Without its ports, to which the cluster adds defaults."""
    return {key: part for key, part in service["spec"].items() if key != "ports"}


def wanted(execution: Execution) -> tuple[PodAddress, ...]:
    """Every live pod that has an address, by its index."""
    ranks = execution.ranks().items() if annotation_of(execution.job, annotations.HOST_NAMES) else ()
    return tuple(
        PodAddress(index, str(pod["status"]["podIP"]), str(pod["metadata"]["name"]), is_ready(pod))
        for index, pod in sorted(ranks)
        if pod["status"].get("podIP") and is_active(pod) and not pod["metadata"].get("deletionTimestamp")
    )


async def publish(here: Connection, execution: Execution) -> None:
    """Write what has changed, until nothing has."""
    while execution.end is None and execution.endpoints != (now := wanted(execution)):
        unready = await _publishes_unready(here, execution)
        most = max(len(now), len(execution.endpoints))  # a slice that is empty now is written, too
        for number, first in enumerate(range(0, most, MOST_ENDPOINTS)):
            endpoints = now[first : first + MOST_ENDPOINTS]
            await _write(here, execution, number, _slice(here, execution, endpoints, unready))
        execution.endpoints = now


async def withdraw(here: Connection, execution: Execution) -> None:
    """Its pods are gone, and others may have their addresses soon."""
    if annotation_of(execution.job, annotations.HOST_NAMES):
        for number in range(1 + (execution.size - 1) // MOST_ENDPOINTS):
            try:
                await here.cluster.delete(ENDPOINT_SLICES, _name(execution, number), execution.namespace)
            except errors.NotFound:
                continue


async def _publishes_unready(here: Connection, execution: Execution) -> bool:
    service = annotation_of(execution.job, annotations.HOST_NAMES).partition(".")[2]
    try:
        existing = await here.cluster.get(SERVICES, service, execution.namespace)
    except errors.NotFound:
        return False  # it may come later, and then finds our slice
    return bool(existing["spec"].get("publishNotReadyAddresses"))


async def _write(here: Connection, execution: Execution, number: int, made: Obj) -> None:
    made["metadata"]["name"] = _name(execution, number)
    try:
        await here.cluster.create(ENDPOINT_SLICES, made, execution.namespace)
    except errors.AlreadyExists:
        change = {"endpoints": made["endpoints"]}
        await here.cluster.patch(ENDPOINT_SLICES, _name(execution, number), change, execution.namespace)


def _name(execution: Execution, number: int) -> str:
    return f"{execution.name}-names-{number}"


def _slice(here: Connection, execution: Execution, endpoints: tuple[PodAddress, ...], unready: bool) -> Obj:
    meta = execution.job["metadata"]
    job, _, service = annotation_of(execution.job, annotations.HOST_NAMES).partition(".")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    labels = {
        OF_SERVICE: service,
        MANAGED_BY: annotations.MANAGER.replace("/", "-"),
        annotations.INSTALLATION: annotations.label_value(here.installation),
        annotations.EXECUTION: execution.name,
    }
    return {
        "metadata": {"labels": labels, "ownerReferences": [owner]},
        "addressType": "IPv6" if any(":" in endpoint.address for endpoint in endpoints) else "IPv4",
        "endpoints": [_endpoint(job, endpoint, execution.namespace, unready) for endpoint in endpoints],
        "ports": [],
    }


def _endpoint(job: str, endpoint: PodAddress, namespace: str, unready: bool) -> Obj:
    return {
        "addresses": [endpoint.address],
        "hostname": f"{job}-{endpoint.index}",
        "conditions": {"ready": endpoint.ready or unready},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": endpoint.pod},
    }
