"""What people apply: a Job, and training kinds by their real definitions. Each asks for eight GPUs, or as said."""

from typing import Any, Final

from tests.front.kit import DELAY

Json = dict[str, Any]
RUNTIME: Final = "torch-of-tests"


def batch_job(name: str, queue: str, seconds: int, **annotations: str) -> Json:
    template = _template(8, seconds, restartPolicy="Never")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _named(name, queue, annotations),
        "spec": {"suspend": True, "template": template},
    }


def pytorch_job(name: str, queue: str, seconds: int, gpus: int = 8, **annotations: str) -> Json:
    """Two pods."""
    template = _template(gpus // 2, seconds, "pytorch")  # its operator wants a container of this name
    replicas = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _named(name, queue, annotations),
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def train_job(name: str, queue: str, seconds: int, gpus: int = 8, **annotations: str) -> Json:
    """Two nodes of a runtime, which says how they look and how long they run."""
    trainer = {"numNodes": 2, "image": "none", "resourcesPerNode": {"limits": {"nvidia.com/gpu": str(gpus // 2)}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _named(name, queue, annotations),
        "spec": {"runtimeRef": {"name": f"{RUNTIME}-{seconds}"}, "trainer": trainer},
    }


def runtime(seconds: int) -> Json:
    """Kueue reads it to know a TrainJob's pods: in the manager and in each worker."""
    node = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job = {"name": "node", "template": {"metadata": node, "spec": {"template": _template(0, seconds, "node")}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": f"{RUNTIME}-{seconds}", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def ray_job(name: str, queue: str, seconds: int, gpus: int = 8, **annotations: str) -> Json:
    """A head and a submitter without GPUs, and two workers."""
    workers = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
    head = {"rayStartParams": {}, "template": _template(0, 3600, "ray-head")}
    cluster = {
        "headGroupSpec": head,
        "workerGroupSpecs": [workers | {"template": _template(gpus // 2, 3600, "ray-worker")}],
    }
    spec = {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    spec["submitterPodTemplate"] = _template(0, seconds, "ray-job-submitter", restartPolicy="Never")
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": _named(name, queue, annotations), "spec": spec}


def _template(gpus: int, seconds: int, container: str = "a", **spec: str) -> Json:
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    pod = {"containers": [{"name": container, "image": "none", "resources": limits}], **spec}
    return {"metadata": {"annotations": {DELAY: f"{seconds}s"}}, "spec": pod}


def _named(name: str, queue: str, annotations: dict[str, str]) -> Json:
    marks = {f"penstock.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}, "annotations": marks}
