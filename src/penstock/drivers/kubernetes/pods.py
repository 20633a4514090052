"""Interprets the status of an execution Job and its pods: running, in trouble, or ended, and how. Pure; `cache` and
`reconcile` call it.

There are three kinds of end. Application failure (exit code, out of memory): the attempt failed, and a person must
look. Preemption (eviction, lost node): the attempt is lost and resumes elsewhere. A start that failed at this site (no
capacity, image not pullable here): the attempt never ran, and the engine tries another offer.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from penstock.core.values import value
from penstock.drivers.driver import SeenPhase
from penstock.kube import annotations
from penstock.kube.client import Obj
from penstock.kube.gpu_requests import pods_at_once

#: Pod reasons that mean that the node ended it, not its program.
TAKEN: Final = ("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity", "Killed")
#: Kubelet's reasons for rejecting a scheduled pod: the node has less free than the scheduler believed.
NOT_TAKEN: Final = re.compile("UnexpectedAdmissionError|OutOf.*|InsufficientResourceError|TopologyAffinityError")
#: The image does not exist or we may not pull it: other sites cannot pull it either.
NO_SUCH_IMAGE: Final = re.compile(
    "not found|manifest unknown|unauthorized|denied|403|401|does not exist", re.IGNORECASE
)
IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull", "ImageInspectError")
OWN_DEADLINE: Final = "DeadlineExceeded: it ran longer than its own activeDeadlineSeconds"
TOLD: Final = "it was told to end before it was done"
CANNOT_BEGIN: Final = ("CreateContainerError", "RunContainerError", "CrashLoopBackOff")
#: Kubelet's word for a ConfigMap, a Secret or a key in one that does not exist.
NOT_CONFIGURED: Final = "CreateContainerConfigError"
#: The scheduler's words for a claim that does not exist or is not bound: a person must make it.
NO_CLAIM: Final = re.compile("persistentvolumeclaim|resourceclaim", re.IGNORECASE)
CREATING: Final = ("ContainerCreating", "PodInitializing", "")


@value
class End:
    phase: SeenPhase
    words: str
    began: bool = True
    node: str = ""  # the node that rejected the pod, if one did


ScalingKind: TypeAlias = Literal["coming", "stock_out", "quota", "settings", "limit", "impossible"]


@value
class Scaling:
    """What an autoscaler says of pods without a node: `scaling.py` reads it."""

    kind: ScalingKind
    words: str  # what a person reads, with the autoscaler's own words


@value
class Trouble:
    """Why it does not run yet. The driver decides how long to wait for it to pass.

    `room`: no node for it; `pods`: the cluster makes none; `image`: it cannot be fetched now; `place`: its node cannot
    start it; `missing`: what it refers to is not there; `user`: its image does not exist.
    """

    kind: Literal["room", "pods", "image", "place", "missing", "user"]
    words: str
    node: str = ""
    scaling: ScalingKind | Literal[""] = ""  # of `room` where an autoscaler adds nodes: what it says


def end_of(job: Obj, pods: Sequence[Obj], node_names: Iterable[str] | None, finished: bool = False) -> End | None:
    """How it ended; None while it has not. `pods`: succeeded ones as first seen so. `node_names`: of all nodes, None if
    unknown. `finished`: its log said that the last step is done.
    """
    ending, words = annotation_of(job, annotations.ENDING), annotation_of(job, annotations.WORDS)
    began = has_begun(job, pods)
    complete, failed = condition(job, "Complete"), condition(job, "Failed")
    if (complete or ending or failed) and _all_ended_well(job, pods):
        return End("done", "exit code 0")
    if complete:
        kept = (
            "" if finished or is_batch(job) else next((taken_away(pod) or TOLD for pod in pods if _only_kept(pod)), "")
        )
        return End(_phase_of(ending or "lost"), words or kept) if kept else End("done", "exit code 0")
    if failed and not ending and not pods and _succeeded(job) >= _completions(job):
        return End("done", "exit code 0")  # the pods are gone: trust the Job's own count
    if ending == "lost" and not _alive(pods, node_names):
        return End("lost", words)
    if ending and _never_will(job, pods):
        return End(_phase_of(ending), words, began=began)
    if not failed:
        return None
    if finished and not is_batch(job) and pods and all(has_succeeded(pod) for pod in pods):
        return End("done", "exit code 0")
    if ending:
        return End(_phase_of(ending), words, began=began)
    return _failed(job, failed, pods, began)


def _all_ended_well(job: Obj, pods: Sequence[Obj]) -> bool:
    """True if all pods succeeded. The Job controller takes a second to see that, and may first see a passed deadline or
    a lost node.
    """
    return sum(has_succeeded(pod) and not _only_kept(pod) for pod in pods) >= _completions(job)


def _completions(job: Obj) -> int:
    return max(1, int(job["spec"].get("completions") or job["spec"].get("parallelism") or 1))


def _only_kept(pod: Obj) -> bool:
    """True if the pod saved a checkpoint on SIGTERM and exited with 0. The cluster calls that a success; the job is not
    done.
    """
    is_told = "deletionTimestamp" in (pod.get("metadata") or {})
    return has_succeeded(pod) and is_told and not _ended_before_it_was_taken(pod)


def _ended_before_it_was_taken(pod: Obj) -> bool:
    """Compare the container's end with the disruption, in whole seconds by the cluster's clocks, for ends that we did
    not see live. The deletion time does not help: kubelet overwrites it at the end.
    """
    taken = [str(state.get("lastTransitionTime") or "") for state in _conditions(pod) if _is_disruption(state)]
    ended = [
        str((container.get("state", {}).get("terminated") or {}).get("finishedAt") or "")
        for container in _containers(pod)
    ]
    if not taken or not ended or "" in (*taken, *ended):
        return False
    return max(map(datetime.fromisoformat, ended)) < min(map(datetime.fromisoformat, taken))


def _phase_of(ending: str) -> SeenPhase:
    return "lost" if ending == "lost" else "failed" if ending == "failed" else "stopped"


def _never_will(job: Obj, pods: Sequence[Obj]) -> bool:
    """True if the Job is suspended with parallelism 0, or deleted, and has no active pod: none will be created."""
    spec, meta = job["spec"], job["metadata"]
    stands_still = spec.get("suspend") and not spec.get("parallelism", 1)
    return bool(stands_still or meta.get("deletionTimestamp")) and not any(is_active(pod) for pod in pods)


def _alive(pods: Sequence[Obj], node_names: Iterable[str] | None) -> bool:
    """True if any pod is active on a node that exists. Pods of a lost node are lost."""
    nodes = None if node_names is None else set(node_names)
    return any(is_active(pod) and (nodes is None or node_of(pod) in nodes) for pod in pods)


def _failed(job: Obj, failed: Obj, pods: Sequence[Obj], began: bool) -> End:
    reason, message = str(failed.get("reason", "")), str(failed.get("message", ""))
    if reason == "DeadlineExceeded" and is_own_deadline(job):
        return End("failed", OWN_DEADLINE, began=began)
    if reason == "DeadlineExceeded":
        return End("stopped", "its deadline passed", began=began)
    suspects = sorted(pods, key=_age)[-1:] if job["spec"].get("restarts") else pods
    for pod in () if is_batch(job) else suspects:
        if taken := taken_away(pod):
            return End("lost", taken, began=began, node=node_of(pod) if is_rejected(pod) else "")
    if "DisruptionTarget" in message or "FailJob rule at index 0" in message:
        return End("lost", message or "its capacity was taken away", began=began)
    for pod in pods:
        if _phase(pod) == "Failed" and not taken_away(pod):
            return End("failed", words_of(pod), began=began)
    return End("failed", message or reason or "the Job failed", began=began)


def unreplaced(job: Obj, pods: Sequence[Obj]) -> str:
    """Why a pod of a Job without a pod failure policy was disrupted; empty if none was, or if the cluster has replaced
    it already, as it does while no Penstock runs.
    """
    active = [pod for pod in pods if is_active(pod) and not taken_away(pod)]
    taken = [why for pod in pods if (why := taken_away(pod))]
    ends_it = job["spec"].get("restarts") and not is_batch(job)
    return taken[-1] if ends_it and taken and len(active) < _wanted(job) else ""


def is_stalled(pods: Sequence[Obj]) -> bool:
    """True if none of them runs, and the scheduler has found no node for one: a replacement that finds no room."""
    waits = [pod for pod in pods if is_active(pod)]
    return bool(waits) and not any(map(has_run, waits)) and any(map(_has_no_node, waits))


def _has_no_node(pod: Obj) -> bool:
    return any(state["type"] == "PodScheduled" and state["status"] == "False" for state in _conditions(pod))


def is_batch(job: Obj) -> bool:
    """True if the cluster replaces a lost pod, and the others go on."""
    return bool(annotation_of(job, annotations.REPLACES_PODS))


def _age(pod: Obj) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"].get("name", ""))


def is_own_deadline(job: Obj) -> bool:
    """True if the user's own `activeDeadlineSeconds` was on the Job, and not our lease's end: the lesser of them is."""
    own, written = own_deadline(job), job["spec"].get("activeDeadlineSeconds")
    return own is not None and written is not None and int(written) >= own


def own_deadline(job: Obj) -> int | None:
    """Seconds of its run time that the user allows this attempt; None: any."""
    text = annotation_of(job, annotations.OWN_DEADLINE)
    return int(text) if text else None


def failed_by_itself(pod: Obj) -> bool:
    """True if its program failed, and nobody had told the pod to end."""
    return _phase(pod) == "Failed" and "deletionTimestamp" not in pod["metadata"] and not taken_away(pod)


def taken_away(pod: Obj) -> str:
    """Why the pod was disrupted; empty if it was not."""
    for state in filter(_is_disruption, _conditions(pod)):
        return f"{state.get('reason', 'disrupted')}: {state.get('message', '')}".rstrip(": ")
    status = pod.get("status", {})
    reason = str(status.get("reason", ""))
    if reason in TAKEN or is_rejected(pod):
        return f"{reason}: {status.get('message', '')}".rstrip(": ")
    return ""


def is_rejected(pod: Obj) -> bool:
    """True if its node's kubelet did not take it, so that it never ran."""
    return bool(NOT_TAKEN.fullmatch(str(pod.get("status", {}).get("reason", ""))))


