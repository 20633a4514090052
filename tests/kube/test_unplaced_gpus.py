"""The ways of asking for GPUs that are no whole GPUs and no MIG slices, by the names people publish them under."""

from typing import Any

import pytest

from penstock.kube.unplaced_gpus import claims, shares

Json = dict[str, Any]


def template(limits: Json | None = None, notes: Json | None = None, **pod: Any) -> Json:
    container = {"name": "main", "resources": {"limits": limits or {}}}
    return {"metadata": {"annotations": notes or {}}, "spec": {"containers": [container], **pod}}


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (template({"nvidia.com/gpu": "1"}), ()),
        (template({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-1g.10gb.me": 1}), ()),
        (template({"nvidia.com/gpu.shared": "0"}), ()),
        (template({"nvidia.com/gpu.shared": "1"}), ("nvidia.com/gpu.shared",)),
        (template({"nvidia.com/mig-1g.10gb.shared": 1}), ("nvidia.com/mig-1g.10gb.shared",)),
        (template({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}), ("nvidia.com/gpumem",)),
        (template({"volcano.sh/vgpu-number": 1}), ("volcano.sh/vgpu-number",)),
        (template(notes={"gpu-fraction": "0.5"}), ("gpu-fraction",)),
        (
            template({"nvidia.com/gpu": 1}, nodeSelector={"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}),
            ("cloud.google.com/gke-gpu-sharing-strategy",),
        ),
        (
            template({"nvidia.com/gpu": 1}, nodeSelector={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}),
            ("nvidia.com/gpu.product",),
        ),
    ],
)
def test_a_part_of_a_gpu_is_told_from_a_whole_one(made: Json, names: tuple[str, ...]) -> None:
    assert shares(made) == names


def test_a_claim_is_named_and_so_is_the_device_class_that_an_extended_resource_stands_for() -> None:
    made = template(
        {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1},
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "single-gpu"}],
    )
    assert claims(made) == ("gpu", "gpu.nvidia.com")
    assert claims(template({"nvidia.com/gpu": 1})) == ()
