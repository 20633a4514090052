"""What Cluster API can rent in a cluster: MachineDeployments of size 0 that say which GPUs their machines have, and
whether a watchman guards them. `rent_survey` asks; all but `survey_machines` is pure.

GPUs, labels and taints are those of the annotations that the cluster autoscaler reads to scale from zero.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.values import value
from penstock.kube import annotations
from penstock.kube.client import LEASES, MACHINE_DEPLOYMENTS, Cluster, Obj
from penstock.kube.connect.gpu_survey import GpuNodes, is_spot, listed, model_of_labels
from penstock.kube.errors import Forbidden, NotFound
from penstock.kube.gpu_models import USUAL

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
GPU_COUNT: Final = f"{CAPACITY}gpu-count"
GPU_TYPE: Final = f"{CAPACITY}gpu-type"  #: the resource, such as nvidia.com/gpu
LABELS: Final = f"{CAPACITY}labels"
TAINTS: Final = f"{CAPACITY}taints"
MOST_GPUS: Final = 64  #: of one machine


@value
class RentableMachines:
    """A MachineDeployment of size 0, whose machines we may rent by MachineDeployments like it."""

    name: str
    namespace: str
    kind: GpuNodes


@value
class MachineSurvey:
    served: bool = False  # Cluster API is there
    machines: tuple[RentableMachines, ...] = ()
    silent: tuple[str, ...] = ()  # MachineDeployments of size 0 that do not say which GPUs they have
    watchman: bool = False  # its Lease is there
    namespace: str = ""  # where the Lease was looked for


async def survey_machines(cluster: Cluster, namespace: str, unseen: list[str]) -> MachineSurvey:
    """Asks with the login that was given. `namespace`: of the watchman's Lease."""
    deployments = await listed(cluster, MACHINE_DEPLOYMENTS, unseen)
    if deployments is None:
        return MachineSurvey()
    empty = [deployment for deployment in deployments if _is_prepared(deployment)]
    machines = [machines for deployment in empty if (machines := rentable_machines(deployment)) is not None]
    silent = [deployment for deployment in empty if GPU_COUNT not in _notes(deployment)]
    return MachineSurvey(
        served=True,
        machines=tuple(machines),
        silent=tuple(
            f"{deployment['metadata'].get('namespace', '')}/{deployment['metadata']['name']}" for deployment in silent
        ),
        watchman=await _has_watchman(cluster, namespace),
        namespace=namespace,
    )


async def _has_watchman(cluster: Cluster, namespace: str) -> bool:
    try:
        await cluster.get(LEASES, annotations.WATCHMAN, namespace)
    except (NotFound, Forbidden):
        return False
    return True


def _is_prepared(deployment: Obj) -> bool:
    """Of size 0, and not one that we rent."""
    labels = deployment["metadata"].get("labels") or {}
    return deployment.get("spec", {}).get("replicas") == 0 and annotations.NODE not in labels


def _notes(deployment: Obj) -> Mapping[str, str]:
    notes: Mapping[str, str] = deployment["metadata"].get("annotations") or {}
    return notes


def rentable_machines(deployment: Obj) -> RentableMachines | None:
    """None: its machines have no GPUs, as far as it says."""
    notes = _notes(deployment)
    count = str(notes.get(GPU_COUNT, ""))
    if not (count.isdecimal() and 0 < int(count) <= MOST_GPUS):
        return None
    labels = dict(pairs(str(notes.get(LABELS, ""))))
    template = deployment.get("spec", {}).get("template", {}).get("metadata") or {}
    labels = {**(template.get("labels") or {}), **labels}
    kind = GpuNodes(
        model=model_of_labels(labels),
        gpus_per_node=int(count),
        nodes=0,
        resource=str(notes.get(GPU_TYPE) or USUAL),
        spot=is_spot(labels),
        tolerations=tuple(sorted({key for key, _ in pairs(str(notes.get(TAINTS, "")))})),
    )
    return RentableMachines(deployment["metadata"]["name"], str(deployment["metadata"].get("namespace", "")), kind)


def pairs(text: str) -> Iterable[tuple[str, str]]:
    """`a=b,c=d` as the cluster autoscaler writes labels; of a taint the value has its effect, too."""
    for part in text.split(","):
        key, _, word = part.strip().partition("=")
        if key:
            yield key, word


def missing_for_machines(survey: MachineSurvey) -> list[str]:
    """A sentence each."""
    missing = [
        f"MachineDeployment {name} does not say which GPUs its machines have: annotate it with {GPU_COUNT}, and with"
        f" {LABELS} for their model."
        for name in survey.silent
    ]
    if survey.machines and not survey.watchman:
        missing.append(
            f"No watchman's Lease is in namespace {survey.namespace}: caps are soft for what Cluster API rents until"
            " you apply what `penstock manifests watchman --image IMAGE` prints."
        )
    return missing
