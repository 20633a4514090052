"""What a Job and its pods say of an attempt: does it run, why does it not, how did it end. Pure; the driver asks.

Three kinds of end, with three consequences. The user's own (an exit code, memory): the attempt failed, and a person
must look. Capacity that was taken away (an eviction, a lost node): it is lost, and goes on elsewhere. A place that
cannot run it (no room after all, an image that cannot be fetched from there): it never began, and goes elsewhere.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from penstock.core.values import value
from penstock.drivers.driver import SeenPhase
from penstock.kube import annotations
from penstock.kube.client import Obj
from penstock.kube.gpu_requests import pods_at_once

#: What a pod's status says when not its program but its place ended it.
TAKEN: Final = ("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity", "Killed")
#: What kubelet says when it will not take a pod that the scheduler gave it: there is less room than was thought.
NOT_TAKEN: Final = re.compile("UnexpectedAdmissionError|OutOf.*|InsufficientResourceError|TopologyAffinityError")
#: The image is not there, or not for us: no other place has it either.
NO_SUCH_IMAGE: Final = re.compile(
    "not found|manifest unknown|unauthorized|denied|403|401|does not exist", re.IGNORECASE
)
IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ErrImageNeverPull", "ImageInspectError")
TOLD: Final = "it was told to end before it was done"
CANNOT_BEGIN: Final = ("CreateContainerError", "CreateContainerConfigError", "RunContainerError", "CrashLoopBackOff")


@value
class End:
    phase: SeenPhase
    words: str
    began: bool = True
    node: str = ""  # the one that would not take it, if that was it


@value
class Trouble:
    """Why it does not run yet. It may pass; how long that may take is the driver's to say."""

    kind: Literal["room", "pods", "image", "place", "user"]
    words: str
    node: str = ""


def end_of(job: Obj, pods: Sequence[Obj], there: Iterable[str] | None, finished: bool = False) -> End | None:
    """None while it is not over. `pods`: those that succeeded as they were when they were first seen so; `there`: the
    names of all nodes, None if nobody knows; `finished`: it said that its last step is done."""
    ending, words = said(job, annotations.ENDING), said(job, annotations.WORDS)
    began = has_begun(job, pods)
    complete, failed = condition(job, "Complete"), condition(job, "Failed")
    if (complete or ending or failed) and _all_ended_well(job, pods):
        return End("done", "exit code 0")
    if complete:
        kept = "" if finished else next((taken_away(pod) or TOLD for pod in pods if _only_kept(pod)), "")
        return End(_phase_of(ending or "lost"), words or kept) if kept else End("done", "exit code 0")
    if failed and not ending and not pods and _succeeded(job) >= _completions(job):
        return End("done", "exit code 0")  # they are gone, and nobody knows better than their cluster, which counted
    if ending == "lost" and not _alive(pods, there):
        return End("lost", words)
    if ending and _never_will(job, pods):
        return End(_phase_of(ending), words, began=began)
    if not failed:
        return None
    if finished and pods and all(has_succeeded(pod) for pod in pods):
        return End("done", "exit code 0")
    if ending:
        return End(_phase_of(ending), words, began=began)
    return _failed(failed, pods, began)


def _all_ended_well(job: Obj, pods: Sequence[Obj]) -> bool:
    """A cluster takes a second to see that, and may see first that the Job's deadline passed or its node went."""
    return sum(has_succeeded(pod) and not _only_kept(pod) for pod in pods) >= _completions(job)


def _completions(job: Obj) -> int:
    return max(1, int(job["spec"].get("completions") or job["spec"].get("parallelism") or 1))


def _only_kept(pod: Obj) -> bool:
    """Told to end, it saved its work and said that all is well. To its cluster that is a success like any other; to us
    it is not done."""
    is_told = "deletionTimestamp" in (pod.get("metadata") or {})
    return has_succeeded(pod) and is_told and not _ended_before_it_was_taken(pod)


def _ended_before_it_was_taken(pod: Obj) -> bool:
    """By the clocks of its node and its cluster, in whole seconds: for whoever was not there to see it. When it was
    deleted cannot be asked, for its kubelet sets that anew in the end."""
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
    """Suspended with nothing to run, or deleted by somebody: no pod of it lives, and none will be made."""
    spec, meta = job["spec"], job["metadata"]
    stands_still = spec.get("suspend") and not spec.get("parallelism", 1)
    return bool(stands_still or meta.get("deletionTimestamp")) and not any(is_active(pod) for pod in pods)


def _alive(pods: Sequence[Obj], there: Iterable[str] | None) -> bool:
    """Does any pod of it still run on a node that is there? What ran on one that is gone is gone with it."""
    nodes = None if there is None else set(there)
    return any(is_active(pod) and (nodes is None or node_of(pod) in nodes) for pod in pods)