def words_of(pod: Obj) -> str:
    """How its program ended, as text."""
    for container in _containers(pod):
        if ended := (container.get("state") or {}).get("terminated"):
            code, reason = int(ended.get("exitCode", 0)), str(ended.get("reason", ""))
            if reason == "OOMKilled":
                return f"out of memory: it used more than its limit (OOMKilled, exit code {code})"
            if reason in ("ContainerCannotRun", "StartError"):
                return f"the command could not be started: {ended.get('message', reason)}"
            if code:
                return f"exit code {code}"
    status = pod.get("status", {})
    return str(status.get("message") or status.get("reason") or "a pod failed")


def has_begun(job: Obj, pods: Sequence[Obj]) -> bool:
    """True once all pods ran at the same time, or any of them ended by itself."""
    if condition(job, "Complete") or all_ready(job) or any(has_run(pod) and not is_active(pod) for pod in pods):
        return True
    return bool(pods) and _wanted(job) > 0 and sum(is_active(pod) and has_run(pod) for pod in pods) >= _wanted(job)


def all_ready(job: Obj) -> bool:
    """By the Job's own count; our watch of pods may be behind."""
    return 0 < _wanted(job) <= int((job.get("status") or {}).get("ready") or 0)


def _wanted(job: Obj) -> int:
    """Pods that should run now."""
    at_once, completions = pods_at_once(job["spec"]), job["spec"].get("completions")
    return min(at_once, (at_once if completions is None else int(completions)) - _succeeded(job))


