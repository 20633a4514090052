"""What a Workload asks for: by the same answer as every Job, over all of its pod sets."""

import json

import pytest

from penstock.core.model.types import GpuChoice, JobSpec, Origin
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.front.job_spec import Unfit
from penstock.front.kueue import workload as w
from penstock.front.kueue.workload_spec import KueueOrigin, read, reference_in
from tests.front.kueue.workloads import CONTROLLERS, OWNER, Json, owner, pods, workload

DOOR = KueueOrigin("lab", home="here")
KNOWN = ["A100", "H100"]
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def spec(*sets: Json, door: KueueOrigin = DOOR, of: Json | None = None, **more: object) -> JobSpec:
    return read(workload(*sets, **more), of or owner(), door, "vision", 0, KNOWN).spec


def test_gpus_of_all_pod_sets_count_and_the_namespaces_team_pays() -> None:
    made = spec(pods("master", 1, 8), pods("worker", 3, 8), pods("launcher", 1, 0))
    assert made == JobSpec(
        gpus=32,
        team="vision",
        user="vision",
        name="vision/train",
        home="here",
        needs=("the cluster of Kueue lab",),
        origin=Origin("lab", "u1"),
    )


def test_through_multikueue_it_needs_a_worker_and_has_no_home() -> None:
    there = workload(checks={"penstock": "Pending", "multikueue": "Pending"})
    assert w.dispatched_by(there, CONTROLLERS) == "multikueue"
    made = read(there, owner(), KueueOrigin("lab", "here", "multikueue"), "vision", 0).spec
    assert (made.home, made.needs) == ("", ("a worker of Kueue lab by multikueue",))


def test_labels_annotations_and_the_authors_own_bound_are_read_from_its_owner() -> None:
    job = owner(600, "speech", run_time="30m", checkpoint_every="5m", data_class="personal", priority="7")
    made = spec(pods(nodeSelector=H100), of=job)
    assert (made.team, made.expected_run_ms, made.checkpoint_every_ms) == ("speech", 30 * MINUTE, 5 * MINUTE)
    assert (made.data_class, made.priority, made.gpu_models) == ("personal", 7, (GpuChoice("H100"),))
    assert made.lease_max_ms == 632 * SECOND  # ten minutes, and what the gate leaves unused
    assert spec(of=owner(10**9)).lease_max_ms == JobSpec(1).lease_max_ms == 12 * HOUR


def test_kueue_may_have_quota_for_a_part_of_the_pods() -> None:
    there = workload(pods("worker", 8, 1))
    there["status"]["admission"] = {"podSetAssignments": [{"name": "worker", "count": 5}]}
    assert read(there, owner(), DOOR, "vision", 0).spec.gpus == 5


def test_what_the_driver_gets_names_the_workload_and_its_owner() -> None:
    work = read(workload(), owner(90), DOOR, "vision", 0).work
    assert json.loads(work.manifest) == {
        "workload": "pytorchjob-train-12345",
        "namespace": "vision",
        "owner": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u1"},
        "seconds": 90,
    }


def test_whose_a_workload_was_is_known_after_it_is_gone() -> None:
    there = workload()
    gone = reference_in(read(there, owner(), DOOR, "vision", 0).work)
    assert w.owner_of(gone) == OWNER
    assert w.origin_uid(gone) == w.origin_uid(there)
    assert gone["metadata"]["namespace"] == "vision"


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (workload(owner=OWNER | {"apiVersion": "v1", "kind": "Pod"}), "KindNotGoverned"),
        (workload(annotations={"kueue.x-k8s.io/elastic-job": "true"}), "Elastic"),
        (workload(pods(gpus=0)), "NoGPUs"),
        (workload(*[pods(str(k)) for k in range(19)]), "NotUnderstood"),
        (
            workload(pods(nodeSelector=H100), pods("b", nodeSelector={H100.copy().popitem()[0]: "Tesla-V100"})),
            "MixedGPUs",
        ),
        (workload(pods(count=10**6)), "TooManyGPUs"),
        (workload(pods(volumes=[{"name": str(k)} for k in range(10_001)])), "TooLarge"),
        (workload(pods(count="many")), "NotUnderstood"),
    ],
    ids=["a pod", "elastic", "no GPUs", "19 pod sets", "two models", "a million pods", "huge", "no number"],
)
def test_what_cannot_be_governed_is_refused_with_a_sentence(there: Json, reason: str) -> None:
    with pytest.raises(Unfit) as refused:
        read(there, owner(), DOOR, "vision", 0, KNOWN)
    assert refused.value.reason == reason
    assert str(refused.value).endswith(".")