def _failed(failed: Obj, pods: Sequence[Obj], began: bool) -> End:
    reason, message = str(failed.get("reason", "")), str(failed.get("message", ""))
    if reason == "DeadlineExceeded":
        return End("stopped", "its deadline passed", began=began)
    for pod in pods:
        if taken := taken_away(pod):
            return End("lost", taken, began=began, node=node_of(pod) if _not_taken(pod) else "")
    if "DisruptionTarget" in message or "FailJob rule at index 0" in message:
        return End("lost", message or "its capacity was taken away", began=began)
    for pod in pods:
        if _phase(pod) == "Failed":
            return End("failed", words_of(pod), began=began)
    return End("failed", message or reason or "the Job failed", began=began)


def taken_away(pod: Obj) -> str:
    """Why its capacity was taken from under it, or nothing."""
    for state in filter(_is_disruption, _conditions(pod)):
        return f"{state.get('reason', 'disrupted')}: {state.get('message', '')}".rstrip(": ")
    status = pod.get("status", {})
    reason = str(status.get("reason", ""))
    if reason in TAKEN or _not_taken(pod):
        return f"{reason}: {status.get('message', '')}".rstrip(": ")
    return ""


def _not_taken(pod: Obj) -> bool:
    return bool(NOT_TAKEN.fullmatch(str(pod.get("status", {}).get("reason", ""))))


def words_of(pod: Obj) -> str:
    """How its program ended, for a person."""
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
    """Did all of it run at once, or has any part of it ended of itself?"""
    if condition(job, "Complete") or all_ready(job) or any(_ran(pod) and not is_active(pod) for pod in pods):
        return True
    return bool(pods) and _wanted(job) > 0 and sum(is_active(pod) and _ran(pod) for pod in pods) >= _wanted(job)


def all_ready(job: Obj) -> bool:
    """By the cluster's own count, which a watch of the pods may be behind."""
    return 0 < _wanted(job) <= int((job.get("status") or {}).get("ready") or 0)


def _wanted(job: Obj) -> int:
    return pods_at_once(job["spec"]) - _succeeded(job)


def _succeeded(job: Obj) -> int:
    """By the cluster's own count, which does not count what the Job's deadline ended."""
    return int((job.get("status") or {}).get("succeeded") or 0)


def trouble_of(job: Obj, pods: Sequence[Obj]) -> Trouble | None:
    """What keeps it from running, if anything does. A Job that Kueue holds back waits its turn: that is no trouble."""
    if job["spec"].get("suspend"):
        return None
    return next((found for pod in pods if (found := _trouble(pod))), None)


def _trouble(pod: Obj) -> Trouble | None:
    node = node_of(pod)
    if _phase(pod) == "Failed":
        return Trouble("place", taken_away(pod), node) if _not_taken(pod) else None
    for state in _conditions(pod):
        if state["type"] == "PodScheduled" and state["status"] == "False" and state.get("reason") == "Unschedulable":
            return Trouble("room", f"no node for it: {state.get('message', '')}")
    for container in _containers(pod):
        if waits := (container.get("state") or {}).get("waiting"):
            return _waiting(str(waits.get("reason", "")), str(waits.get("message", "")), node)
    return None


def _waiting(reason: str, message: str, node: str) -> Trouble | None:
    if reason == "InvalidImageName":
        return Trouble("user", f"the image's name cannot be used: {message}")
    if reason in IMAGE:
        there = NO_SUCH_IMAGE.search(message)
        return Trouble("user" if there else "image", f"the image cannot be fetched: {message or reason}", node)
    return Trouble("place", f"{reason}: {message}", node) if reason in CANNOT_BEGIN else None


# --- small ones ------------------------------------------------------------------------------------------------------


def said(job: Obj, name: str) -> str:
    """An annotation of ours."""
    return str((job["metadata"].get("annotations") or {}).get(name, ""))


def condition(obj: Obj, kind: str) -> Obj | None:
    found = obj.get("status", {}).get("conditions") or ()
    return next((shown for shown in found if shown["type"] == kind and shown["status"] == "True"), None)


def is_active(pod: Obj) -> bool:
    """It runs or will, or is being ended and may still run."""
    return _phase(pod) not in ("Succeeded", "Failed")


def has_succeeded(pod: Obj) -> bool:
    return _phase(pod) == "Succeeded"


def node_of(pod: Obj) -> str:
    return str(pod.get("spec", {}).get("nodeName", ""))


def began_at(pod: Obj) -> datetime | None:
    """When its program began, by the node's clock, in whole seconds."""
    for container in _containers(pod):
        for state in (container.get("state") or {}).values():
            if text := state.get("startedAt"):
                return datetime.fromisoformat(text)
    return None


def _ran(pod: Obj) -> bool:
    return _phase(pod) in ("Running", "Succeeded") or began_at(pod) is not None


def _is_disruption(condition: Obj) -> bool:
    return bool(condition["type"] == "DisruptionTarget" and condition["status"] == "True")


def _conditions(pod: Obj) -> list[Obj]:
    return list(pod.get("status", {}).get("conditions") or ())


def _phase(pod: Obj) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _containers(pod: Obj) -> list[Obj]:
    return list(pod.get("status", {}).get("containerStatuses") or ())
