"""What a cluster's Kueue governs by our AdmissionCheck, and what is missing for it. `penstock connect --kueue` asks."""

from penstock.core.values import value
from penstock.kube.client import Cluster
from penstock.kube.errors import KubeError
from penstock.kube.kueue_api import (
    ADMISSION_CHECKS,
    API,
    CLUSTER_QUEUES,
    DISPATCHER,
    MULTIKUEUE,
    MULTIKUEUE_CONFIGS,
    WORKLOADS,
)
from penstock.kube.references import Json, part, parts


@value
class KueueSurvey:
    served: bool  # in the version that we use
    governed: tuple[str, ...] = ()  # ClusterQueues that name our check
    others: tuple[str, ...] = ()
    workers: tuple[tuple[str, str], ...] = ()  # MultiKueue's check and each cluster that it lists


async def survey_kueue(cluster: Cluster, check: str) -> KueueSurvey:
    if await cluster.kind(API, WORKLOADS.name) is None:
        return KueueSurvey(served=False)
    queues, checks, configs = [
        (await cluster.list(kind))[0] for kind in (CLUSTER_QUEUES, ADMISSION_CHECKS, MULTIKUEUE_CONFIGS)
    ]
    named = {_name(queue): check in _checks(queue) for queue in queues}
    return KueueSurvey(
        served=True,
        governed=tuple(name for name, ours in named.items() if ours),
        others=tuple(name for name, ours in named.items() if not ours),
        workers=tuple(_workers(checks, configs)),
    )


def _checks(queue: Json) -> list[str]:
    spec = part(queue, "spec")
    rows = parts(part(spec, "admissionChecksStrategy"), "admissionChecks")
    return [*(str(row.get("name")) for row in rows), *map(str, spec.get("admissionChecks") or ())]


def _workers(checks: list[Json], configs: list[Json]) -> list[tuple[str, str]]:
    lists = {_name(config): part(config, "spec").get("clusters") or [] for config in configs}
    ours = [check for check in checks if part(check, "spec").get("controllerName") == MULTIKUEUE]
    return [
        (_name(check), str(cluster))
        for check in ours
        for cluster in lists.get(str(part(part(check, "spec"), "parameters").get("name")), [])
    ]


def _name(obj: Json) -> str:
    return str(part(obj, "metadata").get("name", ""))


def missing_for_kueue(seen: KueueSurvey, check: str, manager: str) -> list[str]:
    """A sentence for each thing that a person must still do."""
    if not seen.served:
        return [f"There is no Kueue here that serves {API}: install version 0.15 or newer, and run this again."]
    sentences = []
    if not seen.governed:
        queues = f" of {', '.join(seen.others)}" if seen.others else ""
        sentences.append(
            f"No ClusterQueue is governed yet: name the check {check} in `admissionChecksStrategy`{queues}."
        )
    for by, cluster in seen.workers:
        sentences.append(
            f"Write a site for the worker {cluster}: `kueue: {{manager: {manager}, cluster: {cluster}, check: {by}}}`."
        )
    if seen.workers:
        sentences.append(
            f"Set `multiKueue.dispatcherName: {DISPATCHER}` in Kueue's configuration: we choose the worker."
        )
    return sentences


async def try_survey(cluster: Cluster, check: str) -> KueueSurvey | KubeError:
    """A login that may not look at it still connects the cluster."""
    try:
        return await survey_kueue(cluster, check)
    except KubeError as error:
        return error