def _succeeded(job: Obj) -> int:
    """By the Job's own count, which leaves out pods that its deadline ended."""
    return int((job.get("status") or {}).get("succeeded") or 0)


def trouble_of(job: Obj, pods: Sequence[Obj]) -> Trouble | None:
    """What keeps it from running, if anything. A Job that Kueue holds back is queued, not in trouble."""
    if job["spec"].get("suspend"):
        return None
    return next((trouble for pod in pods if (trouble := _trouble(pod))), None)


def _trouble(pod: Obj) -> Trouble | None:
    node = node_of(pod)
    if _phase(pod) == "Failed":
        return Trouble("place", taken_away(pod), node) if is_rejected(pod) else None
    for state in _conditions(pod):
        if state["type"] == "PodScheduled" and state["status"] == "False":
            return _unscheduled(str(state.get("reason", "")), str(state.get("message", "")))
    for reason, message in _waits(pod):
        if trouble := _waiting(reason, message, node):
            return trouble
    return None


def _unscheduled(reason: str, message: str) -> Trouble:
    if reason == "SchedulingGated":
        return Trouble("missing", f"its scheduling gates are closed: {message}")
    return Trouble("missing" if NO_CLAIM.search(message) else "room", f"no node for it: {message or reason}")


def is_short_of(words: str, resource: str) -> bool:
    """True if the scheduler says that nodes have too little of it. The whole word counts: the names of other resources
    begin like `nvidia.com/gpu`.
    """
    return re.search(rf"Insufficient {re.escape(resource)}(?![\w/-]|\.\w)", words) is not None


