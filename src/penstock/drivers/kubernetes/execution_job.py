"""Builds the execution Job for an attempt. Pure; `start` and `terminate` call it.

An execution Job ends by itself at its deadline. It fails when its node is reclaimed instead of restarting unseen, and a
finalizer keeps it until its result is in the journal. Its name is derived from the attempt, so creating it twice makes
one Job.
"""

import math
from typing import Any, Final

from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import Offer, fill
from penstock.core.units import NEVER, SECOND, Instant, Millis, ceil_div
from penstock.core.values import value
from penstock.drivers.driver import Refused, Work
from penstock.drivers.earlier import of_manifest
from penstock.kube import annotations, kueue
from penstock.kube.client import Obj
from penstock.kube.gpu_requests import pods_at_once
from penstock.kube.node_selection import NodeSelection

HOSTNAME: Final = "kubernetes.io/hostname"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
MOST_WEIGHT: Final = 100  #: of a preferred term
PORT: Final = 29_500  #: the rendezvous port of a gang's first pod, torchrun's default
#: Fields copied from the home Job's spec. We or the Job controller set all others.
KEPT: Final = (
    "parallelism",
    "completions",
    "completionMode",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "successPolicy",
    "template",
)
CONTROLLERS: Final = ("controller-uid", "job-name", "batch.kubernetes.io/")
#: A disrupted pod fails the Job: where it resumes is the engine's decision, and has a price.
DISRUPTED: Final = [{"type": "DisruptionTarget", "status": "True"}]
LOST: Final = {"action": "FailJob", "onPodConditions": DISRUPTED}
#: In a batch it costs its own work only, and no retry: the cluster replaces it.
REPLACED: Final = {"action": "Ignore", "onPodConditions": DISRUPTED}


@value
class ExecutionRequest:
    """One attempt with all that its Job needs."""

    ask: StartAttempt
    work: Work
    offer: Offer
    place: NodeSelection
    installation: str
    namespace: str
    env: tuple[tuple[str, str], ...] = ()  # environment variables, like the checkpoints' address
    secret: str = ""  # a Secret whose keys become environment variables, too
    hosts: tuple[str, ...] = ()  # preferred nodes, by hostname
    pinned: bool = False  # these and no others
    avoid: tuple[str, ...] = ()  # nodes to avoid, by hostname
    rented: tuple[str, ...] = ()  # nodes that were rented for it, by their label
    grace_ms: Millis = 30 * SECOND


def execution_job(order: ExecutionRequest, manifest: Obj, now: Instant) -> Obj:
    """`manifest`: the home Job, rewritten for this site; empty: build the Job from image and command."""
    ask, name = order.ask, annotations.execution_name(order.installation, order.ask.attempt)
    spec = _copied(manifest) if manifest else _made(order)
    if (limit := lesser(own_seconds(manifest), seconds_left(ask.deadline_at, now))) is not None:
        spec["activeDeadlineSeconds"] = limit
    spec |= _when_pods_end(spec, manifest)
    spec |= _own_selector(manifest, name)
    labels, notes = _labels(manifest, order, name), _annotations(manifest, order)
    if is_batch(manifest):
        notes[annotations.REPLACES_PODS] = "true"
        earlier = of_manifest(manifest)
        if (earlier.completed_indexes or earlier.failed_indexes) and kueue.QUEUE not in labels:
            notes[annotations.COMPLETED] = earlier.completed_indexes
            notes[annotations.FAILED] = earlier.failed_indexes
            spec["suspend"] = True  # until `seeding` has told the cluster
    at_once = pods_at_once(spec)
    spec["template"] = _template(spec["template"], order, name, at_once, at_once if is_gang(spec) else 0)
    return {
        "metadata": {
            "name": name,
            "namespace": order.namespace,
            "labels": labels,
            "annotations": notes,
            "finalizers": [annotations.RESULT],
            **_owner(manifest, order),
        },
        "spec": spec,
    }


def tombstone(installation: str, attempt: str, namespace: str) -> Obj:
    """A Job that runs nothing under the attempt's name, so that a late start finds the name taken."""
    name = annotations.execution_name(installation, attempt)
    labels = {annotations.INSTALLATION: annotations.label_value(installation), annotations.EXECUTION: name}
    notes = {
        annotations.ATTEMPT: attempt,
        annotations.ENDING: "stopped",
        annotations.WORDS: "told to stop before it began",
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": notes,
            "finalizers": [annotations.RESULT],
        },
        "spec": {"parallelism": 0, "completions": 1, "suspend": True, "template": {"spec": pod}},
    }


