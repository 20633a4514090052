"""What a home Job asks for, as the core's values. No cluster is needed."""

import json
from typing import Any

import pytest

from penstock.core.model.types import GpuChoice, Origin
from penstock.core.units import HOUR, MINUTE
from penstock.front.home_cluster import too_old
from penstock.front.job_spec import Unfit, read
from penstock.kube import annotations
from tests.front.kit import home_job

NOW = 1_800_000_000_000
Json = dict[str, Any]


def job(**more: Any) -> Json:
    made = home_job("train", **more)
    made["metadata"] |= {"namespace": "vision", "uid": "u-1"}
    return made


def test_annotations_are_read_as_job_files_are() -> None:
    job_annotations = {
        "run-time": "6h", "checkpoint-every": "15m", "deadline": "8h", "data": "scans, labels",
        "data-class": "personal", "class": "critical", "priority": "7", "project": "p1", "cap": "12.50",
        "interruptible": "false", "lease-max": "30m",
    }  # fmt: skip
    spec = read(job(annotations=job_annotations), "lab", NOW).spec
    assert (spec.gpus, spec.team, spec.name, spec.home) == (8, "vision", "vision/train", "lab")
    assert (spec.expected_run_ms, spec.checkpoint_every_ms) == (6 * HOUR, 15 * MINUTE)
    assert spec.deadline_at == NOW + 8 * HOUR
    assert (spec.data, spec.data_class, spec.job_class) == (("scans", "labels"), "personal", "critical")
    assert (spec.priority, spec.project, spec.cap, spec.interruptible) == (7, "p1", 12_500_000, False)
    assert spec.lease_max_ms == 30 * MINUTE


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2200-01-01T00:00:00Z"])
def test_a_deadline_that_nobody_can_show_is_refused(deadline: str) -> None:
    with pytest.raises(Unfit, match="not between 1971 and 2199"):
        read(job(annotations={"deadline": deadline}), "lab", NOW)


def test_a_deadline_may_be_an_instant() -> None:
    spec = read(job(annotations={"deadline": "2027-01-15T10:00:00+02:00"}), "lab", NOW).spec
    assert spec.deadline_at == 1_800_000_000_000
    with pytest.raises(Unfit, match="an instant like"):
        read(job(annotations={"deadline": "2027-01-15T10:00:00"}), "lab", NOW)  # of which time zone?


def test_a_gang_asks_for_the_gpus_of_all_its_pods() -> None:
    assert read(job(gpus=4, spec={"parallelism": 3, "completions": 3}), "lab", NOW).spec.gpus == 12
    assert read(job(gpus=4, spec={"parallelism": 8, "completions": 2}), "lab", NOW).spec.gpus == 8


def test_gpu_models_are_as_annotated_or_as_the_operators_label_says() -> None:
    labelled = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
    known = ["A100", "H100", "A100-SXM4-80GB"]
    spec = read(job(pod=labelled), "lab", NOW, known).spec
    assert spec.gpu_models == (GpuChoice("A100"), GpuChoice("A100-SXM4-80GB"))
    spec = read(job(pod=labelled, annotations={"gpu": "H100"}), "lab", NOW, known).spec
    assert spec.gpu_models == (GpuChoice("H100"),)
    assert read(job(pod=labelled), "lab", NOW, ["H100"]).spec.gpu_models == (GpuChoice("NVIDIA-A100-SXM4-80GB"),)


def test_slices_are_a_kind_of_their_own() -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 2}}}
    spec = read(job(pod={"containers": [container]}), "lab", NOW).spec
    assert (spec.gpus, spec.mig_profile) == (2, "1g.10gb")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (job(spec={"managedBy": None}), "NotManaged"),
        (job(spec={"managedBy": "kueue.x-k8s.io/multikueue"}), "NotManaged"),
        (job(team=""), "NoTeam"),
        (job(gpus=0), "NoGPUs"),
        (job(spec={"parallelism": 0}), "NoPods"),
        (job(spec={"parallelism": 999_999_999}), "TooManyGPUs"),
        (job(annotations={"priority": "very"}), "NotUnderstood"),
        (job(annotations={"data": "a b"}), "NotUnderstood"),
        (job(annotations={"cap": "-1"}), "NotUnderstood"),
        (job(annotations={"class": "<b>"}), "NotUnderstood"),
    ],
)
def test_what_cannot_be_taken_says_what_to_do(made: Json, reason: str) -> None:
    with pytest.raises(Unfit) as unfit:
        read(made, "lab", NOW)
    assert unfit.value.reason == reason
    assert str(unfit.value).endswith(".")


