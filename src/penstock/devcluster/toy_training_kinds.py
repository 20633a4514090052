"""How PyTorchJobs, TrainJobs and RayJobs are played: which pods each wants, and what its operator writes of them. Pure;
`toy_trainer` asks.

Each function reads an object as its real definition allows it. What only matters to programs in the pods is left out:
Services, environment, Ray's head that starts a program. A RayJob's submitter is a pod, as its operator's is a Job.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from penstock.core.values import value
from penstock.kube.client import Kind, Obj

MANAGED_BY: Final = "kueue.x-k8s.io/multikueue"  #: such an object is played at its worker, not here
PYTORCH_JOBS: Final = Kind("PyTorchJob", "pytorchjobs", "kubeflow.org/v1")
TRAIN_JOBS: Final = Kind("TrainJob", "trainjobs", "trainer.kubeflow.org/v1alpha1")
RUNTIMES: Final = Kind("ClusterTrainingRuntime", "clustertrainingruntimes", TRAIN_JOBS.api, namespaced=False)
RAY_JOBS: Final = Kind("RayJob", "rayjobs", "ray.io/v1")
SUBMITTER: Final = "submitter"
Pods = Sequence[Obj]


@value
class WantedPod:
    name: str  # after the object's own, and a dash
    template: Obj


@value
class TrainingKind:
    kind: Kind
    policy: Callable[[Obj], Obj]  #: the part of the object that says `suspend` and `managedBy`
    pods: Callable[[Obj, Obj], list[WantedPod]]  #: of an object, and of the runtime that it names
    status: Callable[[Obj, Pods, int], Obj]  #: of an object, its pods, and how many it wants
    is_over: Callable[[Obj], bool]  #: by its status


def is_elsewhere(kind: TrainingKind, job: Obj) -> bool:
    return kind.policy(job).get("managedBy") == MANAGED_BY


def _counts(pods: Pods) -> dict[str, int]:
    phases = [pod["status"].get("phase", "Pending") for pod in pods]
    return {phase: phases.count(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")}


def _condition(kind: str, holds: bool) -> Obj:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    word = "True" if holds else "False"
    return {"type": kind, "status": word, "reason": "Played", "message": "", "lastTransitionTime": now}


def _says(job: Obj, *kinds: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(row["type"] in kinds and row["status"] == "True" for row in conditions)


# --- PyTorchJob -------------------------------------------------------------------------------------------------------


def _pytorch_pods(job: Obj, _: Obj) -> list[WantedPod]:
    return [
        WantedPod(f"{role.lower()}-{number}", row["template"])
        for role, row in job["spec"]["pytorchReplicaSpecs"].items()
        for number in range(int(row.get("replicas", 1)))
    ]


def _pytorch_status(job: Obj, pods: Pods, wanted: int) -> Obj:  # noqa: ARG001 - as the others
    counts = _counts(pods)
    done = 0 < wanted == counts["Succeeded"]
    replicas = {"active": counts["Pending"] + counts["Running"], "succeeded": counts["Succeeded"]}
    condition = _condition("Succeeded" if done else "Running", done or counts["Running"] > 0)
    return {"replicaStatuses": {"Worker": replicas}, "conditions": [condition]}


# --- TrainJob ---------------------------------------------------------------------------------------------------------


def _train_pods(job: Obj, runtime: Obj) -> list[WantedPod]:
    """Its trainer's nodes: by its runtime, with its own number of them, image and resources."""
    trainer = job["spec"].get("trainer") or {}
    nodes = trainer.get("numNodes") or ((runtime["spec"].get("mlPolicy") or {}).get("numNodes") or 1)
    (row,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    template = row["template"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    own = {"image": trainer.get("image"), "resources": trainer.get("resourcesPerNode")}
    container = container | {key: content for key, content in own.items() if content}
    template = {**template, "spec": {**template["spec"], "containers": [container]}}
    return [WantedPod(f"{row['name']}-0-{number}", template) for number in range(nodes)]


def _train_status(job: Obj, pods: Pods, wanted: int) -> Obj:
    """As its JobSet has it: one replica of one Job, which is active while one of its pods is."""
    counts = _counts(pods)
    done = 0 < wanted == counts["Succeeded"]
    suspended = bool(job["spec"].get("suspend"))
    going = bool(pods) and not done
    row = {"name": "node", "active": int(going), "ready": int(going and counts["Running"] == wanted), "failed": 0}
    row |= {"succeeded": int(done), "suspended": int(suspended and not pods)}
    conditions = [_condition("Suspended", suspended), *([_condition("Complete", True)] if done else [])]
    return {"jobsStatus": [row], "conditions": conditions}


# --- RayJob -----------------------------------------------------------------------------------------------------------


def _ray_pods(job: Obj, _: Obj) -> list[WantedPod]:
    """Head and workers; the submitter, whose end is the job's, once it is told what it looks like."""
    spec = job["spec"]["rayClusterSpec"]
    workers = [
        WantedPod(f"{group['groupName']}-{number}", group["template"])
        for group in spec.get("workerGroupSpecs") or ()
        for number in range(int(group.get("replicas", 1)) * int(group.get("numOfHosts", 1)))
    ]
    submitter = job["spec"].get("submitterPodTemplate")
    own = [WantedPod(SUBMITTER, submitter)] if submitter else []
    return [WantedPod("head", spec["headGroupSpec"]["template"]), *workers, *own]


def _ray_status(job: Obj, pods: Pods, wanted: int) -> Obj:  # noqa: ARG001 - as the others
    cluster = [pod for pod in pods if not pod["metadata"]["name"].endswith(f"-{SUBMITTER}")]
    submitted = [pod for pod in pods if pod["metadata"]["name"].endswith(f"-{SUBMITTER}")]
    ready = bool(cluster) and _counts(cluster)["Running"] == len(cluster)
    state = {"rayClusterStatus": {"state": "ready" if ready else ""}}
    if job["spec"].get("suspend"):
        return {"jobDeploymentStatus": "Suspending" if pods else "Suspended", "jobStatus": ""}
    if _counts(submitted)["Succeeded"]:
        return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "it was played to its end"}
    if ready:
        return {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", **state}
    return {"jobDeploymentStatus": "Initializing", "jobStatus": "", **state}


def _ray_is_over(job: Obj) -> bool:
    return (job.get("status") or {}).get("jobDeploymentStatus") in ("Complete", "Failed")


PLAYED: Final = (
    TrainingKind(
        PYTORCH_JOBS,
        lambda job: job["spec"].get("runPolicy") or {},
        _pytorch_pods,
        _pytorch_status,
        lambda job: _says(job, "Succeeded", "Failed"),
    ),
    TrainingKind(
        TRAIN_JOBS,
        lambda job: job["spec"],
        _train_pods,
        _train_status,
        lambda job: _says(job, "Complete", "Failed"),
    ),
    TrainingKind(RAY_JOBS, lambda job: job["spec"], _ray_pods, _ray_status, _ray_is_over),
)