def seconds_left(deadline_at: Instant, now: Instant) -> int | None:
    """For `activeDeadlineSeconds`: whole seconds, rounded down; a deadline in the past is the shortest possible."""
    return None if deadline_at >= NEVER else max(1, (deadline_at - now) // SECOND)


def own_seconds(manifest: Obj) -> int | None:
    """What earlier attempts left of the user's own `activeDeadlineSeconds`; a Job must have at least a second."""
    given = (manifest.get("spec") or {}).get("activeDeadlineSeconds")
    return None if given is None else max(1, ceil_div(int(given) * SECOND - of_manifest(manifest).ran_ms, SECOND))


def lesser(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def is_gang(spec: Obj) -> bool:
    """Several indexed pods that all run at once and meet at the first one's address."""
    at_once = pods_at_once(spec)
    return at_once > 1 and spec.get("completionMode") == "Indexed" and spec.get("completions") == at_once


def is_batch(manifest: Obj) -> bool:
    """True if its pods come one after another, as in a queue of work, or each index has its own retries: a lost pod
    costs the others nothing.
    """
    spec = (manifest.get("spec") or {}) if manifest else {}
    pods, completions = spec.get("parallelism", 1), spec.get("completions")
    return "backoffLimitPerIndex" in spec or bool(pods > 1 if completions is None else completions > pods)


def host_names(manifest: Obj) -> str:
    """`JOB.SERVICE` if its pods are called JOB-0.SERVICE and so on; else empty. The Job controller would call them
    after the execution Job.
    """
    spec = (manifest.get("spec") or {}) if manifest else {}
    service = spec["template"]["spec"].get("subdomain") if spec.get("completionMode") == "Indexed" else None
    return f"{manifest['metadata']['name']}.{service}" if service else ""


def rendezvous(name: str) -> str:
    """The name of the ConfigMap with the first pod's address. A gang's pods start once it exists."""
    return f"{name}-at"


# --- what runs -------------------------------------------------------------------------------------------------------


def _made(order: ExecutionRequest) -> Obj:
    """A Job from image and command: one pod per node part, all equal, without retries."""
    if not order.work.image:
        raise Refused(f"the job names no image, and {order.offer.site} is a cluster; add 'image:' to it, or --image")
    gpus, pods = _parts(order)
    container = {
        "name": "main",
        "image": order.work.image,
        "command": list(order.work.command),
        "env": [{"name": key, "value": text} for key, text in order.work.env],
        "resources": {"limits": {order.place.resource: str(gpus)}},
    }
    spec: Obj = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return spec | ({"completionMode": "Indexed"} if pods > 1 else {})


def _parts(order: ExecutionRequest) -> tuple[int, int]:
    """GPUs per pod, and number of pods. Pods of a Job are equal, so unequal parts are cut to their common divisor, and
    a TPU slice by its hosts.
    """
    ask = order.ask
    parts = [gpus for _, gpus in ask.slots]
    if not parts:
        parts = [shape.gpus for shape, count in fill(order.offer.shapes, ask.width) for _ in range(count)]
        parts[-1] = ask.width - sum(parts[:-1])
    host = order.place.rent.host_chips(order.offer) if order.place.rent is not None else 0
    per_pod = math.gcd(*parts, host)
    return per_pod, sum(parts) // per_pod


def _copied(manifest: Obj) -> Obj:
    given = manifest["spec"]
    spec: Obj = {key: given[key] for key in KEPT if key in given}
    if "backoffLimitPerIndex" not in given:  # earlier attempts count, too
        spec["backoffLimit"] = max(0, int(given.get("backoffLimit", 6)) - of_manifest(manifest).own_failures)
    if is_batch(manifest) and "completions" in given and given.get("completionMode") != "Indexed":
        spec["completions"] = max(1, int(given["completions"]) - of_manifest(manifest).succeeded)
    return spec


def _own_selector(manifest: Obj, name: str) -> Obj:
    """Its pods have the labels of the home Job's, so that Services, affinity and `kubectl logs -l` find them; the
    execution Job finds them by a label of its own.
    """
    return {"manualSelector": True, "selector": {"matchLabels": {annotations.EXECUTION: name}}} if manifest else {}


def _when_pods_end(spec: Obj, manifest: Obj) -> Obj:
    """A disrupted pod fails the Job, or costs a batch that pod. A pod failure policy says so, but a template that
    restarts its containers may have none: there the driver ends the attempt, and the cluster replaces a pod only after
    it has ended.
    """
    if restarts(spec):
        return {"podReplacementPolicy": "Failed"}
    return {"podFailurePolicy": {"rules": [REPLACED if is_batch(manifest) else LOST, *_own_rules(manifest)]}}


def restarts(spec: Obj) -> bool:
    """True if kubelet restarts a container that fails, in the same pod."""
    return bool(spec["template"]["spec"].get("restartPolicy") == "OnFailure")


def _own_rules(manifest: Obj) -> list[Obj]:
    rules = ((manifest.get("spec") or {}).get("podFailurePolicy") or {}).get("rules", []) if manifest else []
    return [rule for rule in rules if "DisruptionTarget" not in str(rule.get("onPodConditions"))][:19]


# --- what the Job says of itself -------------------------------------------------------------------------------------


def _labels(manifest: Obj, order: ExecutionRequest, name: str) -> dict[str, str]:
    metadata = manifest.get("metadata", {})
    own = annotations.without_ours(metadata.get("labels")) if manifest else {}
    own.pop(kueue.QUEUE, None)
    queue = order.place.queue or kueue.queue_of(metadata)
    return {**_not_controllers(own), **({kueue.QUEUE: queue} if queue else {}), **_ours(order, name)}


def _ours(order: ExecutionRequest, name: str) -> dict[str, str]:
    return {annotations.INSTALLATION: annotations.label_value(order.installation), annotations.EXECUTION: name}


def _not_controllers(labels: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in labels.items() if not key.startswith(CONTROLLERS)}


def _owner(manifest: Obj, order: ExecutionRequest) -> Obj:
    """The home Job, if it is in this cluster and namespace: what runs for it goes with it."""
    meta = manifest.get("metadata", {})
    if not meta.get("uid") or meta.get("annotations", {}).get(annotations.HOME) != order.offer.site:
        return {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    return {"ownerReferences": [owner]} if meta.get("namespace", "default") == order.namespace else {}


def _annotations(manifest: Obj, order: ExecutionRequest) -> dict[str, str]:
    ask = order.ask
    own = annotations.without_ours(manifest["metadata"].get("annotations")) if manifest else {}
    own.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    deadline = {} if ask.deadline_at >= NEVER else {annotations.EXECUTION_DEADLINE: str(ask.deadline_at)}
    own_limit = own_seconds(manifest)
    theirs = {} if own_limit is None else {annotations.OWN_DEADLINE: str(own_limit)}
    return {
        **own,
        annotations.ATTEMPT: ask.attempt,
        annotations.JOB: ask.job,
        annotations.ORIGIN: origin_of(manifest, ask),
        annotations.OFFER: ask.offer,
        annotations.RESUME: str(ask.resume_ms),
        annotations.SPEED: str(ask.speed_permille),
        **deadline,
        **theirs,
        **({annotations.PLACES: places} if (places := _places(ask)) else {}),
        **({annotations.HOST_NAMES: names} if (names := host_names(manifest)) else {}),
    }


def _places(ask: StartAttempt) -> str:
    """Where the engine counts its GPUs, for whoever compares it with where its pods are."""
    return (
        ",".join(f"{name}={gpus}" for name, (_, gpus) in zip(ask.places, ask.slots, strict=True)) if ask.places else ""
    )


def places_of(text: str) -> dict[str, int]:
    pairs = (row.rpartition("=") for row in text.split(",") if row)
    return {name: int(gpus) for name, _, gpus in pairs if gpus.isdigit()}


def origin_of(manifest: Obj, ask: StartAttempt) -> str:
    """The home Job's uid, or the job's id if there is no home Job."""
    return str(manifest["metadata"].get("uid") or ask.job) if manifest else ask.job


# --- its pods --------------------------------------------------------------------------------------------------------


def _template(template: Obj, order: ExecutionRequest, name: str, pods: int, gang: int) -> Obj:
    meta, spec = dict(template.get("metadata") or {}), dict(template["spec"])
    grace = max(int(spec.get("terminationGracePeriodSeconds") or 0), order.grace_ms // SECOND, 1)
    spec |= {
        "restartPolicy": "OnFailure" if restarts({"template": template}) else "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [_container(container, order, name, gang) for container in spec["containers"]],
        "nodeSelector": {**(spec.get("nodeSelector") or {}), **dict(order.place.selector)},
        "tolerations": [
            *(spec.get("tolerations") or ()),
            *(toleration.as_dict() for toleration in order.place.tolerations),
            *_tolerated(order),
        ],
    }
    crowded = len(set(order.hosts)) < pods and _keeps_apart(spec)  # then the scheduler chooses others
    wanted = _hosts("In", order.hosts if order.pinned and not crowded else ()) + _hosts("NotIn", order.avoid)
    if order.rented:
        wanted.append({"key": annotations.NODE, "operator": "In", "values": list(order.rented)})
    if wanted:
        spec["affinity"] = _affinity(spec.get("affinity") or {}, wanted)
    if order.hosts and not order.pinned and not spec.get("nodeName"):
        spec["affinity"] = _preference(spec.get("affinity") or {}, _hosts("In", order.hosts))
    if spec.get("subdomain"):
        spec.pop("setHostnameAsFQDN", None)  # with the execution's long name it may be too long for a host name
    labels = {**annotations.without_ours(meta.get("labels")), **_ours(order, name)}
    return {"metadata": {"labels": labels, "annotations": meta.get("annotations") or {}}, "spec": spec}


def _tolerated(order: ExecutionRequest) -> list[Obj]:
    """The taints of the nodes that were rented for it: ours, and those of its offer."""
    if not order.rented:
        return []
    offers = order.place.rent.taints if order.place.rent is not None else ()
    return [annotations.rented_taint(order.installation), *(taint.as_dict() for taint in offers)]


def _container(container: Obj, order: ExecutionRequest, name: str, gang: int) -> Obj:
    own = [entry for entry in container.get("env") or () if not entry["name"].startswith("PENSTOCK_")]
    named = {entry["name"] for entry in own}
    ours = [*_variables(order), *(_gang(name, gang) if gang else ())]
    made = {**container, "env": own + [entry for entry in ours if entry["name"] not in named]}
    if order.secret:
        made["envFrom"] = [*(container.get("envFrom") or ()), {"secretRef": {"name": order.secret}}]
    return made


def _variables(order: ExecutionRequest) -> list[Obj]:
    env = {**dict(order.env), "PENSTOCK_ATTEMPT": order.ask.attempt, "PENSTOCK_JOB": order.ask.job}
    return [{"name": key, "value": text} for key, text in env.items()]


def _gang(name: str, pods: int) -> list[Obj]:
    """Environment of a gang's pods: index, size, rendezvous. It needs no DNS."""
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    first = {"configMapKeyRef": {"name": rendezvous(name), "key": "address"}}
    return [
        {"name": "PENSTOCK_RANK", "valueFrom": index},
        {"name": "PENSTOCK_WORLD_SIZE", "value": str(pods)},
        {"name": "MASTER_ADDR", "valueFrom": first},
        {"name": "MASTER_PORT", "value": str(PORT)},
    ]


def _keeps_apart(pod: Obj) -> bool:
    """True if it lets the scheduler put no two of its pods on one node, or only so many."""
    apart = (pod.get("affinity") or {}).get("podAntiAffinity") or {}
    rules = apart.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    spread = [
        rule
        for rule in pod.get("topologySpreadConstraints") or ()
        if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    return any(rule.get("topologyKey") == HOSTNAME for rule in (*rules, *spread))


def _hosts(operator: str, hosts: tuple[str, ...]) -> list[Obj]:
    unique = sorted(dict.fromkeys(hosts))
    return [{"key": HOSTNAME, "operator": operator, "values": unique}] if unique else []


def _preference(own: Obj, wanted: list[Obj]) -> Obj:
    """Where we counted its GPUs. The scheduler knows more of each node, and may put it elsewhere."""
    node = dict(own.get("nodeAffinity") or {})
    preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    ours = {"weight": MOST_WEIGHT, "preference": {"matchExpressions": wanted}}
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, ours]
    return {**own, "nodeAffinity": node}


def _affinity(own: Obj, wanted: list[Obj]) -> Obj:
    """Add our term to each of its alternatives: node selector terms are ORed."""
    node = dict(own.get("nodeAffinity") or {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Any] = required.get("nodeSelectorTerms") or [{}]
    alternatives = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *wanted]} for term in terms]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": alternatives}
    return {**own, "nodeAffinity": node}