CLAIM: Json = {"name": "gpu", "resourceClaimTemplateName": "single-gpu"}


def asking(claims: list[Json], **limits: Any) -> Json:
    container = {"name": "c", "image": "x", "resources": {"limits": limits, "claims": [{"name": "gpu"}]}}
    return job(pod={"containers": [container], "resourceClaims": claims})


def test_a_claim_is_no_lack_of_gpus_and_is_told_as_what_it_is() -> None:
    """A Job that asks for its GPUs by DRA was told "It asks for no GPUs", which is not true."""
    with pytest.raises(Unfit) as unfit:
        read(asking([CLAIM]), "lab", NOW)
    assert unfit.value.reason == "ClaimedGPUs"
    assert str(unfit.value).startswith("It asks for GPUs by a claim (gpu); Penstock does not place these yet.")
    with pytest.raises(Unfit, match="by a claim \\(c0, c1, c2 and 37 more\\)"):
        read(asking([{"name": f"c{number}"} for number in range(40)]), "lab", NOW)


def test_a_claim_beside_whole_gpus_keeps_the_job_in_its_cluster_and_is_counted_by_its_gpus() -> None:
    spec = read(asking([CLAIM], **{"nvidia.com/gpu": 2}), "lab", NOW).spec
    assert spec.gpus == 2
    assert any("resource claim gpu" in need for need in spec.needs)


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu.shared": 1}, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}], ids=str
)
def test_a_part_of_a_gpu_is_never_counted_as_a_whole_one(limits: Json) -> None:
    """Money would be held for 8 GPUs that eight Jobs share, and its offer was closed when it found no room."""
    container = {"name": "c", "image": "x", "resources": {"limits": limits}}
    with pytest.raises(Unfit) as unfit:
        read(job(pod={"containers": [container]}), "lab", NOW)
    assert unfit.value.reason == "PartOfGPU"
    assert next(name for name in limits if name != "nvidia.com/gpu") in str(unfit.value)


def test_what_runs_is_the_job_as_it_was_applied_with_its_home_on_it() -> None:
    made = job()
    made["metadata"] |= {"resourceVersion": "7", "managedFields": [{}], "finalizers": ["x"]}
    work = json.loads(read(made, "lab", NOW).work.manifest)
    assert work["metadata"] == {
        "name": "train",
        "namespace": "vision",
        "uid": "u-1",
        "labels": {"penstock.dev/queue": "vision"},
        "annotations": {annotations.HOME: "lab"},
    }
    assert work["spec"] == made["spec"]


def test_a_job_has_a_user_and_an_origin_of_its_own() -> None:
    spec = read(job(), "lab", NOW, user="user-12ab").spec
    assert (spec.user, spec.origin, spec.home) == ("user-12ab", Origin("lab", "u-1"), "lab")
    assert read(job(), "lab", NOW).spec.user == "vision"  # its team's, where nobody knows who applied it


def test_the_name_of_whoever_applied_it_is_not_part_of_what_runs() -> None:
    work = read(job(annotations={"user": "ada@example.com", "project": "p1"}), "lab", NOW).work
    assert "ada@example.com" not in work.manifest
    assert json.loads(work.manifest)["metadata"]["annotations"] == {annotations.HOME: "lab", annotations.PROJECT: "p1"}


def test_config_maps_travel_along_and_a_missing_one_keeps_it_home() -> None:
    carried = {"kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"lr": "0.1"}}
    wish = read(job(), "lab", NOW, carried=[carried], unread=["config map secret-settings"])
    assert [item["kind"] for item in json.loads(wish.work.manifest)["items"]] == ["Job", "ConfigMap"]
    assert wish.spec.needs[-1] == "the missing config map secret-settings"


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("v1.31.4-eks-1", True),
        ("v1.29.0", True),
        ("v1.32.0", False),
        ("v1.35.8", False),
        ("2.0", False),
        ("dev", False),
    ],
)
def test_a_cluster_that_is_too_old_for_home_jobs_is_known_by_its_version(version: str, old: bool) -> None:
    assert too_old(version) == old


def test_a_job_of_very_many_parts_is_refused_before_it_is_read() -> None:
    """A cluster takes Jobs of more than a megabyte; reading one took 160 ms, in which nobody was answered."""
    env = [{"name": f"V{k}", "value": "x"} for k in range(40_000)]
    for job in (home_job("a", pod={"volumes": env}), home_job("a", annotations={f"a{k}": "b" for k in range(20_000)})):
        with pytest.raises(Unfit) as unfit:
            read(job, "lab", 0)
        assert (unfit.value.reason, "more than 10,000 fields" in str(unfit.value)) == ("TooLarge", True)
