"""Names of Kueue's API that we use: kinds, labels, and our own AdmissionCheck. `front/kueue`, `doctor` and the
manifests use them.
"""

from typing import Final

from penstock.kube.client import Kind

API: Final = "kueue.x-k8s.io/v1beta2"
WORKLOADS: Final = Kind("Workload", "workloads", API)
ADMISSION_CHECKS: Final = Kind("AdmissionCheck", "admissionchecks", API, namespaced=False)
CLUSTER_QUEUES: Final = Kind("ClusterQueue", "clusterqueues", API, namespaced=False)
MULTIKUEUE_CONFIGS: Final = Kind("MultiKueueConfig", "multikueueconfigs", API, namespaced=False)
CONTROLLER: Final = "penstock.dev/budget"  #: `controllerName` of our AdmissionCheck
DISPATCHER: Final = "penstock.dev/dispatcher"  #: `multiKueue.dispatcherName` in Kueue's configuration
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"  #: `controllerName` of MultiKueue's own check
ADMISSION_MANAGER: Final = "kueue-admission"  #: the field manager by which Kueue applies a Workload's admission
MAX_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"  #: label of a Workload's owner; Kueue compares it
#: Kinds that may own a governed Workload: API group and version, kind. Each has a label that bounds its time.
OWNER_KINDS: Final = (
    ("batch/v1", "Job"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v1", "TFJob"),
    ("kubeflow.org/v1", "XGBoostJob"),
    ("kubeflow.org/v1", "PaddleJob"),
    ("kubeflow.org/v1", "JAXJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("ray.io/v1", "RayJob"),
    ("ray.io/v1", "RayCluster"),
)


def owner_kind(api: str, name: str) -> Kind | None:
    """None: we cannot bound its time."""
    return Kind(name, f"{name.lower()}s", api) if (api, name) in OWNER_KINDS else None


def owner_resources() -> dict[str, list[str]]:
    """The same kinds as RBAC names them: resources by API group."""
    resources_by_group: dict[str, list[str]] = {}
    for api, name in OWNER_KINDS:
        resources_by_group.setdefault(api.rpartition("/")[0], []).append(f"{name.lower()}s")
    return resources_by_group