def is_being_created(pod: Obj) -> bool:
    """True if its containers are not there yet, though it has a node, or though a scheduler did not refuse it. Only its
    Events say what is in the way.
    """
    started = any((container.get("state") or {}).keys() - {"waiting"} for container in _all_containers(pod))
    waits = all(reason in CREATING for reason, _ in _waits(pod))
    return _phase(pod) == "Pending" and (bool(node_of(pod)) or is_unnoticed(pod)) and waits and not started


def is_unnoticed(pod: Obj) -> bool:
    """True if no scheduler has looked at it."""
    conditions = [state["type"] for state in _conditions(pod)]
    return _phase(pod) == "Pending" and not node_of(pod) and "PodScheduled" not in conditions


def _waits(pod: Obj) -> list[tuple[str, str]]:
    """Reason and message of each container that waits, those that run first included."""
    waiting = [(container.get("state") or {}).get("waiting") for container in _all_containers(pod)]
    return [(str(waits.get("reason", "")), str(waits.get("message", ""))) for waits in waiting if waits]


def _all_containers(pod: Obj) -> list[Obj]:
    return [*(pod.get("status", {}).get("initContainerStatuses") or ()), *_containers(pod)]


def _waiting(reason: str, message: str, node: str) -> Trouble | None:
    if reason == "InvalidImageName":
        return Trouble("user", f"the image's name cannot be used: {message}")
    if reason in IMAGE:
        missing = NO_SUCH_IMAGE.search(message)
        return Trouble("user" if missing else "image", f"the image cannot be fetched: {message or reason}", node)
    if reason == NOT_CONFIGURED:
        return Trouble("missing", message or reason)
    return Trouble("place", f"{reason}: {message}", node) if reason in CANNOT_BEGIN else None


# --- small ones ------------------------------------------------------------------------------------------------------


def annotation_of(job: Obj, name: str) -> str:
    """One of our annotations; empty if it is not set."""
    return str((job["metadata"].get("annotations") or {}).get(name, ""))


def condition(obj: Obj, kind: str) -> Obj | None:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((shown for shown in conditions if shown["type"] == kind and shown["status"] == "True"), None)


def is_active(pod: Obj) -> bool:
    """True if it runs, will run, or is terminating and may still run."""
    return _phase(pod) not in ("Succeeded", "Failed")


def has_succeeded(pod: Obj) -> bool:
    return _phase(pod) == "Succeeded"


def is_ready(pod: Obj) -> bool:
    """As the Job controller counts: ready, and nobody has told it to end."""
    ready = any(state["type"] == "Ready" and state["status"] == "True" for state in _conditions(pod))
    return ready and is_active(pod) and "deletionTimestamp" not in pod["metadata"]


def node_of(pod: Obj) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def began_at(pod: Obj) -> datetime | None:
    """When its program started, by the node's clock, in whole seconds."""
    for container in _containers(pod):
        for state in (container.get("state") or {}).values():
            if text := state.get("startedAt"):
                return datetime.fromisoformat(text)
    return None


def has_run(pod: Obj) -> bool:
    return _phase(pod) in ("Running", "Succeeded") or began_at(pod) is not None


def _is_disruption(condition: Obj) -> bool:
    return bool(condition["type"] == "DisruptionTarget" and condition["status"] == "True")


def _conditions(pod: Obj) -> list[Obj]:
    return list(pod.get("status", {}).get("conditions") or ())


def _phase(pod: Obj) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _containers(pod: Obj) -> list[Obj]:
    return list(pod.get("status", {}).get("containerStatuses") or ())
